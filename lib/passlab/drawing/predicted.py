"""Draw predicted against measured times, on logarithmic scales, with a band of small errors.

scatter({"roofline": (predicted, measured), "fitted": (…)}, band=0.15)
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from passlab.drawing.axes import COLOURS, LIGHT, Plot
from passlab.drawing.picture import INK, PALE, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pairs = tuple[Sequence[float], Sequence[float]]


def scatter(series: Mapping[str, Pairs], band: float = 0.15, title: str = "Predicted and measured") -> Plot:
    """Draw one panel for each series, (predicted, measured) in seconds, with a band of ±`band` around equality.

    Raise ValueError unless there are as many predictions as times, all greater than 0.
    """
    if not series:
        raise ValueError("scatter got no series: pass {name: (predicted, measured)}.")
    lines = [title, f"{'':24}  median error  within {band:.0%}"]
    for name, (guess, true) in series.items():
        if len(guess) != len(true) or not guess or min(*guess, *true) <= 0:
            raise ValueError(f"scatter: {name!r} needs as many predictions as times, all greater than 0.")
        errors = [abs(g - t) / t for g, t in zip(guess, true, strict=True)]
        share = sum(error <= band for error in errors) / len(errors)
        lines.append(f"{name:<24}  {statistics.median(errors):>12.0%}  {share:>10.0%}")
    return Plot("\n".join(lines), lambda: _figure(series, band, title), title)


def _figure(series: Mapping[str, Pairs], band: float, title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ends = [x * 1e6 for guess, true in series.values() for x in (*guess, *true)]
    low, high = min(ends) / 1.5, max(ends) * 1.5
    fig = Figure(figsize=(3.1 * len(series), 2.9))
    for at, (name, (guess, true)) in enumerate(series.items()):
        axes = fig.add_subplot(1, len(series), at + 1, xlim=(low, high), ylim=(low, high), xscale="log", yscale="log")
        axes.fill_between([low, high], [low * (1 - band), high * (1 - band)], [low * (1 + band), high * (1 + band)],
                          color="#9A9A9A", alpha=0.45, linewidth=0, zorder=1)  # fmt: skip
        axes.plot([low, high], [low, high], color=INK, linewidth=0.8, zorder=2)
        axes.plot([t * 1e6 for t in true], [g * 1e6 for g in guess], "o", color=COLOURS[at % len(COLOURS)],
                  markersize=2.4, alpha=0.45, markeredgewidth=0, zorder=3)  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(10, numticks=7))
            axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axis.set_minor_locator(NullLocator())
        axes.grid(color=LIGHT, linewidth=0.75, zorder=0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xlabel("measured, µs")
        axes.set_ylabel("" if at else "predicted, µs")
        axes.set_title(printable(name), loc="left", fontsize=8.5, color=PALE)
    fig.suptitle(printable(title), x=0.06, y=1.0, ha="left", weight="bold", fontsize=9.5)
    fig.subplots_adjust(wspace=0.22)
    return fig
