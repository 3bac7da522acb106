"""Text: HLO or StableHLO, told apart by its beginning."""

from __future__ import annotations

from typing import Any

from passlab.graph import Graph


def read(text: str, *inputs: Any) -> Graph:
    """Return the view of HLO text (it begins with `HloModule`) or of StableHLO in MLIR text."""
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
