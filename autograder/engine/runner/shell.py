"""Run the cells of a notebook and record their outputs as in a notebook file, without a kernel process.

`Shell()` is made once, in the warm parent, where it takes a quarter of a second; the forked workers share it. From its
first `run` on, a process owns file descriptors 0, 1 and 2: prints of child processes and C code are recorded like
Python's. IPython does the rest: magics, top-level await, tracebacks, figures.
"""

from __future__ import annotations

import ast
import base64
import builtins
import codecs
import contextlib
import ctypes
import fcntl
import getpass
import io
import json
import os
import select
import signal
import sys
import threading
import zlib
from collections.abc import Iterable
from types import CodeType
from typing import Any, NamedTuple, TextIO, cast

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from autograder.engine.data import Ran
from passlab.judge import OutOfTime, TimeLimit

#: Limits for one cell: characters of printed text and of everything displayed, and number of outputs.
MAX_TEXT = 50_000
MAX_RICH = 4 * 2**20
MAX_OUTPUTS = 900  # errors not counted

_ERRORS = 10
_FRAMES = 20  # of a deep traceback, at each end
_C = ctypes.CDLL(None)


def _clean(text: str) -> str:
    """Return a plain `str` without lone surrogates, which no UTF-8 file can hold."""
    return str.encode(text, "utf-8", "replace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    """Return the text, without its middle if it is too long."""
    if len(text) <= limit:
        return _clean(text)
    return _clean(f"{text[: limit // 2]}\n… {len(text) - limit:,} characters left out …\n{text[-(limit // 2) :]}")


def _bytes_as_base64(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} is not JSON")


class _Bundle(NamedTuple):
    """The part of a MIME bundle that a notebook file can hold, its size in characters, and the types left out."""

    data: dict[str, Any]
    size: int
    bad: list[str]


def _bundle(data: dict) -> _Bundle:
    kept, size, bad = {}, 0, []
    for kind, value in data.items():
        json_like = isinstance(kind, str) and (kind == "application/json" or kind.endswith("+json"))
        if not isinstance(kind, str) or not (json_like or isinstance(value, str | bytes)):
            bad.append(str(kind)[:80])
            continue
        try:
            # Strings, pictures above all, are measured before they are copied.
            heavy = isinstance(value, str | bytes) and len(value) > MAX_RICH
            text = "" if heavy else json.dumps(value, default=_bytes_as_base64, allow_nan=False, ensure_ascii=False)
            size += len(value) if heavy else len(text)
            if not heavy:
                kept[_clean(kind)] = json.loads(_clean(text))
        except (TypeError, ValueError, RecursionError):
            bad.append(kind[:80])
    return _Bundle(kept, size, bad)


class _Record:
    """The outputs of one cell, in order, in bounded memory however many there are."""

    def __init__(self):
        self.outputs: list[dict] = []
        self.displays: dict[str, list[dict]] = {}
        self.clear_at_next = False
        self.error = ""
        self._reset()

    def _reset(self):
        self.text_left, self.text_lost, self.rich_left, self.rich_lost = MAX_TEXT, 0, MAX_RICH, 0

    def clear(self, wait: bool) -> None:
        """Forget the outputs: now, or when the next one comes."""
        self.clear_at_next = wait
        if not wait:
            self.outputs.clear()
            self._reset()

    def _add(self, output: dict) -> None:
        if self.clear_at_next:
            self.clear(wait=False)
        self.outputs.append(output)

    def write(self, name: str, text: str) -> None:
        if self.clear_at_next:
            self.clear(wait=False)
        last = self.outputs[-1] if self.outputs else {}
        joins = last.get("name") == name
        kept = text[: self.text_left] if joins or len(self.outputs) < MAX_OUTPUTS else ""
        self.text_left -= len(kept)
        self.text_lost += len(text) - len(kept)
        if kept and joins:
            last["text"].append(kept)
        elif kept:
            self._add({"output_type": "stream", "name": name, "text": [kept]})

    def show(
        self, output_type: str, data: dict, metadata: Any, *, display_id: Any = None, update=False, **more
    ) -> None:
        """Record a display or a result, unless it is too large."""
        data, size, bad = _bundle(data)
        if bad:
            self.write("stderr", f"Not shown: {', '.join(bad)} does not hold what a notebook file can keep.\n")
        if self.rich_left < size or len(self.outputs) >= MAX_OUTPUTS:
            self.rich_lost += 1
            return
        if bad and not data:
            return
        self.rich_left -= size
        more_about = _bundle({"application/json": metadata or {}})
        metadata = more_about.data.get("application/json", {}) if more_about.size < 10_000 else {}
        display_id = str(display_id) if display_id is not None else None
        if update:
            for shown in self.displays.get(display_id, []):
                shown.update(data=data, metadata=metadata)
            return
        output = {"output_type": output_type, "data": data, "metadata": metadata, **more}
        self._add(output)
        if display_id is not None:
            self.displays.setdefault(display_id, []).append(output)

    def fail(self, ename: str, evalue: str, traceback: list[str]) -> None:
        """Record an error; the first ones are kept whatever else is shown."""
        if sum(output["output_type"] == "error" for output in self.outputs) < _ERRORS:
            if len(traceback) > 3 * _FRAMES:
                traceback = [*traceback[:_FRAMES], "…", *traceback[-_FRAMES:]]
            ename, evalue, lines = _cut(ename, 200), _cut(evalue, 10_000), [_cut(line, 5_000) for line in traceback]
            self.error = self.error or (f"{ename}: {evalue}" if evalue else ename)
            self._add({"output_type": "error", "ename": ename, "evalue": evalue, "traceback": lines})

    def ran(self) -> Ran:
        told = ""
        if self.text_lost:
            told += f"\n… {self.text_lost:,} more characters were printed; the first {MAX_TEXT:,} of a cell are kept.\n"
        if self.rich_lost:
            told += f"\n… More outputs ({self.rich_lost:,}) were left out: of a cell, {MAX_OUTPUTS} are kept, and "
            told += f"{MAX_RICH / 2**20:g} MiB.\n"
        # Copies: a thread started by the cell may still print into this record.
        outputs = [
            {**output, "text": _clean("".join(output["text"]))} if output["output_type"] == "stream" else dict(output)
            for output in list(self.outputs)
        ]
        if told:
            outputs.append({"output_type": "stream", "name": "stdout", "text": told})
        return Ran(outputs, self.error)


class _Pipe:
    """File descriptor 1 or 2, caught: whatever any code writes to it is read here."""

    def __init__(self, number: int):
        self.number, self.name = number, {1: "stdout", 2: "stderr"}[number]
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        with contextlib.suppress(OSError, AttributeError):  # large, so that a chatty C library seldom waits
            fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, 2**20)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.catch()

    def catch(self) -> None:
        """Point the descriptor here, again if a cell closed or moved it."""
        os.dup2(self.write, self.number)

    def drain(self, record: _Record) -> None:
        """Record what has been written. Ends even if a process writes faster than this reads."""
        for _ in range(64):
            try:
                chunk = os.read(self.read, 2**16)
            except OSError:  # empty, or closed by a cell
                return
            if not chunk:
                return
            record.write(self.name, self.decoder.decode(chunk))


class _Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of the cells."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, catcher: _Catcher, number: int):
        self.catcher, self.number, self.name = catcher, number, f"<{('stdout', 'stderr')[number - 1]}>"

    def writable(self):
        return True

    def fileno(self):
        return self.number

    def flush(self):
        """Do nothing: writes are not buffered, and a stream that a cell closed stays usable."""

    def close(self):
        """Stay open: later cells print too."""

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if os.getpid() != self.catcher.owner:  # a child that a cell forked
            data = memoryview(_clean(text).encode())
            while data:
                data = data[os.write(self.number, data) :]
        else:
            self.catcher.drain()
            self.catcher.record.write(("stdout", "stderr")[self.number - 1], str.__str__(text))
        return len(text)


class _Catcher:
    """Records everything a process prints while a cell runs, in order."""

    def __init__(self):
        self.owner = 0  # the process whose descriptors are caught
        self.record = _Record()
        self.pipes: tuple[_Pipe, ...] = ()
        self.waiting = select.poll()  # tells whether there is anything in the pipes
        self.lock = threading.Lock()
        self.streams = (_Stream(self, 1), _Stream(self, 2))

    def drain(self) -> None:
        """Record what waits in the pipes. The time limit may strike inside, so never wait for a lock that it left."""
        if self.lock.acquire(timeout=0.1):
            try:
                if self.waiting.poll(0):
                    for pipe in self.pipes:
                        pipe.drain(self.record)
            finally:
                self.lock.release()

    def enter(self) -> None:
        """Catch the descriptors of this process, if not yet caught; restore what a cell closed."""
        try:
            if self.owner != os.getpid():
                raise OSError("not yet in this process")
            for pipe in self.pipes:
                pipe.catch()
                os.fstat(pipe.read)
        except OSError:
            sys.stdin = open(os.devnull)  # noqa: SIM115  (as long as the process lives)
            os.dup2(sys.stdin.fileno(), 0)
            self.owner, self.lock = os.getpid(), threading.Lock()
            self.pipes, self.waiting = (_Pipe(1), _Pipe(2)), select.poll()
            for pipe in self.pipes:
                self.waiting.register(pipe.read, select.POLLIN)
            sys.stdout, sys.stderr = self.streams

    @contextlib.contextmanager
    def recording(self):
        """Record what this process prints from here on; yields the record.

        A thread keeps the pipes from filling up while the cell waits for a child process.
        """
        self.enter()
        self.record = record = _Record()
        awake, wake = os.pipe()
        thread = threading.Thread(target=self._keep_empty, args=(awake,), name="what the cell prints", daemon=True)
        thread.start()
        try:
            yield record
        finally:
            if self.owner == os.getpid():
                for stream in (sys.__stdout__, sys.__stderr__):
                    with contextlib.suppress(Exception):
                        cast(TextIO, stream).flush()
                _C.fflush(None)
                with contextlib.suppress(OSError):  # a cell may have closed whatever is open
                    os.close(wake)
                thread.join(1)
                self.drain()
                for pipe in self.pipes:  # an incomplete character at the end
                    record.write(pipe.name, pipe.decoder.decode(b"", final=True))
                    pipe.decoder.reset()
                with contextlib.suppress(OSError):
                    os.close(awake)

    def _keep_empty(self, awake: int) -> None:
        watched = [awake, *(pipe.read for pipe in self.pipes)]
        while True:
            try:
                ready = select.select(watched, [], [])[0]
            except (OSError, ValueError):  # a cell closed them
                return
            if awake in ready:
                return
            self.drain()


class _Displays(DisplayPublisher):
    """`display(…)`, figures, updates of displays, and `clear_output`."""

    def publish(self, data, metadata=None, *, transient=None, update=False, **_):  # type: ignore[override]
        self._validate_data(data, metadata)
        catcher = self.shell.catcher
        catcher.drain()
        display_id = (transient or {}).get("display_id")
        catcher.record.show("display_data", data, metadata, display_id=display_id, update=update)

    def clear_output(self, wait=False):
        catcher = self.shell.catcher
        catcher.drain()
        catcher.record.clear(wait)


class _Results(DisplayHook):
    """Records the value of a cell's last line."""

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        catcher = cast(Any, self.shell).catcher
        catcher.drain()
        catcher.record.show("execute_result", format_dict, md_dict, execution_count=self.prompt_count)

    def finish_displayhook(self):
        self._is_active = False


class _Compiler(CachingCompiler):
    """Names a cell's code as a kernel does: libraries tell by that name whether code comes from a notebook."""

    def get_code_name(self, raw_code, transformed_code, number):
        return f"/tmp/ipykernel_1/{zlib.crc32(raw_code.encode('utf-8', 'replace'))}.py"


class _Transformers(TransformerManager):
    """Turns each cell into Python once, for the processes that are forked later, too: tokenizing it takes longer than
    most cells run. Transformers that a cell adds make another key."""

    def __init__(self):
        super().__init__()
        self._known: dict[tuple, str] = {}

    def transform_cell(self, cell: str) -> str:
        key = (cell, *map(id, (*self.cleanup_transforms, *self.line_transforms, *self.token_transformers)))
        if key not in self._known:
            self._known[key] = super().transform_cell(cell)
        return self._known[key]


class ZMQInteractiveShell(InteractiveShell):
    """IPython without history file, settings, GUI and prompts. Libraries recognize a notebook by this class's name."""

    displayhook_class = Type(_Results)
    display_pub_class = Type(_Displays)
    compiler_class = Type(_Compiler)
    autoindent = False
    # Straight to the caught descriptors; IPython's own way needs a pseudo-terminal.
    system = InteractiveShell.system_raw
    seconds: float | None = None  # the time limit of the cell that runs
    skipped = 0  # frames left out of the traceback being shown

    def __init__(self, **more):
        self.catcher = _Catcher()
        super().__init__(**more)
        self.input_transformer_manager = _Transformers()
        self.set_hook("show_in_pager", lambda *_, **__: None, 99)

    def init_ipython_dir(self, ipython_dir):
        """Use no folder: nothing is read from or written to the home folder."""

    init_profile_dir = init_ipython_dir

    def init_virtualenv(self):
        """Do nothing: the modules are those of this process."""

    def init_environment(self):
        os.environ.update(PAGER="cat", GIT_PAGER="cat", MPLBACKEND="module://matplotlib_inline.backend_inline")

    def enable_gui(self, gui=None):
        """Do nothing: there is no GUI."""

    def enable_matplotlib(self, gui=None):
        """Draw into the notebook, whatever `%matplotlib` asks for: an answer must not fail for want of a window."""
        return super().enable_matplotlib("inline")

    def ask_exit(self):
        """Ignore `exit` in a cell: the cells below still run."""

    @contextlib.contextmanager
    def _tee(self, channel):
        """Do nothing: IPython would keep a second copy of everything printed."""
        yield

    def showtraceback(self, exc_tuple=None, *arguments, **more):
        if self.seconds and (exc_tuple or sys.exc_info())[0] is OutOfTime:
            for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0)
            self.say_out_of_time()
            return
        self.skipped = _shorten((exc_tuple or sys.exc_info())[2])
        super().showtraceback(exc_tuple, *arguments, **more)

    def say_out_of_time(self):
        why = f"This cell ran longer than {self.seconds:g} s and was stopped."
        self.catcher.record.fail("OutOfTime", why, [f"OutOfTime: {why}"])

    def _showtraceback(self, etype, evalue, stb):
        self.catcher.drain()
        lines = [str(line) for line in stb]
        if self.skipped:
            lines.insert(-1, f"[{self.skipped:,} calls between the first and the last are not shown]")
        self.catcher.record.fail(etype.__name__, _text(evalue), lines)


def _shorten(tb: Any) -> int:
    """Cut the middle out of a deep traceback, which would take seconds to write. Return the number of frames cut."""
    frames = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    if len(frames) <= 5 * _FRAMES:
        return 0
    frames[_FRAMES - 1].tb_next = frames[-_FRAMES]
    return len(frames) - 2 * _FRAMES


def _text(error: BaseException) -> str:
    """Return str(error), even if a learner's class breaks it."""
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be made: {type(another).__name__})"


def _no_input(name: str):
    def refuse(prompt="", *_, **__):
        raise StdinNotImplementedError(f"{name} was called, but this frontend does not support input requests.")

    return refuse


class Shell:
    """The notebook's interpreter.

        shell = Shell()              # in the warm parent
        ran = shell.run("1 + 1", 30) # in a worker; ran.outputs as in a notebook file
        answer, error = shell.value("cse")

    Makes sys.modules["__main__"] the notebook's namespace.
    """

    def __init__(self):
        settings = Config()
        settings.HistoryManager.enabled, settings.HistoryManager.hist_file = False, ":memory:"
        self.ip = ZMQInteractiveShell.instance(config=settings)
        builtins.input = _no_input("raw_input")
        getpass.getpass = _no_input("getpass")
        self._code: dict[tuple[str, str], list[CodeType]] = {}
        if "matplotlib" in sys.modules:  # it has read the environment already
            sys.modules["matplotlib"].use(os.environ["MPLBACKEND"])
        self._warm_up()

    def _warm_up(self) -> None:
        """Load what the first cell and the first traceback need, and leave nothing in the namespace."""
        self.ip.run_cell("0\n;", silent=True)
        cast(Any, self.ip.display_formatter).format(0)
        try:
            exec(compile("raise ValueError", "<warm-up>", "exec"), {})
        except ValueError:
            self.ip.InteractiveTB.structured_traceback(*sys.exc_info())
        self.ip.execution_count = 1

    def prepare(self, cells: Iterable[str], seconds: float) -> None:
        """Compile cells for `run_again`, as far as that takes `seconds`, once for the processes that are forked next.

        Whatever is wrong with a cell shows when it runs.
        """
        with contextlib.suppress(Exception, OutOfTime), TimeLimit(seconds):
            for source in cells:
                self._statements(self.ip.transform_cell(source), self.ip.compile.get_code_name(source, "", 0))

    def _statements(self, text: str, name: str) -> list[CodeType]:
        """Return the code of a transformed cell's statements, up to one that cannot be compiled."""
        if (text, name) not in self._code:
            code = []
            with contextlib.suppress(Exception):
                for statement in ast.parse(text, name).body:
                    code.append(compile(ast.Module([statement], []), name, "exec"))
            self._code[text, name] = code
        return self._code[text, name]

    def run(self, source: str, seconds: float | None = None) -> Ran:
        """Run one cell and return its outputs, whatever it raises; a cell may still end the process."""
        if not source.strip():
            return Ran()
        ip, here, result = self.ip, os.getpid(), None
        ip.seconds = seconds
        sys.displayhook = ip.displayhook  # a stopped cell may have left another
        with ip.catcher.recording() as record:
            try:
                with TimeLimit(seconds) if seconds else contextlib.nullcontext():
                    result = ip.run_cell(source, store_history=True)
            except OutOfTime:
                if not record.error:
                    ip.say_out_of_time()
            except BaseException as error:  # IPython itself failed on what the cell left behind
                record.fail(type(error).__name__, _text(error), [f"{type(error).__name__}: {_text(error)}"])
            if os.getpid() != here:  # the child of a fork in the cell must not go on as the worker
                os._exit(0)
        failure = result and (result.error_before_exec or result.error_in_exec)
        if failure and not record.error:  # IPython only printed it
            record.fail(type(failure).__name__, _text(failure), [f"{type(failure).__name__}: {_text(failure)}"])
        return record.ran()

    def run_again(self, source: str, seconds: float, strict: bool) -> None:
        """Run a cell without its outputs, statement by statement, in a process where some functions are closed.

        A statement that fails is left out, for closed functions may be what it calls; `strict`: the cell ends there.
        """
        ip = self.ip
        text = ip.transform_cell(source)
        name = ip.compile.cache(text, ip.execution_count, raw_code=source)
        ip.execution_count += 1
        with contextlib.suppress(OutOfTime), TimeLimit(seconds):
            for code in self._statements(text, name):
                try:
                    exec(code, ip.user_global_ns, ip.user_ns)
                except OutOfTime:
                    return
                except BaseException:
                    if strict:
                        return

    def skip(self) -> None:
        """Count a cell without running it, so that `Cell In[3]` in a traceback is the third cell."""
        self.ip.execution_count += 1

    def value(self, expression: str, seconds: float | None = None) -> tuple[Any, str]:
        """Return (value, "") of an expression in the notebook's namespace, or (None, the reason why there is none)."""
        try:
            with TimeLimit(seconds) if seconds else contextlib.nullcontext():
                return eval(compile(expression, "<answer>", "eval"), self.ip.user_global_ns, self.ip.user_ns), ""
        except OutOfTime:
            return None, f"{expression} took longer than {seconds:g} s."
        except BaseException as error:
            return None, _cut(f"{type(error).__name__}: {_text(error)}", 1000)

    def mute(self) -> None:
        """Discard all further prints of this process: for a child that only computes an answer."""
        null = open(os.devnull, "r+")  # noqa: SIM115  (as long as the process lives)
        for number in (0, 1, 2):
            os.dup2(null.fileno(), number)
        sys.stdin = sys.stdout = sys.stderr = null
