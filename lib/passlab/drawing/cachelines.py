"""Draw memory accesses: the sectors of a warp's load, and the hits and misses of a loop over a matrix.

warp([4 * lane for lane in range(32)])           # 32 lanes and the sectors that they load
sweep([(i, j) for j in range(8) for i in range(8)], hit, (8, 8), per_line=4)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from passlab.drawing.axes import COLOURS, LIGHT, Plot
from passlab.drawing.picture import INK, PALE, cut
from passlab.judge.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Bytes of a sector and of a line of a GPU; sectors per row of the picture, and maximum number of rows.
SECTOR, LINE = 32, 128
PER_ROW, ROWS = 8, 4
HIT, MISS = COLOURS[0], COLOURS[1]


def warp(addresses: Sequence[int | None], size: int = 4, title: str = "") -> Plot:
    """Draw the load of a warp: lanes above, and below the sectors of 32 bytes that they load.

    addresses: in bytes, one for each lane, None for an inactive lane. size: bytes that each lane loads. A sector is
    outlined, its loaded bytes are filled, and the sectors of one line of 128 bytes are close together. Raises
    ValueError if all lanes are inactive.
    """
    if not any(at is not None for at in addresses):
        raise ValueError("No lane is active: give at least one address.")
    loaded = {byte for at in addresses if at is not None for byte in range(at, at + size)}
    sectors = sorted({byte // SECTOR for byte in loaded})
    lines = {sector * SECTOR // LINE for sector in sectors}
    share = len(loaded) / (SECTOR * len(sectors))
    count = f"{plural(len(sectors), 'sector')} in {plural(len(lines), 'line')}"
    summary = f"{count}, {share:.0%} of the bytes in use"
    text = [f"{title}: {summary}" if title else summary]
    for sector in sectors[: PER_ROW * ROWS]:
        cells = "".join("█" if used else "·" for used in _words(sector, loaded))
        lanes = [n for n, at in enumerate(addresses) if at is not None and _in(at, size, sector)]
        text.append(f"  byte {sector * SECTOR:>6}  {cells}  lanes {_ranges(lanes)}")
    if len(sectors) > PER_ROW * ROWS:
        text.append(f"  and {len(sectors) - PER_ROW * ROWS} more sectors")

    def figure() -> Figure:
        return _warp_figure(addresses, size, loaded, sectors, f"{title} · {summary}" if title else summary)

    return Plot("\n".join(text), figure, title or "A warp's load")


def _words(sector: int, loaded: set[int]) -> list[int]:
    """Return the number of loaded bytes in each word of 4 bytes of a sector."""
    starts = range(sector * SECTOR, (sector + 1) * SECTOR, 4)
    return [sum(byte in loaded for byte in range(start, start + 4)) for start in starts]


def _in(at: int, size: int, sector: int) -> bool:
    return at // SECTOR <= sector <= (at + size - 1) // SECTOR


def _ranges(numbers: Sequence[int]) -> str:
    """Return 0–3, 7 for [0, 1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs)


def _warp_figure(addresses: Sequence, size: int, loaded: set[int], sectors: list[int], title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    shown = sectors[: PER_ROW * ROWS]
    unit, gap, between = 1.0, 1.2, 3.2  # points are words of 4 bytes; a sector is 8 wide
    places: dict[int, tuple[float, int]] = {}
    x, row = 0.0, 0
    for number, sector in enumerate(shown):
        new_row = number and number % PER_ROW == 0
        x, row = (0.0, row + 1) if new_row else (x, row)
        if number and not new_row:
            x += gap if sector * SECTOR // LINE == shown[number - 1] * SECTOR // LINE else between
        places[sector] = x, row
        x += 8 * unit
    wide = max(62.0, max(x + 8 for x, _ in places.values()))
    rows = row + 1
    high = 15 + 7 * (rows - 1)
    fig = Figure(figsize=(8.4, 8.4 * (high + 3) / (wide + 4)))
    axes = fig.add_axes((0, 0, 1, 1), xlim=(-2, wide + 2), ylim=(high + 1.5, -1.5), aspect="equal")
    axes.set_axis_off()
    colour = {s: COLOURS[(s * SECTOR // LINE - shown[0] * SECTOR // LINE) % len(COLOURS)] for s in shown}
    step = wide / 32
    middle = {s: wide / 2 - max(x + 8 for x, r in places.values() if r == places[s][1]) / 2 for s in shown}
    for lane, at in enumerate(addresses):
        left = lane * step + 0.1 * step
        targets = [s for s in shown if at is not None and _in(at, size, s)]
        face = colour[targets[0]] if targets else (LIGHT if at is None else PALE)
        axes.add_patch(Rectangle((left, 0), step * 0.8, 2.2, facecolor=face, edgecolor="none"))
        axes.text(left + step * 0.4, 1.1, str(lane), color="white" if at is not None else PALE, fontsize=6, **_CENTRE)
        for sector in targets:
            x, r = places[sector]
            first = max(at - sector * SECTOR, 0)
            end = x + middle[sector] + (first + min(at + size - sector * SECTOR, SECTOR)) / 8
            top = 10 + 7 * r
            curve = [(left + step * 0.4, 2.3), (left + step * 0.4, 6.0), (end, top - 4.2), (end, top - 0.1)]
            _curve(axes, curve, colour[sector], 0.9 if r == 0 else 0.35)
    for sector, (x, r) in places.items():
        x, top = x + middle[sector], 10 + 7 * r
        axes.add_patch(Rectangle((x, top), 8, 2.4, facecolor="white", edgecolor=colour[sector], linewidth=1.1))
        for word, count in enumerate(_words(sector, loaded)):
            if count:
                look = {"facecolor": colour[sector], "alpha": 0.25 + 0.75 * count / 4, "edgecolor": "white"}
                axes.add_patch(Rectangle((x + word, top), 1, 2.4, linewidth=0.5, **look))
        if len(shown) <= 8 or sector * SECTOR % LINE == 0 or places[sector][0] == 0:
            axes.text(x + 0.1, top + 3.5, f"{sector * SECTOR}", fontsize=6, color=PALE, ha="left", va="center")
    axes.text(-0.6, 1.1, "lanes", color=PALE, ha="right", va="center", fontsize=7.5)
    axes.text(-0.6, 11.2, "memory", color=PALE, ha="right", va="center", fontsize=7.5)
    note = f" · {len(sectors) - len(shown)} sectors are not drawn" if len(sectors) > len(shown) else ""
    axes.set_title(cut(title + note, 110), loc="left", x=0, weight="bold", fontsize=9.5, color=INK)
    return fig


_CENTRE = {"ha": "center", "va": "center"}


def _curve(axes: Axes, points: Sequence[tuple[float, float]], colour: str, alpha: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    axes.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, linewidth=0.8, alpha=alpha))


def sweep(
    order: Sequence[tuple[int, int]], hit: Sequence[bool], shape: tuple[int, int], per_line: int, title: str = ""
) -> Plot:
    """Draw a loop over a matrix: the order of its accesses as a path, and each cell by its first access, hit or miss.

    order: (row, column) of each access; hit: whether it hits in the cache; per_line: elements in a line. The matrix is
    in row-major order. Raises ValueError for an access outside of the matrix.
    """
    if len(order) != len(hit):
        whole = plural(len(order), "access", "accesses")
        raise ValueError(f"For {whole} there must be as many hits or misses; there are {len(hit)}.")
    rows, columns = shape
    if bad := [at for at in order if not (0 <= at[0] < rows and 0 <= at[1] < columns)]:
        raise ValueError(f"Access {bad[0]} is outside of a matrix of {rows} × {columns}.")
    first: dict[tuple[int, int], bool] = {}
    for at, was in zip(order, hit, strict=True):
        first.setdefault(at, bool(was))
    missed = sum(not was for was in hit)
    summary = f"{missed} of {len(hit)} accesses miss"
    text = [f"{title}: {summary}" if title else summary]
    marks = {True: "·", False: "█", None: " "}
    text += ["  " + "".join(marks[first.get((i, j))] for j in range(columns)) for i in range(rows)]

    def figure() -> Figure:
        return _sweep_figure(order, first, shape, per_line, f"{title} · {summary}" if title else summary)

    return Plot("\n".join([*text, "  █ miss  · hit"]), figure, title or "A loop over a matrix")


def _sweep_figure(order: Sequence, first: dict, shape: tuple[int, int], per_line: int, title: str) -> Figure:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    rows, columns = shape
    cell = min(0.3, 5.2 / columns, 4.6 / rows)
    fig = Figure(figsize=(cell * columns + 0.1, cell * rows + 0.1))
    axes = fig.add_axes((0, 0, 1, 1), xlim=(-0.15, columns + 0.15), ylim=(rows + 0.15, -0.15), aspect="equal")
    axes.set_axis_off()
    look: dict[bool, dict[str, Any]] = {
        False: {"facecolor": MISS, "alpha": 0.95},
        True: {"facecolor": HIT, "alpha": 0.55},
    }
    for (i, j), was in first.items():
        axes.add_patch(Rectangle((j, i), 1, 1, linewidth=0, **look[was]))
    for start in range(0, rows * columns, per_line):  # a line may continue in the next row
        at = start
        while at < min(start + per_line, rows * columns):
            row, column = divmod(at, columns)
            length = min(columns - column, start + per_line - at)
            axes.add_patch(Rectangle((column, row), length, 1, facecolor="none", edgecolor="white", linewidth=1.6))
            at += length
    points = [(j + 0.5, i + 0.5) for i, j in order]
    steps = list(pairwise(points))
    fade = [0.25 + 0.65 * n / max(len(steps), 1) for n in range(len(steps))]
    axes.add_collection(LineCollection(steps, colors=INK, linewidths=0.7, alpha=fade))
    if points:
        axes.plot(*points[0], "o", color=INK, markersize=3.5)
    axes.set_title(cut(title, 90), loc="left", x=0, weight="bold", fontsize=9.5)
    keys = [Rectangle((0, 0), 1, 1, linewidth=0, **look[was]) for was in (False, True)]
    axes.legend(keys, ["miss", "hit"], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, borderaxespad=0)
    return fig
