"""Draw memory over time, and memory against work.

over_time({"as written": [8, 12, 4], "reordered": [4, 8, 8]}, marks={"bound": 8})
tradeoff({"best": [(8, 100), (12, 90)], "greedy": [(8, 110), (12, 90)]})
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from passlab.drawing.axes import COLOURS, Plot
from passlab.drawing.picture import INK, PALE, cut, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_BARS = "▁▂▃▄▅▆▇█"
_AT_RIGHT = ("axes fraction", "data")  # the position of a line's label


def over_time(
    curves: Mapping[str, Sequence[int]], marks: Mapping[str, int] | None = None, title: str = "Memory over time"
) -> Plot:
    """Draw the live bytes in each step: one curve for each schedule, with its peak.

    marks: name → bytes, drawn as a line across: a budget, a bound. Raises ValueError without a curve.
    """
    if not any(map(len, curves.values())):
        raise ValueError("There is no curve to draw: give {name: [bytes of step 0, bytes of step 1, …]}.")
    curves, marks = {name: list(used) for name, used in curves.items() if used}, dict(marks or {})
    most = max(map(max, curves.values())) or 1
    lines, column = [title], max(len(cut(name, 24)) for name in [*curves, *marks])
    for name, used in curves.items():
        columns = min(len(used), 60)
        peaks = [max(used[k * len(used) // columns : (k + 1) * len(used) // columns]) for k in range(columns)]
        heights = "".join(_BARS[min(7, 8 * value // (most + 1))] for value in peaks)
        lines.append(f"{cut(name, 24):<{column}}  {heights}  peak {size(max(used))}")
    lines += [f"{cut(name, 24):<{column}}  {size(value)}" for name, value in marks.items()]

    def figure() -> Figure:
        from matplotlib.patheffects import withStroke
        from matplotlib.ticker import MaxNLocator

        fig, axes = _axes(title)
        halo = [withStroke(linewidth=2.5, foreground="white", alpha=0.85)]
        for number, (name, used) in enumerate(curves.items()):
            colour = PALE if number == 0 and len(curves) > 1 else COLOURS[(number - 1) % len(COLOURS)]
            steps = [*used, used[-1]]
            axes.fill_between(range(len(steps)), steps, step="post", color=colour, alpha=0.13, linewidth=0)
            axes.step(range(len(steps)), steps, where="post", color=colour, linewidth=1.8)
            at = used.index(max(used))
            axes.plot([at + 0.5], [used[at]], "v", color=colour, markersize=5)
            label = f"{name}: {size(used[at])}"
            look = {"color": colour, "weight": "bold", "ha": "center", "path_effects": halo}
            above = used[at]
            for value in sorted(marks.values()):  # a label is about a tenth as high as the plot
                above = value if 0 <= value - above < 0.1 * most else above
            axes.annotate(label, (at + 0.5, above), (0, 6), textcoords="offset points", **look)
        for name, value in marks.items():
            axes.axhline(value, color=COLOURS[1], linewidth=1.1, linestyle=(0, (5, 3)))
            look = {"color": COLOURS[1], "va": "center"}
            axes.annotate(f"{name}: {size(value)}", (1, value), (4, 0), _AT_RIGHT, "offset points", **look)
        axes.set(xlim=(0, max(len(used) for used in curves.values())), ylim=(0, most * 1.14), xlabel="step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _in_bytes(axes.yaxis, most)
        return fig

    return Plot("\n".join(lines), figure, title)


def tradeoff(
    curves: Mapping[str, Sequence[tuple[int, float]]], least: float | None = None, title: str = "Memory against work"
) -> Plot:
    """Draw the work for each budget: points (bytes, work), one curve for each scheduler.

    least: the work without a budget, drawn as a line. Raises ValueError without a point.
    """
    if not any(curves.values()):
        raise ValueError("There is no point to draw: give {name: [(bytes, work), …]}.")
    lines = [title]
    for name, points in curves.items():
        lines.append(f"{name}: " + ", ".join(f"{size(budget)} → {cost:,.4g}" for budget, cost in sorted(points)))

    def figure() -> Figure:
        fig, axes = _axes(title)
        for number, (name, points) in enumerate(curves.items()):
            colour, points = COLOURS[number % len(COLOURS)], sorted(points)
            style = {"marker": "o", "markersize": 7, "linewidth": 2.4, "alpha": 0.45}  # below the others
            style = style if number == 0 else {"marker": "s", "markersize": 3, "linewidth": 1.2}
            axes.step([b for b, _ in points], [c for _, c in points], where="post", color=colour, label=name, **style)
        if least is not None:
            axes.axhline(least, color=PALE, linewidth=1, linestyle=(0, (5, 3)))
            look = {"color": PALE, "va": "center"}
            axes.annotate("nothing twice", (1, least), (4, 0), _AT_RIGHT, "offset points", **look)
        axes.set(xlabel="budget", ylabel="work")
        _in_bytes(axes.xaxis, max(budget for points in curves.values() for budget, _ in points))
        axes.legend(frameon=False)
        return fig

    return Plot("\n".join(lines), figure, title)


def _in_bytes(axis: Axis, most: float) -> None:
    """Set ticks at round numbers of bytes, or of KiB, MiB and so on."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator

    large = most >= 4096
    axis.set_major_locator(
        MultipleLocator(2 ** math.ceil(math.log2(most / 8))) if large else MaxNLocator(6, integer=True)
    )
    axis.set_major_formatter(lambda value, _: size(value))


def _axes(title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    fig = Figure(figsize=(6.4, 2.7))
    axes = fig.add_axes((0, 0, 1, 1))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(cut(title, 90), loc="left", weight="bold", fontsize=9.5, color=INK, pad=12)
    return fig, axes
