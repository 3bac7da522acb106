"""Messages over a socket: a JSON head and a payload of bytes, both with a length in front and a cap.

What comes from a worker was possibly written by a learner, byte for byte. Reading it costs at most the caps and the
time that the reader gave, and ends in one of three ways besides a message: `Gone`, `Late`, `Garbled`.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

MOST_HEAD = 32 * 2**20  # the outputs of one cell, as JSON
MOST_PAYLOAD = 64 * 2**20

_LENGTHS = struct.Struct("!QQ")


class Gone(Exception):
    """The other side closed the connection: its process has ended."""


class Late(Exception):
    """The time that was given for the message is over."""


class Garbled(Exception):
    """What came is no message."""


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise Late
    return left


def send(sock: socket.socket, head: dict[str, Any], payload: bytes = b"", deadline: float | None = None) -> None:
    """Send one message. `deadline`: a time of `time.monotonic()`. Raises Gone, Late."""
    text = json.dumps(head).encode()
    parts = memoryview(b"".join((_LENGTHS.pack(len(text), len(payload)), text, payload)))
    try:
        while parts:
            sock.settimeout(_left(deadline))
            parts = parts[sock.send(parts) :]
    except TimeoutError:
        raise Late from None
    except OSError:
        raise Gone from None


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    at = memoryview(data)
    try:
        while at:
            sock.settimeout(_left(deadline))
            got = sock.recv_into(at)
            if not got:
                raise Gone
            at = at[got:]
    except TimeoutError:
        raise Late from None
    except OSError:
        raise Gone from None
    return data


def receive(sock: socket.socket, deadline: float | None = None) -> tuple[dict[str, Any], bytes]:
    """Receive one message, whole before `deadline`. Raises Gone, Late, Garbled."""
    head_size, size = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size, deadline))
    if head_size > MOST_HEAD or size > MOST_PAYLOAD:
        raise Garbled(f"a message of {head_size + size:,} bytes")
    text = _exactly(sock, head_size, deadline)
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"{type(error).__name__}") from None
    if not isinstance(head, dict):
        raise Garbled(f"a {type(head).__name__} as head")
    return head, bytes(_exactly(sock, size, deadline))
