"""A zygote: a process that loads once what all flavours of one kind of sandbox need, and forks a process for each.

    python -m passlab.process.forking autograder.engine.zygote autograder.engine.runner.warm 5

The arguments: the module of the processes, with functions `load()` and `main(flavour, *sockets)`, and the number of a
socket over which orders come: a flavour, with the sockets of the new process, or the process to end. It ends when that
socket is closed, and all that it has forked with it: they share the sandbox in which the engine starts it. Learner code
runs in none of them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from types import ModuleType
from typing import NoReturn

from passlab.process.forking import settle
from passlab.process.messages import ClosedError


def _run(module: ModuleType, flavour: str, fds: list[int]) -> NoReturn:
    """Be the process of a flavour: load what is its own without collecting garbage, as `passlab.process.forking`."""
    status = 1
    try:
        gc.disable()
        module.main(flavour, *map(str, fds))
        status = 0
    except SystemExit as end:
        print(end.code, file=sys.stderr)
    except (ClosedError, BrokenPipeError):  # the engine ended meanwhile, and says why itself
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def end(pid: int) -> dict[str, float]:
    """Kill a child and every process it started. Return the processor time it took, where the kernel reports it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        _, _, used = os.wait4(pid, 0)
    except ChildProcessError:
        return {"cpu_seconds": 0.0}
    return {"cpu_seconds": used.ru_utime + used.ru_stime}


def _answer(control: socket.socket, reply: dict[str, float]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the engine has ended, and says why itself
        control.send(json.dumps(reply).encode())


def main(module_name: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
    module = importlib.import_module(module_name)
    module.load()
    settle()
    while True:
        order, fds, _, _ = socket.recv_fds(control, 2**16, 256)
        if not order:
            return
        order = json.loads(order)
        if "end" in order:
            _answer(control, end(order["end"]))
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _run(module, order["flavour"], fds)
        for fd in fds:
            os.close(fd)
        _answer(control, {"pid": pid})


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # what is loaded need not be taken apart
