"""Pictures by matplotlib: reproducible SVG with text as text; and bars, which several pictures share."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from passlab.drawing.picture import BLUE, FONT, INK, PALE, Picture, cut, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = (BLUE, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LIGHT = "#E6E6E6"
_LOOK = {
    "svg.fonttype": "none",  # text that can be searched, selected and read aloud
    "svg.hashsalt": "passlab",  # the same ids in every run
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": [*FONT.split(","), "DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": PALE,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "savefig.bbox": "tight",
    "savefig.dpi": 192,
}


class Plot(Picture):
    """A picture that needs no Graphviz. `figure` is called when it is first shown; `tips` are the tooltips of artists
    whose gid is tip0, tip1, …; `pad` is the margin in inches."""

    suffixes = (".svg", ".png", ".html", ".txt")

    def __init__(
        self, text: str, figure: Callable[[], Figure], title: str, tips: Sequence[str] = (), pad: float = 0.12
    ):
        super().__init__(text, "", title, tips=tips)
        self._figure, self._pad = figure, pad

    def _render(self, form: str) -> tuple[bytes, str]:
        from matplotlib import style

        out = io.BytesIO()
        with style.context(["default", _LOOK]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the reader may have a letter that the font here lacks
            self._figure().savefig(out, format=form, pad_inches=self._pad)
        return out.getvalue(), ""


class Part(NamedTuple):
    """A piece of a bar: its length as a share of the longest bar, its colour and its text."""

    share: float
    colour: str
    name: str = ""
    ink: str = "white"


class Bar(NamedTuple):
    """A bar with its label, its figure and a paler remark."""

    label: str
    parts: Sequence[Part]
    figure: str
    more: str = ""


def bars(title: str, rows: Sequence[Bar], wide: float = 270) -> Figure:
    """Draw bars from top to bottom, the longest `wide` points long. Part i of all bars has the gid tip{i}."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    high, step, count = 15, 22, 0
    fig = Figure(figsize=(wide / 72, step * len(rows) / 72))
    axes = fig.add_axes((0, 0, 1, 1), xlim=(0, wide), ylim=(step * len(rows), 0))
    axes.set_axis_off()
    for row, bar in enumerate(rows):
        x, top, middle = 0.0, step * row + (step - high) / 2, step * (row + 0.5)
        for part in bar.parts:
            width = max(wide * part.share, 1.0)
            look = {"facecolor": part.colour, "edgecolor": "white", "linewidth": 0.6}
            axes.add_patch(Rectangle((x, top), width, high, gid=f"tip{count}", clip_on=False, **look))
            if part.name and width > 5 * min(len(part.name), 12) + 4:
                text = printable(cut(part.name, 12))
                axes.text(x + width / 2, middle, text, color=part.ink, ha="center", va="center_baseline")
            x, count = x + wide * part.share, count + 1
        axes.text(-5, middle, printable(cut(bar.label, 40)), ha="right", va="center_baseline")
        label = axes.text(x + 5, middle, bar.figure, weight="bold", va="center_baseline")
        axes.annotate(bar.more, (1, 0), (6, 0), label, "offset points", color=PALE, va="bottom")
    axes.set_title(printable(cut(title, 90)), loc="left", x=0, weight="bold", fontsize=9.5)
    return fig
