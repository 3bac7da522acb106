"""Draw a grid of cores: what each core and each link carries, who lies where, and what happens when.

    heat(cores, links, "words per example")            # arrays of rows × columns; links: direction → array
    placements({"row by row": owners, "by search": …}) # owners: rows × columns, the number of an operation, -1: none
    playback(rows, columns, frames)                    # what is busy, frame by frame, with a slider

Up to `LARGE` cores a link is drawn as two lines, one for each direction; beyond, core and links become one pixel each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from passlab.drawing.axes import COLOURS, LIGHT, Plot
from passlab.drawing.picture import BLUE, FONT, INK, NAMELESS, PALE, Picture, cut, escape, printable
from passlab.drawing.player import State, live, player

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: More cores than this are drawn as pixels.
LARGE = 500
#: A playback has at most this many frames.
FRAMES = 120
#: Direction → what it adds to (row, column).
WAYS = {"east": (0, 1), "west": (0, -1), "south": (1, 0), "north": (-1, 0)}
_SHADES = " .:-=+*#%@"


# ---------------------------------------------------------------------------------------------------- heat


def heat(
    cores: np.ndarray, links: Mapping[str, np.ndarray] | None = None, unit: str = "", title: str = "Heat of the mesh"
) -> Plot:
    """Draw how busy each core is (its square), and how much each link carries (the lines between squares).

    cores: rows × columns. links: "east", "west", "south", "north" → rows × columns, of the link that leaves a core that
    way. Dark is much; the two scales stand beside the picture.
    """
    cores = np.asarray(cores, float)
    links = {way: np.asarray(carried, float) for way, carried in (links or {}).items()}
    return Plot(_heat_text(cores, links, unit, title), lambda: _heat(cores, links, unit, title), title)


def _heat_text(cores: np.ndarray, links: Mapping[str, np.ndarray], unit: str, title: str) -> str:
    most = cores.max() or 1
    step = -(-max(cores.shape) // 60)
    lines = [title, f"cores: {_SHADES!r} is 0 to {most:,.4g} {unit}"]
    for row in cores[::step, ::step]:
        lines.append("".join(_SHADES[min(9, int(9 * value / most + 0.5))] for value in row))
    for way, carried in links.items():
        row, column = np.unravel_index(int(carried.argmax()), carried.shape)
        lines.append(f"busiest link {way}: {carried.max():,.4g} {unit}, from core ({row}, {column})")
    return "\n".join(lines)


def _heat(cores: np.ndarray, links: Mapping[str, np.ndarray], unit: str, title: str) -> Figure:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    rows, columns = cores.shape
    wide = 6.2
    made = Figure(figsize=(wide + 1.3, max(1.2, wide * rows / columns)))
    axes = made.add_axes((0, 0, wide / (wide + 1.3), 1))
    greys = LinearSegmentedColormap.from_list("cores", ["#F4F4F4", "#BCD3E2", BLUE, "#08304F"])
    fire = LinearSegmentedColormap.from_list("links", ["#FAF6EC", "#FDC264", "#E8601C", "#8E0D3C", "#1A0B1E"])
    of_cores = Normalize(0, cores.max() or 1)
    most = max((float(carried.max()) for carried in links.values()), default=0) or 1
    of_links = Normalize(0, most)
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
    for k, (colours, norm, what) in enumerate(scales):
        beside = made.add_axes(((wide + 0.2) / (wide + 1.3), 0.54 - 0.48 * k if links else 0.3, 0.02, 0.4))
        bar = made.colorbar(ScalarMappable(norm, colours), cax=beside)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2, labelsize=7)
        bar.ax.set_title(f"{what}, {unit}".rstrip(", "), loc="left", fontsize=7.5, color=PALE)
    return made


def _squares(axes: Axes, values: np.ndarray, colours: Any, norm: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import FancyBboxPatch

    rows, columns = values.shape
    side = 0.52
    look = {"boxstyle": "round,pad=0,rounding_size=0.08"}
    boxes = [
        FancyBboxPatch((c - side / 2, r - side / 2), side, side, **look) for r in range(rows) for c in range(columns)
    ]
    axes.add_collection(
        PatchCollection(boxes, facecolor=colours(norm(values.ravel())), edgecolor="#9A9A9A", linewidth=0.4)
    )


def _lines(axes: Axes, links: Mapping[str, np.ndarray], colours: Any, norm: Any) -> None:
    from matplotlib.collections import LineCollection

    for way, carried in links.items():
        down, right = WAYS[way]
        segments, shades, widths = [], [], []
        for r, c in zip(*np.nonzero(carried), strict=True):
            aside = 0.1 if way in ("east", "north") else -0.1  # two directions, two lines
            x, y = c + aside * abs(down), r - aside * abs(right)
            segments.append([(x + 0.28 * right, y + 0.28 * down), (x + 0.72 * right, y + 0.72 * down)])
            shades.append(colours(norm(carried[r, c])))
            widths.append(0.6 + 3.2 * norm(carried[r, c]))
        columns = max(carried.shape)
        scale = min(1.0, 16 / columns)
        axes.add_collection(
            LineCollection(segments, colors=shades, linewidths=[scale * w for w in widths], capstyle="butt")
        )


def _frame(axes: Axes, rows: int, columns: int) -> None:
    axes.set(xlim=(-0.75, columns - 0.25), ylim=(rows - 0.25, -0.75), aspect="equal")
    axes.spines[:].set_visible(False)
    step = max(1, -(-max(rows, columns) // 10))
    axes.set_xticks(range(0, columns, step))
    axes.set_yticks(range(0, rows, step))
    axes.tick_params(length=0, labelsize=7)


# ---------------------------------------------------------------------------------------------------- placements


def placements(
    plans: Mapping[str, np.ndarray], names: Sequence[str] = (), title: str = "Who lies where", labels: int = 12
) -> Plot:
    """Draw several placements side by side: a core has the colour of its operation, from first (dark) to last (pale).

    plans: name → rows × columns, the number of the operation on each core, -1 for none. names: of the operations; the
    `labels` largest are written on their middle. Raises ValueError without a plan.
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
    made = Figure(figsize=(7.6, side * rows / columns + 0.5))
    grid = made.subplots(1, len(plans), squeeze=False)[0]
    order = np.linspace(0.04, 0.97, most)
    # every other one a little paler, so that neighbours in the pipeline can be told apart
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
        counts, taken = np.bincount(owners[owners >= 0], minlength=most), []
        for one in np.argsort(-counts, kind="stable")[: labels if len(names) else 0]:
            where = np.argwhere(owners == one)
            if len(where) < 2:
                continue
            middle = where.mean(0)
            y, x = where[abs(where - middle).sum(1).argmin()]  # on one of its own cores
            wide, high = columns * len(names[one][:16]) / 70 * len(plans), rows / 18 * len(plans) / 2
            if any(abs(x - u) < (wide + w) / 2 and abs(y - v) < high for u, v, w in taken):
                continue  # it would lie on another name
            taken.append((x, y, wide))
            pale = most > 1 and order[one] > 0.55
            edge = patheffects.withStroke(linewidth=1.6, foreground="white" if pale else "#222222")
            text = printable(cut(names[one], 16))
            axes.text(
                x, y, text, ha="center", va="center", fontsize=6.5, color=INK if pale else "white", path_effects=[edge]
            )
    made.subplots_adjust(0, 0, 1, 0.88, wspace=0.05)
    made.suptitle(printable(title), x=0, ha="left", weight="bold", fontsize=9.5, y=0.99)
    return made


# ---------------------------------------------------------------------------------------------------- playback


@dataclass(frozen=True)
class Frame:
    """What happens in one frame. `cores`: (row, column) → number of a colour. `links`: (from, to) → number of a colour.
    `caption`: a sentence."""

    cores: Mapping[tuple[int, int], int]
    links: Mapping[tuple[tuple[int, int], tuple[int, int]], int]
    caption: str = ""


_CSS = "#ID .fr{display:none}"


class Playback(Picture):
    """A mesh in time. It displays as HTML that needs no kernel; `live()` returns a widget instead; `still(k)` is one
    frame as SVG. Raises ValueError without frames, for too many, or for a start that is not one of them."""

    suffixes = (".html", ".svg", ".txt")

    def __init__(self, rows: int, columns: int, frames: Sequence[Frame], title: str = "", start: int = 0):
        if not frames:
            raise ValueError("There is nothing to play: give at least one frame.")
        if len(frames) > FRAMES:
            raise ValueError(
                f"{len(frames)} frames are too many to play; at most {FRAMES}. Let each cover more cycles."
            )
        if not 0 <= start < len(frames):
            raise ValueError(f"There is no frame {start}; they are numbered 0 … {len(frames) - 1}.")
        self.rows, self.columns, self.frames, self.start = rows, columns, list(frames), start
        lines = [title, *(f"{k}: {frame.caption}" for k, frame in enumerate(frames))]
        super().__init__("\n".join(filter(None, lines)), "", title)
        self.gap = max(16.0, min(54.0, 720 / columns))

    def _at(self, core: tuple[int, int]) -> tuple[float, float]:
        return 12 + (core[1] + 0.5) * self.gap, 12 + (core[0] + 0.5) * self.gap

    def _square(self, core: tuple[int, int], colour: str, edge: str = "none") -> str:
        x, y = self._at(core)
        side = 0.56 * self.gap
        return (
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'rx="{side / 7:.1f}" fill="{colour}" stroke="{edge}"/>'
        )

    def _line(self, link: tuple[tuple[int, int], tuple[int, int]], colour: str, thick: float) -> str:
        (x, y), (u, v) = map(self._at, link)
        aside = 0.09 * self.gap
        dx, dy = (v - y) / self.gap * aside, (u - x) / self.gap * -aside  # the two directions lie side by side
        x, u, y, v = x + dx, u + dx, y + dy, v + dy
        a, b = 0.3, 0.7
        ends = (x + a * (u - x), y + a * (v - y), x + b * (u - x), y + b * (v - y))
        return '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" '.format(*ends) + (
            f'stroke="{colour}" stroke-width="{thick:.1f}"/>'
        )

    @cached_property
    def _floor(self) -> str:
        """The grid at rest."""
        places = [(r, c) for r in range(self.rows) for c in range(self.columns)]
        squares = "".join(self._square(core, "#F4F4F4", "#C8C8C8") for core in places)
        lines = "".join(
            self._line(((r, c), (r + dr, c + dc)), LIGHT, 1.5)
            for r, c in places
            for dr, dc in WAYS.values()
            if 0 <= r + dr < self.rows and 0 <= c + dc < self.columns
        )
        return lines + squares

    def _frame(self, frame: Frame) -> str:
        thick = max(2.0, 0.09 * self.gap)
        lines = "".join(self._line(link, COLOURS[k % len(COLOURS)], thick) for link, k in frame.links.items())
        return lines + "".join(self._square(core, COLOURS[k % len(COLOURS)]) for core, k in frame.cores.items())

    def _svg_of(self, inner: str) -> str:
        wide, high = 24 + self.columns * self.gap, 24 + self.rows * self.gap
        name = escape(self.title or NAMELESS)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{name}" '
            f'viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}" font-family="{FONT}" '
            f'style="width:100%;max-width:{wide:.0f}px;height:auto"><title>{name}</title>'
            f'<rect width="100%" height="100%" fill="#fff"/>{inner}</svg>'
        )

    def still(self, place: int) -> str:
        """Return one frame as SVG."""
        return self._svg_of(self._floor + self._frame(self.frames[place]))

    @cached_property
    def _drawn(self) -> tuple[str, str]:
        return self.still(self.start), ""

    @cached_property
    def _all(self) -> str:
        """The picture with all frames in it, of which CSS shows one."""
        frames = (f'<g class="fr fr{k}">{self._frame(frame)}</g>' for k, frame in enumerate(self.frames))
        return self._svg_of(self._floor + "".join(frames))

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
    """Draw a mesh in time: in each frame, the cores and links that are busy have a colour.

    playback(1, 3, [Frame({(0, 0): 0}, {}, "core (0, 0) computes"), Frame({}, {((0, 0), (0, 1)): 0}, "it sends")])
    """
    return Playback(rows, columns, frames, title, start)
