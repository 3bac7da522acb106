"""Call a function in a forked child: native code may crash, and takes only the child with it."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

from passlab.process.clock import end_after, ran_out

T = TypeVar("T")

#: Seconds of CPU time after which a child is ended.
SECONDS = 60


class Crash(RuntimeError):
    """The child was ended by a signal: that of a fault in native code, or that of its limit of time."""


def forked(function: Callable[[], T]) -> T:
    """Return what a function returns, which must be picklable, from a forked child. Raises Crash if it has ended.

    An exception of the function is a RuntimeError here. Where a process cannot fork, the function runs in this one.
    """
    if not hasattr(os, "fork"):
        return function()
    theirs, ours = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        _answer(function, ours)
    os.close(ours)
    with os.fdopen(theirs, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        by = "its limit of time" if ran_out(code) else signal.Signals(-code).name if code < 0 else "the compiler itself"
        raise Crash(f"The process is ended by {by}.")
    value, error = pickle.loads(answer)
    if error:
        raise RuntimeError(error)
    return value


def _answer(function: Callable[[], object], pipe: int) -> None:
    """Write (value, error) of a call into a pipe, and end this process: nothing else of it may run on."""
    try:
        faulthandler.disable()
        for fault in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE):
            signal.signal(fault, signal.SIG_DFL)  # TVM's own handler prints a hundred lines
        end_after(SECONDS)
        try:
            answer: tuple = function(), ""
        except Exception as error:
            answer = None, f"{type(error).__name__}: {error}"
        with os.fdopen(pipe, "wb") as file:
            file.write(pickle.dumps(answer))
    finally:
        os._exit(0)
