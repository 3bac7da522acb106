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
        source = prepare(build())
        groups = best(source)
        if all(_cheaper(program(source), groups, policy(source)) for policy in (fusing.nothing, fusing.everything)):
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


@policy_case("three consumers of a small, expensive value", module(..., (16, 16)), *ALL_THREE)
def small(e: Any, x: Any) -> Any:
    y = e(op.erf(x))
    return e(op.add(y, number(1.0))), e(op.nn.relu(y)), e(op.subtract(y, x))


@policy_case("three consumers of a large, cheap value", module(..., (300, 200)), *ALL_THREE)
def large(e: Any, x: Any) -> Any:
    y = e(op.abs(x))
    return e(op.add(y, number(1.0))), e(op.multiply(y, y)), e(op.max(y, axis=[1]))


@policy_case("a value that costs nearly as much to keep", module(..., (32, 32), (64, 64)), *ALL_THREE)
def balanced(e: Any, x: Any, w: Any) -> Any:
    y, z = e(op.tanh(e(op.abs(x)))), e(op.erf(w))
    return e(op.add(y, number(1.0))), e(op.nn.relu(y)), e(op.add(z, number(1.0))), e(op.nn.relu(z))


@policy_case("a value that is returned and read", module(..., (64, 64)), *ALL_THREE)
def both(e: Any, x: Any) -> Any:
    y = e(op.multiply(e(op.tanh(x)), number(0.5)))
    return y, e(op.nn.relu(e(op.add(y, x))))


@policy_case("two values that are kept together or not at all", module(..., (48, 48)), *ALL_THREE)
def joined(e: Any, x: Any) -> Any:
    positive = e(op.nn.relu(x))
    s = e(op.sigmoid(positive))
    return e(op.add(s, e(op.cos(e(op.subtract(s, positive))))))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        small,
        large,
        balanced,
        both,
        joined,
        softmax_by_hand,
        gated,
        policy_case("one operation", module(lambda e, x: e(op.tanh(x)), (8, 8))),
        images,
        *(worth_choosing(f"drawn, number {i + 1}", rng, 7, best_of_all) for i in range(3)),
        worth_choosing("drawn, a large one", rng, 24, reference("day08.policy")),
    ]


EQUIVALENT = {
    (
        "name not in source.returned",
        "True",
    ): "groups without a returned value are not legal, so they cost infinitely much",
    ("min(costs) >= cost", "min(costs) > cost"): "one value more or less never costs exactly the same",
    ("tuple(group)", "group"): "a list of names is a group, too",
}


# ---------------------------------------------------------------------------------------------------- answers


def _around(source, results):
    """Return a group for each kept value: the value, and all it needs that is not kept."""
    groups = []
    for result in results:
        group = [result]
        for name in reversed(source.ops):
            if name not in results and any(name in source.ops[member].reads for member in group):
                group.append(name)
        groups.append(tuple(group))
    return groups


def _search(module, cost=lambda price: price.microseconds, results=None, keeps=lambda source, name: False):
    """Keep one value more or less, as long as that saves something. `keeps`: values that are kept in any case."""
    source = program(module)
    results = set(source.ops) if results is None else set(results(source))

    def of(trial):
        groups = _around(source, trial)
        return math.inf if illegal(source, groups) else cost(price(source, groups))

    current = of(results)
    while True:
        free = [n for n in source.ops if n not in source.returned and not keeps(source, n)]
        best = min((results ^ {n} for n in free), key=of, default=results)
        if of(best) >= current:
            return _around(source, results)
        results, current = best, of(best)


def _cheaper(source, groups, others):
    """Return whether these groups are legal, and cheaper than the others, which are legal."""
    return illegal(source, groups) is None and price(source, groups).microseconds < price(source, others).microseconds


def _reducing(source, name):
    return source.ops[name].reductions > 0


@right("tries all choices where there are few, and searches where there are many")
def all_where_few(module):
    source = program(module)
    free = [name for name in source.ops if name not in source.returned]
    if len(free) > 7:
        return _search(module)
    numbers = range(len(free) + 1)
    choices = [source.returned | set(results) for number in numbers for results in itertools.combinations(free, number)]
    legal = [groups for groups in (_around(source, results) for results in choices) if illegal(source, groups) is None]
    return min(legal, key=lambda groups: price(source, groups).microseconds)


@right("begins at several places and takes the cheapest end")
def several_starts(module):
    source = program(module)
    starts = (
        lambda source: source.ops,
        lambda source: [n for n in source.ops if n in source.returned or _reducing(source, n)],
        lambda source: [n for n in source.ops if n in source.returned or len(source.readers(n)) != 1],
    )
    ends = [_search(module, results=start) for start in starts]
    legal = [groups for groups in ends if illegal(source, groups) is None]
    return min(legal, key=lambda groups: price(source, groups).microseconds)


@wrong("did", "fuses nothing")
def nothing(module):
    return []


@wrong("spared", "fuses all that can be: counts kernels or bytes only, and no work")
def everything(module):
    return fusing.everything(module)


@wrong("cost", "does what TVM's FuseOps does, which never computes a value twice")
def as_tvm(module):
    fused = relax.transform.FuseOps()(module)
    source, groups = program(module), []
    for function in fused.functions.values():
        if isinstance(function, relax.Function) and function.attrs and "Primitive" in function.attrs:
            kernels = [b.value.args[0].name_hint for block in function.body.blocks for b in block.bindings]
            groups += [group for group in _runs(source, kernels) if illegal(source, [*groups, group]) is None][:1]
    return groups


def _runs(source, kernels):
    """Return groups of operations with these kernels in which each reads one of the others."""
    for result in source.ops:
        group = [result]
        for name in reversed(source.ops):
            if len(group) < len(kernels) and any(name in source.ops[member].reads for member in group):
                group.append(name)
        if sorted(source.ops[n].kernel for n in group) == sorted(kernels):
            yield tuple(group)


@wrong("cost", "never computes a value twice")
def never_again(module):
    return _search(module, cost=lambda price: price.microseconds + 1e6 * price.recomputed)


@wrong("cost", "fuses element-wise operations only: sums and products stay alone")
def elementwise_only(module):
    source = program(module)
    neighbours = {n for op in source.ops.values() if op.reductions for n in (op.name, *op.reads)}
    return _search(module, keeps=lambda source, name: name in neighbours)


@wrong("cost", "stops at the first value whose removal does not pay")
def gives_up(module):
    source = program(module)
    results = set(source.ops)
    for name in source.ops:
        if name in source.returned:
            continue
        if not _cheaper(source, _around(source, results - {name}), _around(source, results)):
            break
        results -= {name}
    return _around(source, results)


@wrong("cost", "counts launches and steps, and forgets the memory that kernels read and write")
def without_bytes(module):
    return _search(module, cost=lambda price: price.kernels * fusing.LAUNCH + price.steps / fusing.STEPS)


@wrong("cost", "counts memory and steps, and forgets that a launch takes time")
def without_launches(module):
    return _search(module, cost=lambda price: price.microseconds - price.kernels * fusing.LAUNCH)


@wrong("spared", "takes fewer kernels where that costs nearly the same, however much is computed again")
def fewer_kernels(module):
    return _search(module, cost=lambda price: price.microseconds + 0.5 * price.kernels)


@wrong("cost", "looks at each value once, in order: no value is kept or given up because of a later one")
def one_pass(module):
    source = program(module)
    results = set(source.ops)
    for name in source.ops:
        if _cheaper(source, _around(source, results - {name}), _around(source, results)):
            results -= {name}
    return _around(source, results)


@wrong("valid", "keeps what has no reader or several, and forgets that a value with one may be returned, too")
def without_returned(module):
    source = program(module)
    return _around(source, [n for n in source.ops if len(source.readers(n)) != 1 or _reducing(source, n)])


@wrong("valid", "names the kernels, not the bindings, or returns the fused module")
def names_of_kernels(module):
    source = program(module)
    return [tuple(source.ops[name].kernel for name in group) for group in _search(module)]
