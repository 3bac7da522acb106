"""Pictures of quantization: the three errors of each layer, and the grid of a tensor over its values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from passlab.drawing.axes import COLOURS, Plot
from passlab.drawing.picture import PALE, cut, printable
from passlab.quantization.bounds import LayerError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The three errors, with their marks and meanings.
KINDS = (("measured", "o", "on the data"), ("searched", "D", "on inputs built to be bad"), ("bound", "|", "proved"))


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
    axes.set_ylim(len(steps) - 0.4, -0.6)
    axes.set_yticks(range(len(steps)), [printable(cut(name, 22)) for name in steps])
    axes.axvline(0.5, color=PALE, linestyle=":", linewidth=0.8)
    axes.set_xlabel("steps; dotted: half a step, the rounding of the result")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=8, borderaxespad=0.1)
    axes.set_title(printable(cut(title, 90)), loc="left", x=-0.35, y=1 + 20 / high, weight="bold", fontsize=9.5)
    return fig
