"""Shared parts of the day 10 judges. isl objects travel as text, and returned text is read under a limit."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import islpy as isl

from passlab.judge import Case, Finding
from passlab.polyhedral.schedules import remedy

#: Limits on the length of a text, the numbers in one bracket, and the steps of isl to judge it: all far more than a
#: right answer needs.
CHARACTERS, NUMBERS, OPERATIONS = 20_000, 64, 2_000_000
#: A step takes a fraction of a microsecond, or a millisecond where numbers are huge. So a judge begins with FEW steps,
#: and allows MORE times as many only if those took less than this many SECONDS of processor time.
FEW, MORE, SECONDS = 50_000, 9, 0.2

PARAMETER, IN, OUT = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out


class Unreadable(Exception):
    """The answer is not an isl object of the required kind. The message is for the learner."""


class GaveUp(Unreadable):
    """isl would take too many steps."""


class Reader:
    """Read isl text in a separate context, which gives up after `operations` steps.

    isl crashes when objects of two contexts meet, so a judge reads everything, its own texts too, with one reader.
    """

    def __init__(self, operations: int = OPERATIONS):
        self.context = isl.Context()
        self.context.set_max_operations(operations)

    def set(self, text: Any, name: str) -> isl.UnionSet:
        return self._read(isl.UnionSet, text, name)

    def map(self, text: Any, name: str) -> isl.UnionMap:
        return self._read(isl.UnionMap, text, name)

    def _read(self, kind: type, text: Any, name: str) -> Any:
        if not isinstance(text, str):
            raise Unreadable(
                f"{name} must be an isl.{kind.__name__} or the like, or its text; it is {said_type(text)}."
            )
        if len(text) > CHARACTERS:
            raise Unreadable(
                f"{name} is {len(text):,} characters long; the limit is {CHARACTERS:,}. Try `.coalesce()`."
            )
        if any(inside.count(",") >= NUMBERS for inside in re.findall(r"\[[^][]*", text)):
            raise Unreadable(f"{name} has a bracket with more than {NUMBERS} numbers in it.")
        try:
            return kind.read_from_str(self.context, text)
        except isl.Error:
            self.raise_if_too_long()
            sentence = f"isl cannot read {name} as a {kind.__name__}: {text[:80]!r}.{remedy(text)}"
            raise Unreadable(sentence) from None

    def raise_if_too_long(self) -> None:
        """Raise GaveUp if isl failed because of the limit: then it refuses all work, whatever its error said."""
        try:
            isl.Set.read_from_str(self.context, "{ [i] : i > 0 }").is_empty()
        except isl.Error:
            steps = self.context.get_max_operations()
            raise GaveUp(
                f"isl gave up on your answer after {steps:,} steps. Make it simpler, perhaps with `.coalesce()`."
            ) from None


def said_type(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def limited(judge: Callable[[Case, Any, Reader], Iterator[Finding]]) -> Callable[[Case, Any], list[Finding]]:
    """Give the judge a reader, and turn it into one that reports where isl gives up or fails."""

    @wraps(judge)
    def with_reader(case: Case, value: Any) -> list[Finding]:
        operations = FEW
        while True:
            start = time.process_time()
            try:
                return _judged(judge, case, value, Reader(operations))
            except GaveUp as error:
                if operations >= OPERATIONS or time.process_time() - start > SECONDS:
                    return [Finding("valid", False, str(error))]
                operations = min(MORE * operations, OPERATIONS)

    return with_reader


def judged_within(operations: int, judge: Callable[[Case, Any], list[Finding]], case: Case, value: Any) -> bool:
    """Return whether isl can judge an answer in this many steps. judge: made by `limited`."""
    try:
        _judged(inspect.unwrap(judge), case, value, Reader(operations))
    except GaveUp:
        return False
    return True


def _judged(judge: Callable, case: Case, value: Any, reader: Reader) -> list[Finding]:
    """Return the judge's findings, or one that reports a failure. Raise GaveUp where isl reaches its limit."""
    findings: list[Finding] = []
    try:
        findings.extend(judge(case, value, reader))
    except isl.Error as error:
        reader.raise_if_too_long()
        reason = str(error).split(" failed: ")[-1].split(" in /")[0]
        return [Finding("valid", False, f"isl failed on your answer: {reason[:120]}.")]
    except GaveUp:
        raise
    except Unreadable as error:
        return [Finding("valid", False, str(error))]
    return findings


def example(relation: isl.UnionSet | isl.UnionMap) -> str:
    """Return one element in words: "S[1, 2]" or "S[0] → A[1]", with the values of its parameters, if any."""
    if isinstance(relation, isl.UnionSet):
        point, ends = isl.Set.from_basic_set(relation.sample()), [isl.dim_type.set]
    else:
        point, ends = isl.Map.from_basic_map(relation.sample()), [IN, OUT]
    where = [f"{point.get_dim_name(PARAMETER, i)} = {n}" for i, n in enumerate(_numbers(point, PARAMETER))]
    names = [tuple_name(point.space, end) for end in ends]
    words = " → ".join(f"{name}[{', '.join(_numbers(point, end))}]" for name, end in zip(names, ends, strict=True))
    return words + (f" ({', '.join(where)})" if where else "")


def tuple_name(space: isl.Space, end: Any) -> str:
    return space.get_tuple_name(end) if space.has_tuple_name(end) else ""


def _numbers(point: isl.Set | isl.Map, end: Any) -> list[str]:
    numbers = (str(point.plain_get_val_if_fixed(end, i)) for i in range(point.dim(end)))
    return [n if len(n) < 20 else f"{n[:6]}… ({len(n)} digits)" for n in numbers]


def not_a_function(schedule: isl.UnionMap, domain: isl.UnionSet) -> str | None:
    """Return why a schedule does not give each instance of the domain one time, all of the same length, or None.

    `schedule` is restricted to the domain (`intersect_domain`).
    """
    if not (without := domain.subtract(schedule.domain())).is_empty():
        return f"The schedule gives no time to {example(without)}."
    maps = schedule.get_map_list()
    lengths = {}
    for i in range(maps.n_map()):
        one = maps.get_at(i)
        lengths[(one.dim(OUT), tuple_name(one.space, OUT))] = tuple_name(one.space, IN)
    if len(lengths) > 1:
        (first, a), (second, b) = sorted(lengths.items())[:2]
        if first[0] != second[0]:
            return (
                f"The times of {a} have {first[0]} numbers, those of {b} {second[0]}. Times can only be "
                "compared if they have the same length: pad with zeros."
            )
        return f"The times of {a} and of {b} have tuples with different names, which isl cannot compare: omit them."
    if not schedule.is_single_valued():
        return f"The schedule gives more than one time to {example(schedule.subtract(schedule.lexmin()).domain())}."
    return None


def not_before(schedule: isl.UnionMap) -> isl.UnionMap:
    """Return the pairs of instances of which the first runs after the second, or at the same time."""
    return schedule.lex_ge_union_map(schedule)
