"""Strong and weak scaling of an iteration over columns of points: where more cores stop to help, and why.

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
    """What an iteration does: `work` cycles for each point, columns of `depth` points, `sums` all-reduces of a word."""

    work: int
    depth: int
    sums: int


def parts(stencil: Stencil, block: int, side: int, ramp: int = 2) -> dict[str, int]:
    """Return the cycles of an iteration with block × block columns on each of side × side cores, by what they go to.

    work: a core's points. halo: its four sides, one after the other through its one gate to the router, one link far.
    sums: an all-reduce of one word goes to the middle of the rows, of that column, and all the way back.
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


def efficiency(found: dict[int, dict[str, int]], strong: bool) -> dict[int, float]:
    """Return side → the share of the cores' time that one core alone would have needed; `found` has side 1."""
    one = sum(found[1].values())
    return {p: one / sum(cycles.values()) / (p * p if strong else 1) for p, cycles in found.items()}


def bend(found: dict[int, dict[str, int]], strong: bool) -> tuple[int, str] | None:
    """Return the first side whose efficiency is below one half, and what takes the most cycles besides work there."""
    for side, share in sorted(efficiency(found, strong).items()):
        if share < 0.5:
            return side, max(("halo", "sums"), key=lambda part: found[side][part])
    return None
