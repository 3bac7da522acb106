"""Hidden cases and answers of day08.policy.

Wrong answers are policies that people use; most look at one part of the cost only.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

from autograder.answers.day08._shared import Build
from autograder.authoring.answers import reference, right, wrong
from passlab.exercises.day08._shared import WEIGHT, conv
from passlab.exercises.day08.policy import best_of_all, number, policy_case
from passlab.judge import Case
from passlab.relax import fusing, relax
from passlab.relax.cases import module, op
from passlab.relax.fusing import illegal, prepare, price, program

# ---------------------------------------------------------------------------------------------------- hidden cases


def drawn(seed: int, size: int) -> Build:
    """Return a program of element-wise operations, dear and cheap ones, sums and products, at random."""

    def body(e: Any, x: Any, w: Any) -> Any:
        rng = random.Random(seed)
        full, narrow, read = [x], [], set()

        def take(values: list) -> Any:
            value = rng.choice(values[-3:])
            read.add(value.name)
            return value

        for _ in range(size):
            kind = rng.choices(("cheap", "dear", "two", "product", "sum", "wide"), (4, 2, 3, 1, 1.5, 2))[0]
            if kind == "cheap":
                full.append(e(rng.choice((op.nn.relu, op.abs, lambda v: op.multiply(v, number(0.5))))(take(full))))
            elif kind == "dear":
                full.append(e(rng.choice((op.tanh, op.erf, op.sigmoid, op.cos))(take(full))))
            elif kind == "two":
                full.append(e(rng.choice((op.add, op.subtract, op.maximum))(take(full), take(full))))
            elif kind == "product":
                full.append(e(op.multiply(e(op.matmul(take(full), w)), number(0.1))))
            elif kind == "sum" or not narrow:
                narrow.append(e(op.mean(take(full), axis=[1], keepdims=True)))
            else:
                full.append(e(op.subtract(take(full), take(narrow))))
        ends = [value for value in full[1:] if value.name not in read][-3:] or full[-1:]
        return tuple(ends) if len(ends) > 1 else ends[0]

    width = random.Random(seed).choice((48, 64, 96))
    return module(body, (width, width), (width, width))


def worth_choosing(name: str, rng: random.Random, size: int, best: Callable[[Any], list]) -> Case:
    """Return a case with a drawn program for which fusing nothing and fusing everything can both be beaten."""
    while True:
        build = drawn(rng.randrange(10**6), size)
        there = prepare(build())
        groups = best(there)
        if all(_cheaper(program(there), groups, policy(there)) for policy in (fusing.nothing, fusing.everything)):
            return policy_case(name, build, "did", "spared", "cost", best=lambda _, groups=groups: groups)


ALL_THREE = ("did", "spared", "cost")


@policy_case("a softmax by hand", module(..., (96, 96)), *ALL_THREE)
def softmax_by_hand(e: Any, x: Any) -> Any:
    top = e(op.max(x, axis=[1], keepdims=True))
    powers = e(op.exp(e(op.subtract(x, top))))
    return e(op.divide(powers, e(op.sum(powers, axis=[1], keepdims=True))))


@policy_case("a gate", module(..., (64, 64), (64, 64)), *ALL_THREE)
def gated(e: Any, x: Any, w: Any) -> Any:
    y = e(op.matmul(x, w))
    return e(op.multiply(e(op.multiply(y, e(op.sigmoid(y)))), e(op.matmul(e(op.nn.relu(x)), w))))


@policy_case("two convolutions", module(..., (1, 4, 12, 12), WEIGHT), *ALL_THREE)
def images(e: Any, x: Any, w: Any) -> Any:
    y = e(conv(e(op.nn.relu(e(conv(e(op.tanh(x)), w)))), w))
    return e(op.nn.relu(e(op.add(e(op.add(y, number(0.1))), x))))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        softmax_by_hand,
        gated,
        policy_case("one operation", module(lambda e, x: e(op.tanh(x)), (8, 8))),
        images,
        *(worth_choosing(f"drawn, number {i + 1}", rng, 7, best_of_all) for i in range(3)),
        worth_choosing("drawn, a large one", rng, 24, reference("day08.policy")),
    ]


EQUIVALENT = {
    (
        "name not in there.returned",
        "True",
    ): "groups without a returned value are not legal, so they cost infinitely much",
    ("min(costs) >= cost", "min(costs) > cost"): "one value more or less never costs exactly the same",
    ("tuple(group)", "group"): "a list of names is a group, too",
}


# ---------------------------------------------------------------------------------------------------- answers


def _around(there, kept):
    """Return a group for each kept value: the value, and all it needs that is not kept."""
    groups = []
    for result in kept:
        group = [result]
        for name in reversed(there.ops):
            if name not in kept and any(name in there.ops[member].reads for member in group):
                group.append(name)
        groups.append(tuple(group))
    return groups


def _search(module, cost=lambda price: price.microseconds, kept=None, keeps=lambda there, name: False):
    """Keep one value more or less, as long as that saves something. `keeps`: values that are kept in any case."""
    there = program(module)
    kept = set(there.ops) if kept is None else set(kept(there))

    def of(trial):
        groups = _around(there, trial)
        return math.inf if illegal(there, groups) else cost(price(there, groups))

    now = of(kept)
    while True:
        free = [n for n in there.ops if n not in there.returned and not keeps(there, n)]
        best = min((kept ^ {n} for n in free), key=of, default=kept)
        if of(best) >= now:
            return _around(there, kept)
        kept, now = best, of(best)


def _cheaper(there, groups, others):
    """Return whether these groups are legal, and cheaper than the others, which are legal."""
    return illegal(there, groups) is None and price(there, groups).microseconds < price(there, others).microseconds


def _reducing(there, name):
    return there.ops[name].reductions > 0


@right("tries all choices where there are few, and searches where there are many")
def all_where_few(module):
    there = program(module)
    free = [name for name in there.ops if name not in there.returned]
    if len(free) > 7:
        return _search(module)
    numbers = range(len(free) + 1)
    choices = [there.returned | set(kept) for number in numbers for kept in itertools.combinations(free, number)]
    legal = [groups for groups in (_around(there, kept) for kept in choices) if illegal(there, groups) is None]
    return min(legal, key=lambda groups: price(there, groups).microseconds)


@right("begins at several places and takes the cheapest end")
def several_starts(module):
    there = program(module)
    starts = (
        lambda there: there.ops,
        lambda there: [n for n in there.ops if n in there.returned or _reducing(there, n)],
        lambda there: [n for n in there.ops if n in there.returned or len(there.readers(n)) != 1],
    )
    ends = [_search(module, kept=start) for start in starts]
    legal = [groups for groups in ends if illegal(there, groups) is None]
    return min(legal, key=lambda groups: price(there, groups).microseconds)


@wrong("did", "fuses nothing")
def nothing(module):
    return []


@wrong("spared", "fuses all that can be: counts kernels or bytes only, and no work")
def everything(module):
    return fusing.everything(module)


@wrong("cost", "does what TVM's FuseOps does, which never computes a value twice")
def as_tvm(module):
    fused = relax.transform.FuseOps()(module)
    there, groups = program(module), []
    for function in fused.functions.values():
        if isinstance(function, relax.Function) and function.attrs and "Primitive" in function.attrs:
            wanted = [b.value.args[0].name_hint for block in function.body.blocks for b in block.bindings]
            groups += [group for group in _runs(there, wanted) if illegal(there, [*groups, group]) is None][:1]
    return groups


def _runs(there, kernels):
    """Return groups of operations with these kernels in which each reads one of the others."""
    for result in there.ops:
        group = [result]
        for name in reversed(there.ops):
            if len(group) < len(kernels) and any(name in there.ops[member].reads for member in group):
                group.append(name)
        if sorted(there.ops[n].kernel for n in group) == sorted(kernels):
            yield tuple(group)


@wrong("cost", "never computes a value twice")
def never_again(module):
    return _search(module, cost=lambda price: price.microseconds + 1e6 * price.recomputed)


@wrong("cost", "fuses element-wise operations only: sums and products stay alone")
def elementwise_only(module):
    there = program(module)
    beside = {n for op in there.ops.values() if op.reductions for n in (op.name, *op.reads)}
    return _search(module, keeps=lambda there, name: name in beside)


@wrong("cost", "stops at the first value whose removal does not pay")
def gives_up(module):
    there = program(module)
    kept = set(there.ops)
    for name in there.ops:
        if name in there.returned:
            continue
        if not _cheaper(there, _around(there, kept - {name}), _around(there, kept)):
            break
        kept -= {name}
    return _around(there, kept)


@wrong("valid", "names the kernels, not the bindings, or returns the fused module")
def names_of_kernels(module):
    there = program(module)
    return [tuple(there.ops[name].kernel for name in group) for group in _search(module)]
