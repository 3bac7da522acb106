"""Bar charts."""

from __future__ import annotations

from collections.abc import Mapping

from passlab.drawing.picture import BLUE, FONT, INK, PALE, Picture, bold, cut, escape, size, small

WIDE = 300  # points of the longest bar


def chart(title: str, values: Mapping[str, float], unit: str = "") -> Picture:
    """Draw one bar per figure, each with its ratio to the first: cost before, cost after.

        chart("bytes written", {"before": 4096, "after": 1024}, "B")

    Figures with the unit "B" are shown in KiB, MiB and so on.
    """
    if not values:
        raise ValueError(f"chart {title!r} got no values: hand it {{label: number}}.")
    first, most = next(iter(values.values())), max(0, *values.values()) or 1
    column = max(len(cut(label, 40)) for label in values)
    drawn, lines = [], [title]
    for i, (label, value) in enumerate(values.items()):
        told = size(value) if unit == "B" else f"{value:,.4g} {unit}".strip()
        ratio = f"× {value / first:.3g}" if i and first else ""
        share = max(value, 0) / most
        filled = f'width="{max(1, round(WIDE * share))}" bgcolor="{BLUE if i else "#9A9A9A"}"'
        empty = f'<td fixedsize="true" height="16" width="{WIDE - round(WIDE * share)}"></td>' if share < 0.99 else ""
        cells = f'<tr><td fixedsize="true" height="16" {filled}></td>{empty}</tr>'
        bar = f'<table border="0" cellborder="0" cellspacing="0" cellpadding="0">{cells}</table>'
        figure = f"{bold(told)}  {small(escape(ratio), PALE, 10)}"
        called = escape(cut(label, 40)) or " "
        drawn.append(f'<tr><td align="right">{called}</td><td>{bar}</td><td align="left">{figure}</td></tr>')
        lines.append(f"{cut(label, 40):<{column}}  {'█' * round(40 * share):<40}  {told}  {ratio}".rstrip())
    head = f'<tr><td align="left" colspan="3"><font point-size="12">{bold(cut(title, 90))}</font></td></tr>'
    table = f'<<table border="0" cellborder="0" cellspacing="0" cellpadding="3">{head}{"".join(drawn)}</table>>'
    look = f'shape=plain fontname="{FONT}" fontsize=11 fontcolor="{INK}"'
    return Picture(
        "\n".join(lines), f"digraph {{ bgcolor=white pad=0.1\nn0 [{look} label={table}] }}", title, tips=[title]
    )
