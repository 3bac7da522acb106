"""Draw a mesh of cores: the load of cores and links, placements of operations, and activity over time.

    heat(cores, links, "words per example")            # arrays of rows × columns; links: direction → array
    placements({"row by row": owners, "by search": …}) # owners: rows × columns, the number of an operation or -1
    playback(rows, columns, frames)                    # busy cores and links, frame by frame, with a slider

Up to `LARGE` cores a link is drawn as two lines, one for each direction; in a larger mesh each is one pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from passlab.drawing.axes import COLOURS, LIGHT, Plot
from passlab.drawing.picture import BLUE, INK, PALE, Picture, canvas, cut, element, escape, printable
from passlab.drawing.player import State, live, player

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A mesh of more cores is drawn in pixels.
LARGE = 500
#: Maximum number of frames of a playback.
FRAMES = 120
#: Direction → step of (row, column).
WAYS = {"east": (0, 1), "west": (0, -1), "south": (1, 0), "north": (-1, 0)}
_SHADES = " .:-=+*#%@"


# ---------------------------------------------------------------------------------------------------- heat


def heat(
    cores: np.ndarray, links: Mapping[str, np.ndarray] | None = None, unit: str = "", title: str = "Heat of the mesh"
) -> Plot:
    """Draw the load of each core (its square) and the traffic of each link (the lines between squares).

    cores: rows × columns. links: "east", "west", "south", "north" → rows × columns, for the link that leaves a core in
    that direction. Dark is high; the two scales are beside the picture.
    """
    cores = np.asarray(cores, float)
    links = {way: np.asarray(load, float) for way, load in (links or {}).items()}
    return Plot(_heat_text(cores, links, unit, title), lambda: _heat(cores, links, unit, title), title)


def _heat_text(cores: np.ndarray, links: Mapping[str, np.ndarray], unit: str, title: str) -> str:
    most = cores.max() or 1
    step = -(-max(cores.shape) // 60)
    lines = [title, f"cores: {_SHADES!r} is 0 to {most:,.4g} {unit}"]
    for row in cores[::step, ::step]:
        lines.append("".join(_SHADES[min(9, int(9 * value / most + 0.5))] for value in row))
    for way, load in links.items():
        row, column = np.unravel_index(int(load.argmax()), load.shape)
        lines.append(f"busiest link {way}: {load.max():,.4g} {unit}, from core ({row}, {column})")
    return "\n".join(lines)


def _heat(cores: np.ndarray, links: Mapping[str, np.ndarray], unit: str, title: str) -> Figure:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    rows, columns = cores.shape
    wide = 6.2
    figure = Figure(figsize=(wide + 1.3, max(1.2, wide * rows / columns)))
    axes = figure.add_axes((0, 0, wide / (wide + 1.3), 1))
    greys = LinearSegmentedColormap.from_list("cores", ["#F4F4F4", "#BCD3E2", BLUE, "#08304F"])
    fire = LinearSegmentedColormap.from_list("links", ["#FAF6EC", "#FDC264", "#E8601C", "#8E0D3C", "#1A0B1E"])
    of_cores = Normalize(0, cores.max() or 1)
    of_links = Normalize(0, max((float(load.max()) for load in links.values()), default=0) or 1)
    if cores.size <= LARGE:
        _squares(axes, cores, greys, of_cores)
        _lines(axes, links, fire, of_links)
    else:
        picture = np.ones((2 * rows - 1, 2 * columns - 1, 4))
        picture[::2, ::2] = greys(of_cores(cores))
        if links:
            picture[::2, 1::2] = fire(of_links(np.maximum(links["east"][:, :-1], links["west"][:, 1:])))
            picture[1::2, ::2] = fire(of_links(np.maximum(links["south"][:-1], links["north"][1:])))
        axes.imshow(picture, interpolation="nearest", extent=(-0.75, columns - 0.25, rows - 0.25, -0.75))
    _frame(axes, rows, columns)
    axes.set_title(printable(cut(title, 90)), loc="left", weight="bold", fontsize=9.5)
    scales = [(greys, of_cores, "a core")] + ([(fire, of_links, "a link")] if links else [])
    for k, (colours, norm, name) in enumerate(scales):
        beside = figure.add_axes(((wide + 0.2) / (wide + 1.3), 0.54 - 0.48 * k if links else 0.3, 0.02, 0.4))
        bar = figure.colorbar(ScalarMappable(norm, colours), cax=beside)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2, labelsize=7)
        bar.ax.set_title(f"{name}, {unit}".rstrip(", "), loc="left", fontsize=7.5, color=PALE)
    return figure


def _squares(axes: Axes, values: np.ndarray, colours: Any, norm: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import FancyBboxPatch

    side, style = 0.52, "round,pad=0,rounding_size=0.08"
    corners = ((c - side / 2, r - side / 2) for r, c in np.ndindex(values.shape))
    boxes = [FancyBboxPatch(corner, side, side, boxstyle=style) for corner in corners]
    look = {"facecolor": colours(norm(values.ravel())), "edgecolor": "#9A9A9A", "linewidth": 0.4}
    axes.add_collection(PatchCollection(boxes, **look))


def _lines(axes: Axes, links: Mapping[str, np.ndarray], colours: Any, norm: Any) -> None:
    from matplotlib.collections import LineCollection

    for way, load in links.items():
        down, right = WAYS[way]
        shift = 0.1 if way in ("east", "north") else -0.1  # one line for each direction
        busy = np.nonzero(load)
        y, x = busy[0] - shift * abs(right), busy[1] + shift * abs(down)
        starts, ends = ((x + share * right, y + share * down) for share in (0.28, 0.72))
        shares = norm(load[busy])
        widths = min(1.0, 16 / max(load.shape)) * (0.6 + 3.2 * shares)
        segments = np.stack([np.stack(starts, -1), np.stack(ends, -1)], 1)
        axes.add_collection(LineCollection(segments, colors=colours(shares), linewidths=widths, capstyle="butt"))


def _frame(axes: Axes, rows: int, columns: int) -> None:
    axes.set(xlim=(-0.75, columns - 0.25), ylim=(rows - 0.25, -0.75), aspect="equal")
    axes.spines[:].set_visible(False)
    step = max(1, -(-max(rows, columns) // 10))
    axes.set_xticks(range(0, columns, step))
    axes.set_yticks(range(0, rows, step))
    axes.tick_params(length=0, labelsize=7)


# ---------------------------------------------------------------------------------------------------- placements


def placements(
    plans: Mapping[str, np.ndarray], names: Sequence[str] = (), title: str = "Placement", labels: int = 12
) -> Plot:
    """Draw several placements side by side: a core has the colour of its operation, from first (dark) to last (pale).

    plans: name → rows × columns, the number of the operation on each core, or -1. names: of the operations; the
    `labels` largest are labelled. Raises ValueError without a plan.
    """
    if not plans:
        raise ValueError("There is no placement to draw: give {name: array of rows × columns}.")
    plans = {name: np.asarray(owners) for name, owners in plans.items()}
    text = "\n\n".join([title, *(_placement_text(name, owners) for name, owners in plans.items())])
    return Plot(text, lambda: _placements(plans, names, title, labels), title)


def _placement_text(name: str, owners: np.ndarray) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    step = -(-max(owners.shape) // 60)
    rows = ("".join("." if o < 0 else letters[o % len(letters)] for o in row) for row in owners[::step, ::step])
    return "\n".join([name, *rows])


def _placements(plans: Mapping[str, np.ndarray], names: Sequence[str], title: str, labels: int) -> Figure:
    from matplotlib import colormaps, patheffects
    from matplotlib.figure import Figure

    most = max(int(owners.max()) for owners in plans.values()) + 1
    rows, columns = next(iter(plans.values())).shape
    side = 7.6 / len(plans)
    figure = Figure(figsize=(7.6, side * rows / columns + 0.5))
    grid = figure.subplots(1, len(plans), squeeze=False)[0]
    order = np.linspace(0.04, 0.97, most)
    # every second one is a little paler, which separates neighbours in the pipeline
    shades = colormaps["viridis"](order)
    shades[1::2, :3] = shades[1::2, :3] * 0.78 + 0.22
    for axes, (name, owners) in zip(grid, plans.items(), strict=True):
        picture = np.ones((*owners.shape, 4))
        picture[owners < 0] = (0.93, 0.93, 0.93, 1)
        picture[owners >= 0] = shades[owners[owners >= 0]]
        axes.imshow(picture, interpolation="nearest")
        if owners.size <= LARGE:
            axes.set_xticks(np.arange(-0.5, columns), minor=True)
            axes.set_yticks(np.arange(-0.5, rows), minor=True)
            axes.grid(which="minor", color="white", linewidth=0.8)
            axes.tick_params(which="minor", length=0)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(printable(cut(name, 44)), loc="left", fontsize=8.5)
        for k, x, y in _label_places(owners, names, labels, len(plans)) if len(names) else ():
            pale = most > 1 and order[k] > 0.55
            edge = patheffects.withStroke(linewidth=1.6, foreground="white" if pale else "#222222")
            look = {"ha": "center", "va": "center", "color": INK if pale else "white", "path_effects": [edge]}
            axes.text(x, y, printable(cut(names[k], 16)), fontsize=6.5, **look)
    figure.subplots_adjust(0, 0, 1, 0.88, wspace=0.05)
    figure.suptitle(printable(title), x=0, ha="left", weight="bold", fontsize=9.5, y=0.99)
    return figure


def _label_places(owners: np.ndarray, names: Sequence[str], count: int, panels: int) -> list[tuple[int, int, int]]:
    """Return (operation, x, y) for the labels of the largest operations, without those that overlap a larger one's."""
    rows, columns = owners.shape
    places: list[tuple[int, int, int]] = []
    sizes = np.bincount(owners[owners >= 0], minlength=len(names))
    for k in np.argsort(-sizes, kind="stable")[:count]:
        cores = np.argwhere(owners == k)
        if len(cores) < 2:
            continue
        y, x = cores[abs(cores - cores.mean(0)).sum(1).argmin()]  # the core nearest to the middle
        letters = [len(names[k][:16]) + len(names[other][:16]) for other, *_ in places]
        near = (abs(x - u) < columns * n / 140 * panels for n, (_, u, _) in zip(letters, places, strict=True))
        level = (abs(y - v) < rows / 36 * panels for *_, v in places)
        if not any(a and b for a, b in zip(near, level, strict=True)):
            places.append((k, x, y))
    return places


# ---------------------------------------------------------------------------------------------------- playback


@dataclass(frozen=True)
class Frame:
    """The busy cores and links of one frame. `cores`: (row, column) → number of a colour. `links`: (from, to) → number
    of a colour. `caption`: a sentence."""

    cores: Mapping[tuple[int, int], int]
    links: Mapping[tuple[tuple[int, int], tuple[int, int]], int]
    caption: str = ""


_CSS = "#ID .fr{display:none}"


class Playback(Picture):
    """A mesh over time. It displays as HTML that needs no kernel; `live()` returns a widget; `still(k)` returns a frame
    as SVG. Raises ValueError without frames, for too many, or for an invalid start."""

    suffixes = (".html", ".svg", ".txt")

    def __init__(self, rows: int, columns: int, frames: Sequence[Frame], title: str = "", start: int = 0):
        if not frames:
            raise ValueError("There is nothing to play: give at least one frame.")
        if len(frames) > FRAMES:
            count = f"{len(frames)} frames are too many to play; at most {FRAMES}"
            raise ValueError(f"{count}. Let each cover more cycles.")
        if not 0 <= start < len(frames):
            raise ValueError(f"There is no frame {start}; they are numbered 0 … {len(frames) - 1}.")
        self.rows, self.columns, self.frames, self.start = rows, columns, list(frames), start
        lines = [title, *(f"{k}: {frame.caption}" for k, frame in enumerate(frames))]
        super().__init__("\n".join(filter(None, lines)), "", title)
        self.gap = max(16.0, min(54.0, 720 / columns))

    def _at(self, core: tuple[int, int]) -> complex:
        row, column = core
        return complex(12, 12) + self.gap * complex(column + 0.5, row + 0.5)

    def _square(self, core: tuple[int, int], colour: str, edge: str = "none") -> str:
        side = 0.56 * self.gap
        corner = self._at(core) - complex(side, side) / 2
        place = {"x": corner.real, "y": corner.imag, "width": side, "height": side, "rx": side / 7}
        return element("rect", **place, fill=colour, stroke=edge)

    def _line(self, link: tuple[tuple[int, int], tuple[int, int]], colour: str, thick: float) -> str:
        a, b = map(self._at, link)
        step = b - a
        a -= 0.09j * step  # the lines of the two directions are side by side
        start, end = a + 0.3 * step, a + 0.7 * step
        ends = {"x1": start.real, "y1": start.imag, "x2": end.real, "y2": end.imag}
        return element("line", **ends, stroke=colour, stroke_width=thick)

    @cached_property
    def _background(self) -> str:
        """The idle grid."""
        cores = [(r, c) for r in range(self.rows) for c in range(self.columns)]
        squares = (self._square(core, "#F4F4F4", "#C8C8C8") for core in cores)
        targets = ((core, (core[0] + dr, core[1] + dc)) for core in cores for dr, dc in WAYS.values())
        lines = (self._line(link, LIGHT, 1.5) for link in targets if link[1] in cores)
        return "".join([*lines, *squares])

    def _frame(self, frame: Frame) -> str:
        thick = max(2.0, 0.09 * self.gap)
        lines = (self._line(link, COLOURS[k % len(COLOURS)], thick) for link, k in frame.links.items())
        return "".join([*lines, *(self._square(core, COLOURS[k % len(COLOURS)]) for core, k in frame.cores.items())])

    def _canvas(self, *content: str) -> str:
        return canvas(24 + self.columns * self.gap, 24 + self.rows * self.gap, self.title, self._background, *content)

    def still(self, place: int) -> str:
        """Return one frame as SVG."""
        return self._canvas(self._frame(self.frames[place]))

    @cached_property
    def _drawn(self) -> tuple[str, str]:
        return self.still(self.start), ""

    @cached_property
    def _all(self) -> str:
        """The picture with all frames, of which CSS shows one."""
        frames = (element("g", self._frame(frame), class_=f"fr fr{k}") for k, frame in enumerate(self.frames))
        return self._canvas(*frames)

    @property
    def html(self) -> str:
        states = [
            State(frame.caption, f"<small>{escape(frame.caption)}</small>", f"ON.card .fr{k}{{display:inline}}")
            for k, frame in enumerate(self.frames)
        ]
        return player(states, self._all, _CSS, self.title, self.start, track=True)

    def live(self) -> Any:
        """Return the playback as an ipywidgets widget with a play button. It needs a running kernel."""

        def at(place: int) -> tuple[str, str]:
            return f"#ID .fr{place}{{display:inline}}", self.frames[place].caption

        return live(len(self.frames), self.start, at, self._all, _CSS)


def playback(rows: int, columns: int, frames: Sequence[Frame], title: str = "", start: int = 0) -> Playback:
    """Draw a mesh over time: in each frame, busy cores and links have a colour.

    playback(1, 3, [Frame({(0, 0): 0}, {}, "core (0, 0) computes"), Frame({}, {((0, 0), (0, 1)): 0}, "it sends")])
    """
    return Playback(rows, columns, frames, title, start)
