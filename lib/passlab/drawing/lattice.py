"""Draw iteration domains as lattices of points coloured by time, with dependences, tiles and fronts.

    lattice(program, schedule, {"N": 6}, dependences=dependences(program, "flow"))
    plot({("S", (0, 0)): (0,), ("S", (0, 1)): (1,)}, arrows=[(("S", (0, 0)), ("S", (0, 1)))])

An instance is a statement's name with its iteration, ("S", (1, 2)); its time is a tuple, and times are compared
lexicographically. The first dimension runs down, the second to the right, as in a matrix; in deeper nests the last two
do, with one panel for each iteration of the others. Reading order: the contents of a picture (`Scene`), the places of
points (`Panel`, complex numbers), SVG, text, and the conversion from isl to plain data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from textwrap import wrap
from typing import Any

from passlab.drawing.boxes import RED
from passlab.drawing.picture import GREY, INK, PALE, Picture, canvas, element, escape
from passlab.judge.words import plural

#: Limits on the points, arrows and panels of a picture.
POINTS, ARROWS, PANELS = 1200, 600, 12
#: Width of the widest row of panels, and limits on the distance between two points.
WIDE, GAP = 900, (15, 38)
#: Viridis (S. van der Walt, N. Smith, 2015) without its palest end: dark is early, even in greyscale.
SCALE = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962", "#ADDC30")

Instance = tuple[str, tuple[int, ...]]
Time = tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """The contents of a picture. `step`: when each point runs, from 0; points of one step may run in any order."""

    times: dict[Instance, Time]
    step: dict[Instance, int]
    arrows: list[tuple[Instance, Instance]]
    tiles: dict[Instance, Hashable]
    violated: tuple[Instance, Instance] | None
    axes: Mapping[str, Sequence[str]]
    fronts: bool
    notes: list[str] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max(self.step.values())


@dataclass
class Panel:
    """The points of one statement and one slice of it. `cells`: (column, row) → point. `corner`: top left."""

    title: str
    names: tuple[str, str]  # of the horizontal and of the vertical dimension
    cells: dict[tuple[int, int], Instance]
    columns: range
    rows: range
    gap: float = 0
    corner: complex = 0

    def place(self, column: float, row: float) -> complex:
        cell = complex(column - self.columns.start + 0.5, row - self.rows.start + 0.5)
        return self.corner + complex(self.margin, 44) + self.gap * cell

    @property
    def margin(self) -> float:
        """The width of the row numbers."""
        digits = max(len(str(n)) for n in (self.rows.start, self.rows.stop))
        return 20 + 7 * digits if self.names[1] else 24

    @property
    def size(self) -> complex:
        width = max(self.margin + len(self.columns) * self.gap + 12, 7.4 * len(self.title) + 16)
        return complex(width, 44 + len(self.rows) * self.gap + 10)


class Lattice(Picture):
    """A picture of a lattice, as SVG (without Graphviz) and as text."""

    suffixes = (".svg", ".html", ".txt")

    def __init__(self, scene: Scene, title: str = ""):
        self.scene = scene
        self.panels, notes = _panels(scene)
        super().__init__(_text(scene, self.panels, title), "", title, " ".join([*scene.notes, *notes]))

    @cached_property
    def _drawn(self) -> tuple[str, str]:
        return _svg(self.scene, self.panels, self.title, self._note), ""


def plot(
    times: Mapping[Instance, Time | int],
    arrows: Iterable[tuple[Instance, Instance]] = (),
    tiles: Mapping[Instance, Hashable] | None = None,
    violated: tuple[Instance, Instance] | None = None,
    fronts: int | None = None,
    axes: Mapping[str, Sequence[str]] | None = None,
    title: str = "",
) -> Lattice:
    """Draw points by their times, from plain data.

        plot({("S", (t, i)): (t + i, t) for t in range(4) for i in range(6)}, fronts=1, axes={"S": ("t", "i")})

    arrows: from the instance that must run first to the one that must wait. tiles: instance → name of its tile.
    violated: an arrow that the times violate. fronts: the number of leading components of a time that make the step;
    instances of one step may run at once and are drawn as a front. axes: statement → names of its dimensions.
    """
    return Lattice(scene(times, arrows, tiles, violated, fronts, axes), title)


def scene(times, arrows=(), tiles=None, violated=None, fronts=None, axes=None, cut=False) -> Scene:
    """Limit the arguments of `plot` and number the steps. `cut`: points are missing. ValueError without a point."""
    if not times:
        raise ValueError("There are no points to draw: the iteration domain is empty for these sizes.")
    times = {at: tuple(time) if isinstance(time, tuple | list) else (time,) for at, time in times.items()}
    window = _window(times)
    notes = []
    if cut or len(window) < len(times):
        total = "many more" if cut else f"{len(times):,}"
        notes.append(f"The picture shows {len(window):,} of {total} points, those with the smallest coordinates.")
        times = {at: time for at, time in times.items() if at in window}
    keys = {at: time[:fronts] for at, time in times.items()}
    numbers = {key: n for n, key in enumerate(sorted(set(keys.values())))}
    arrows = [(a, b) for a, b in dict.fromkeys(arrows) if a in times and b in times and a != b]
    if len(arrows) > ARROWS:
        notes.append(f"The picture shows {ARROWS} of {len(arrows):,} dependence arrows.")
        arrows = sorted(arrows)[:ARROWS]
    if violated and not set(violated) <= times.keys():
        first, second = map(spell, violated)
        notes.append(f"The violated pair, {first} and {second}, is not among these points.")
        violated = None
    tiles = {at: name for at, name in (tiles or {}).items() if at in times}
    steps = {at: numbers[key] for at, key in keys.items()}
    return Scene(times, steps, arrows, tiles, violated, axes or {}, fronts is not None, notes)


def spell(at: Instance) -> str:
    """Format an instance as isl does: S[1, 2]."""
    return f"{at[0]}[{', '.join(map(str, at[1]))}]"


def _window(points: Collection[Instance]) -> set[Instance]:
    """Return the points in a corner of the domain, by halving its widest dimension until they are few."""
    window = set(points)
    while len(window) > POINTS:
        ranges: dict[tuple[str, int], list[int]] = {}
        for name, iteration in window:
            for k, x in enumerate(iteration):
                ranges.setdefault((name, k), []).append(x)
        (name, k), values = max(ranges.items(), key=lambda item: max(item[1]) - min(item[1]))
        low, high = min(values), max(values)
        if low == high:
            return set(sorted(window)[:POINTS])
        window = {at for at in window if at[0] != name or at[1][k] <= (low + high) // 2}
    return window


# ---------------------------------------------------------------------------------------------------- places


def _panels(scene: Scene) -> tuple[list[Panel], list[str]]:
    """Return panels side by side, and a sentence if some are omitted."""
    slices: dict[tuple, dict] = {}
    for at in sorted(scene.times):
        name, iteration = at
        *outer, y, x = (0, 0, *iteration)[-max(2, len(iteration)) :]
        slices.setdefault((name, len(iteration), tuple(outer)), {})[x, y] = at
    panels = []
    for (name, depth, outer), cells in slices.items():
        names = [*scene.axes.get(name, ())] or list("ijklmn"[:depth])
        all_cells = [cell for (other, n, _), rows in slices.items() if (other, n) == (name, depth) for cell in rows]
        columns, rows = (range(min(s), max(s) + 1) for s in zip(*all_cells, strict=True))
        where = ", ".join(f"{axis} = {value}" for axis, value in zip(names, outer, strict=False))
        down, right = ("", *names)[-2:] if depth < 2 else names[-2:]
        panels.append(Panel(f"{name}, {where}" if where else name, (right, down), cells, columns, rows))
    notes = [f"The picture shows {PANELS} of {len(panels)} slices."] if len(panels) > PANELS else []
    panels = panels[:PANELS]
    columns = sum(len(panel.columns) for panel in panels[:4])
    gap = min(GAP[1], max(GAP[0], (WIDE - 40 * min(4, len(panels))) / columns))
    x = y = height = 0.0
    for panel in panels:
        panel.gap = gap
        if x and x + panel.size.real > WIDE:
            x, y, height = 0.0, y + height + 8, 0.0
        panel.corner = complex(x, y)
        x, height = x + panel.size.real + 24, max(height, panel.size.imag)
    return panels, notes


# ---------------------------------------------------------------------------------------------------- SVG


def _svg(scene: Scene, panels: list[Panel], title: str, note: str) -> str:
    radius = min(12.0, panels[0].gap * 0.34)
    spots = {at: panel.place(*cell) for panel in panels for cell, at in panel.cells.items()}
    body = []
    for panel in panels:
        body += [*_grid(panel), *_tiles(scene, panel, spots)]
        if scene.fronts:
            body += _fronts(scene, panel, spots, radius)
    for source, target in scene.arrows:
        if source in spots and target in spots and (source, target) != scene.violated:
            tip, ends = f"{spell(source)} has to run before {spell(target)}", (spots[source], spots[target])
            body.append(_arrow(*ends, radius, "#555", 1.1, tip, scene.step[target], spots.values()))
    body += [_point(scene, at, spots[at], radius) for at in spots]
    if scene.violated and set(scene.violated) <= spots.keys():
        ends = [spots[at] for at in scene.violated]
        body.append(_arrow(*ends, radius + 2, RED, 3, violation(scene), None, spots.values()))
        body += [_circle(spot, radius + 2, fill="none", stroke=RED, stroke_width=3) for spot in ends]
    corners = [panel.corner + panel.size for panel in panels]
    legend_width = 470 if scene.tiles or scene.fronts or scene.violated else 360
    width, bottom = max(legend_width, *(c.real for c in corners)), max(c.imag for c in corners)
    legend, height = _legend(scene, bottom + 6, note, width)
    top = 28 if title else 4
    head = element("text", escape(title), x=8, y=18, font_size=15, font_weight="bold") if title else ""
    group = element("g", *body, legend, transform=f"translate(8 {top})")
    name = title or "iteration domain"
    return canvas(width + 16, bottom + height + top + 14, name, head, group, font_size=11, fill=INK)


def _circle(spot: complex, radius: float, **look: Any) -> str:
    return element("circle", cx=spot.real, cy=spot.imag, r=radius, **look)


def _label(spot: complex, text: Any, anchor: str = "start", fill: str = PALE, **look: Any) -> str:
    return element("text", escape(text), x=spot.real, y=spot.imag, text_anchor=anchor, fill=fill, **look)


def _tip(text: str) -> str:
    return element("title", escape(text))


def _grid(panel: Panel) -> list[str]:
    """Draw the title, the numbered axes, and thin lines."""
    right, down = panel.names
    first = panel.place(panel.columns.start, panel.rows.start)
    last = panel.place(panel.columns.stop - 1, panel.rows.stop - 1)
    margin, head = first.real - panel.gap / 2, (panel.corner.imag + 36) * 1j
    parts = [_label(panel.corner + 13j, panel.title, fill=INK, font_weight="bold")]
    every = max(1, math.ceil(7.5 * len(str(panel.columns.stop)) / panel.gap))
    if right:
        parts.append(_label(margin - 4 + head, f"{right} →", "end"))
    for n, x in enumerate(panel.columns if right else ()):
        at = panel.place(x, panel.rows.start).real
        parts.append(element("path", d=f"M{at:g} {first.imag:g}V{last.imag:g}", stroke="#E6E6E6"))
        if n % every == 0:
            parts.append(_label(at + head, x, "middle"))
    if down:
        shift = min(panel.gap, 16) * (len(panel.rows) > 1)
        parts.append(_label(complex(panel.corner.real + 2, first.imag + 4 + shift), f"{down} ↓"))
    for y in panel.rows if down else ():
        at = panel.place(panel.columns.start, y).imag
        parts.append(element("path", d=f"M{first.real:g} {at:g}H{last.real:g}", stroke="#E6E6E6"))
        parts.append(_label(complex(margin - 2, at + 4), y, "end"))
    return parts


def _groups(panel: Panel, names: Mapping[Instance, Hashable]) -> dict[Hashable, list[Instance]]:
    groups: dict[Hashable, list[Instance]] = {}
    for at in panel.cells.values():
        if at in names:
            groups.setdefault(names[at], []).append(at)
    return groups


def _tiles(scene: Scene, panel: Panel, spots: dict) -> list[str]:
    parts = []
    for name, members in _groups(panel, scene.tiles).items():
        path = _hull([spots[at] for at in members])
        edges = [b - a for a, b in pairwise([*path, path[0]])]
        upright = all(math.isclose(e.real, 0, abs_tol=1e-6) or math.isclose(e.imag, 0, abs_tol=1e-6) for e in edges)
        thick = panel.gap * (0.86 if upright else 0.68)
        tip = _tip(f"tile {name}: {plural(len(members), 'point')} here")
        parts.append(element("g", tip, _band(path, thick + 2.6, GREY), _band(path, thick, "#F1F1F1")))
    return parts


def _fronts(scene: Scene, panel: Panel, spots: dict, radius: float) -> list[str]:
    """Draw a band through the points of each step of more than one point."""
    parts = []
    for step, members in _groups(panel, scene.step).items():
        if len(members) > 1:
            band = _band(_hull([spots[at] for at in members]), radius * 0.9, colour(step, scene.last)[0])
            tip = _tip(f"step {step}: {len(members)} points that may run at once")
            parts.append(element("g", element("g", tip, band, opacity=0.5), class_="dep", style=f"--t:{step}"))
    return parts


def _band(path: list[complex], thick: float, stroke: str) -> str:
    """Draw a polygon with round corners, by a thick line around it."""
    points = " ".join(f"{p.real:g},{p.imag:g}" for p in (path if len(path) > 1 else path * 2))
    look = {"stroke_width": thick, "stroke_linejoin": "round", "stroke_linecap": "round"}
    return element("polygon", points=points, fill=stroke, stroke=stroke, **look)


def _hull(points: list[complex]) -> list[complex]:
    """Return the convex hull (A. M. Andrew's monotone chain, 1979)."""

    def half(points: list[complex]) -> list[complex]:
        hull: list[complex] = []
        for p in points:
            while len(hull) > 1 and ((hull[-1] - hull[-2]).conjugate() * (p - hull[-2])).imag <= 0:
                hull.pop()
            hull.append(p)
        return hull[:-1]

    points = sorted(set(points), key=lambda p: (p.real, p.imag))
    return half(points) + half(points[::-1]) if len(points) > 1 else points


def _point(scene: Scene, at: Instance, spot: complex, radius: float) -> str:
    step = scene.step[at]
    fill, ink = colour(step, scene.last)
    tip = _tip(f"{spell(at)}: step {step}, time ({', '.join(map(str, scene.times[at]))})")
    size = min(11.0, radius * (1.15 if scene.last < 100 else 0.9))
    number = _label(spot + 0.36j * size, step, "middle", ink, font_size=size) if size >= 7 else ""
    return element("g", tip, _circle(spot, radius, fill=fill, stroke=INK), number, class_="pt", style=f"--t:{step}")


def colour(step: int, last: int) -> tuple[str, str]:
    """Return the colour of a step among 0 … last, and a text colour that is legible on it."""
    share = step / last * (len(SCALE) - 1) if last else 0.0
    low = min(int(share), len(SCALE) - 2)
    ends = ([int(code[i : i + 2], 16) for i in (1, 3, 5)] for code in SCALE[low : low + 2])
    mixed = [round(a + (b - a) * (share - low)) for a, b in zip(*ends, strict=True)]
    light = 0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2] > 112
    return "#" + "".join(f"{part:02X}" for part in mixed), INK if light else "#fff"


def _arrow(
    a: complex, b: complex, radius: float, stroke: str, thick: float, tip: str, step: int | None, spots: Iterable
) -> str:
    """Draw an arrow between the edges of two points, bent if it would cross other points."""
    length = abs(b - a)
    unit = (b - a) / length

    def is_between(spot: complex) -> bool:
        offset = (spot - a) / unit  # along the arrow, and across it
        return radius < offset.real < length - radius and abs(offset.imag) < radius * 0.9

    middle = (a + b) / 2 - 1j * unit * (radius * 2.4 if any(map(is_between, spots)) else 0)

    def toward_middle(end: complex, distance: float) -> complex:
        return end + (middle - end) / abs(middle - end) * distance

    head = 4 + 1.8 * thick
    start, point, neck = toward_middle(a, radius), toward_middle(b, radius + 0.5), toward_middle(b, radius + head)
    side = 1j * (neck - point) / head * (1.6 + thick)
    start_, middle_, neck_, *corners = (
        f"{p.real:.1f} {p.imag:.1f}" for p in (start, middle, neck, point, neck + side, neck - side)
    )
    line = element("path", d=f"M{start_}Q{middle_} {neck_}", fill="none", stroke=stroke, stroke_width=thick)
    triangle = element("polygon", points=" ".join(corners), fill=stroke)
    look = {} if step is None else {"class_": "dep", "style": f"--t:{step}"}
    return element("g", _tip(tip), line, triangle, **look)


def _legend(scene: Scene, y: float, note: str, width: float) -> tuple[str, float]:
    """Return the legend, and its height."""
    x, last = 200.0, scene.last
    count = min(last + 1, 48)
    fills = [colour(round(n * last / max(count - 1, 1)), last)[0] for n in range(count)]
    stripe = {"y": y, "width": 140 / count + 0.3, "height": 11}
    parts = [element("rect", x=34 + n * 140 / count, fill=fill, **stripe) for n, fill in enumerate(fills)]
    base = complex(0, y + 10)
    parts += [_label(base, "step", fill=INK), _label(base + 34 + 14j, 0), _label(base + 174 + 14j, last, "end")]
    if scene.arrows:
        arrow = _arrow(complex(x, y + 6), complex(x + 34, y + 6), 0, "#555", 1.1, "dependence", None, ())
        parts += [arrow, _label(base + x + 40, "has to run before", fill=INK)]
        x += 148
    if scene.tiles:
        look = {"rx": 6, "fill": "#F1F1F1", "stroke": GREY, "stroke_width": 1.3}
        box = element("rect", x=x, y=y - 1, width=22, height=14, **look)
        parts += [box, _label(base + x + 28, "tile", fill=INK)]
        x += 70
    if scene.fronts:
        band = _band([complex(x + 4, y + 6), complex(x + 26, y + 6)], 10, colour(last // 2, last)[0])
        parts += [element("g", band, opacity=0.5), _label(base + x + 34, "may run at once", fill=INK)]
    height = 30.0
    sentences = [(violation(scene), RED, "bold")] if scene.violated else []
    sentences += [(note, PALE, "normal")] if note else []
    for sentence, fill, weight in sentences:
        for line in wrap(sentence, int(width / 6.2), break_long_words=False, break_on_hyphens=False):
            parts.append(_label(complex(0, y + height + 12), line, fill=fill, font_weight=weight, font_size=12))
            height += 17
    return "".join(parts), height


def violation(scene: Scene) -> str:
    """Describe the violated pair: the instance that must run first, and the steps of both."""
    first, second = map(spell, scene.violated)
    a, b = (scene.step[at] for at in scene.violated)
    if a < b:
        return f"{first} has to run before {second}, and does: in steps {a} and {b}."
    if a == b:
        return f"{first} has to run before {second}, and both run in step {a}."
    return f"{first} has to run before {second}, but runs in step {a}, and {second} in step {b}."


# ---------------------------------------------------------------------------------------------------- text


def _text(scene: Scene, panels: list[Panel], title: str) -> str:
    lines = [title] if title else []
    width = len(str(scene.last)) + 1
    for panel in panels:
        width = max(width, *(len(str(x)) for x in panel.columns), len(panel.names[0]))
        margin = max(*(len(str(y)) for y in panel.rows), len(panel.names[1])) + 1
        axes = " → ".join(filter(None, reversed(panel.names)))
        lines.append(f"{panel.title}  (step of each point{f', {axes}' if axes else ''})")
        lines.append((" " * margin + " " + " ".join(f"{x:>{width}}" for x in panel.columns)).rstrip())
        for y in panel.rows:
            cells = []
            for x in panel.columns:
                at = panel.cells.get((x, y))
                mark = "!" if at in (scene.violated or ()) else ""
                cells.append(f"{'·' if at is None else f'{mark}{scene.step[at]}':>{width}}")
            lines.append(f"{y if panel.names[1] else '':>{margin}} {' '.join(cells)}".rstrip())
    distances: dict[tuple[str, str], set] = {}
    for (a, source), (b, target) in scene.arrows:
        vectors = [tuple(q - p for p, q in zip(source, target, strict=True))] if a == b else []
        distances.setdefault((a, b), set()).update(vectors)
    for (a, b), vectors in distances.items():
        words = [f"({', '.join(map(str, vector))})" for vector in sorted(vectors)]
        by = f" by {', '.join(words[:12])}" if words else ""
        lines.append(f"{a} → {b}{by}{' …' if len(words) > 12 else ''}")
    if scene.tiles:
        lines.append(f"{len(set(scene.tiles.values()))} tiles")
    if scene.violated:
        lines.append(violation(scene))
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- from isl


def lattice(
    program: Any,
    schedule: Any,
    sizes: Mapping[str, int],
    dependences: Any = None,
    tiles: int | None = None,
    violated: tuple[str, str] | None = None,
    fronts: int | None = None,
    title: str = "",
) -> Lattice:
    """Draw the iterations of a program, coloured by their time in a schedule.

        lattice(program, skewed, {"T": 4, "N": 8}, dependences=dependences(program, "flow"), fronts=1)

    schedule, dependences: text or isl.UnionMap. tiles, fronts: the number of leading dimensions of the schedule that
    identify the tile, or the time of a front. violated: two instances as text, ("S[1, 2]", "S[0, 3]").
    """
    return Lattice(scene_of(program, schedule, sizes, dependences, tiles, violated, fronts), title)


def scene_of(program, schedule, sizes, dependences=None, tiles=None, violated=None, fronts=None) -> Scene:
    """Convert the arguments of `lattice` to plain data."""
    import islpy as isl

    domain, axes = isl.UnionSet("{}"), {}
    for statement in program.statements:
        part = isl.Set(str(statement.domain))
        names = (part.get_dim_name(isl.dim_type.set, k) for k in range(part.dim(isl.dim_type.set)))
        axes[statement.name] = tuple(name or "ijklmn"[k % 6] for k, name in enumerate(names))
        domain = domain.union(isl.UnionSet.from_set(part))
    values = " and ".join(f"{name} = {int(n)}" for name, n in sizes.items()) or "true"
    context = isl.Set(f"[{', '.join(sizes)}] -> {{ : {values} }}")
    domain, cut = _corner(domain.intersect_params(context), sizes)
    order = isl.UnionMap(str(schedule)).intersect_domain(domain).intersect_params(context)
    times = {at: time for at, (_, time) in _pairs(order)}
    arrows = []
    if dependences is not None:
        relation = isl.UnionMap(str(dependences)).intersect_params(context)
        arrows = _pairs(relation.intersect_domain(domain).intersect_range(domain))
    pair = tuple(map(instance, violated)) if violated else None
    names = {at: time[:tiles] for at, time in times.items()} if tiles else None
    return scene(times, arrows, names, pair, fronts, axes, cut)


def instance(text: str) -> Instance:
    """Parse an instance as isl writes it, S[1, 2]. Raises ValueError for other text."""
    match = re.fullmatch(r"\s*(\w+)\[([-\d,\s]*)\]\s*", str(text))
    if not match:
        raise ValueError(f"An instance is written like 'S[1, 2]'; got {str(text)[:60]!r}.")
    return match[1], tuple(int(x) for x in match[2].split(",") if x.strip())


def _parts(foreach: Any) -> list:
    """Return the parts of a union as a list: isl loses an error that is raised in a callback."""
    parts: list = []
    foreach(parts.append)
    return parts


def _pairs(relation: Any) -> list[tuple[Instance, Instance]]:
    """List all pairs of a bounded relation; an unnamed tuple has the name ""."""
    import islpy as isl

    pairs: list[tuple[Instance, Instance]] = []
    for part in _parts(relation.foreach_map):
        first, depth = part.dim(isl.dim_type.in_), part.dim(isl.dim_type.in_) + part.dim(isl.dim_type.out)
        source, target = (part.get_tuple_name(side) or "" for side in (isl.dim_type.in_, isl.dim_type.out))
        for point in _parts(part.wrap().foreach_point):
            values = tuple(point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(depth))
            pairs.append(((source, values[:first]), (target, values[first:])))
    return pairs


def _corner(domain: Any, sizes: Mapping[str, int]) -> tuple[Any, bool]:
    """Return a corner of the domain if it has far too many points to draw, and whether points are missing."""
    import islpy as isl

    corner, cut = isl.UnionSet("{}"), False
    for part in _parts(domain.foreach_set):
        if missing := sorted(set(part.get_var_names(isl.dim_type.param)) - set(sizes)):
            raise ValueError(f"The size {missing[0]} has no value: give one, as in {{'{missing[0]}': 6}}.")
        if not part.is_bounded():
            raise ValueError(f"The domain of {part.get_tuple_name()} is infinite: give its loops bounds.")
        depth = part.dim(isl.dim_type.set)
        starts = [part.dim_min_val(k).to_python() for k in range(depth)]
        counts = [part.dim_max_val(k).to_python() - start + 1 for k, start in enumerate(starts)]
        while math.prod(counts) > 4 * POINTS:
            k = counts.index(max(counts))
            counts[k] = (counts[k] + 1) // 2
            part = part.upper_bound_val(isl.dim_type.set, k, isl.Val(starts[k] + counts[k] - 1))
            cut = True
        corner = corner.union(isl.UnionSet.from_set(part))
    return corner, cut
