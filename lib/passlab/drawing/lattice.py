"""Draw iteration domains as lattices of points coloured by time, with dependences, tiles and fronts.

    lattice(program, schedule, {"N": 6}, dependences=dependences(program, "flow"))
    plot({("S", (0, 0)): (0,), ("S", (0, 1)): (1,)}, arrows=[(("S", (0, 0)), ("S", (0, 1)))])

An instance is a statement's name with its iteration, ("S", (1, 2)); its time is a tuple, and times are compared
lexicographically. The first dimension runs down, the second to the right, as in a matrix; in deeper nests the last two
do, with one panel for each iteration of the others. Reading order: the contents of a picture (`Scene`), where points
lie (`Panel`), SVG, text, and from isl to plain data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import wrap
from typing import Any

from passlab.drawing.boxes import RED
from passlab.drawing.picture import FONT, GREY, INK, PALE, Picture, escape

#: More than this many points, arrows and panels are not drawn.
POINTS, ARROWS, PANELS = 1200, 600, 12
#: Points of the page for the widest row of panels, and for the gap between two points.
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
    """The points of one statement and one slice of it. `cells`: (column, row) → point. `x`, `y`: its corner."""

    title: str
    names: tuple[str, str]  # of the dimension that goes right and of the one that goes down
    cells: dict[tuple[int, int], Instance]
    columns: range
    rows: range
    gap: float = 0
    x: float = 0
    y: float = 0

    def place(self, at: tuple[int, int]) -> tuple[float, float]:
        left, top = self.x + self.margin + self.gap / 2, self.y + 44 + self.gap / 2
        return left + (at[0] - self.columns.start) * self.gap, top + (at[1] - self.rows.start) * self.gap

    @property
    def margin(self) -> float:
        """The width of the row numbers."""
        longest = max(len(str(n)) for n in (self.rows.start, self.rows.stop))
        return 20 + 7 * longest if self.names[1] else 24

    @property
    def width(self) -> float:
        return max(self.margin + len(self.columns) * self.gap + 12, 7.4 * len(self.title) + 16)

    @property
    def height(self) -> float:
        return 44 + len(self.rows) * self.gap + 10


class Lattice(Picture):
    """A picture of a lattice, as SVG (without Graphviz) and as text."""

    suffixes = (".svg", ".html", ".txt")

    def __init__(self, scene: Scene, title: str = ""):
        self.scene = scene
        self.panels, left_out = _panels(scene)
        super().__init__(_text(scene, self.panels, title), "", title, " ".join([*scene.notes, *left_out]))

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
    violated: an arrow that the times break. fronts: how many leading components of a time make the step; instances that
    share them may run at once and are drawn as a front. axes: statement → names of its dimensions.
    """
    return Lattice(scene(times, arrows, tiles, violated, fronts, axes), title)


def scene(times, arrows=(), tiles=None, violated=None, fronts=None, axes=None, cut=False) -> Scene:
    """Cut the arguments of `plot` to size and count steps. `cut`: there are more points. ValueError for no points."""
    if not times:
        raise ValueError("There are no points to draw: the iteration domain is empty for these sizes.")
    times = {at: tuple(time) if isinstance(time, tuple | list) else (time,) for at, time in times.items()}
    kept = _window(times)
    notes = []
    if cut or len(kept) < len(times):
        among = "many more" if cut else f"{len(times):,}"
        notes.append(f"Drawn are {len(kept):,} of {among} points, those with the smallest coordinates.")
        times = {at: times[at] for at in times if at in kept}
    keys = {at: time[:fronts] for at, time in times.items()}
    numbers = {key: n for n, key in enumerate(sorted(set(keys.values())))}
    arrows = [(a, b) for a, b in dict.fromkeys(arrows) if a in times and b in times and a != b]
    if len(arrows) > ARROWS:
        notes.append(f"Drawn are {ARROWS} of {len(arrows):,} dependence arrows.")
        arrows = sorted(arrows)[:ARROWS]
    if violated and not set(violated) <= times.keys():
        notes.append(
            f"The violated pair, {spell(violated[0])} and {spell(violated[1])}, is not among the points drawn."
        )
        violated = None
    tiles = {at: name for at, name in (tiles or {}).items() if at in times}
    steps = {at: numbers[key] for at, key in keys.items()}
    return Scene(times, steps, arrows, tiles, violated, axes or {}, fronts is not None, notes)


def spell(at: Instance) -> str:
    """Format an instance as isl does: S[1, 2]."""
    return f"{at[0]}[{', '.join(map(str, at[1]))}]"


def _window(points: Iterable[Instance]) -> set[Instance]:
    """Return the points in a corner that is small enough, by halving the widest dimension until it is."""
    kept = set(points)
    while len(kept) > POINTS:
        spread = {}
        for name, at in kept:
            for k, x in enumerate(at):
                low, high = spread.get((name, k), (x, x))
                spread[name, k] = min(low, x), max(high, x)
        name, k = max(spread, key=lambda it: spread[it][1] - spread[it][0])
        low, high = spread[name, k]
        if low == high:
            return set(sorted(kept)[:POINTS])
        kept = {it for it in kept if it[0] != name or it[1][k] <= (low + high) // 2}
    return kept


# ---------------------------------------------------------------------------------------------------- where points lie


def _panels(scene: Scene) -> tuple[list[Panel], list[str]]:
    """Return panels side by side, and sentences on what they leave out."""
    slices: dict[tuple, dict] = {}
    for at in sorted(scene.times):
        name, iteration = at
        *front, y, x = (0, 0, *iteration)[-max(2, len(iteration)) :]
        slices.setdefault((name, len(iteration), tuple(front)), {})[x, y] = at
    panels = []
    for (name, depth, front), cells in slices.items():
        names = [*scene.axes.get(name, ())] or list("ijklmn"[:depth])
        same = [it for (other, n, _), those in slices.items() if (other, n) == (name, depth) for it in those]
        columns, rows = (range(min(s), max(s) + 1) for s in zip(*same, strict=True))
        where = ", ".join(f"{axis} = {value}" for axis, value in zip(names, front, strict=False))
        down, right = ("", *names)[-2:] if depth < 2 else names[-2:]
        panels.append(Panel(f"{name}, {where}" if where else name, (right, down), cells, columns, rows))
    notes = [f"Drawn are {PANELS} of {len(panels)} slices."] if len(panels) > PANELS else []
    panels = panels[:PANELS]
    across = sum(len(panel.columns) for panel in panels[:4])
    gap = min(GAP[1], max(GAP[0], (WIDE - 40 * min(4, len(panels))) / across))
    x = y = high = 0.0
    for panel in panels:
        panel.gap = gap
        if x and x + panel.width > WIDE:
            x, y, high = 0.0, y + high + 8, 0.0
        panel.x, panel.y = x, y
        x, high = x + panel.width + 24, max(high, panel.height)
    return panels, notes


# ---------------------------------------------------------------------------------------------------- SVG


def _svg(scene: Scene, panels: list[Panel], title: str, note: str) -> str:
    gap = panels[0].gap
    radius = min(12.0, gap * 0.34)
    spots = {at: panel.place(cell) for panel in panels for cell, at in panel.cells.items()}
    top = 28 if title else 4
    body = []
    for panel in panels:
        body += [*_grid(panel), *_tiles(scene, panel, spots)]
        if scene.fronts:
            body += _fronts(scene, panel, spots, radius)
    everywhere = {spot: at for at, spot in spots.items()}
    for source, target in scene.arrows:
        if source in spots and target in spots and (source, target) != scene.violated:
            tip = f"{spell(source)} has to run before {spell(target)}"
            body.append(_arrow(spots[source], spots[target], radius, "#555", 1.1, tip, scene.step[target], everywhere))
    body += [_point(scene, at, spots[at], radius) for at in spots]
    if scene.violated and set(scene.violated) <= spots.keys():
        first, second = (spots[at] for at in scene.violated)
        body.append(_arrow(first, second, radius + 2, RED, 3, violation(scene), None, everywhere))
        body += [
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius + 2:.1f}" fill="none" stroke="{RED}" stroke-width="3"/>'
            for x, y in (first, second)
        ]
    wide = max(
        *(panel.x + panel.width for panel in panels), 470 if scene.tiles or scene.fronts or scene.violated else 360
    )
    high = max(panel.y + panel.height for panel in panels)
    legend, more = _legend(scene, high + 6, note, wide)
    wide, high = math.ceil(wide + 16), math.ceil(high + more + top + 14)
    head = f'<text x="8" y="18" font-size="15" font-weight="bold">{escape(title)}</text>' if title else ""
    style = f"width:100%;max-width:{wide}px;min-width:{min(wide, 320)}px;height:auto"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title or "iteration domain")}" '
        f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" style="{style}" font-family="{FONT}" '
        f'font-size="11" fill="{INK}"><title>{escape(title or "iteration domain")}</title>'
        f'<rect width="{wide}" height="{high}" fill="#fff"/>{head}'
        f'<g transform="translate(8 {top})">{"".join(body)}{legend}</g></svg>'
    )


def _grid(panel: Panel) -> list[str]:
    """Draw the title, the numbered axes, and thin lines."""
    right, down = panel.names
    drawn = [f'<text x="{panel.x:g}" y="{panel.y + 13:g}" font-weight="bold">{escape(panel.title)}</text>']
    left, top = panel.place((panel.columns.start, panel.rows.start))
    end, bottom = panel.place((panel.columns.stop - 1, panel.rows.stop - 1))
    every = max(1, math.ceil(7.5 * len(str(panel.columns.stop)) / panel.gap))
    if right:
        drawn.append(_label(left - panel.gap / 2 - 4, panel.y + 36, f"{right} →", "end", PALE))
    for n, x in enumerate(panel.columns if right else ()):
        at = panel.place((x, panel.rows.start))[0]
        drawn.append(f'<path d="M{at:g} {top:g}V{bottom:g}" stroke="#E6E6E6"/>')
        if n % every == 0:
            drawn.append(_label(at, panel.y + 36, str(x), "middle", PALE))
    if down:
        drawn.append(
            _label(panel.x + 2, top + 4 + min(panel.gap, 16) * (len(panel.rows) > 1), f"{down} ↓", "start", PALE)
        )
    for y in panel.rows if down else ():
        at = panel.place((panel.columns.start, y))[1]
        drawn.append(f'<path d="M{left:g} {at:g}H{end:g}" stroke="#E6E6E6"/>')
        drawn.append(_label(left - panel.gap / 2 - 2, at + 4, str(y), "end", PALE))
    return drawn


def _label(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _groups(panel: Panel, name: Mapping[Instance, Hashable]) -> dict[Hashable, list[Instance]]:
    found: dict[Hashable, list[Instance]] = {}
    for at in panel.cells.values():
        if at in name:
            found.setdefault(name[at], []).append(at)
    return found


def _tiles(scene: Scene, panel: Panel, spots: dict) -> list[str]:
    drawn = []
    for name, members in _groups(panel, scene.tiles).items():
        path = _hull([spots[at] for at in members])
        ends = zip(path, path[1:] + path[:1], strict=True)
        upright = all(math.isclose(x, u) or math.isclose(y, v) for (x, y), (u, v) in ends)
        thick, tip = (
            panel.gap * (0.86 if upright else 0.68),
            f"tile {name}: {len(members)} point{'s' * (len(members) != 1)} here",
        )
        drawn.append(
            f"<g><title>{escape(tip)}</title>{_band(path, thick + 2.6, GREY)}{_band(path, thick, '#F1F1F1')}</g>"
        )
    return drawn


def _fronts(scene: Scene, panel: Panel, spots: dict, radius: float) -> list[str]:
    """Draw a band through the points of each step of more than one point."""
    drawn = []
    for step, members in _groups(panel, scene.step).items():
        if len(members) > 1:
            path = _hull([spots[at] for at in members])
            tip = f"<title>step {step}: {len(members)} points that may run at once</title>"
            band = _band(path, radius * 0.9, colour(step, scene.last)[0])
            drawn.append(f'<g class="dep" style="--t:{step}"><g opacity="0.5">{tip}{band}</g></g>')
    return drawn


def _band(path: list[tuple[float, float]], thick: float, stroke: str) -> str:
    """Draw a polygon with round corners, by a thick line around it."""
    points = " ".join(f"{x:g},{y:g}" for x, y in (path if len(path) > 1 else path * 2))
    look = (
        f'fill="{stroke}" stroke="{stroke}" stroke-width="{thick:.1f}" stroke-linejoin="round" stroke-linecap="round"'
    )
    return f'<polygon points="{points}" {look}/>'


def _hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the convex hull (A. M. Andrew's monotone chain, 1979)."""

    def half(those: list) -> list:
        kept: list = []
        for x, y in those:
            while len(kept) > 1 and (
                (kept[-1][0] - kept[-2][0]) * (y - kept[-2][1]) <= (kept[-1][1] - kept[-2][1]) * (x - kept[-2][0])
            ):
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    points = sorted(set(points))
    return half(points) + half(points[::-1]) if len(points) > 1 else points


def _point(scene: Scene, at: Instance, spot: tuple[float, float], radius: float) -> str:
    step = scene.step[at]
    fill, ink = colour(step, scene.last)
    time = ", ".join(map(str, scene.times[at]))
    tip = f"<title>{escape(spell(at))}: step {step}, time ({time})</title>"
    dot = f'<circle cx="{spot[0]:g}" cy="{spot[1]:g}" r="{radius:.1f}" fill="{fill}" stroke="{INK}"/>'
    size = min(11.0, radius * (1.15 if scene.last < 100 else 0.9))
    middle = f'x="{spot[0]:g}" y="{spot[1] + size * 0.36:.1f}" text-anchor="middle"'
    word = f'<text {middle} font-size="{size:.1f}" fill="{ink}">{step}</text>' if size >= 7 else ""
    return f'<g class="pt" style="--t:{step}">{tip}{dot}{word}</g>'


def colour(step: int, last: int) -> tuple[str, str]:
    """Return the colour of a step among 0 … last, and a text colour that is legible on it."""
    share = step / last * (len(SCALE) - 1) if last else 0.0
    low = min(int(share), len(SCALE) - 2)
    ends = ([int(code[i : i + 2], 16) for i in (1, 3, 5)] for code in SCALE[low : low + 2])
    mixed = [round(a + (b - a) * (share - low)) for a, b in zip(*ends, strict=True)]
    light = 0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2] > 112
    return "#" + "".join(f"{part:02X}" for part in mixed), INK if light else "#fff"


def _arrow(a, b, radius, stroke, thick, tip, step, everywhere) -> str:
    """Draw an arrow between the edges of two points, bent where it would cross other points."""
    (x, y), (u, v) = a, b
    far = math.hypot(u - x, v - y)
    across = ((v - y) / far, (x - u) / far)

    def in_the_way(spot: tuple[float, float]) -> bool:
        along = ((spot[0] - x) * (u - x) + (spot[1] - y) * (v - y)) / far
        aside = (spot[0] - x) * across[0] + (spot[1] - y) * across[1]
        return radius < along < far - radius and abs(aside) < radius * 0.9

    bend = radius * 2.4 if any(map(in_the_way, everywhere)) else 0.0
    middle = ((x + u) / 2 + across[0] * bend, (y + v) / 2 + across[1] * bend)

    def toward(start: tuple[float, float], by: float) -> tuple[float, float]:
        length = math.hypot(middle[0] - start[0], middle[1] - start[1])
        return start[0] + (middle[0] - start[0]) / length * by, start[1] + (middle[1] - start[1]) / length * by

    head = 4 + 1.8 * thick
    start, tip_at, neck = toward(a, radius), toward(b, radius + 0.5), toward(b, radius + head)
    side = ((tip_at[1] - neck[1]) / head * (1.6 + thick), (neck[0] - tip_at[0]) / head * (1.6 + thick))
    corners = [tip_at, (neck[0] + side[0], neck[1] + side[1]), (neck[0] - side[0], neck[1] - side[1])]
    line = f"M{start[0]:.1f} {start[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {neck[0]:.1f} {neck[1]:.1f}"
    when = f' class="dep" style="--t:{step}"' if step is not None else ""
    return (
        f'<g{when}><title>{escape(tip)}</title><path d="{line}" fill="none" stroke="{stroke}" stroke-width="{thick}"/>'
        f'<polygon points="{" ".join(f"{p:.1f},{q:.1f}" for p, q in corners)}" fill="{stroke}"/></g>'
    )


def _legend(scene: Scene, y: float, note: str, wide: float) -> tuple[str, float]:
    """Return the legend, and its height."""
    drawn, x, last = [], 0.0, scene.last
    many = min(last + 1, 48)
    for n in range(many):
        fill = colour(round(n * last / max(many - 1, 1)), last)[0]
        drawn.append(
            f'<rect x="{34 + n * 140 / many:.2f}" y="{y}" width="{140 / many + 0.3:.2f}" height="11" fill="{fill}"/>'
        )
    drawn.append(_label(0, y + 10, "step", "start", INK))
    drawn.append(_label(34, y + 24, "0", "start", PALE) + _label(174, y + 24, str(last), "end", PALE))
    x = 200.0
    if scene.arrows:
        line = _arrow((x, y + 6), (x + 34, y + 6), 0, "#555", 1.1, "dependence", None, {})
        drawn.append(line + _label(x + 40, y + 10, "has to run before", "start", INK))
        x += 148
    if scene.tiles:
        look = f'rx="6" fill="#F1F1F1" stroke="{GREY}" stroke-width="1.3"'
        box = f'<rect x="{x}" y="{y - 1}" width="22" height="14" {look}/>'
        drawn.append(box + _label(x + 28, y + 10, "tile", "start", INK))
        x += 70
    if scene.fronts:
        band = _band([(x + 4, y + 6), (x + 26, y + 6)], 10, colour(last // 2, last)[0])
        drawn.append(f'<g opacity="0.5">{band}</g>' + _label(x + 34, y + 10, "may run at once", "start", INK))
    more = 30.0
    sentences = [(violation(scene), RED, "bold")] if scene.violated else []
    sentences += [(note, PALE, "normal")] if note else []
    for sentence, fill, weight in sentences:
        for line in wrap(sentence, int(wide / 6.2), break_long_words=False, break_on_hyphens=False):
            look = f'fill="{fill}" font-weight="{weight}" font-size="12"'
            drawn.append(f'<text x="0" y="{y + more + 12:g}" {look}>{escape(line)}</text>')
            more += 17
    return "".join(drawn), more


def violation(scene: Scene) -> str:
    """Describe the violated pair: which instance must run first, and when the two run."""
    source, target = scene.violated
    a, b = scene.step[source], scene.step[target]
    if a < b:
        return f"{spell(source)} has to run before {spell(target)}, and does: in steps {a} and {b}."
    if a == b:
        return f"{spell(source)} has to run before {spell(target)}, and both run in step {a}."
    return f"{spell(source)} has to run before {spell(target)}, but runs in step {a}, and {spell(target)} in step {b}."


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
                mark = "!" if at is not None and scene.violated and at in scene.violated else ""
                cells.append(f"{'·' if at is None else f'{mark}{scene.step[at]}':>{width}}")
            lines.append(f"{y if panel.names[1] else '':>{margin}} {' '.join(cells)}".rstrip())
    ways: dict[tuple[str, str], set] = {}
    for (a, source), (b, target) in scene.arrows:
        by = [tuple(q - p for p, q in zip(source, target, strict=True))] if a == b else []
        ways.setdefault((a, b), set()).update(by)
    for (a, b), distances in ways.items():
        listed = [f"({', '.join(map(str, by))})" for by in sorted(distances)]
        far = f" by {', '.join(listed[:12])}" if listed else ""
        lines.append(f"{a} → {b}{far}{' …' if len(listed) > 12 else ''}")
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
    """Draw the iterations of a program, coloured by when a schedule runs them.

        lattice(program, skewed, {"T": 4, "N": 8}, dependences=dependences(program, "flow"), fronts=1)

    schedule, dependences: text or isl.UnionMap. tiles, fronts: how many leading dimensions of the schedule identify the
    tile, or the time of a front. violated: two instances as text, ("S[1, 2]", "S[0, 3]").
    """
    return Lattice(scene_of(program, schedule, sizes, dependences, tiles, violated, fronts), title)


def scene_of(program, schedule, sizes, dependences=None, tiles=None, violated=None, fronts=None) -> Scene:
    """Convert the arguments of `lattice` to plain data."""
    import islpy as isl

    domain = isl.UnionSet("{}")
    axes = {}
    for statement in program.statements:
        part = isl.Set(str(statement.domain))
        names = (part.get_dim_name(isl.dim_type.set, k) for k in range(part.dim(isl.dim_type.set)))
        axes[statement.name] = tuple(name or "ijklmn"[k % 6] for k, name in enumerate(names))
        domain = domain.union(isl.UnionSet.from_set(part))
    fixed = isl.Set(
        f"[{', '.join(sizes)}] -> {{ : {' and '.join(f'{k} = {int(n)}' for k, n in sizes.items()) or 'true'} }}"
    )
    domain, cut = _smaller(domain.intersect_params(fixed), sizes)
    times = {}
    for at, time in _pairs(isl.UnionMap(str(schedule)).intersect_domain(domain).intersect_params(fixed)):
        times[at] = time[1]
    arrows = []
    if dependences is not None:
        wanted = isl.UnionMap(str(dependences)).intersect_params(fixed)
        arrows = _pairs(wanted.intersect_domain(domain).intersect_range(domain))
    pair = tuple(map(instance, violated)) if violated else None
    outlines = {at: time[:tiles] for at, time in times.items()} if tiles else None
    return scene(times, arrows, outlines, pair, fronts, axes, cut)


def instance(text: str) -> Instance:
    """Parse an instance as isl writes it, S[1, 2]. Raises ValueError for other text."""
    found = re.fullmatch(r"\s*(\w+)\[([-\d,\s]*)\]\s*", str(text))
    if not found:
        raise ValueError(f"An instance is written like 'S[1, 2]'; got {str(text)[:60]!r}.")
    return found[1], tuple(int(x) for x in found[2].split(",") if x.strip())


def _pairs(relation: Any) -> list[tuple[Instance, Instance]]:
    """List all pairs of a bounded relation; an unnamed tuple has the name ""."""
    import islpy as isl

    found: list[tuple[Instance, Instance]] = []

    def of(part: Any) -> None:
        first, depth = part.dim(isl.dim_type.in_), part.dim(isl.dim_type.in_) + part.dim(isl.dim_type.out)
        names = [part.get_tuple_name(side) or "" for side in (isl.dim_type.in_, isl.dim_type.out)]

        def note(point: Any) -> None:
            values = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(depth)]
            found.append(((names[0], tuple(values[:first])), (names[1], tuple(values[first:]))))

        part.wrap().foreach_point(note)

    parts: list = []
    relation.foreach_map(parts.append)
    for part in parts:
        of(part)
    return found


def _smaller(domain: Any, sizes: Mapping[str, int]) -> tuple[Any, bool]:
    """Cut the domain to a corner if it has far more points than can be drawn; return it, and whether it was cut."""
    import islpy as isl

    parts: list = []
    domain.foreach_set(parts.append)  # an error raised in its callback would be lost
    kept, smaller = isl.UnionSet("{}"), False
    for part in parts:
        depth = part.dim(isl.dim_type.set)
        if missing := sorted(set(part.get_var_names(isl.dim_type.param)) - set(sizes)):
            raise ValueError(f"The size {missing[0]} has no value: give one, as in {{'{missing[0]}': 6}}.")
        if not part.is_bounded():
            raise ValueError(f"The domain of {part.get_tuple_name()} is infinite: give its loops bounds.")
        ends = [(part.dim_min_val(k).to_python(), part.dim_max_val(k).to_python()) for k in range(depth)]
        spread = [high - low + 1 for low, high in ends]
        while math.prod(spread) > 4 * POINTS:
            k = spread.index(max(spread))
            spread[k] = (spread[k] + 1) // 2
            part = part.upper_bound_val(isl.dim_type.set, k, isl.Val(ends[k][0] + spread[k] - 1))
            smaller = True
        kept = kept.union(isl.UnionSet.from_set(part))
    return kept, smaller
