"""A str: HLO or StableHLO, whichever it is."""

from __future__ import annotations

from typing import Any

from passlab.graph import Graph


def read(text: str, *inputs: Any) -> Graph:
    """The view of HLO text (it begins with `HloModule`) or of MLIR text in StableHLO."""
    if "HloModule" in text:
        from passlab.formats import hlo

        return hlo.read(text)
    if "func" in text and ("module" in text or "stablehlo." in text):
        from passlab.formats import stablehlo

        return stablehlo.read(text)
    start = " ".join(text.split())[:60]
    raise ValueError(
        f"view reads text in HLO (HloModule …) or StableHLO (module {{ func.func … }}); this is neither: {start!r}"
    )
