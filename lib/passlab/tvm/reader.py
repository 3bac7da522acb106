"""Read a module or function of TVM: Relay in 0.17, Relax and TensorIR today."""

from __future__ import annotations

from typing import Any

from passlab.graph import Graph
from passlab.tvm.dialect import current_dialect
from passlab.tvm.modules import is_module


def read(value: Any, *inputs: Any) -> Graph:
    """Return the view of a function, or of a module's `main` or only function; of a PrimFunc, its blocks."""
    functions = list(value.functions.values()) if is_module(value) else [value]
    if len(functions) == 1 and type(functions[0]).__name__ == "PrimFunc":
        from passlab.tvm import tensorir  # imports TVM

        return tensorir.read(functions[0])
    return current_dialect().read(value)
