"""Text: HLO, StableHLO or other dialects of MLIR, told apart by what is in it."""

from __future__ import annotations

import re
from typing import Any

from passlab.graph import Graph
from passlab.graph.registry import load

_MLIR = re.compile(r"\b(?:linalg|arith|math|tensor|scf|memref|affine|cf|bufferization)\.\w")


def read(text: str, *inputs: Any) -> Graph:
    """Return the view of HLO text (it begins with `HloModule`) or of MLIR text, in StableHLO or below it."""
    if "HloModule" in text:
        from passlab.formats import hlo

        return hlo.read(text)
    if "func" in text and "stablehlo." not in text and _MLIR.search(text):
        return load("mlir.reader").read(load("mlir").parse(text, allowed=None))
    if "func" in text and ("module" in text or "stablehlo." in text):
        from passlab.formats import stablehlo

        return stablehlo.read(text)
    start = " ".join(text.split())[:60]
    raise ValueError(
        f"view reads text in HLO (HloModule …) or StableHLO (module {{ func.func … }}); this is neither: {start!r}"
    )
