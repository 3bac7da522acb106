"""Messages over a socket: a JSON head and a payload of bytes, both with a length in front and a cap.

Every byte received may come from a learner's code. Reading it costs at most the caps and the reader's deadline, and
either returns a message or raises `ClosedError`, `DeadlineError` or `MessageError`.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

MOST_HEAD = 32 * 2**20  # the outputs of one cell, as JSON
MOST_PAYLOAD = 64 * 2**20

_LENGTHS = struct.Struct("!QQ")
_PIECE = 2**24


class ClosedError(Exception):
    """The other side closed the connection: its process has ended."""


class DeadlineError(TimeoutError):
    """The deadline for the message has passed."""


class MessageError(ValueError):
    """The received bytes are not a message."""


def _left(deadline: float | None) -> float | None:
    seconds = None if deadline is None else deadline - time.monotonic()
    if seconds is not None and seconds <= 0:
        raise DeadlineError
    return seconds


def send(sock: socket.socket, head: dict[str, Any], *payload: Any, deadline: float | None = None) -> None:
    """Send one message. `payload`: its parts, each bytes or a flat buffer of bytes. `deadline`: of `time.monotonic()`.

    Raises ClosedError, DeadlineError, and, before it sends anything, MessageError if the head is larger than MOST_HEAD.
    """
    text = json.dumps(head).encode()
    if len(text) > MOST_HEAD:
        raise MessageError(f"a message of {len(text):,} bytes")
    parts = [memoryview(part) for part in payload]
    lengths = _LENGTHS.pack(len(text), sum(map(len, parts)))
    try:
        for part in (memoryview(lengths + text), *parts):
            while part:
                sock.settimeout(_left(deadline))
                part = part[sock.send(part[:_PIECE]) :]
    except DeadlineError:
        raise
    except TimeoutError:
        raise DeadlineError from None
    except OSError:
        raise ClosedError from None


def document(text: bytes) -> dict[str, Any]:
    """Return any JSON object. Raises MessageError."""
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"{type(error).__name__}") from None
    if not isinstance(head, dict):
        raise MessageError(f"a {type(head).__name__} as head")
    return head


def receive(
    sock: socket.socket,
    deadline: float | None = None,
    most_payload: int = MOST_PAYLOAD,
    form: Callable[[bytes], Any] = document,
) -> tuple[Any, memoryview]:
    """Return one message, complete before `deadline`: its head, and its payload read-only.

    form: makes the head of its text, or raises MessageError. Raises ClosedError, DeadlineError, MessageError.
    """
    head_size, size = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size, deadline))
    if head_size > MOST_HEAD or size > most_payload:
        raise MessageError(f"a message of {head_size + size:,} bytes")
    head = form(bytes(_exactly(sock, head_size, deadline)))
    return head, _exactly(sock, size, deadline)


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> memoryview:
    data = memoryview(bytearray(size))
    at = data
    try:
        while at:
            sock.settimeout(_left(deadline))
            length = sock.recv_into(at)
            if not length:
                raise ClosedError
            at = at[length:]
    except DeadlineError:
        raise
    except TimeoutError:
        raise DeadlineError from None
    except OSError:
        raise ClosedError from None
    return data.toreadonly()
