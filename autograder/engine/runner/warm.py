"""A warm parent: a process that has imported what notebooks need, runs no learner code, and forks a worker for each.

It is a fork of the runner's zygote (`autograder.engine.zygote`), in the sandbox. The engine gives orders over its
socket: fork a worker (the worker's sockets come with the order), end a worker. It ends when that socket is closed.
"""

from __future__ import annotations

import json
import linecache
import os
import socket

from autograder.engine import sandbox
from autograder.engine.flavours import import_given, share, warm
from autograder.engine.runner.shell import Shell
from autograder.engine.runner.worker import serve
from autograder.engine.zygote import end
from passlab.notebook import ui
from passlab.process.forking import collapse, settle


def load() -> None:
    """Import what notebooks of all flavours need."""
    share(notebooks=True)


def main(flavour: str, number: str) -> None:
    control = socket.socket(fileno=int(number))
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
