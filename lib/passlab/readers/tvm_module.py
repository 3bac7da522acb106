"""An IRModule: the type has the same name in both TVMs; what is in it is Relay in 0.17, Relax and TensorIR today."""

from __future__ import annotations

from typing import Any

from passlab.graph import Graph
from passlab.relax import loaded


def read(module: Any, *inputs: Any) -> Graph:
    """The view of the module's `main`, or of its only function."""
    functions = list(module.functions.values())
    if len(functions) == 1 and type(functions[0]).__name__ == "PrimFunc":
        from passlab.readers import tensorir

        return tensorir.read(functions[0])
    if loaded() == "relay":
        from passlab.readers import relay as reader
    else:
        from passlab.readers import relax as reader
    return reader.read(module)
