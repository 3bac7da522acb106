"""Call a function on a learner's text in a process of its own, with limits on time and memory.

    call("autograder.engine.runner.snapshots:needed_of", cells)     # None: it took too long, or too much

Nothing bounds the time and memory of parsers: IPython's need minutes for 20 kB of question marks. Here such a text
costs SECONDS and its own submission, while other threads go on. Nothing of the text is run. Arguments and value are
JSON. Each thread has a process, which is started for its first call and again after one that was too much.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from passlab.process.clock import cpu_time
from passlab.process.messages import Garbled, Gone, Late, receive, send

ROOT = Path(__file__).resolve().parents[2]
#: CPU seconds and memory of a call, and how long it is waited for where other processes take the processor.
SECONDS, MEMORY, PATIENCE = 3, 2 * 2**30, 20.0

_mine = threading.local()


class _Process:
    """A process that calls functions. It ends when its socket is closed, with its thread."""

    def __init__(self):
        self.sock, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", "autograder.engine.aside", str(theirs.fileno())]
            # Python imports from its working directory first, which must not be one with submissions.
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=ROOT)

    def __del__(self):
        self.sock.close()
        self.process.kill()
        self.process.wait()


def call(function: str, *arguments: Any) -> Any:
    """Return the value of "module:function" for arguments of JSON, or None if it failed or exceeded a limit."""
    if not hasattr(_mine, "process"):
        _mine.process = _Process()
    try:
        deadline = time.monotonic() + PATIENCE
        send(_mine.process.sock, {"function": function, "arguments": arguments}, deadline=deadline)
        return receive(_mine.process.sock, deadline)[0].get("value")
    except (Gone, Late, Garbled):
        del _mine.process
        return None


def _serve(sock: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        asked, _ = receive(sock)
        module, _, name = asked["function"].partition(":")
        function = getattr(import_module(module), name)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_time()) + 1 + SECONDS, resource.RLIM_INFINITY))
        try:
            value = function(*asked["arguments"])
        except Exception:
            value = None
        send(sock, {"value": value})


if __name__ == "__main__":
    with contextlib.suppress(Gone):
        _serve(socket.socket(fileno=int(sys.argv[1])))
