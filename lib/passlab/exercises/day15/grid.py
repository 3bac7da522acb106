"""Day 15, grids: visible cases and judge."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from passlab.judge import Case, Finding, scalar, shown

#: The smallest scale that an answer may return.
LEAST = 2.0**-126
#: By how much a scale may differ from the right one, relatively, and a zero point from the nearest one.
TOLERANCE = 1e-6
#: What a case decides whose range has no grid.
REFUSED = ("valid", "spared")


def grid_case(name: str, low: float, high: float, bits: int = 8, symmetric: bool = False) -> Case:
    """Return a case for a range; one without a grid decides only that it is refused."""
    about = REFUSED if why_no_grid(low, high) else ()
    return Case(name, lambda: (low, high, bits, symmetric), about)


def why_no_grid(low: float, high: float) -> str:
    if math.isnan(low) or math.isnan(high):
        return "An end is NaN"
    if low > high:
        return "The range is empty"
    return "An end is infinite" if math.isinf(low) or math.isinf(high) else ""


def cases() -> list[Case]:
    return [
        grid_case("on both sides of 0", -1.0, 3.0),
        grid_case("above 0", 2.0, 6.0),
        grid_case("one value", -0.7, -0.7, bits=4),
        grid_case("symmetric", -3.0, 1.0, symmetric=True),
        grid_case("only 0", 0.0, 0.0),
        grid_case("empty", 1.0, -1.0),
        grid_case("an infinite end", -math.inf, 8.0),
    ]


def why_not_a_grid(value: Any) -> str:
    """Return why a value is not a pair of a scale and a zero point, or ""."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return f"Expected (scale, zero_point) or None; it is {shown(value)}."
    scale, zero_point = value
    if type(scale) not in (float, int) or not 0 < scale <= sys.float_info.max:
        return f"A scale is a positive, finite number; it is {shown(scale)}."
    if type(zero_point) is not int:
        return f"A zero point is an int; it is {shown(zero_point)}."
    return ""


def ends(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def smallest(low: float, high: float, bits: int, symmetric: bool) -> float:
    """Return the scale of a range that has 0 in it."""
    first, last = ends(bits)
    if low == high:
        return 1.0
    return max(max(-low, high) / last if symmetric else (high - low) / (last - first), LEAST)


def why_misplaced(zero_point: int, scale: float, low: float, high: float, bits: int, symmetric: bool) -> str:
    """Return why a zero point is not where it belongs with the right scale, or ""."""
    if symmetric or low == high:
        return f"The zero point is {zero_point}; it should be 0." if zero_point else ""
    exact = ends(bits)[0] - low / scale
    if abs(zero_point - exact) <= 0.5 + TOLERANCE * abs(exact):
        return ""
    at = "low" if low else "0, where the range begins,"
    return f"With the zero point {zero_point}, {at} is not at the first integer: that takes {exact:.6g}, rounded."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    low, high, bits, symmetric = case.build()
    value = tuple(map(scalar, value)) if isinstance(value, tuple | list) else value
    broken = "" if value is None else why_not_a_grid(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    none = why_no_grid(low, high)
    if none or value is None:
        right = bool(none) == (value is None)
        yield Finding(
            "spared", right, f"{none}: there is no grid." if none else f"{low:g} … {high:g} has a grid; got None."
        )
        return
    yield Finding("spared", True, "")
    low, high = min(low, 0.0), max(high, 0.0)
    scale, least = value[0], smallest(low, high, bits, symmetric)
    close = math.isclose(scale, least, rel_tol=TOLERANCE)
    size = "does not cover" if scale < least else "is too large for"
    yield Finding("did", close, f"The scale {scale:.9g} {size} {low:g} … {high:g}: {least:.9g} is right.")
    wrong = why_misplaced(value[1], least, low, high, bits, symmetric)
    yield Finding("same", not wrong, wrong)
