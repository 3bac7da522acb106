"""Relay and Relax modules as data: a line with the flavour, then TVM's own JSON, tensors included.

The JSON is checked here before TVM sees any of it, since TVM's loader follows the node numbers in it unchecked.
Whatever is too large, too deep, circular or not on a list is refused. What TVM then builds is checked to be
well-formed. Even so, `decode_module` belongs in a confined process that may crash: no list makes a C++ compiler safe.

Running a module means running its author's code, above all TIR, which can index past the end of a buffer. Modules are
therefore built and run in an untrusted process that holds no secrets (`builder`), never in the one that judges.

None of these modules imports torch, which that process does without.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

from autograder.engine.wire import relax, relay
from autograder.engine.wire.refusal import Refused
from autograder.engine.wire.tvm_parts import first_line
from passlab.tvm.reach import loaded

MAX_BYTES = 256 * 2**20
MAX_NODES = 1_000_000
#: First line of a module's bytes → what reads the rest.
READERS: dict[bytes, ModuleType] = {b"relay": relay, b"relax": relax}


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
    if kind not in READERS:
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
        return READERS[kind].read(graph, nodes)
    except Refused:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"The module's JSON is damaged: {type(error).__name__}: {first_line(error)}") from None
    except sys.modules["tvm"].error.TVMError as error:
        raise Refused(f"TVM rejects the module: {first_line(error)}") from None
