"""Text: HLO, StableHLO or other dialects of MLIR, recognized by its content."""

from __future__ import annotations

import re
from typing import Any

from passlab.graph import Graph
from passlab.graph.registry import load

#: Fragments that a text must contain → the module that reads it; the first row that fits.
_READERS = (
    ((r"HloModule",), "formats.hlo"),
    ((r"func", r"stablehlo\."), "formats.stablehlo"),
    ((r"func", r"\b(?:linalg|arith|math|tensor|scf|memref|affine|cf|bufferization)\.\w"), "mlir.reader"),
    ((r"func", r"module"), "formats.stablehlo"),
)


def read(text: str, *inputs: Any) -> Graph:
    """Return the view of HLO text (it begins with `HloModule`) or of MLIR text, in StableHLO or below it.

    Raises ValueError for other text.
    """
    for parts, reader in _READERS:
        if all(re.search(part, text) for part in parts):
            return load(reader).read(text)
    start = " ".join(text.split())[:60]
    raise ValueError(
        f"view reads text in HLO (HloModule …) or StableHLO (module {{ func.func … }}); this is neither: {start!r}"
    )
