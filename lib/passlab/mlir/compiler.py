"""What compiles MLIR: IREE, a C compiler, or nothing, for xDSL's interpreter. See `passlab.building.compiler`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from passlab.building.compiler import Compiler, Executor

#: Modules that exercises import late: xDSL's lowering of linalg, and those that torch's first fake tensor loads.
_LATE = ("numpy.random", "torch._dynamo", "xdsl.transforms.convert_linalg_to_loops")


class MLIR(Compiler):
    """Builds are not rehearsed: IREE caches nothing, and would start threads, after which a process must not fork."""

    distribution = "xdsl"
    sources = ("mlir/executors.py", "mlir/ccode.py")
    own = ("passlab.mlir.",)

    def executors(self) -> ModuleType:
        return importlib.import_module("passlab.mlir.executors")

    def start(self) -> None:
        """Load parsers and passes, once for all forks. No program is compiled: that would start threads."""
        from passlab import mlir
        from passlab.mlir.modules import DIALECTS

        for path in DIALECTS.values():
            importlib.import_module(f"xdsl.dialects.{path.partition('.')[0]}")
        for name in _LATE:
            importlib.import_module(name)

        module = mlir.parse(self.executors().smallest())
        mlir.verify(module)
        mlir.pipeline(module, "canonicalize")

    def confine(self) -> None:
        from passlab.mlir import run, wire

        run.confine()
        wire.use(run.why_not_parsed)

    def load(self) -> Callable[[str], Any]:
        return self.executors().loader()

    def parse_untrusted(self, text: str) -> str:
        return text  # it is checked where it is parsed

    def build(self, module: str, params: dict[str, np.ndarray], head: dict) -> Executor:
        return self.executors().build(module, params, head)


COMPILER = MLIR()
