"""Day 8: visible cases and judge of the fusion policy. Its answer is groups of names; the judge does the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from passlab.judge import Case, Finding, as_decorator, cases_in
from passlab.relax import relax
from passlab.relax.cases import module, op
from passlab.relax.fusing import Program, everything, fuse, illegal, nothing, prepare, price, program
from passlab.tvm.judge import why_not_same

#: How much more than the best known choice a choice may cost, and which share of all steps it may recompute beyond it.
SLACK, AGAIN = 1.05, 0.05


def around(whole: Program, results: set[str]) -> list[tuple[str, ...]]:
    """Return the groups whose results are exactly the values `kept`: each with everything it needs that is not kept."""
    groups = []
    for result in (name for name in whole.ops if name in results):
        group = [result]
        for name in reversed(whole.ops):
            if name not in results and any(name in whole.ops[member].reads for member in group):
                group.append(name)
        groups.append(tuple(reversed(group)))
    return groups


def best_of_all(before: Any) -> list[tuple[str, ...]]:
    """Return the cheapest of all 2ⁿ choices of the values to keep."""
    whole = program(before)
    free = [name for name in whole.ops if name not in whole.returned]
    best, least = [], price(whole, ()).microseconds
    for number in range(len(free)):
        for chosen in itertools.combinations(free, number):
            groups = around(whole, {*chosen, *whole.returned})
            if illegal(whole, groups) is None and (cost := price(whole, groups).microseconds) < least:
                best, least = groups, cost
    return best


def judge(case: Case, value: object) -> Iterator[Finding]:
    """Check that the groups are legal and preserve the result; compare cost and recomputation with other policies."""
    before = case.build()[0]
    whole = program(before)
    if value is None:
        yield Finding("valid", False, "The policy returned None. End it with `return groups`.", before=before)
        return
    if broken := illegal(whole, value):
        yield Finding("valid", False, broken, before=before)
        return
    yield Finding("valid", True)
    after = fuse(before, value)
    wrong = why_not_same(before, after, kinds=("ordinary", "structured"), pipeline="none")
    yield Finding("same", not wrong, wrong, before=before, after=after)
    cost, best = price(whole, value), price(whole, case.expect)
    for sentence, verdict in (
        (_beaten(before, whole, cost, best), "did"),
        (_again(whole, cost, best), "spared"),
        (_dear(cost, best), "cost"),
    ):
        yield Finding(verdict, sentence is None, sentence or "", before=before, after=after)


def _beaten(before: Any, whole: Program, cost: Any, best: Any) -> str | None:
    for policy, choice in ((nothing, "fusing nothing"), (everything, "fusing everything")):
        other = price(whole, policy(before))
        better = best.microseconds < other.microseconds
        if cost.microseconds > other.microseconds or (better and cost.microseconds >= other.microseconds):
            return f"Your groups cost {cost}. That does not beat {choice}: {other}."
    return None


def _again(whole: Program, cost: Any, best: Any) -> str | None:
    if cost.recomputed <= best.recomputed + AGAIN * (cost.steps - cost.recomputed):
        return None
    dear = max(whole.ops.values(), key=lambda op: op.elements * op.steps)
    return (
        f"Of {cost.steps:,.0f} steps {cost.recomputed:,.0f} are recomputed, because values were not kept. Which member "
        f"of a group is read more often than it has elements? (The most expensive one is {dear.name}, {dear.kernel}.)"
    )


def _dear(cost: Any, best: Any) -> str | None:
    if cost.microseconds <= SLACK * best.microseconds:
        return None
    return f"Your groups cost {cost}. The best known groups cost {best}."


@as_decorator
def policy_case(name: str, build: Callable[[], Any], *about: str, best: Callable[[Any], list] = best_of_all) -> Case:
    """Return a case from a module of operators. `best` finds the cheapest groups of the prepared module."""
    groups = best(prepare(build()))
    return Case(name, lambda: (prepare(build()),), ("valid", "same", *about), expect=groups)


def number(value: float) -> Any:
    return relax.const(value, "float32")


@policy_case("a chain", module(..., (256, 256), (256, 256)), "did", "cost")
def chain(e: Any, x: Any, y: Any) -> Any:
    h = e(op.nn.relu(e(op.add(e(op.multiply(x, number(0.5))), y))))
    return e(op.subtract(e(op.multiply(h, h)), x))


@policy_case("before and after a product", module(..., (64, 64), (64, 64)), "did", "spared", "cost")
def prologue(e: Any, x: Any, w: Any) -> Any:
    product = e(op.matmul(e(op.multiply(e(op.tanh(x)), number(2.0))), w))
    positive = e(op.nn.relu(product))
    return e(op.add(positive, e(op.exp(positive))))


@policy_case("three consumers of an expensive value", module(..., (256, 256)), "did", "spared", "cost")
def dear(e: Any, x: Any) -> Any:
    y = e(op.erf(x))
    return e(op.add(y, number(1.0))), e(op.nn.relu(y)), e(op.multiply(e(op.subtract(y, x)), x))


@policy_case("three consumers of a cheap value", module(..., (256, 256)), "did", "cost")
def cheap(e: Any, x: Any) -> Any:
    y = e(op.multiply(x, number(2.0)))
    return e(op.nn.relu(y)), e(op.multiply(y, y)), e(op.sum(y, axis=[1]))


@policy_case("a norm", module(..., (128, 128), (128,)), "did", "spared", "cost")
def norm(e: Any, x: Any, w: Any) -> Any:
    mean = e(op.sum(e(op.multiply(x, x)), axis=[1], keepdims=True))
    scale = e(op.rsqrt(e(op.add(mean, number(0.001)))))
    return e(op.multiply(e(op.multiply(x, scale)), w))


@policy_case("a convolution", module(..., (1, 8, 16, 16), (8, 8, 3, 3)), "did", "spared", "cost")
def convolution(e: Any, x: Any, w: Any) -> Any:
    y = e(op.nn.conv2d(e(op.nn.silu(x)), w, padding=1))
    return e(op.add(e(op.nn.relu(e(op.add(y, number(0.1))))), x))


def cases() -> list[Case]:
    return [*cases_in(__name__)]
