"""A second process beside the notebook's: one process can use only one TVM, and a lesson may show two.

    from passlab.notebook import beside# makes the magic known

    %%beside relax
    module = …                       # this cell runs in the other process, and is shown here; `relay relax` in both

    beside.view("relax", "module")   # the passlab graph of what is called module there

A process is started when a flavour ("relay" or "relax") is first used, keeps its variables from cell to cell, and ends
with the notebook's. Where the compiler cannot be reached, cells for it say so once and do nothing.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from typing import Any

from passlab.graph import Graph
from passlab.notebook.ui import say, show

FLAVOURS = ("relay", "relax")


class CellFailed(Exception):
    """A cell failed in the process beside; shown with the traceback from there."""

    def __init__(self, said: str, traceback: list[str]):
        super().__init__(said)
        self.traceback = traceback

    def _render_traceback_(self) -> list[str]:
        return self.traceback


class _Beside:
    """The other process, as seen from here. What travels both ways is pickled, (what, …) each."""

    def __init__(self, flavour: str):
        self.flavour, self.unreachable = flavour, ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "passlab.notebook.beside", flavour],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt of the notebook reaches it through `ask` only
        )
        what, said = self._receive()
        if what == "unreachable":
            self.unreachable = said
            self.end()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, what: str, text: str) -> Any:
        """Have a cell run or an expression evaluated there; show what comes; give the value of an expression."""
        _put(self.process.stdin, (what, text))
        failed = None
        while True:
            try:
                what, *said = self._receive()
            except KeyboardInterrupt:
                self.process.send_signal(signal.SIGINT)
                continue
            if what == "done":
                if failed:
                    raise failed
                return said[0]
            if what == "failed":
                failed = CellFailed(*said)
            elif what == "stream":
                getattr(sys, said[0]).write(said[1])
            else:
                _display(*said)

    def _receive(self) -> tuple:
        try:
            data = _take(self.process.stdout)
        except EOFError:
            code = self.process.wait()
            said = (
                f"The process beside this one, for {self.flavour}, ended (exit status {code}), and its variables are "
                "gone: run its cells again from the first."
            )
            raise CellFailed(said, [said]) from None
        try:
            return pickle.loads(data)
        except (ImportError, AttributeError) as error:  # of a class that is not here
            raise TypeError(
                f"This value cannot leave its process ({error}): ask for numbers, arrays or text."
            ) from None

    def end(self) -> None:
        """Close its input: it ends by itself."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.process.wait()


def _put(pipe: Any, message: tuple) -> None:
    data = pickle.dumps(message)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _take(pipe: Any) -> bytes:
    """The next message. Raises EOFError where there is none, and none will come."""
    head = pipe.read(8)
    data = pipe.read(struct.unpack("<Q", head)[0]) if len(head) == 8 else b""
    if not data:
        raise EOFError
    return data


_running: dict[str, _Beside] = {}


def _reached(flavour: str) -> _Beside | None:
    """The process for a flavour, started if need be; None where its compiler cannot be reached, which is said once."""
    if flavour not in FLAVOURS:
        raise ValueError(f"There is no compiler {flavour!r} to run beside; there are {' and '.join(FLAVOURS)}.")
    other = _running.get(flavour)
    if other is None or not (other.unreachable or other.alive):
        other = _running[flavour] = _Beside(flavour)
        if other.unreachable:
            show(say(f"{other.unreachable} The cells for {flavour.capitalize()} in this notebook do nothing."))
    return None if other.unreachable else other


def reachable(flavour: str) -> bool:
    """Can cells for this flavour run here? (Starts its process.)"""
    return _reached(flavour) is not None


def run(flavours: str, cell: str) -> None:
    """Run a cell in the process of a flavour, or of several ("relay relax"), and show here what it shows.

    Raises CellFailed when it fails there.
    """
    for flavour in flavours.split():
        if other := _reached(flavour):
            other.ask("cell", cell)


def value(flavour: str, expression: str) -> Any:
    """The value of an expression there, brought here: numbers, arrays, text. None where it cannot be reached."""
    other = _reached(flavour)
    return other.ask("value", expression) if other else None


def view(flavour: str, expression: str) -> Graph | None:
    """`passlab.view` of an expression there, brought here. None where it cannot be reached."""
    other = _reached(flavour)
    return other.ask("view", expression) if other else None


def _display(data: dict, metadata: dict) -> None:
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if shell:
        shell.display_pub.publish(data=data, metadata=metadata)
    else:
        print(data.get("text/plain", ""))


def load_ipython_extension(shell: Any) -> None:
    """Make `%%beside` known to an IPython shell."""
    shell.register_magic_function(lambda line, cell: run(line, cell), "cell", "beside")


def _serve(flavour: str) -> None:
    """What the other process does: cells and expressions in, what they show and are out."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints by itself goes where its errors go
    lock = threading.Lock()

    def send(*message: Any) -> None:
        with lock:
            _put(out, message)

    from passlab.tvm.reach import Unreachable

    try:
        importlib.import_module(f"passlab.{flavour}").reach()
    except Unreachable as error:
        return send("unreachable", str(error))
    shell = _shell(send)
    send("ready", "")
    for what, text in _asked():
        try:
            send("done", _answer(shell, what, text))
        except BaseException as error:  # an interrupt that came too late, or a value that does not travel
            said = f"{type(error).__name__}: {error}"
            send("failed", said, [said])
            send("done", None)


def _asked():
    """What is asked for, one by one. The process ends as soon as nobody can ask any more, whatever it is doing."""
    asked: queue.Queue = queue.Queue()

    def listen() -> None:
        with contextlib.suppress(EOFError):
            while True:
                asked.put(pickle.loads(_take(sys.stdin.buffer)))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            yield asked.get()


def _answer(shell: Any, what: str, text: str) -> Any:
    if what == "cell":
        shell.run_cell(text, store_history=True)
        return None
    found = shell.ev(text)
    if what == "view":
        from passlab.graph import view

        return view(found)
    return found


def _shell(send: Any) -> Any:
    """An IPython shell whose every output is sent: streams, displays, results and tracebacks."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    class Stream:
        def __init__(self, name: str):
            self.name, self.encoding = name, "utf-8"

        def write(self, text: str) -> int:
            send("stream", self.name, str(text))  # TVM has a str of its own
            return len(text)

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    class Hook(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
            send("display", _plain(format_dict), md_dict or {})

    class Publisher(DisplayPublisher):
        def publish(self, data: dict, metadata: dict | None = None, **_: Any) -> None:
            send("display", _plain(data), metadata or {})

        def clear_output(self, wait: bool = False) -> None:
            pass

    class Shell(InteractiveShell):
        def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
            send("failed", f"{etype.__name__}: {evalue}", stb)

    sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
    shell = Shell(displayhook_class=Hook, display_pub_class=Publisher)
    InteractiveShell._instance = shell  # get_ipython() and display() find it
    shell.display_formatter.active_types = shell.display_formatter.format_types
    shell.history_manager.enabled = False
    shell.colors = "nocolor"
    return shell


def _plain(data: dict) -> dict:
    """Pictures are bytes there, and text in a notebook."""
    forms = {bytes: lambda it: base64.b64encode(it).decode(), str: str}
    return {m: next((f(it) for kind, f in forms.items() if isinstance(it, kind)), it) for m, it in data.items()}


if __name__ == "__main__":
    _serve(sys.argv[1])
else:
    _here = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if _here:
        load_ipython_extension(_here)
