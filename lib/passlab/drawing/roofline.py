"""Draw programs under the roofline of a machine, and their memory traffic.

    roofline({"eager": (flops, nbytes, seconds), "fused": (flops, less, fewer)}, machine)
    traffic({"eager": bytes_moved(gm).detail, "fused": bytes_moved(fused).detail})

Both are SVG by matplotlib, and text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from passlab.drawing.axes import COLOURS, LIGHT, Bar, Part, Plot, bars
from passlab.drawing.picture import INK, PALE, cut, printable, size
from passlab.judge.words import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from passlab.measure.machine import Machine

#: The shape of a mark repeats the meaning of its colour.
MARKS = ("o", "s", "D", "^")
PALER = ("#0072B2", "#56B4E9")


class _Point(NamedTuple):
    """A program under the roof: operations for each byte, operations/s, and whether it was timed."""

    intensity: float
    speed: float
    measured: bool


# ---------------------------------------------------------------------------------------------------- the roofline


def roofline(points: Mapping[str, Sequence[float]], machine: Machine, title: str = "Roofline") -> Plot:
    """Draw programs under the roofs of a machine, on logarithmic scales.

        roofline({"eager": (3e6, 2.4e7, 2e-3), "fused": (3e6, 8e6, 7e-4)}, machine)

    A program is (operations, bytes, seconds): its arithmetic intensity is operations/bytes, its speed
    operations/seconds. (operations, bytes) without a time is a hollow mark on the roof. Raise ValueError unless all
    numbers are positive.
    """
    marks = {name: _point(name, point, machine) for name, point in points.items()}
    if not marks:
        raise ValueError("roofline got no programs: pass {name: (operations, bytes, seconds)}.")
    tips = [f"{name}: {mark.intensity:.3g} flop/byte, {mark.speed / 1e9:.3g} Gflop/s" for name, mark in marks.items()]
    return Plot(_table(marks, machine, title), lambda: _figure(marks, machine, title), title, tips)


def _point(name: str, point: Sequence[float], machine: Machine) -> _Point:
    if len(point) not in (2, 3) or not all(math.isfinite(x) and x > 0 for x in point):
        raise ValueError(
            f"roofline: {name!r} must be (operations, bytes) or (operations, bytes, seconds), all greater than 0; "
            f"got {tuple(point)}."
        )
    intensity = point[0] / point[1]
    speed = point[0] / point[2] if len(point) == 3 else machine.attainable(intensity)
    return _Point(intensity, speed, len(point) == 3)


def _table(points: Mapping[str, _Point], machine: Machine, title: str) -> str:
    wide = max(7, *(len(cut(name, 40)) for name in points))
    lines = [title, repr(machine), f"{'':<{wide}}  flop/byte  Gflop/s  of the roof  under"]
    for name, (intensity, speed, measured) in points.items():
        roof = machine.attainable(intensity)
        share = f"{speed / roof:.0%}" if measured else "not timed"
        under = "memory" if intensity < machine.ridge else "compute"
        lines.append(f"{cut(name, 40):<{wide}}  {intensity:>9.3g}  {speed / 1e9:>7.3g}  {share:>11}  {under}")
    return "\n".join(lines)


def _figure(points: Mapping[str, _Point], machine: Machine, title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = _range([*(point.intensity for point in points.values()), machine.ridge], 4)
    bottom, top = _range([*(point.speed for point in points.values()), machine.flops, machine.attainable(low)], 1.5)
    fig = Figure(figsize=(5.9, 2.8))
    axes = fig.add_axes((0, 0, 1, 1), xlim=(low, high), ylim=(bottom, top))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    axes.set_xlabel("arithmetic intensity, operations for each byte moved")
    axes.set_ylabel("Gflop/s")
    axes.xaxis.set_major_locator(LogLocator(2, numticks=9))
    axes.yaxis.set_major_locator(LogLocator(10, numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _power(round(math.log2(x)))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y / 1e9:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.tick_params(length=0)
    axes.grid(color=LIGHT, linewidth=0.75)
    axes.spines[:].set_visible(False)
    # The roof: memory up to the ridge, arithmetic beyond it.
    foot = max(low, bottom / machine.bandwidth)
    roof = [(foot, foot * machine.bandwidth), (machine.ridge, machine.flops), (high, machine.flops)]
    axes.plot(*zip(*roof, strict=True), color=INK)
    over = {"xytext": (0, 4), "textcoords": "offset points", "color": PALE}
    axes.annotate(f"{machine.flops / 1e9:.3g} Gflop/s", roof[2], ha="right", **over)
    (left, down), (right, up), _ = axes.transData.transform(roof)
    slope = {"rotation": math.degrees(math.atan2(up - down, right - left)), "rotation_mode": "anchor", "ha": "center"}
    half = math.sqrt(foot * machine.ridge)
    axes.annotate(f"{machine.bandwidth / 1e9:.3g} GB/s", (half, half * machine.bandwidth), **over, **slope)
    for at, (name, point) in enumerate(points.items()):
        colour, mark = COLOURS[at % len(COLOURS)], MARKS[at % len(MARKS)]
        fill = colour if point.measured else "white"
        look = {"color": colour, "markerfacecolor": fill, "markeredgewidth": 1.5, "markersize": 7, "zorder": 3}
        axes.plot(point.intensity, point.speed, mark, gid=f"tip{at}", clip_on=False, **look)
        right = math.log(point.intensity / low) > 0.7 * math.log(high / low)
        above = math.log(point.speed / bottom) < 0.1 * math.log(top / bottom)
        place = {"xytext": (-7 if right else 7, 3 if above else -9), "ha": "right" if right else "left"}
        text = {"textcoords": "offset points", "color": colour, "weight": "bold"}
        axes.annotate(printable(cut(name, 30)), (point.intensity, point.speed), **place, **text)
    axes.set_title(printable(cut(title, 80)), loc="left", weight="bold", fontsize=9.5)
    return fig


def _power(n: int) -> str:
    """Format a power of two as a number or a fraction if it is short."""
    if abs(n) > 12:
        return "2" + str(n).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"1/{2**-n}" if n < 0 else str(2**n)


def _range(values: Sequence[float], room: float) -> tuple[float, float]:
    """Return the range from a power of two below all values to one above."""
    return 2 ** math.floor(math.log2(min(values) / room)), 2 ** math.ceil(math.log2(max(values) * room))


# ---------------------------------------------------------------------------------------------------- traffic


def traffic(programs: Mapping[str, Mapping[str, float]], title: str = "Bytes moved") -> Plot:
    """Draw one bar per program, with a part for the bytes of each kernel, and its ratio to the first bar.

        traffic({"eager": {"mul": 8e6, "add": 8e6, "relu": 8e6}, "fused": {"mul_add_relu": 8e6}})

    `bytes_moved(gm).detail` is such a program. Raises ValueError without a program, or for a negative number of bytes.
    """
    if not programs:
        raise ValueError("traffic got no programs: pass {name: {kernel: bytes}}.")
    for name, kernels in programs.items():
        if wrong := next((kernel for kernel, count in kernels.items() if not count >= 0), None):
            count = kernels[wrong]
            raise ValueError(f"traffic: {wrong!r} of {name!r} moves {count} bytes; give a number of 0 or more.")
    sums = {name: sum(kernels.values()) for name, kernels in programs.items()}
    first, most = next(iter(sums.values())), max(*sums.values(), 1)
    column = max(len(cut(name, 24)) for name in programs)
    lines, rows, tips = [title], [], []
    for name, kernels in programs.items():
        ratio = f"× {sums[name] / first:.3g}" if rows and first else ""
        amount = f"{size(sums[name])} in {plural(len(kernels), 'kernel')}"
        parts = ", ".join(f"{cut(kernel, 30)} {size(count)}" for kernel, count in _largest(kernels))
        lines.append(
            f"{cut(name, 24):<{column}}  {'█' * round(40 * sums[name] / most):<40}  {amount}  {ratio}".rstrip()
        )
        lines.append(f"{'':<{column}}  {parts}")
        tips += [f"{kernel}: {size(count)}" for kernel, count in kernels.items()]
        looks = ((PALER[at % 2], kernel, ("white", INK)[at % 2]) for at, kernel in enumerate(kernels))
        segments = [Part(n / most, *look) for n, look in zip(kernels.values(), looks, strict=True)]
        rows.append(Bar(name, segments, amount, ratio))
    return Plot("\n".join(lines), lambda: bars(title, rows), title, tips)


def _largest(kernels: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the eight kernels that move most bytes, in the order in which they run."""
    largest = sorted(kernels, key=kernels.__getitem__, reverse=True)[:8]
    return [(kernel, count) for kernel, count in kernels.items() if kernel in largest]
