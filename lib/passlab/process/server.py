"""A server that forks a child for each request, over sockets that clients pass to it.

    Server(control, fork, answer).serve()             # until `control` is closed
    child, said = request(control, deadline)          # the other end: a new child, and the first thing it says
    cpu_seconds(control, child, deadline)             # what that child has spent so far, by the kernel

A client sends one byte over `control` and with it the socket that its child will use. Closing that ends the child.
When a child has ended, its socket says how: {"ended": exit code, "said": the last that it printed, "spent": its CPU
seconds}. The server numbers
its children, and tells each client the number of its own before the child exists; what a child has spent is read by the
server, so no child has a say in it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from passlab.process.messages import ClosedError, DeadlineError, receive, send

#: Whether the system tells a process what its children spend while they run.
TELLS_TIME = sys.platform == "linux"
#: Most bytes kept of a child's standard error.
_MOST_OUTPUT = 2**14
#: What a client orders: a new child; the CPU time of one, whose number follows.
_FORK, _TIME = b"+", b"t"
_NUMBER, _SECONDS = struct.Struct("q"), struct.Struct("d")


class Child(NamedTuple):
    """A child of a server, seen by its client. `number`: what the server calls it."""

    sock: socket.socket
    number: int


def request(control: socket.socket, deadline: float) -> tuple[Child, dict[str, Any]]:
    """Return a fresh child, and its first message. Raises ClosedError, DeadlineError, MessageError, OSError."""
    parent, child = socket.socketpair()
    try:
        with child:
            socket.send_fds(control, [_FORK], [child.fileno()])
        number = receive(parent, deadline)[0]["number"]
        reply, _ = receive(parent, deadline)
    except BaseException:
        parent.close()
        raise
    return Child(parent, number), reply


def cpu_seconds(control: socket.socket, child: Child, deadline: float) -> float:
    """Return the CPU seconds that all threads of a child have spent; NaN where the system does not tell.

    Raises ClosedError, DeadlineError, OSError.
    """
    parent, far_end = socket.socketpair()
    with parent:
        with far_end:
            socket.send_fds(control, [_TIME + _NUMBER.pack(child.number)], [far_end.fileno()])
        parent.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            answer = parent.recv(_SECONDS.size)
        except TimeoutError:
            raise DeadlineError("the server did not tell a child's CPU time") from None
    if len(answer) != _SECONDS.size:
        raise ClosedError("the child has ended")
    return _SECONDS.unpack(answer)[0]


@dataclass(eq=False)
class _Child:
    """`sock`: the child replies over it; the parent only watches whether a client still waits. `noise`: the child's
    prints; its end of file tells that the child has ended."""

    pid: int
    number: int
    sock: socket.socket
    noise: int
    output: bytes = b""


class Server:
    """Answers requests until `control` is closed.

    fork(keep): like os.fork, but the child has only these files open. answer(sock): the child's work. summary(text):
    what to say of all that a child printed.
    """

    def __init__(
        self,
        control: socket.socket,
        fork: Callable[[list[int]], int],
        answer: Callable[[socket.socket], None],
        summary: Callable[[str], str] = str,
    ):
        self.control, self.fork, self.answer, self.summary = control, fork, answer, summary
        self.children: dict[int, _Child] = {}
        self.number = 0
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)

    def serve(self) -> None:
        while True:
            for fd, _ in self.poll.poll():
                if fd in self.children:
                    self._read_output(self.children[fd], fd)
                elif fd == self.control.fileno():
                    order, fds, _, _ = socket.recv_fds(self.control, 1, 1)
                    if not order:
                        for child in set(self.children.values()):
                            self._finish(child)
                        return
                    for sock in map(lambda fd: socket.socket(fileno=fd), fds):
                        if order == _TIME:
                            (number,) = _NUMBER.unpack(self.control.recv(_NUMBER.size))
                            self._tell_time(number, sock)
                        else:
                            self._start(sock)

    def _tell_time(self, number: int, sock: socket.socket) -> None:
        """Send the CPU time of the child with this number, or nothing if there is none."""
        with sock, contextlib.suppress(OSError):
            pid = next((child.pid for child in self.children.values() if child.number == number), 0)
            if pid:
                sock.sendall(_SECONDS.pack(time.clock_gettime(_clock_of(pid)) if TELLS_TIME else math.nan))

    def _start(self, sock: socket.socket) -> None:
        self.number += 1
        with contextlib.suppress(ClosedError, TimeoutError):
            send(sock, {"number": self.number}, deadline=time.monotonic() + 1)
        noise, writer = os.pipe()
        try:
            pid = self.fork([sock.fileno(), writer])
        except OSError:
            for fd in (noise, writer):
                os.close(fd)
            sock.close()
            return
        if pid == 0:
            _work(sock, writer, self.answer)
        os.close(writer)
        self.children[noise] = self.children[sock.fileno()] = _Child(pid, self.number, sock, noise)
        self.poll.register(noise, select.POLLIN)
        self.poll.register(sock, 0)  # a hang-up is reported for any mask

    def _read_output(self, child: _Child, fd: int) -> None:
        data = os.read(fd, 2**16) if fd == child.noise else b""
        if data:
            child.output = (child.output + data)[-_MOST_OUTPUT:]
        else:  # it has ended, or its client has gone
            self._finish(child)

    def _finish(self, child: _Child) -> None:
        for fd in (child.noise, child.sock.fileno()):
            self.poll.unregister(fd)
            del self.children[fd]
        os.close(child.noise)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        _, status, used = os.wait4(child.pid, 0)
        end: dict[str, Any] = {"ended": os.waitstatus_to_exitcode(status), "spent": used.ru_utime + used.ru_stime}
        end["said"] = self.summary(child.output.decode(errors="replace"))
        with contextlib.suppress(ClosedError, TimeoutError):
            send(child.sock, end, deadline=time.monotonic() + 1)
        child.sock.close()


def _clock_of(pid: int) -> int:
    """Return the clock that counts the CPU time of a process: its number as in clock_getcpuclockid(3) of Linux."""
    return (~pid << 3) | 2


def _work(sock: socket.socket, noise: int, answer: Callable[[socket.socket], None]) -> None:
    """Answer in the child, and end it."""
    try:
        os.dup2(noise, 1)
        os.dup2(noise, 2)
        os.close(noise)
        answer(sock)
    except (ClosedError, TimeoutError):
        pass
    except BaseException as error:
        os.write(2, f"\n{type(error).__name__}: {error}".encode())
        os._exit(1)
    os._exit(0)
