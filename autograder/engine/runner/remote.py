"""Functions that an answer may call and must not look into: they stay in a process of their own.

An exercise may give its answer such a function (`service` of its module in `passlab.given`): a compiler, say, whose
faults show only by running it. What that knows must not be in the answer's process, where nothing is private. So a
child that was forked before the first cell, and runs none, stands between the grader and the answer (`serve`). It
takes each case, hands on what the answer may see, runs the function when the answer calls it (`Stub`), and hands back
the outcome.
"""

from __future__ import annotations

import builtins
import os
import socket
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn

from autograder.engine import wire
from passlab.exercises import Service
from passlab.judge import Case
from passlab.process.error_text import reason
from passlab.process.messages import ClosedError, MessageError, receive, send


def serve(question: socket.socket, link: socket.socket, service: Service) -> NoReturn:
    """Take cases from the grader over `question` and have them answered over `link`, until one of them is closed."""
    try:
        while True:
            head, payload = receive(question)
            case = Case("", cache(partial(wire.decode, bytes(payload))), tuple(head["about"]))
            arguments, function = service(case)
            send(link, head, wire.encode(arguments))
            head, payload = receive(link)
            while "call" in head:
                send(link, *_call(function, bytes(payload)))
                head, payload = receive(link)
            send(question, head, payload)
    except (ClosedError, MessageError):
        os._exit(0)
    finally:
        os._exit(1)


def _call(function: Callable, payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Call a function with arguments that came from an answer; return its result, or its error, as a message."""
    try:
        return {}, wire.encode(function(*wire.decode(payload)))
    except Exception as error:
        return {"error": type(error).__name__, "text": reason(error)}, b""


class Stub:
    """Stands for the function in the answer's process. Raises what it raises, if that is one of Python's own errors."""

    def __init__(self, link: socket.socket):
        self._link = link

    def __call__(self, *arguments: Any) -> Any:
        try:
            payload = wire.encode(arguments)
        except wire.Refused as refused:
            raise ValueError(str(refused)) from None
        send(self._link, {"call": True}, payload)
        head, result = receive(self._link)
        if "error" in head:
            raise getattr(builtins, head["error"], RuntimeError)(head["text"])
        return wire.decode(bytes(result))
