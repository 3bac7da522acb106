"""Crashing: the process that runs the notebook is ended, stopped or confused, in a cell and in an answer."""

from __future__ import annotations

from tests.attacks.attack import answer, cell, read


def _both(name: str, tries: str, code: str, **more) -> tuple:
    """The same in the body of a cell, and in an answer while a case is put to it."""
    imports = "import ctypes, os, signal, sys, time\n"
    inside = f"{imports}\ndef dce(gm):\n    {code}\n    return gm\n"
    return (
        cell(name, tries, imports + code, **more),
        answer(f"{name}-in-answer", f"{tries}; in an answer", inside, **more),
    )


ATTACKS = (
    *_both("segfault", "memory at address 0 is read", "ctypes.string_at(0)"),
    *_both("os-exit", "the process ends at once, with a good status", "os._exit(0)"),
    *_both("abort", "the process aborts itself", "os.abort()"),
    *_both("kill-self", "the process kills itself", "os.kill(os.getpid(), signal.SIGKILL)", harms=True),
    *_both(
        "kill-parent", "the process above is killed", "os.kill(os.getppid(), signal.SIGKILL)", harms=True, keeps=False
    ),
    *_both("stop-self", "the process stops itself, neither running nor gone", "os.kill(os.getpid(), signal.SIGSTOP)"),
    *_both("sys-exit", "SystemExit leaves the cell", "sys.exit(0)"),
    *read(
        r"""
# %% answer kill-all keeps=False harms
# every process that can be reached is killed, process 1 first
import os, signal

def dce(gm):
    for pid in (1, 2, 0, -1):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return gm

# %% answer stop-all keeps=False harms
# every process that can be reached is stopped
import os, signal

def dce(gm):
    for pid in (os.getppid(), -1):
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
    return gm

# %% cell late-exit keeps=False
# a thread ends the process half a second later, when another cell or question is at work
import os, threading
def later():
    os._exit(0)
threading.Timer(0.3, later).start()

# %% cell late-kill keeps=False harms
# a process left behind kills all others of the notebook a moment later
import os, signal, time
if os.fork() == 0:
    os.setsid()
    time.sleep(0.3)
    os.kill(-1, signal.SIGKILL)
    os._exit(0)

# %% answer strange-exceptions
# exceptions that are no Exception, whose text raises, loops, or is no text
class Odd(BaseException):
    def __str__(self):
        while True:
            pass

class Odder(Exception):
    def __str__(self):
        raise Odder()
    __repr__ = __str__
    __class__ = property(lambda self: 1 / 0)

class Oddest(KeyboardInterrupt):
    def __str__(self):
        return 5

def dce(gm):
    raise Odd()

def cse(gm):
    raise Odder()

def functions(gm):
    raise Oddest()

def constant_fold(gm):
    raise GeneratorExit

# %% answer deadly-value
# what comes back ends the process when it is looked at, or let go of
import os

class Deadly:
    def __getattribute__(self, name):
        os._exit(0)
    def __del__(self):
        os._exit(0)

def dce(gm):
    return Deadly()

def cse(gm):
    gm.graph.meta = Deadly()
    return [Deadly()]

# %% cell broken-interpreter keeps=False
# standard streams, modules and the shell's own state are closed and deleted
import os, sys
sys.stdout.close()
sys.stdout = sys.stderr = sys.stdin = None
os.closerange(0, 3)
get_ipython().user_ns.pop("__builtins__", None)
get_ipython().display_formatter = None
for name in ("json", "signal", "socket", "struct", "io", "contextlib"):
    sys.modules.pop(name, None)
"""
    ),
)
