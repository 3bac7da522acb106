"""Call a function on a learner's text in a process of its own, with limits on time and memory.

    call("autograder.engine.runner.snapshots:needed_of", cells)     # None: it took too long, or too much

Nothing bounds the time and memory of parsers: IPython's need minutes for 20 kB of question marks. Here such a text
costs SECONDS and its own submission, while other threads go on. Nothing of the text is run. Arguments and value are
JSON, or bytes. Each thread has a process, which is started for its first call and again after one that was too much.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from passlab.process.clock import Limit, cpu_time
from passlab.process.messages import ClosedError, DeadlineError, MessageError, receive, send

ROOT = Path(__file__).resolve().parents[2]
#: CPU seconds and memory of a call.
SECONDS, MEMORY = 3, 2 * 2**30

_mine = threading.local()


class _Process:
    """A process that calls functions. It ends when its socket is closed, with its thread."""

    def __init__(self):
        self.sock, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", "autograder.engine.bounded_call", str(theirs.fileno())]
            # Python imports from its working directory first, which must not be one with submissions.
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=ROOT)

    def __del__(self):
        self.sock.close()
        self.process.kill()
        self.process.wait()


def call(function: str, *arguments: Any, data: bytes | None = None) -> Any:
    """Return the value of "module:function" for arguments of JSON, or None if it failed or exceeded a limit.

    data: bytes to pass as the last argument. A value of bytes is returned as bytes.
    """
    if not hasattr(_mine, "process"):
        _mine.process = _Process()
    try:
        deadline = Limit(SECONDS).deadline
        asked = {"function": function, "arguments": arguments, "data": data is not None}
        send(_mine.process.sock, asked, data or b"", deadline=deadline)
        head, payload = receive(_mine.process.sock, deadline)
    except (ClosedError, DeadlineError, MessageError):
        del _mine.process
        return None
    return bytes(payload) if head.get("bytes") else head.get("value")


def _serve(sock: socket.socket) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        asked, payload = receive(sock)
        module, _, name = asked["function"].partition(":")
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # for the import
        function = getattr(import_module(module), name)
        arguments = [*asked["arguments"], *([bytes(payload)] if asked["data"] else [])]
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_time()) + 1 + SECONDS, resource.RLIM_INFINITY))
        try:
            value = function(*arguments)
        except Exception:
            value = None
        if isinstance(value, bytes):
            send(sock, {"bytes": True}, value)
        else:
            send(sock, {"value": value})


if __name__ == "__main__":
    with contextlib.suppress(ClosedError):
        _serve(socket.socket(fileno=int(sys.argv[1])))
