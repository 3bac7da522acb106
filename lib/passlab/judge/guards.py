"""What surrounds an answer while it runs: a time limit, the process's state put back, and functions that are closed.

`TimeLimit` counts CPU time. `preserve_process_state` puts back what an answer, or the program that it returned,
changed in this process. Without it one wrong answer spoils the next right one: a graph whose nodes say
`meta["is_wrapped"]` enters a function into torch.fx's table of wrapped functions as soon as it is compiled, and from
then on every trace in the process fails.

`Closed` closes the libraries' own functions that do an exercise, as long as an answer to it runs. In a learner's kernel
this is a reminder: an answer that wants to can undo it. Where answers are graded, they run in a process that never has
these functions open (autograder/engine/runner/closed.py). Neither keeps an answer from holding the text of a function:
the library is there to be read.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import inspect
import itertools
import os
import pkgutil
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from passlab.process.clock import Limit, cpu_time


class OutOfTime(BaseException):
    """Raised inside an answer that runs too long. A BaseException, so that a learner's `except Exception` misses it.

    `times`: how often it was raised in this process.
    """

    times = 0


#: Kept as they were when this module was loaded: an answer may replace them, and its limit is to stand. Windows has no
#: timers.
_set_handler = signal.signal
_set_timer: Any = getattr(signal, "setitimer", None)

#: How often a limit that is over waits 0.2 s for an import to end. Its modules would stay behind half made.
IMPORT_WAITS = 50


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield the code of a frame, then of its callers."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


class TimeLimit:
    """A context that interrupts the main thread's Python code once it is over a limit of `seconds` of CPU time.

    CPU time is that of the whole process; see `Limit`. In other threads and on Windows there is no limit. An import is
    not interrupted, unless it takes another `IMPORT_WAITS` times 0.2 s; behind it the limit begins anew, once: what a
    compiler takes to load is not the answer's. A limit inside another one interrupts it: the outer one's timers go on
    when the inner one ends.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._signals: tuple[tuple[int, int], ...] = ()
        if threading.current_thread() is threading.main_thread() and _set_timer:
            self._signals = (signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_PROF, signal.SIGPROF)
        self._waits, self._in_an_import, self._renewed = itertools.count(), False, False

    def __enter__(self) -> None:
        self._limit, self._before = Limit(self.seconds), cpu_time()
        self._handlers = [_set_handler(number, self._stop) for _, number in self._signals]
        self._outer = self._start()

    def __exit__(self, *_: object) -> None:
        for timer, _number in self._signals:
            _set_timer(timer, 0)
        for (timer, number), handler, left in zip(self._signals, self._handlers, self._outer, strict=True):
            _set_handler(number, handler)
            _set_timer(timer, *left)

    def _start(self) -> list[tuple[float, float]]:
        """Start the timers, and return how they stood. They fire again and again: a bare `except:` in the answer
        swallows one signal, not the next."""
        cpu, patience = self._limit.cpu, self._limit.patience
        return [
            _set_timer(timer, cpu * (patience if timer == signal.ITIMER_REAL else 1), 0.2) for timer, _ in self._signals
        ]

    def _stop(self, _: int, frame: FrameType | None) -> None:
        codes = {*_codes(frame)}
        if codes & _ENDS:  # raised there, it would leave the timers on
            return
        if not self._limit.over(cpu_time() - self._before):  # the clock's signal, or one of before it began anew
            return
        if any(code.co_filename == "<frozen importlib._bootstrap>" for code in codes):
            if next(self._waits) < IMPORT_WAITS:
                self._in_an_import = True
                return
        elif self._in_an_import and not self._renewed:
            self._limit, self._before, self._renewed = Limit(self.seconds), cpu_time(), True
            self._start()
            return
        OutOfTime.times += 1
        raise OutOfTime


#: The code that begins and ends a limit.
_ENDS = {TimeLimit.__enter__.__code__, TimeLimit.__exit__.__code__}


@contextlib.contextmanager
def preserve_process_state() -> Iterator[None]:
    """Restore the process's state at the end: seeds, folder, environment, and torch's modes, hooks and tables."""
    undo = [*_python(), *_numpy(), *_torch()]
    try:
        yield
    finally:
        for put_back in reversed(undo):
            with contextlib.suppress(Exception):  # a folder that is gone, say; the others are put back all the same
                put_back()


def _python() -> Iterator[Callable[[], None]]:
    state, folder, variables, limit = random.getstate(), os.getcwd(), dict(os.environ), sys.getrecursionlimit()
    collects = gc.isenabled()

    def put_back() -> None:
        random.setstate(state)
        sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))  # a compiler that is loaded meanwhile raises it
        (gc.enable if collects else gc.disable)()
        if os.environ != variables:
            os.environ.clear()
            os.environ.update(variables)

    yield put_back
    yield lambda: None if os.getcwd() == folder else os.chdir(folder)


def _numpy() -> Iterator[Callable[[], None]]:
    if numpy := sys.modules.get("numpy"):
        state, errors = numpy.random.get_state(), numpy.geterr()
        yield lambda: numpy.random.set_state(state)
        yield lambda: numpy.seterr(**errors) and None


def _torch() -> Iterator[Callable[[], None]]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_rng_state"):  # not there, or still being imported
        return
    for read, write in (
        (torch.get_rng_state, torch.set_rng_state),
        (torch.is_grad_enabled, torch._C._set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_default_dtype, torch.set_default_dtype),
    ):
        yield _setting(read, write)
    yield from _modes(torch)
    for module, prefix in (("torch.nn.modules.module", "_global_"), ("torch.fx._symbolic_trace", "_wrapped_")):
        if home := sys.modules.get(module):
            yield from _tables(home, prefix)


def _setting(read: Callable, write: Callable) -> Callable[[], None]:
    before = read()
    return lambda: None if _same(read(), before) else write(before)


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) in (bool, int, str) and a == b)


def _modes(torch: ModuleType) -> Iterator[Callable[[], None]]:
    """Leave the modes that were entered and not left; a default device is one of them."""

    def leave(length: Callable[[], int], pop: Callable, before: int) -> None:
        while length() > before:
            pop()

    for kind in ("function", "dispatch"):
        length, pop = getattr(torch._C, f"_len_torch_{kind}_stack"), getattr(torch._C, f"_pop_torch_{kind}_stack")
        yield partial(leave, length, pop, length())
    yield _setting(lambda: str(torch.get_default_device()), torch.set_default_device)


def _tables(home: ModuleType, prefix: str) -> Iterator[Callable[[], None]]:
    """Give the module's tables of this prefix the entries that they have now."""

    def put_back(table: dict | list, entries: dict | list) -> None:
        if table != entries:
            table.clear()
            (table.update if isinstance(table, dict) else table.extend)(entries)

    for name, table in vars(home).items():
        if name.startswith(prefix) and isinstance(table, dict | list):
            yield partial(put_back, table, table.copy())


_active: list[Closed] = []


@contextlib.contextmanager
def reopen() -> Iterator[None]:
    """Give the closed functions back for a while: what builds a case, or an exercise's `call`, may need them."""
    for closed in _active:
        closed.give_back()
    try:
        yield
    finally:
        for closed in _active:
            closed.close()


class Closed:
    """A context in which every call of some functions raises RuntimeError, under whatever name they were imported.

    `names`: dotted, "passlab.polyhedral.dependences"; a class stands for its constructor. The code inside the function
    is exchanged, so a reference taken earlier is closed, too. A method that is not written in Python is exchanged in
    its class. What was not imported yet is not closed: an answer that imports it meets it closed on its next case.
    Raises ValueError for a function that is not written in Python.
    """

    def __init__(self, names: Iterable[str]):
        names = [name for name in names if _is_loaded(name)]
        targets = closed_functions(names)
        self._own = {function: function.__code__ for function in targets}
        self._refusing = {f: refusing_code(name, f) for f, name in targets.items()}
        self._methods = {
            place: (vars(place[0])[place[1]], refuse(name)) for place, name in closed_methods(names).items()
        }

    def __enter__(self) -> Closed:
        self.close()
        _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)
        self.give_back()

    def close(self) -> None:
        for function, code in self._refusing.items():
            function.__code__ = code
        for place, (_, refusing) in self._methods.items():
            setattr(*place, refusing)

    def give_back(self) -> None:
        for function, code in self._own.items():
            function.__code__ = code
        for place, (own, _) in self._methods.items():
            setattr(*place, own)


def closed_functions(names: Iterable[str]) -> dict[FunctionType, str]:
    """Return function → its dotted name. Functions of an exercise that this process does not have are left out.

    The name of a dictionary stands for all functions in it. Methods that are not written in Python are left to
    `closed_methods`. Raise ValueError for a function that is not.
    """
    names = [name for name in names if not _withheld(name) and not _method(name)]
    return {function: name for name in names for function in _functions(name)}


def closed_methods(names: Iterable[str]) -> dict[tuple[type, str], str]:
    """Return (class, method) → its dotted name, for the methods that are not written in Python."""
    return {place: name for name in names if not _withheld(name) and (place := _method(name))}


def _method(name: str) -> tuple[type, str] | None:
    owner, _, method = name.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    own = isinstance(holder, type) and vars(holder).get(method)
    return (holder, method) if own and not isinstance(inspect.unwrap(own), FunctionType) else None


def _is_loaded(name: str) -> bool:
    """Return whether the module that holds a function was imported."""
    parts = name.split(".")
    homes = ((sys.modules.get(".".join(parts[:at])), parts[at]) for at in range(len(parts) - 1, 0, -1))
    return next((part in vars(home) for home, part in homes if home), False)


def _withheld(name: str) -> bool:
    return name.startswith("passlab.exercises.") and importlib.util.find_spec(name.rpartition(".")[0]) is None


def _functions(name: str) -> list[FunctionType]:
    """Return the function with a name, or those in the values of a dictionary: the values, or fields of them."""
    value = pkgutil.resolve_name(name)
    if isinstance(value, dict):
        parts = [part for entry in value.values() for part in (entry, *getattr(entry, "__dict__", {}).values())]
        return [part for part in parts if isinstance(part, FunctionType)]
    return [_function(name, value)]


def _function(name: str, value: Any) -> FunctionType:
    inner = inspect.unwrap(getattr(value, "__init__") if isinstance(value, type) else value)  # noqa: B009
    if not isinstance(inner, FunctionType):
        raise ValueError(f"{name} cannot be closed: it is not written in Python. Close the function that calls it.")
    return inner


def closed_message(name: str) -> str:
    """Return the message of a closed function."""
    return f"{name} does what this exercise asks, so it is closed here: write it yourself"


def refuse(name: str) -> FunctionType:
    """Return a function that raises, whatever it is called with."""

    def refusing(*_: object, **__: object) -> None:
        raise RuntimeError(closed_message(name))

    assert isinstance(refusing, FunctionType)
    return refusing


def refusing_code(name: str, function: FunctionType) -> CodeType:
    """Return code for a function that raises. It mentions the same variables of enclosing functions, as it must."""
    free = function.__code__.co_freevars
    body = f"raise RuntimeError({closed_message(name)!r})\n  {', '.join(free) or None}"
    space: dict = {}
    text = f"def made({', '.join(free)}):\n def refuse(*_, **__):\n  {body}\n return refuse"
    exec(compile(text, __file__, "exec"), space)  # a line of the library: messages name the learner's line that called
    return space["made"](*free).__code__
