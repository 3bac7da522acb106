"""Strong and weak scaling of an iteration over columns of points: where more cores stop helping, and why.

A square of columns, `depth` points each, on p × p cores: b × b columns on each. An iteration computes, sends each
core's four sides to its neighbours, and sums numbers over all cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from passlab.judge import record
from passlab.wafer import model


@record
@dataclass(frozen=True)
class Stencil:
    """An iteration: `work` cycles for each point, columns of `depth` points, `sums` all-reduces of a word."""

    work: int
    depth: int
    sums: int


def parts(stencil: Stencil, block: int, side: int, ramp: int = 2) -> dict[str, int]:
    """Return the cycles of an iteration with block × block columns on each of side × side cores, by purpose.

    work: a core's points. halo: its four sides, one after the other through its one gate to the router, one link far.
    sums: all-reduces of one word, to the middle of the rows, then of that column, and back.
    """
    if side == 1:
        return {"work": stencil.work * stencil.depth * block**2, "halo": 0, "sums": 0}
    half = side // 2 + 1
    once = 2 * (model.star(half, 1, ramp) + 1 + model.message(half, 1, ramp))
    return {
        "work": stencil.work * stencil.depth * block**2,
        "halo": int(model.message(2, 4 * block * stencil.depth, ramp)),
        "sums": int(stencil.sums * once),
    }


def strong(stencil: Stencil, columns: int, sides: list[int], ramp: int = 2) -> dict[int, dict[str, int]]:
    """Return side → parts, for columns × columns columns in all; each side divides `columns`."""
    return {side: parts(stencil, columns // side, side, ramp) for side in sides}


def weak(stencil: Stencil, block: int, sides: list[int], ramp: int = 2) -> dict[int, dict[str, int]]:
    """Return side → parts, for block × block columns on every core."""
    return {side: parts(stencil, block, side, ramp) for side in sides}


def efficiency(costs: dict[int, dict[str, int]], strong: bool) -> dict[int, float]:
    """Return side → the share of the cores' time that a single core would have needed; `costs` includes side 1."""
    single = sum(costs[1].values())
    return {p: single / sum(cycles.values()) / (p * p if strong else 1) for p, cycles in costs.items()}


def bend(costs: dict[int, dict[str, int]], strong: bool) -> tuple[int, str] | None:
    """Return the first side whose efficiency is below one half, and the part that costs most there, besides work."""
    for side, share in sorted(efficiency(costs, strong).items()):
        if share < 0.5:
            return side, max(("halo", "sums"), key=lambda part: costs[side][part])
    return None
