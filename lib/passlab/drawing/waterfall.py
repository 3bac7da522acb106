"""A waterfall: the change of a figure in each step of a series."""

from __future__ import annotations

from collections.abc import Mapping

from passlab.drawing.axes import LIGHT, Bar, Part, Plot, bars
from passlab.drawing.picture import BLUE, cut, size

#: Colours of a decrease and an increase, distinct for all kinds of colour vision; text repeats them.
SAVED, ADDED = "#009E73", "#D55E00"


def waterfall(
    title: str, figures: Mapping[str, float], unit: str = "", spreads: Mapping[str, float] | None = None
) -> Plot:
    """Draw the decrease of a figure step by step. `figures`: label → the figure after that step, the start first.

        waterfall("kernels", {"as traced": 71, "batch norms folded": 51, "fused": 18})

    Figures with the unit "B" are shown in KiB, MiB and so on, those with the unit "s" in ms and so on. `spreads`:
    label → interquartile range of a measured figure; a change within half of both is called no difference. Raises
    ValueError for fewer than two figures and for one below zero.
    """
    if len(figures) < 2 or min(figures.values()) < 0:
        raise ValueError(f"waterfall {title!r} needs two figures or more, none below zero; got {dict(figures)}.")
    most, spreads = max(figures.values()) or 1, spreads or {}
    labels, values = list(figures), list(figures.values())
    rows, lines, tips = [], [title], []
    column = max(len(cut(label, 40)) for label in labels)
    for at, (label, value) in enumerate(figures.items()):
        before = values[max(at - 1, 0)]
        noise = (spreads.get(label, 0.0) + spreads.get(labels[max(at - 1, 0)], 0.0)) / 2
        change = _change(before, value, noise) if at else ""
        ends = at in (0, len(values) - 1)
        parts = [Part(min(value, before) / most, BLUE if ends else "#B9C4CE")]
        if at and value != before:
            same = abs(value - before) <= noise
            parts.append(Part(abs(value - before) / most, LIGHT if same else SAVED if value < before else ADDED))
        rows.append(Bar(label, parts, _amount(value, unit), change))
        tips += [f"{label}: {_amount(value, unit)} {change}".rstrip()] * len(parts)
        bar = "█" * round(40 * min(value, before) / most)
        bar += ("░" if value < before else "▓") * round(40 * abs(value - before) / most) if at else ""
        lines.append(f"{cut(label, 40):<{column}}  {bar:<40}  {_amount(value, unit)}  {change}".rstrip())
    lines.append("█ rest, ░ removed by this step, ▓ added by it")
    return Plot("\n".join(lines), lambda: bars(title, rows, wide=330), title, tips)


def _change(before: float, value: float, noise: float) -> str:
    if abs(value - before) <= noise:
        return "no difference" if not noise else "within the spread"
    return f"{(value - before) / before:+.0%}".replace("-", "−") if before else "more"


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return size(value)
    if unit == "s":
        scale, name = next((s, n) for s, n in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (0, "ns")) if value >= s)
        return f"{value / (scale or 1e-9):.3g} {name}"
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".strip()
