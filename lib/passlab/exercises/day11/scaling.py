"""Day 11, scaling: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import is_number, why_not_of_type
from passlab.wafer.scaling import Stencil, bend, strong, weak

KEYS = ("strong", "weak", "fastest", "strong bend", "weak bend")
#: what bends a curve → why it does
COSTLIER = {
    "halo": "the halo takes at least as many cycles as the sums",
    "sums": "the sums take more cycles than the halo",
}


def grids(name: str, stencil: Stencil, columns: int, block: int, sides: list[int], ramp: int = 2) -> Case:
    """Return a case: strong scaling of columns × columns, weak scaling of block × block, on grids of these sides."""
    return Case(name, lambda: (stencil, columns, block, sides, ramp))


def cases() -> list[Case]:
    twos = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    return [
        grids("much work", Stencil(30, 512, 2), 64, 4, twos[:5]),
        grids("little work, many sums", Stencil(4, 16, 4), 256, 2, twos),
        grids("wide halos, no sums", Stencil(2, 64, 0), 32, 1, twos[:6]),
    ]


def expected(stencil: Stencil, columns: int, block: int, sides: list[int], ramp: int) -> dict[str, Any]:
    """Return the right answer to a case."""
    tables = {"strong": strong(stencil, columns, sides, ramp), "weak": weak(stencil, block, sides, ramp)}
    right: dict[str, Any] = {kind: {p: sum(c.values()) for p, c in table.items()} for kind, table in tables.items()}
    right["fastest"] = min(sides, key=lambda side: (right["strong"][side], side))
    return right | {f"{kind} bend": bend(table, kind == "strong") for kind, table in tables.items()}


def _invalid(sides: list[int], value: Any) -> str:
    if wrong := why_not_of_type(value, f"a dictionary with {', '.join(map(repr, KEYS))}", dict):
        return wrong
    for key in KEYS:
        if key not in value:
            return f"{key!r} is missing."
    for key in KEYS[:2]:
        table = value[key]
        if not isinstance(table, dict) or set(table) != set(sides):
            return f"{key!r} must have the cycles for the sides {shown(sides)}; it is {shown(table)}."
        for side, cycles in table.items():
            if not (is_number(cycles) and 0 <= cycles < 1e18):
                return f"{key!r} has {shown(cycles)} cycles for side {side}; they must be a number."
    if value["fastest"] not in sides:
        return f"'fastest' must be one of the sides; it is {shown(value['fastest'])}."
    for key in KEYS[3:]:
        bent = value[key]
        pair = isinstance(bent, list | tuple) and len(bent) == 2 and bent[1] in ("halo", "sums")
        if bent is not None and not pair:
            return f'{key!r} must be None or (side, "halo" or "sums"); it is {shown(bent)}.'
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Same: the cycles. Did: the fastest grid, and the sides where the curves bend. Cost: what bends them."""
    sides = case.build()[3]
    broken = _invalid(sides, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    right = expected(*case.build())
    for key in KEYS[:2]:
        for side in sides:
            n, truth = value[key][side], right[key][side]
            message = (
                f"{key.capitalize()} scaling, {side} × {side} cores: {truth:,} cycles an iteration; got {n:,.15g}."
            )
            yield Finding("same", abs(n - truth) < 0.5, "" if abs(n - truth) < 0.5 else message)
    best = value["fastest"] == right["fastest"]
    message = f"The same points take the fewest cycles on {right['fastest']} × {right['fastest']} cores; you say {shown(value['fastest'])}."  # noqa: E501
    yield Finding("did", best, "" if best else message)
    for key in KEYS[3:]:
        actual, truth = value[key], right[key]
        place = (actual and actual[0]) == (truth and truth[0])
        message = (
            f"{key.capitalize()}: the efficiency first falls below one half at side {truth[0]}"
            if truth
            else f"{key.capitalize()}: the efficiency never falls below one half"
        )
        yield Finding("did", place, "" if place else f"{message}; you say {shown(actual)}.")
        if place:
            right_cause = truth is None or actual[1] == truth[1]
            message = "" if right_cause else f"At side {truth[0]}, {COSTLIER[truth[1]]} ({key})."
            yield Finding("cost", right_cause, message)
