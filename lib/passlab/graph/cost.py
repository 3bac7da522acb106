"""The cost of a program, as numbers with their units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SINGULAR = {"launches": "launch", "bytes": "byte", "bytes moved": "byte moved"}


class Measured(int):
    """A number that remembers what it counts (`unit`), where it was measured (`device`, None for what follows from
    shapes alone) and what it is made of (`detail`: name → number)."""

    unit: str
    device: str | None
    detail: dict[str, int]

    def __new__(
        cls, value: int, unit: str, device: str | None = None, detail: Mapping[str, int] | None = None
    ) -> Measured:
        self = super().__new__(cls, value)
        self.unit, self.device, self.detail = unit, device, dict(detail or {})
        return self

    def __repr__(self) -> str:
        place = f" on {self.device}" if self.device else ""
        return f"{int(self):,} {self.unit if self != 1 else _SINGULAR[self.unit]}{place}{self._parts()}"

    def _parts(self) -> str:
        """Return the largest parts first, five at most: ": aten.relu ×2, aten.addmm"."""
        if self.unit != "launches" or not self:
            return ""
        largest = sorted(self.detail.items(), key=lambda part: -part[1])
        shown = [name + (f" ×{n}" if n > 1 else "") for name, n in largest[:5]]
        return ": " + ", ".join(shown) + (f" and {len(largest) - 5} more" if len(largest) > 5 else "")

    __str__ = int.__repr__


@dataclass(frozen=True)
class Cost:
    """The cost of a graph: its calls, the kernels it starts, the bytes it moves."""

    nodes: int
    launches: int
    bytes: int
