"""Day 16, the weakest precondition of a law: visible cases and judge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from passlab.given.day16.laws import every, value
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_list

X, Y = "?x", "?y"
#: Name → a term that is true or false; of float16, then of int8.
FLOAT: dict[str, Any] = {
    "x is finite": ("finite", X),
    "x is not NaN": ("not", ("nan", X)),
    "the sign of x is +": ("not", ("signbit", X)),
    "x is not 0": ("ne", X, 0),
    "x > 0": ("lt", 0, X),
    "x < 128": ("lt", X, 128),
    "x > −128": ("lt", -128, X),
    "x is not ∞": ("ne", X, math.inf),
}
INT: dict[str, Any] = {
    "x ≥ 0": ("le", 0, X),
    "x > −128": ("lt", -128, X),
    "x ≥ −64": ("le", -64, X),
    "x ≤ 63": ("le", X, 63),
    "x ≠ 1": ("ne", X, 1),
}
PAIR: dict[str, Any] = {
    "x ≥ 0": ("le", 0, X),
    "y ≥ 0": ("le", 0, Y),
    "x ≤ 63": ("le", X, 63),
    "y ≤ 63": ("le", Y, 63),
    "x ≤ y": ("le", X, Y),
    "x > −128": ("lt", -128, X),
}


def laws_case(name: str, left: Any, right: Any, conditions: Mapping[str, Any], dtype: torch.dtype) -> Case:
    """Return a case; one that a counterexample answers decides `spared`, and no `did`."""
    names = (X, Y) if Y in str((left, right, conditions)) else (X,)
    build = lambda: (left, right, dict(conditions), every(dtype, *names))  # noqa: E731
    holds = weakest(*build()) is not None
    return Case(name, build, ("valid", "same", "did" if holds else "spared"), expect=holds)


def some(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: table[name] for name in names}


def cases() -> list[Case]:
    half, byte = torch.float16, torch.int8
    zero = some(FLOAT, "x is finite", "x > 0", "the sign of x is +")
    return [
        laws_case("x · 0 = 0", ("mul", X, 0), 0, zero, half),
        laws_case("x · 2 = x + x", ("mul", X, 2), ("add", X, X), some(FLOAT, "x is finite", "x > 0"), half),
        laws_case("x / x = 1", ("truediv", X, X), 1, some(FLOAT, "x is not NaN", "x > 0"), half),
        laws_case("max(x, y) = y", ("maximum", X, Y), Y, some(PAIR, "x ≥ 0", "x ≤ y", "y ≥ 0"), byte),
    ]


# --------------------------------------------------------------------------------------------------------------- truth


def same_bits(one: Tensor, other: Tensor) -> Tensor:
    """Return where two results are the same: one NaN is like another, 0.0 is not −0.0."""
    return ((one == other) & (one.signbit() == other.signbit())) | (one.isnan() & other.isnan())


def admitted(names: Sequence[str], conditions: Mapping[str, Any], numbers: Mapping[str, Tensor]) -> Tensor:
    """Return which inputs satisfy all of some conditions."""
    where = torch.ones_like(next(iter(numbers.values())), dtype=torch.bool)
    for name in names:
        where = where & value(conditions[name], numbers)
    return where


def weakest(left: Any, right: Any, conditions: Mapping[str, Any], numbers: Mapping[str, Tensor]) -> int | None:
    """Return how many inputs the weakest precondition that is enough admits, None if none is."""
    same = same_bits(value(left, numbers), value(right, numbers))
    counts = []
    for count in range(len(conditions) + 1):
        for names in itertools.combinations(conditions, count):
            where = admitted(names, conditions, numbers)
            if not (where & ~same).any():
                counts.append(int(where.sum()))
    return max(counts, default=None)


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_a_decision(value: Any, conditions: Mapping[str, Any], numbers: Mapping[str, Tensor]) -> str:
    """Return why a value is neither (True, names) nor (False, an input), or ""."""
    if reason := why_not_a_list(value, "a pair, (True, conditions) or (False, input)", 2):
        return reason
    holds, rest = value
    if type(holds) is not bool:
        return f"The first part is True or False; here it is {shown(holds)}."
    if holds:
        if not isinstance(rest, list | tuple):
            return f"After True comes a list of names of conditions; here it is {shown(rest)}."
        other = [name for name in rest if not isinstance(name, str) or name not in conditions]
        return f"{shown(other[0])} is not the name of a condition." if other else ""
    if not isinstance(rest, dict) or set(map(str, rest)) != set(numbers):
        return f"After False comes a dict with a number for {', '.join(numbers)}; here it is {shown(rest)}."
    dtype = next(iter(numbers.values())).dtype
    for name, number in rest.items():
        if type(number) not in (int, float) or not _is_of_type(number, dtype):
            return f"{name} must be a number of type {str(dtype).removeprefix('torch.')}; it is {shown(number)}."
    return ""


def _is_of_type(number: float, dtype: torch.dtype) -> bool:
    if number != number or abs(number) == math.inf:
        return dtype.is_floating_point
    if dtype == torch.int8:
        return number in range(-128, 128)
    return abs(number) <= 65504 and torch.tensor(float(number), dtype=torch.float64).to(dtype).item() == number


def _input(numbers: Mapping[str, Tensor], at: int) -> str:
    return ", ".join(f"{name.lstrip('?')} = {part[at].item()}" for name, part in numbers.items())


def _counterexample(case: Case, names: Sequence[str]) -> str:
    """Return an input that satisfies these conditions and for which the sides differ, as a sentence, or ""."""
    left, right, conditions, numbers = case.build()
    one, other = value(left, numbers), value(right, numbers)
    wrong = (admitted(names, conditions, numbers) & ~same_bits(one, other)).nonzero()
    if not len(wrong):
        return ""
    at = int(wrong[0])
    under = f"{' and '.join(names)} is not enough" if names else "It does not hold for all inputs"
    return f"{under}: for {_input(numbers, at)} the sides are {one[at].item()} and {other[at].item()}."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    left, right, conditions, numbers = case.build()
    broken = why_not_a_decision(value, conditions, numbers)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    holds, rest = value
    if holds:
        reason = _counterexample(case, rest)
        yield Finding("same", not reason, reason)
        if not reason:
            own, most = int(admitted(rest, conditions, numbers).sum()), weakest(left, right, conditions, numbers) or 0
            strong = f"This is enough, but admits only {own:,} inputs. Another one is enough, and admits {most:,}."
            yield Finding("did", own == most, "" if own == most else strong)
        return
    if case.expect:
        yield Finding("did", False, "Under some of the conditions the law holds; you have an input instead.")
        return
    reason = _why_not_refuted(left, right, conditions, numbers, rest)
    yield Finding("same", True, "")
    yield Finding("spared", not reason, reason)


def _why_not_refuted(left: Any, right: Any, conditions: Mapping, numbers: Mapping[str, Tensor], rest: Mapping) -> str:
    """Return why an input is not a counterexample, or ""."""
    at = {name: torch.tensor([rest[name]], dtype=part.dtype) for name, part in numbers.items()}
    for name, term in conditions.items():
        if not value(term, at).all():
            return f"{_input(at, 0)} does not satisfy “{name}”."
    one, other = value(left, at), value(right, at)
    return f"For {_input(at, 0)} both sides are {one.item()}." if same_bits(one, other).all() else ""
