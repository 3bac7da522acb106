"""Bar charts."""

from __future__ import annotations

from collections.abc import Mapping

from passlab.drawing.axes import Bar, Part, Plot, bars
from passlab.drawing.picture import BLUE, cut, size


def chart(title: str, values: Mapping[str, float], unit: str = "") -> Plot:
    """Draw one bar per figure, each with its ratio to the first: cost before, cost after.

        chart("bytes written", {"before": 4096, "after": 1024}, "B")

    Figures with the unit "B" are shown in KiB, MiB and so on. Raises ValueError without values.
    """
    if not values:
        raise ValueError(f"chart {title!r} got no values: pass {{label: number}}.")
    first, most = next(iter(values.values())), max(0, *values.values()) or 1
    column = max(len(cut(label, 40)) for label in values)
    rows, lines = [], [title]
    for i, (label, value) in enumerate(values.items()):
        number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        amount = size(value) if unit == "B" else f"{number} {unit}".strip()
        ratio = f"× {value / first:.3g}" if i and first else ""
        share = max(value, 0) / most
        rows.append(Bar(label, [Part(share, BLUE if i else "#9A9A9A")], amount, ratio))
        lines.append(f"{cut(label, 40):<{column}}  {'█' * round(40 * share):<40}  {amount}  {ratio}".rstrip())
    tips = [f"{row.label}: {row.figure}" for row in rows]
    return Plot("\n".join(lines), lambda: bars(title, rows), title, tips)
