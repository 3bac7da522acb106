"""An IRModule: the type has the same name in both TVMs; what is in it is Relay in 0.17, Relax and TensorIR today."""

from __future__ import annotations

from typing import Any

from passlab.graph import Graph
from passlab.relax import loaded


def read(module: Any, *inputs: Any) -> Graph:
    """The view of the module's `main`, or of its only function."""
    functions = list(module.functions.values())
    if len(functions) == 1 and type(functions[0]).__name__ == "PrimFunc":
        from passlab.relax import tensorir

        return tensorir.read(functions[0])
    if loaded() == "relay":
        from passlab.relay import reader
    else:
        from passlab.relax import reader
    return reader.read(module)
