"""Draw programs under the roofline of a machine, and where their memory traffic goes.

    roofline({"eager": (flops, nbytes, seconds), "fused": (flops, less, fewer)}, machine)
    traffic({"eager": bytes_moved(gm).detail, "fused": bytes_moved(fused).detail})

Both are SVG written without Graphviz, and text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from passlab.drawing.picture import BLUE, FONT, GREY, INK, PALE, Picture, cut, escape, size

if TYPE_CHECKING:
    from passlab.measure.machine import Machine

#: Okabe and Ito's colours, which colour-blind readers tell apart; the shape of a mark says it once more.
COLOURS = (BLUE, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
PALER = ("#0072B2", "#56B4E9")
WIDE, HIGH = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 34, 50


class Drawing(Picture):
    """A picture whose SVG is given."""

    suffixes = (".svg", ".html", ".txt")

    def __init__(self, text: str, svg: str, title: str, note: str = ""):
        super().__init__(text, "", title, note)
        self._made = svg

    @cached_property
    def _drawn(self) -> tuple[str, str]:
        return self._made, ""


# ---------------------------------------------------------------------------------------------------- the roofline


def roofline(points: Mapping[str, Sequence[float]], machine: Machine, title: str = "Roofline") -> Drawing:
    """Draw programs under the roofs of a machine, on logarithmic scales.

        roofline({"eager": (3e6, 2.4e7, 2e-3), "fused": (3e6, 8e6, 7e-4)}, machine)

    A program is (operations, bytes, seconds): its arithmetic intensity is operations/bytes, its speed
    operations/seconds. (operations, bytes) alone was not timed, and is drawn on the roof itself as a hollow mark.
    Raise ValueError unless all of these are positive.
    """
    placed = {name: _placed(name, point, machine) for name, point in points.items()}
    if not placed:
        raise ValueError("roofline got no programs: hand it {name: (operations, bytes, seconds)}.")
    return Drawing(_table(placed, machine, title), _roofline(placed, machine, title), title)


def _placed(name: str, point: Sequence[float], machine: Machine) -> tuple[float, float, bool]:
    """(intensity, operations/s, whether it was measured)."""
    if len(point) not in (2, 3) or not all(math.isfinite(x) and x > 0 for x in point):
        raise ValueError(
            f"roofline: {name!r} must be (operations, bytes) or (operations, bytes, seconds), all greater than 0; "
            f"got {tuple(point)}."
        )
    intensity = point[0] / point[1]
    return (
        (intensity, point[0] / point[2], True) if len(point) == 3 else (intensity, machine.attainable(intensity), False)
    )


def _table(placed: Mapping[str, tuple], machine: Machine, title: str) -> str:
    wide = max(7, *(len(cut(name, 40)) for name in placed))
    lines = [title, repr(machine), f"{'':<{wide}}  flop/byte  Gflop/s  of the roof  under"]
    for name, (intensity, speed, measured) in placed.items():
        roof = machine.attainable(intensity)
        share = f"{speed / roof:.0%}" if measured else "not timed"
        under = "memory" if intensity < machine.ridge else "compute"
        lines.append(f"{cut(name, 40):<{wide}}  {intensity:>9.3g}  {speed / 1e9:>7.3g}  {share:>11}  {under}")
    return "\n".join(lines)


def _roofline(placed: Mapping[str, tuple], machine: Machine, title: str) -> str:
    low, high = _range([*(it[0] for it in placed.values()), machine.ridge], 4)
    bottom, top = _range([*(it[1] for it in placed.values()), machine.flops, machine.attainable(low)], 1.5)

    def x(intensity: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * math.log(intensity / low) / math.log(high / low)

    def y(speed: float) -> float:
        return HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * math.log(speed / bottom) / math.log(top / bottom)

    drawn = []
    for value in _ticks(low, high, 2):
        drawn.append(_line(x(value), TOP, x(value), HIGH - BOTTOM, "#E6E6E6"))
        drawn.append(_text(x(value), HIGH - BOTTOM + 15, f"{value:g}" if value >= 1 else f"1/{1 / value:g}", "middle"))
    for value in _ticks(bottom, top, 10):
        drawn.append(_line(LEFT, y(value), WIDE - RIGHT, y(value), "#E6E6E6"))
        drawn.append(_text(LEFT - 6, y(value) + 4, f"{value / 1e9:g}", "end"))
    middle = (LEFT + WIDE - RIGHT) / 2
    drawn.append(_text(middle, HIGH - 14, "arithmetic intensity, operations for each byte moved", "middle"))
    turned = f'transform="rotate(-90 16 {(TOP + HIGH - BOTTOM) / 2:.0f})"'
    drawn.append(_text(16, (TOP + HIGH - BOTTOM) / 2, "Gflop/s", "middle", turned))
    # The roofs: up to the ridge the memory's, from there on the arithmetic's.
    corner, foot = machine.ridge, max(low, bottom / machine.bandwidth)
    roof = f"{x(foot):.1f},{y(foot * machine.bandwidth):.1f} {x(corner):.1f},{y(machine.flops):.1f} "
    roof += f"{x(high):.1f},{y(machine.flops):.1f}"
    drawn.append(f'<polyline points="{roof}" fill="none" stroke="{INK}" stroke-width="2"/>')
    drawn.append(_text(x(high) - 4, y(machine.flops) - 7, f"{machine.flops / 1e9:.3g} Gflop/s", "end"))
    half = math.sqrt(foot * corner)
    across, up = x(corner) - x(foot), y(foot * machine.bandwidth) - y(machine.flops)
    turn = f"{-math.degrees(math.atan2(up, across)):.1f} {x(half):.1f} {y(half * machine.bandwidth):.1f}"
    slope = f'transform="rotate({turn})"'
    said = f"{machine.bandwidth / 1e9:.3g} GB/s"
    drawn.append(_text(x(half), y(half * machine.bandwidth) - 7, said, "middle", slope))
    for number, (name, (intensity, speed, measured)) in enumerate(placed.items()):
        drawn.append(_mark(x(intensity), y(speed), number, measured))
        right = x(intensity) > WIDE * 0.7
        at = x(intensity) + (-9 if right else 9)
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(
            _text(at, y(speed) + 14, cut(name, 30), "end" if right else "start", f'fill="{colour}" font-weight="bold"')
        )
    return _page(drawn, WIDE, HIGH, title)


def _range(values: Sequence[float], room: float) -> tuple[float, float]:
    """From a power of two below all values to one above."""
    return 2 ** math.floor(math.log2(min(values) / room)), 2 ** math.ceil(math.log2(max(values) * room))


def _ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base in between, ten at most."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = max(1, -(-(last - first + 1) // 10))
    return [float(base) ** n for n in range(first, last + 1, step)]


def _mark(x: float, y: float, number: int, filled: bool) -> str:
    """A circle, a square, a diamond, …: the shape tells programs apart where the colour does not."""
    colour = COLOURS[number % len(COLOURS)]
    look = f'fill="{colour if filled else "#fff"}" stroke="{colour}" stroke-width="2"'
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}/>',
        f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {look}/>',
        f'<path d="M{x:.1f} {y - 7:.1f} l7 7 l-7 7 l-7 -7 z" {look}/>',
        f'<path d="M{x:.1f} {y - 6:.1f} l6 11 h-12 z" {look}/>',
    )
    return shapes[number % len(shapes)]


# ---------------------------------------------------------------------------------------------------- traffic


def traffic(programs: Mapping[str, Mapping[str, float]], title: str = "Bytes moved") -> Drawing:
    """Draw one bar per program, made of the bytes that each of its kernels moves, and its ratio to the first bar.

        traffic({"eager": {"mul": 8e6, "add": 8e6, "relu": 8e6}, "fused": {"mul_add_relu": 8e6}})

    `bytes_moved(gm).detail` is such a program.
    """
    if not programs:
        raise ValueError("traffic got no programs: hand it {name: {kernel: bytes}}.")
    for name, kernels in programs.items():
        if wrong := next((kernel for kernel, count in kernels.items() if not count >= 0), None):
            raise ValueError(
                f"traffic: {wrong!r} of {name!r} moves {kernels[wrong]} bytes; give a number of 0 or more."
            )
    sums = {name: sum(kernels.values()) for name, kernels in programs.items()}
    first, most = next(iter(sums.values())), max(*sums.values(), 1)
    column = max(len(cut(name, 24)) for name in programs)
    lines, drawn, left, room = [title], [], 12 + 7 * column, 380
    for row, (name, kernels) in enumerate(programs.items()):
        ratio = f"× {sums[name] / first:.3g}" if row and first else ""
        told = f"{size(sums[name])} in {len(kernels)} kernel{'s' * (len(kernels) != 1)}"
        parts = ", ".join(f"{cut(kernel, 30)} {size(count)}" for kernel, count in _largest(kernels))
        lines.append(f"{cut(name, 24):<{column}}  {'█' * round(40 * sums[name] / most):<40}  {told}  {ratio}".rstrip())
        lines.append(f"{'':<{column}}  {parts}")
        y, x = TOP + 34 * row, float(left)
        drawn.append(_text(left - 6, y + 15, cut(name, 24), "end"))
        for at, (kernel, count) in enumerate(kernels.items()):
            width = room * count / most
            box = f'x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="22"'
            colour = f'fill="{PALER[at % 2]}" stroke="#fff"'
            drawn.append(f"<rect {box} {colour}><title>{escape(kernel)}: {size(count)}</title></rect>")
            if width > 7 * min(len(kernel), 12) + 4:
                ink = f'fill="{INK if at % 2 else "#fff"}"'
                drawn.append(_text(x + width / 2, y + 15, cut(kernel, 12), "middle", ink))
            x += width
        drawn.append(_text(x + 8, y + 15, f"{told}  {ratio}".rstrip(), "start"))
    return Drawing("\n".join(lines), _page(drawn, left + room + 190, TOP + 34 * len(programs) + 4, title), title)


def _largest(kernels: Mapping[str, float]) -> list[tuple[str, float]]:
    """The eight that move most, in the order in which they run."""
    kept = sorted(kernels, key=kernels.__getitem__, reverse=True)[:8]
    return [(kernel, count) for kernel, count in kernels.items() if kernel in kept]


# ---------------------------------------------------------------------------------------------------- SVG


def _line(x: float, y: float, to_x: float, to_y: float, colour: str = GREY) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, said: str, anchor: str, more: str = "") -> str:
    ink = "" if "fill=" in more else f'fill="{PALE}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {ink} {more}>{escape(said)}</text>'


def _page(drawn: Sequence[str], wide: float, high: float, title: str) -> str:
    head = '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
    head += f'aria-label="{escape(title)}" width="{wide}" height="{high}"'
    look = f'viewBox="0 0 {wide} {high}" style="max-width:100%;height:auto" font-family="{FONT}" font-size="11"'
    named = f'<text x="12" y="18" font-size="13" font-weight="bold" fill="{INK}">{escape(cut(title, 80))}</text>'
    white = '<rect width="100%" height="100%" fill="#fff"/>'
    return f"{head} {look}><title>{escape(title)}</title>{white}{named}{''.join(drawn)}</svg>"
