"""What compiles MLIR: IREE, a C compiler, or nothing, for xDSL's interpreter. See `passlab.building.compiler`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from passlab.building.compiler import Compiler, Executor

#: What exercises import late: xDSL's way from linalg to loops, and what torch loads with its first fake tensor.
_LATE = ("numpy.random", "torch._dynamo", "xdsl.transforms.convert_linalg_to_loops")


class MLIR(Compiler):
    """A build is not rehearsed: IREE keeps nothing of it, and would start threads, with which no process may fork."""

    distribution = "xdsl"
    sources = ("mlir/executors.py", "mlir/ccode.py")
    own = ("passlab.mlir.",)

    def executors(self) -> ModuleType:
        return importlib.import_module("passlab.mlir.executors")

    def start(self) -> None:
        """Load what parses and rewrites, once for all forks. No program is compiled: that would start threads."""
        from passlab import mlir
        from passlab.mlir.modules import DIALECTS

        for where in DIALECTS.values():
            importlib.import_module(f"xdsl.dialects.{where.partition('.')[0]}")
        for name in _LATE:
            importlib.import_module(name)

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
