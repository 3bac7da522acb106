"""Plot buffer lifetimes and offsets.

    gantt(buffers)                                     # live ranges, and the live bytes in each step
    arena(buffers, offsets)                            # the arena as time × offset
    arenas(buffers, {"by size": …, "by search": …})    # several plans at one scale

Buffers are objects with name, lower, upper, size; offsets are name → byte. Dark rectangles are large buffers, grey is
unused memory, the dashed line is the lower bound. An overlap of two live buffers is red. If few steps change the live
buffers, time is drawn by events: one unit from each to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from passlab.drawing.axes import COLOURS, LIGHT, Plot
from passlab.drawing.boxes import RED
from passlab.drawing.lattice import SCALE
from passlab.drawing.picture import INK, cut, printable, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Maximum number of buffers in a Gantt chart, which shows the largest.
ROWS = 60
#: Text form of an arena: its columns and rows, and the letters for buffers.
COLUMNS, LINES = 72, 18
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Times(NamedTuple):
    """The steps in which a buffer begins or ends, and the coordinates of steps."""

    events: list[int]
    by_events: bool

    def at(self, step: int) -> float:
        return self.events.index(step) if self.by_events else step

    @property
    def label(self) -> str:
        return "time, one unit from event to event" if self.by_events else "step"


def _times(buffers: Sequence[Any]) -> Times:
    events = sorted({step for b in buffers for step in (b.lower, b.upper)})
    if not events:
        raise ValueError("There is no buffer to draw.")
    return Times(events, events[-1] - events[0] > 4 * len(events))


def _live(buffers: Sequence[Any], times: Times) -> list[int]:
    """Return the live bytes from each event to the next."""
    return [sum(b.size for b in buffers if b.lower <= step < b.upper) for step in times.events[:-1]]


def _clashing(buffers: Sequence[Any], offsets: Mapping[str, int]) -> list[tuple[Any, Any]]:
    pairs, live = [], []
    for buffer in sorted((b for b in buffers if b.size), key=lambda b: b.lower):
        live = [b for b in live if b.upper > buffer.lower]
        start, end = offsets[buffer.name], offsets[buffer.name] + buffer.size
        pairs += [(b, buffer) for b in live if offsets[b.name] < end and start < offsets[b.name] + b.size]
        live.append(buffer)
    return pairs


def _colour(nbytes: int, largest: int) -> tuple[str, str]:
    """Return the colour of a buffer and of the ink on it: dark is large."""
    shade = SCALE[round((len(SCALE) - 1) * (1 - (nbytes / largest) ** 0.5))] if largest else SCALE[-1]
    return shade, INK if SCALE.index(shade) > 4 else "white"


# ---------------------------------------------------------------------------------------------------- Gantt


def gantt(buffers: Sequence[Any], title: str = "Live ranges") -> Plot:
    """Draw the live range of each buffer, in the order of allocation, above the live bytes."""
    times = _times(buffers)
    live = _live(buffers, times)
    peak = max(live, default=0)
    first = times.events[live.index(peak)] if live else times.events[0]
    shown = sorted(sorted(buffers, key=lambda b: -b.size)[:ROWS], key=lambda b: (b.lower, b.upper))
    head = f"{title}: {len(buffers)} buffers, peak {size(peak)} in step {first}"
    if len(shown) < len(buffers):
        head += f" ({len(buffers) - len(shown)} smaller not drawn)"
    return Plot(_gantt_text(head, shown, times, first), lambda: _gantt(head, shown, times, live, first), title)


def _gantt(head: str, shown: Sequence[Any], times: Times, live: list[int], first: int) -> Figure:
    from matplotlib.figure import Figure

    row = 0.17 if len(shown) <= 30 else 0.13
    high = max(0.9, row * len(shown))
    fig = Figure(figsize=(7.6, high + 0.95))
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=(high, 0.8))
    largest = max((b.size for b in shown), default=0)
    start = times.at(first)
    wide = times.at(times.events[-1]) - times.at(times.events[0]) or 1
    above.axvspan(start, start + 1, color=COLOURS[4], alpha=0.35, lw=0)
    for k, buffer in enumerate(shown):
        left, right = times.at(buffer.lower), times.at(buffer.upper)
        colour, ink = _colour(buffer.size, largest)
        above.barh(k, right - left, left=left, height=0.82, color=colour, lw=0)
        name = cut(buffer.name, 22)
        if row > 0.15 or right - left > wide / 5:
            inside = (right - left) / wide * 95 > len(name) + 1
            late = right + len(name) * wide / 95 > times.at(times.events[-1])
            x, side = ((left + right) / 2, "center") if inside else (left, "right") if late else (right, "left")
            text = printable(f" {name} ")
            above.text(x, k, text, ha=side, va="center", color=ink if inside else INK, fontsize=7 if row > 0.15 else 6)
    above.set(ylim=(len(shown) - 0.4, -0.6), yticks=[])
    _bytes(below, times, live, first)
    for axes in (above, below):
        axes.spines[["top", "right", "left"]].set_visible(False)
    above.tick_params(bottom=False)
    above.set_title(printable(head), loc="left", weight="bold", fontsize=9.5)
    fig.subplots_adjust(hspace=0.06)
    return fig


def _bytes(axes: Axes, times: Times, live: list[int], first: int | None = None) -> None:
    """Draw the live bytes as steps, with the peak marked."""
    xs = [times.at(step) for step in times.events]
    axes.stairs(live, xs, fill=True, color=COLOURS[5], alpha=0.7, lw=0)
    peak = max(live, default=0)
    axes.axhline(peak, color=COLOURS[1], lw=1, ls=(0, (4, 2)))
    axes.set(ylim=(0, peak * 1.28 or 1), yticks=[], xlim=(xs[0], xs[-1] if xs[-1] > xs[0] else xs[0] + 1))
    if first is not None:
        axes.axvspan(times.at(first), times.at(first) + 1, color=COLOURS[4], alpha=0.35, lw=0)
    axes.text(xs[0], peak * 1.04, f" {size(peak)} live", color=COLOURS[1], fontsize=7.5, va="bottom")
    axes.set_xlabel(times.label)


def _gantt_text(head: str, shown: Sequence[Any], times: Times, first: int) -> str:
    low, high = times.at(times.events[0]), times.at(times.events[-1])
    scale = min(1.0, COLUMNS / (high - low or 1))
    wide = max(len(cut(b.name, 22)) for b in shown)
    lines = [head]
    for b in shown:
        left = int((times.at(b.lower) - low) * scale)
        right = max(left + 1, int((times.at(b.upper) - low) * scale))
        lines.append(f"{cut(b.name, 22):<{wide}} {' ' * left}{'█' * (right - left)}  {size(b.size)}")
    return "\n".join([*lines, f"{'':<{wide}} {' ' * int((times.at(first) - low) * scale)}▲ peak"])


# ---------------------------------------------------------------------------------------------------- arena


def arena(buffers: Sequence[Any], offsets: Mapping[str, int], title: str = "The arena") -> Plot:
    """Draw the arena: time goes right, offsets go up, each buffer is a rectangle."""
    return arenas(buffers, {"": offsets}, title)


def arenas(buffers: Sequence[Any], plans: Mapping[str, Mapping[str, int]], title: str = "Plans side by side") -> Plot:
    """Draw several plans of the same buffers at one scale.

    Raises ValueError without a plan, or for one that has no offset for a buffer.
    """
    if not plans:
        raise ValueError("There is no plan to draw: give {name: offsets}.")
    times, visible = _times(buffers), [b for b in buffers if b.size and b.upper > b.lower]
    for name, offsets in plans.items():
        if missing := [b.name for b in visible if b.name not in offsets]:
            raise ValueError(f"{missing[0]} has no offset{f' in {name!r}' if name else ''}: give it one to draw it.")
    live = _live(visible, times)
    text = "\n\n".join(_arena_text(visible, offsets, times, live, name or title) for name, offsets in plans.items())
    if len(plans) > 1 or next(iter(plans)):
        text = f"{title}\n{text}"
    return Plot(text, lambda: _arenas(visible, plans, times, live, title), title)


def _top(buffers: Sequence[Any], offsets: Mapping[str, int]) -> int:
    return max((offsets[b.name] + b.size for b in buffers), default=0)


def _arenas(
    buffers: Sequence[Any], plans: Mapping[str, Mapping[str, int]], times: Times, live: list[int], title: str
) -> Figure:
    from matplotlib.figure import Figure

    most = max(*live, *(_top(buffers, offsets) for offsets in plans.values())) or 1
    fig = Figure(figsize=(7.6 if len(plans) == 1 else 4.3 * len(plans), 4.6))
    grid = fig.subplots(2, len(plans), squeeze=False, sharex=True, height_ratios=(5, 1))
    for (name, offsets), above, below in zip(plans.items(), grid[0], grid[1], strict=True):
        _arena(above, buffers, offsets, times, live, most, len(plans))
        _bytes(below, times, live)
        if name:
            above.set_title(printable(cut(name, 40)), loc="left", fontsize=9)
        for axes in (above, below):
            axes.spines[["top", "right", "left"]].set_visible(False)
        above.tick_params(bottom=False)
    fig.subplots_adjust(hspace=0.06, wspace=0.08)
    fig.suptitle(printable(title), x=0.125, ha="left", weight="bold", fontsize=9.5, y=0.985 if len(plans) > 1 else 0.94)
    return fig


def _arena(axes: Axes, buffers: Sequence[Any], offsets: Mapping[str, int], times: Times, live: list[int], most: int,
           panels: int) -> None:  # fmt: skip
    from matplotlib.patches import Rectangle

    top, bound = _top(buffers, offsets), max(live, default=0)
    left, right = times.at(times.events[0]), times.at(times.events[-1])
    axes.set(xlim=(left, right), ylim=(0, most * 1.09), yticks=[])
    axes.add_patch(Rectangle((left, 0), right - left, top, color=LIGHT, lw=0))
    largest = max((b.size for b in buffers), default=0)
    letters = (112 if panels == 1 else 60) / (right - left or 1)
    for b in buffers:
        x, wide = times.at(b.lower), times.at(b.upper) - times.at(b.lower)
        colour, ink = _colour(b.size, largest)
        edge = {"edgecolor": "white", "linewidth": 0.5 if len(buffers) < 150 else 0.2}
        axes.add_patch(Rectangle((x, offsets[b.name]), wide, b.size, facecolor=colour, **edge))
        name = cut(b.name, 24)
        if b.size > most / 28 and wide * letters > len(name) + 1:
            middle = offsets[b.name] + b.size / 2
            axes.text(x + wide / 2, middle, printable(name), ha="center", va="center", color=ink, fontsize=7)
    for a, b in _clashing(buffers, offsets)[:20]:
        start = max(offsets[a.name], offsets[b.name])
        end = min(offsets[a.name] + a.size, offsets[b.name] + b.size)
        x, until = times.at(b.lower), times.at(min(a.upper, b.upper))
        look = {"facecolor": RED, "edgecolor": "white", "hatch": "////", "linewidth": 1.2, "zorder": 5}
        axes.add_patch(Rectangle((x, start), until - x, end - start, **look))
        note = {"xytext": (0, 12), "textcoords": "offset points", "ha": "center", "va": "bottom", "zorder": 6}
        box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": RED}
        text = printable(f"{cut(a.name, 16)} and {cut(b.name, 16)}, {size(end - start)}")
        axes.annotate(text, ((x + until) / 2, end), fontsize=7.5, color=RED, bbox=box, **note)
    axes.axhline(top, color=INK, lw=1.2)
    axes.axhline(bound, color=COLOURS[1], lw=1.2, ls=(0, (4, 2)), zorder=4)
    ratio = f"{top / bound:.3g} times the bound" if bound else ""
    axes.text(left, top + most * 0.012, f" arena {size(top)}, {ratio}", va="bottom", fontsize=8, weight="bold")


def _arena_text(buffers: Sequence[Any], offsets: Mapping[str, int], times: Times, live: list[int], title: str) -> str:
    """Return the arena in letters: one for each buffer, "." for unused memory, "#" for an overlap."""
    top, bound = _top(buffers, offsets), max(live, default=0)
    steps = times.events[:-1] if times.by_events else list(range(times.events[0], times.events[-1]))
    steps = [steps[k * len(steps) // COLUMNS] for k in range(COLUMNS)] if len(steps) > COLUMNS else steps
    names = {b.name: LETTERS[k % len(LETTERS)] for k, b in enumerate(buffers)}
    lines = [f"{title}: arena {size(top)}, bound {size(bound)}"]
    edges = [round(top * k / LINES) for k in range(LINES + 1)] if top else []
    for low, high in reversed(list(pairwise(edges))):
        line = ""
        for step in steps:
            at = (b for b in buffers if b.lower <= step < b.upper)
            at = [b.name for b in at if offsets[b.name] <= (low + high) // 2 < offsets[b.name] + b.size]
            line += "." if not at else names[at[0]] if len(at) == 1 else "#"
        lines.append(line)
    if len(buffers) <= 24:
        lines.append("  ".join(f"{names[b.name]} {cut(b.name, 20)}" for b in buffers))
    for a, b in _clashing(buffers, offsets)[:5]:
        lines.append(f"{a.name} and {b.name} overlap in step {b.lower}")
    return "\n".join(lines)
