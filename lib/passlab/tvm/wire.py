"""Relay and Relax modules as data: a line with the flavour, then TVM's own JSON, tensors included.

The JSON is checked here before TVM sees any of it, since TVM's loader follows the node numbers in it unchecked.
JSON that is too large, too deep, circular or has a node that is not on a list is refused. The module that TVM then
builds is checked to be well-formed. Even so, `decode` belongs in a confined process that may crash: no list makes a C++
compiler safe.

Running a module means running its author's code, above all TIR, which can index past the end of a buffer. Modules are
therefore built and run in an untrusted process that holds no secrets, never in the one that judges.

These modules do not import torch, so that the process starts fast.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from passlab.process.error_text import reason
from passlab.process.refusal import Refused
from passlab.tvm.dialect import current_dialect, own
from passlab.tvm.reach import loaded

MAX_BYTES = 256 * 2**20
MAX_NODES = 1_000_000


def carries(value: Any) -> bool:
    """Return whether `encode` takes `value`: an IRModule or a function of the loaded TVM."""
    return bool(loaded()) and isinstance(value, (sys.modules["tvm"].IRModule, current_dialect().Function))


def encode(value: Any) -> bytes:
    """Return a module or function as bytes. Raises Refused if it has no JSON form, or if that is too large."""
    try:
        text = sys.modules["tvm"].ir.save_json(value)
    except Exception as error:
        raise Refused(f"The module cannot be saved as JSON: {_why(error)}") from None
    return _check_size(f"{loaded()}\n{text}".encode())


def decode(payload: bytes) -> Any:
    """Return the module in `payload`, well-formed and, in Relay, typed. Raises Refused for everything else.

    Call it only in a confined process: input that these checks miss may crash it.
    """
    kind, _, text = _check_size(bytes(payload)).partition(b"\n")
    if kind not in (b"relay", b"relax"):
        raise Refused("The bytes are not a Relay or Relax module: their first line must be relay or relax.")
    if kind.decode() != loaded():
        raise Refused(f"Got a {kind.decode().capitalize()} module where none is expected.")
    return read(text)


def read(text: bytes) -> Any:
    """Return the module of the loaded TVM that the JSON describes, as `decode` does. Raises Refused."""
    try:
        graph = json.loads(_check_size(text))
    except (ValueError, RecursionError):
        raise Refused("The module's JSON is damaged.") from None
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise Refused("The module's JSON has no list of nodes.")
    if len(nodes) > MAX_NODES:
        raise Refused(f"The module has {len(nodes):,} nodes; the limit is {MAX_NODES:,}.")
    try:
        return own("wire").read(graph, nodes)
    except Refused:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"The module's JSON is damaged: {type(error).__name__}: {_why(error)}") from None
    except sys.modules["tvm"].error.TVMError as error:
        raise Refused(f"TVM rejects the module: {_why(error)}") from None


def _why(error: Exception) -> str:
    return reason(error) or type(error).__name__


def _check_size(payload: bytes) -> bytes:
    if len(payload) > MAX_BYTES:
        raise Refused(f"The module takes {len(payload) / 2**20:,.0f} MiB; the limit is {MAX_BYTES // 2**20} MiB.")
    return payload
