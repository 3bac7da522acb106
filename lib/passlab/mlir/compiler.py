"""What compiles MLIR: IREE, a C compiler, or nothing, for xDSL's interpreter. See `passlab.building.compiler`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from passlab.building.compiler import Compiler, Executor


class MLIR(Compiler):
    """A build is not rehearsed: IREE keeps nothing of it, and would start threads, with which no process may fork."""

    distribution = "xdsl"
    sources = ("mlir/executors.py", "mlir/ccode.py")
    own = ("passlab.mlir.",)

    def executors(self) -> ModuleType:
        return importlib.import_module("passlab.mlir.executors")

    def start(self) -> None:
        """Parse with xDSL and with MLIR. No program is compiled: that would start threads."""
        from passlab import mlir

        module = mlir.parse(self.executors().smallest())
        mlir.verify(module)
        mlir.pipeline(module, "canonicalize")

    def confine(self) -> None:
        from passlab.mlir import run, wire

        run.confine()
        wire.use(run.complaint)

    def load(self) -> Callable[[str], Any]:
        return self.executors().loader()

    def parse_untrusted(self, text: str) -> str:
        return text  # it is checked where it is parsed

    def build(self, module: str, params: dict[str, np.ndarray], head: dict) -> Executor:
        return self.executors().build(module, params, head)


COMPILER = MLIR()
