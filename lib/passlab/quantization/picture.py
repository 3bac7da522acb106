"""Pictures of quantization: the three errors of each layer, the two of a grid, and the ranges of channels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from passlab.drawing.axes import COLOURS, Plot
from passlab.drawing.picture import PALE, cut, printable
from passlab.quantization.bounds import LayerError
from passlab.quantization.grids import grid
from passlab.quantization.ops import dequantize, quantize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The three errors, with their marks and meanings.
KINDS = (("measured", "o", "on the data"), ("searched", "D", "on inputs built to be bad"), ("bound", "|", "proved"))
#: How many ends of a grid `clipping` tries.
ENDS = 40


def errors(layers: Mapping[str, LayerError], title: str = "Errors of each layer, in steps of its result") -> Plot:
    """Draw for each layer the error that data show, the one a search finds, and the bound, on a logarithmic axis.

        errors(layer_errors(qdq, batches))

    The unit is the scale of the layer's result: half a step is the least that rounding costs. Raises ValueError without
    a layer.
    """
    if not layers:
        raise ValueError(
            "There is no layer to draw: layer_errors returns one for each linear and convolution with 8 bits."
        )
    steps = {name: [getattr(row, kind) / row.step for kind, *_ in KINDS] for name, row in layers.items()}
    column = max(len(cut(name, 30)) for name in layers)
    lines = [title, f"{'':{column}}  measured  searched     bound"]
    for name, values in steps.items():
        lines.append(f"{cut(name, 30):{column}}  " + "  ".join(f"{value:8.3g}" for value in values))
    tips = [
        f"{name}, {kind}: {value:.3g} steps ({meaning})"
        for name, values in steps.items()
        for (kind, _, meaning), value in zip(KINDS, values, strict=True)
    ]
    return Plot("\n".join(lines), lambda: _figure(steps, title), title, tips)


def _figure(steps: Mapping[str, list[float]], title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    high = 15 * len(steps) + 40
    fig = Figure(figsize=(420 / 72, high / 72))
    axes = fig.add_axes((0.28, 30 / high, 0.7, 1 - 55 / high))
    least = min((value for values in steps.values() for value in values if value > 0), default=0.5)
    floor = 10 ** math.floor(math.log10(least))
    for row, values in enumerate(steps.values()):
        shown = [max(value, floor) for value in values]
        axes.plot([shown[0], shown[2]], [row, row], color=PALE, linewidth=0.8, zorder=1)
        for place, ((kind, mark, _), value) in enumerate(zip(KINDS, shown, strict=True)):
            look: dict[str, Any] = {
                "color": COLOURS[place],
                "label": kind if not row else None,
                "gid": f"tip{3 * row + place}",
            }
            axes.plot([value], [row], mark, markersize=8 if mark == "|" else 4.5, markeredgewidth=1.6, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylim(len(steps) - 0.4, -0.6)
    axes.set_yticks(range(len(steps)), [printable(cut(name, 22)) for name in steps])
    axes.axvline(0.5, color=PALE, linestyle=":", linewidth=0.8)
    axes.set_xlabel("steps; dotted: half a step, the rounding of the result")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=8, borderaxespad=0.1)
    axes.set_title(printable(cut(title, 90)), loc="left", x=-0.35, y=1 + 20 / high, weight="bold", fontsize=9.5)
    return fig


# ------------------------------------------------------------------------------------------------ one tensor on grids


class Split(NamedTuple):
    """The mean squared error of a tensor on a grid from -end to end: of the values inside, and of those outside."""

    end: float
    rounding: float
    clipping: float

    @property
    def total(self) -> float:
        """Return the error of all values."""
        return self.rounding + self.clipping


def splits(values: Tensor, bits: int = 8) -> list[Split]:
    """Return the errors of a tensor on ENDS grids, the last of which covers all of its values."""
    most, result = float(values.abs().max()), []
    for k in range(1, ENDS + 1):
        on = grid(-most * k / ENDS, most * k / ENDS, bits)
        error = (dequantize(quantize(values, *on), *on) - values).square().double()
        outside = values.abs() > most * k / ENDS
        sums = (float(error[part].sum()) / values.numel() for part in (~outside, outside))
        result.append(Split(most * k / ENDS, *sums))
    return result


def clipping(values: Tensor, bits: Sequence[int] = (8, 4), title: str = "Where to end a grid") -> Plot:
    """Draw the error of a tensor on narrower and wider grids: what rounding costs inside, and clipping outside.

        clipping(activations, bits=(8, 4))      # one panel for each number of bits

    Raises QuantizationError for values that are NaN or infinite, ValueError without a value.
    """
    if not values.numel():
        raise ValueError("There is no value to draw: the tensor is empty.")
    rows = {number: splits(values, number) for number in bits}
    best = {number: min(row, key=lambda split: split.total) for number, row in rows.items()}
    heads = [
        f"{number} bits: best to end at {best[number].end:.3g} of {row[-1].end:.3g}" for number, row in rows.items()
    ]
    lines = [title]
    for head, number in zip(heads, bits, strict=True):
        lines.append(f"{head}, mean squared error {best[number].total:.3g}; at the end {rows[number][-1].total:.3g}")
    return Plot("\n".join(lines), lambda: _clipping(rows, best, heads, title), title)


def _clipping(
    rows: Mapping[int, Sequence[Split]], best: Mapping[int, Split], heads: Sequence[str], title: str
) -> Figure:
    fig, panels = _panels(len(rows), title)
    kinds = (("inside: rounding", "rounding", "-"), ("outside: clipping", "clipping", "-"), ("sum", "total", ":"))
    for panel, head, (number, row) in zip(panels, heads, rows.items(), strict=True):
        for colour, (label, kind, style) in zip(COLOURS, kinds, strict=False):
            panel.plot([s.end for s in row], [getattr(s, kind) for s in row], style, color=colour, label=label)
        panel.axvline(best[number].end, color=PALE, linewidth=0.8, linestyle=(0, (5, 3)))
        panel.set(yscale="log", xlabel="end of the grid")
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_title(head, loc="left", fontsize=8.5)
    panels[0].set_ylabel("mean squared error")
    panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return fig


def channels(largest: Mapping[str, Tensor], title: str = "The range of each channel, as a share of the widest") -> Plot:
    """Draw the largest magnitudes of channels, vectors by name, sorted: one panel for each vector.

    Raises ValueError without a vector.
    """
    if not largest:
        raise ValueError("There is nothing to draw: give {name: largest magnitude of each channel}.")
    rows = {name: (vector / vector.max()).sort().values.tolist() for name, vector in largest.items()}
    heads = [f"{name}: {sum(v < 0.5 for v in row) / len(row):.0%} below a half" for name, row in rows.items()]

    def figure() -> Figure:
        fig, panels = _panels(len(rows), title)
        for panel, head, row in zip(panels, heads, rows.values(), strict=True):
            panel.bar(range(len(row)), row, width=1, color=COLOURS[0])
            panel.axhline(0.5, color=PALE, linewidth=0.8, linestyle=(0, (5, 3)))
            panel.set(xlabel="channels, sorted", ylim=(0, 1))
            panel.set_title(head, loc="left", fontsize=8.5)
        return fig

    return Plot("\n".join([title, *heads]), figure, title)


def _panels(number: int, title: str) -> tuple[Figure, list[Any]]:
    """Return a figure with panels side by side under a title."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(3.3 * number, 2.4))
    panels = [fig.add_axes((place / number, 0, 0.84 / number, 0.8)) for place in range(number)]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    fig.text(0, 1, printable(cut(title, 90)), weight="bold", fontsize=9.5, va="top")
    return fig, panels
