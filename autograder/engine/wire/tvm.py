"""Relay and Relax modules as data: the graph as the JSON of TVM itself, tensors in it, after one line with the flavour.

The JSON is read here before TVM sees any of it: TVM's loader follows the numbers in it without end and without checks.
What is too large, too deep, circular or not on a list is refused. What TVM then builds is checked for well-formedness.
Even so `decode_module` belongs in a confined process that may crash: no list makes a C++ compiler safe.

To run a module is to run its author's code, TIR above all: it can index past the end of a buffer. So modules are built
and run in a process that holds no secret and whose word is not taken (`builder`), never where the verdict is made.

None of these modules imports torch, which that process does without.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from autograder.engine.wire.refusal import Refused
from passlab.tvm.reach import loaded

MAX_BYTES = 256 * 2**20
MAX_NODES = 1_000_000
MAX_DEPTH = 5_000  # the calls of Relay nest, two levels each; TVM itself builds chains of 4,000 calls

#: DLPack's type codes → kind of number, and the bits it may have.
_NUMBERS = {0: (8, 16, 32, 64), 1: (1, 8, 16, 32, 64), 2: (16, 32, 64), 4: (16,), 6: (8,)}
_TENSOR = struct.Struct("<QQiiiBBH")  # magic, reserved, device type and number, rank, type code, bits, lanes
_MAGIC = 0xDD5E40F096B4A13F


def carries(value: Any) -> bool:
    """Is `value` for `encode_module`: an IRModule or a function of TVM?"""
    held = loaded()
    if not held:
        return False
    tvm = sys.modules["tvm"]
    return isinstance(value, (tvm.IRModule, *([tvm.relay.Function] if held == "relay" else [tvm.relax.Function])))


def encode_module(value: Any) -> bytes:
    """A module (or function) as bytes. Raises Refused for one that has no JSON, or whose JSON is too large."""
    try:
        text = sys.modules["tvm"].ir.save_json(value)
    except Exception as error:
        raise Refused(f"The module cannot be written as data: {first_line(error)}") from None
    payload = f"{loaded()}\n{text}".encode()
    if len(payload) > MAX_BYTES:
        raise Refused(f"The module takes {len(payload) / 2**20:,.0f} MiB; {MAX_BYTES // 2**20} MiB is the most.")
    return payload


def decode_module(payload: bytes) -> Any:
    """The module in `payload`, well-formed (and, in Relay, typed). Raises Refused for everything else.

    Only in a confined process: what these checks miss may crash it.
    """
    if len(payload) > MAX_BYTES:
        raise Refused(f"The module takes {len(payload) / 2**20:,.0f} MiB; {MAX_BYTES // 2**20} MiB is the most.")
    kind, _, text = bytes(payload).partition(b"\n")
    if kind not in (b"relay", b"relax"):
        raise Refused("These bytes are no module of Relay or Relax.")
    if kind.decode() != loaded():
        raise Refused(f"A {kind.decode().capitalize()} module came where none is expected.")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("The module's JSON is damaged.") from None
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise Refused("The module's JSON has no list of nodes.")
    if len(nodes) > MAX_NODES:
        raise Refused(f"The module has {len(nodes):,} nodes; {MAX_NODES:,} is the most.")
    try:
        return _reader(kind.decode()).read(graph, nodes)
    except Refused:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"The module's JSON is damaged: {type(error).__name__}: {first_line(error)}") from None
    except sys.modules["tvm"].error.TVMError as error:
        raise Refused(f"TVM does not take the module: {first_line(error)}") from None


def _reader(kind: str) -> ModuleType:
    if kind == "relay":
        from autograder.engine.wire import relay as wire_relay

        return wire_relay
    from autograder.engine.wire import relax as wire_relax

    return wire_relax


def first_line(error: Exception) -> str:
    """What an error of TVM says, without the C++ stack around it."""
    lines = [line.strip() for line in str(error).split("\n")]
    telling = [
        line for line in lines if line and not line.startswith(("Traceback", "File", "[bt]", "Stack trace", "at "))
    ]
    text = telling[-1] if telling else type(error).__name__
    return text[:200] if text.isprintable() else type(error).__name__


def in_order(nodes: list[dict], root: int, children: Callable[[int], Iterable[int]]) -> list[int]:
    """The nodes that `root` needs, each after all that it needs. Refused: a cycle, a missing node, too much depth."""
    depth: dict[int, int] = {}
    open_, order, stack = set(), [], [root]
    while stack:
        at = stack[-1]
        if at in depth:
            stack.pop()
            continue
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(nodes):
            raise Refused(f"The module's JSON refers to a node that is not there ({str(at)[:40]}).")
        needs = list(children(at))
        missing = [child for child in needs if child not in depth]
        if not missing:
            depth[at] = 1 + max((depth[child] for child in needs), default=0)
            if depth[at] > MAX_DEPTH:
                raise Refused(f"The module is nested more than {MAX_DEPTH:,} levels deep.")
            order.append(at)
            open_.discard(at)
            stack.pop()
        elif at in open_:
            raise Refused("The module's JSON is circular.")
        else:
            open_.add(at)
            stack.extend(missing)
    return order


def tensor(text: str) -> tuple[bytes, tuple[int, ...], tuple[int, int]]:
    """A tensor in TVM's base64: its bytes, shape, and type (code of DLPack, bits). Raises Refused unless all fits."""
    try:
        data = base64.b64decode(text.replace("\n", ""), validate=True)
        magic, _, device, _, rank, code, bits, lanes = _TENSOR.unpack_from(data)
        if magic != _MAGIC or device != 1 or lanes != 1 or not 0 <= rank <= 16 or bits not in _NUMBERS.get(code, ()):
            raise Refused("A tensor in the module is of a kind that cannot travel.")
        *shape, size = struct.unpack_from(f"<{rank + 1}q", data, _TENSOR.size)
    except (binascii.Error, struct.error, UnicodeEncodeError):
        raise Refused("A tensor in the module is damaged.") from None
    body = data[_TENSOR.size + 8 * (rank + 1) :]
    if min(shape, default=1) < 0 or math.prod(shape) * -(-bits // 8) != size or size != len(body):
        raise Refused(f"A tensor in the module says it is {tuple(shape)} and holds {len(body):,} bytes.")
    return body, tuple(shape), (code, bits)
