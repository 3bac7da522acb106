"""Relay and Relax modules as data: a line with the flavour, then TVM's own JSON, tensors included.

The JSON is checked here before TVM sees any of it, since TVM's loader follows the node numbers in it unchecked.
Whatever is too large, too deep, circular or not on a list is refused. What TVM then builds is checked to be
well-formed. Even so, `decode_module` belongs in a confined process that may crash: no list makes a C++ compiler safe.

Running a module means running its author's code, above all TIR, which can index past the end of a buffer. Modules are
therefore built and run in an untrusted process that holds no secrets (`builder`), never in the one that judges.

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
from typing import Any, NamedTuple

from autograder.engine.wire.refusal import Refused
from passlab.tvm.reach import loaded

MAX_BYTES = 256 * 2**20
MAX_NODES = 1_000_000
MAX_DEPTH = 5_000  # a Relay call nests two levels; TVM itself builds chains of 4,000 calls

#: DLPack type code → the bit widths it may have.
_NUMBERS = {0: (8, 16, 32, 64), 1: (1, 8, 16, 32, 64), 2: (16, 32, 64), 4: (16,), 6: (8,)}
_TENSOR = struct.Struct("<QQiiiBBH")  # magic, reserved, device type and number, rank, type code, bits, lanes
_MAGIC = 0xDD5E40F096B4A13F


def carries(value: Any) -> bool:
    """Return whether `encode_module` takes `value`: an IRModule or a function of the loaded TVM."""
    held = loaded()
    if not held:
        return False
    tvm = sys.modules["tvm"]
    return isinstance(value, (tvm.IRModule, *([tvm.relay.Function] if held == "relay" else [tvm.relax.Function])))


def encode_module(value: Any) -> bytes:
    """Return a module or function as bytes. Raises Refused if it has no JSON form, or too large a one."""
    try:
        text = sys.modules["tvm"].ir.save_json(value)
    except Exception as error:
        raise Refused(f"The module cannot be saved as JSON: {first_line(error)}") from None
    payload = f"{loaded()}\n{text}".encode()
    if len(payload) > MAX_BYTES:
        raise Refused(f"The module takes {len(payload) / 2**20:,.0f} MiB; the limit is {MAX_BYTES // 2**20} MiB.")
    return payload


def decode_module(payload: bytes) -> Any:
    """Return the module in `payload`, well-formed and, in Relay, typed. Raises Refused for everything else.

    Call it only in a confined process: input that these checks miss may crash it.
    """
    if len(payload) > MAX_BYTES:
        raise Refused(f"The module takes {len(payload) / 2**20:,.0f} MiB; the limit is {MAX_BYTES // 2**20} MiB.")
    kind, _, text = bytes(payload).partition(b"\n")
    if kind not in (b"relay", b"relax"):
        raise Refused("The bytes are not a Relay or Relax module: their first line must be relay or relax.")
    if kind.decode() != loaded():
        raise Refused(f"Got a {kind.decode().capitalize()} module where none is expected.")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("The module's JSON is damaged.") from None
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise Refused("The module's JSON has no list of nodes.")
    if len(nodes) > MAX_NODES:
        raise Refused(f"The module has {len(nodes):,} nodes; the limit is {MAX_NODES:,}.")
    try:
        return _reader(kind.decode()).read(graph, nodes)
    except Refused:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"The module's JSON is damaged: {type(error).__name__}: {first_line(error)}") from None
    except sys.modules["tvm"].error.TVMError as error:
        raise Refused(f"TVM rejects the module: {first_line(error)}") from None


def _reader(kind: str) -> ModuleType:
    if kind == "relay":
        from autograder.engine.wire import relay as wire_relay

        return wire_relay
    from autograder.engine.wire import relax as wire_relax

    return wire_relax


def first_line(error: Exception) -> str:
    """Return the last telling line of a TVM error, without the C++ stack around it."""
    lines = [line.strip() for line in str(error).split("\n")]
    telling = [
        line for line in lines if line and not line.startswith(("Traceback", "File", "[bt]", "Stack trace", "at "))
    ]
    text = telling[-1] if telling else type(error).__name__
    return text[:200] if text.isprintable() else type(error).__name__


def in_order(nodes: list[dict], root: int, children: Callable[[int], Iterable[int]]) -> list[int]:
    """Return the nodes that `root` needs in post-order. Raises Refused for a cycle, a missing node or excess depth."""
    depth: dict[int, int] = {}
    open_, order, stack = set(), [], [root]
    while stack:
        at = stack[-1]
        if at in depth:
            stack.pop()
            continue
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(nodes):
            raise Refused(f"The module's JSON refers to a node that does not exist ({str(at)[:40]}).")
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


class Tensor(NamedTuple):
    """A tensor of a module. `code`, `bits`: its DLPack type."""

    data: bytes
    shape: tuple[int, ...]
    code: int
    bits: int


def tensor(text: str) -> Tensor:
    """Read a tensor from TVM's base64. Raises Refused if it is damaged or of a kind that cannot travel."""
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
        raise Refused(f"A tensor in the module claims the shape {tuple(shape)} but holds {len(body):,} bytes.")
    return Tensor(body, tuple(shape), code, bits)
