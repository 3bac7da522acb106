"""A warm parent: a process that has imported what notebooks need, runs no learner code, and forks a worker for each.

    python -m autograder.engine.runner.warm torch 5    (a flavour, and the number of a socket)

The engine starts it in the sandbox and gives orders over the socket: fork a worker (the worker's sockets come with the
order), end a worker. It ends when the engine does.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import signal
import socket
import sys

from autograder.engine import sandbox
from autograder.engine.flavours import import_given, warm
from autograder.engine.runner.shell import Shell
from autograder.engine.runner.worker import serve
from passlab.notebook import ui
from passlab.process.forking import collapse, settle


def end(pid: int) -> dict[str, float]:
    """Kill a worker and every process it started. Return the processor time it took, where the kernel reports it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        _, _, used = os.wait4(pid, 0)
    except ChildProcessError:
        return {"cpu_seconds": 0.0}
    return {"cpu_seconds": used.ru_utime + used.ru_stime}


def main(flavour: str, control: socket.socket) -> None:
    warm(flavour)
    import_given(flavour)
    settle()
    collapse()
    shell = Shell()
    ui.templates()  # its files cannot be read where functions are closed
    linecache.clearcache()  # not in every worker that closes functions
    settle()
    control.send(b'{"ready": true}')
    workers: set[int] = set()
    while True:
        order, fds, _, _ = socket.recv_fds(control, 2**16, 256)
        if not order:
            break
        order = json.loads(order)
        if "end" in order:
            workers.discard(order["end"])
            control.send(json.dumps(end(order["end"])).encode())
            continue
        pid = sandbox.enter(sandbox.Limits(**order["limits"]), keep=fds)
        if pid == 0:
            try:
                commands, *questions = (socket.socket(fileno=fd) for fd in fds)
                serve(shell, commands, questions)
            finally:
                os._exit(0)
        for fd in fds:
            os.close(fd)
        workers.add(pid)
        control.send(json.dumps({"pid": pid}).encode())
    for pid in workers:
        end(pid)


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
