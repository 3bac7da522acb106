"""Words for matplotlib's figures. This runs in the kernel of a lesson: each figure is shown with a text beside it."""

from __future__ import annotations

#: Most words of a legend or within a picture that are told.
LABELS = 12


def describe() -> None:
    """Have IPython show a figure's words as its plain text. matplotlib drops what is registered with IPython itself."""
    from matplotlib.figure import Figure

    Figure._repr_pretty_ = lambda figure, printer, cycle: printer.text(words(figure) or repr(figure))


def words(figure) -> str:
    """Return what a figure says in its titles, axis labels, legends and texts; "" if it says nothing."""
    parts = [figure.get_suptitle(), *map(_axes, figure.axes)]
    return " ".join(f"{part}." for part in (" ".join(text.split()) for text in parts) if part)


def _axes(axes) -> str:
    across, up = axes.get_xlabel(), axes.get_ylabel()
    labels = [*axes.get_legend_handles_labels()[1], *(text.get_text() for text in axes.texts)]
    parts = [
        axes.get_title(),
        f"{up} against {across}" if up and across else up or across,
        ", ".join(dict.fromkeys(filter(None, labels[:LABELS]))),
    ]
    return "; ".join(filter(None, parts))
