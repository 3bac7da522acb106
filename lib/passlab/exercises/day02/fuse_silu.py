"""Day 2, the same pass in Relax: visible cases and laws. Imported where Relax's TVM is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from passlab.judge import Case, Finding, is_or_are
from passlab.relax import relax, tvm
from passlab.relax.cases import case, module, op
from passlab.tvm.cases import calls
from passlab.tvm.judge import bindings, counts, functions, judge_pass

MULTIPLY, SIGMOID, SILU = "relax.multiply", "relax.sigmoid", "relax.nn.silu"

IMAGE = (2, 3, 5)


def name(value: Any) -> str:
    """Return the operator that `value` calls; "" if it is not such a call."""
    called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return value.op.name if called else ""


def matches(function: relax.Function) -> dict[Any, Any]:
    """Return variable → the variable of the sigmoid, for each product of a value and its own sigmoid."""
    bound = dict(bindings(function))
    gates = {}
    for variable, value in bound.items():
        if name(value) != MULTIPLY:
            continue
        a, b = value.args
        for x, gate in ((a, b), (b, a)):
            producer = bound.get(gate) if isinstance(gate, relax.Var) else None
            if name(producer) == SIGMOID and producer.args[0].same_as(x):
                gates[variable] = gate
    return gates


def _alive(function: relax.Function) -> int:
    """Return how many sigmoids are left once every match is a silu and unused values are removed."""
    matched = matches(function)
    readers: Counter[Any] = Counter()

    def look(e: Any) -> None:
        if isinstance(e, relax.Var):
            readers[e] += 1

    for variable, value in bindings(function):
        if variable not in matched and not isinstance(value, relax.If):
            relax.analysis.post_order_visit(value, look)
    for variable in matched:  # of a product, silu reads the value itself
        readers[next(a for a in dict(bindings(function))[variable].args if not a.same_as(matched[variable]))] += 1
    _results(function.body, look)
    return sum(name(value) == SIGMOID and readers[variable] > 0 for variable, value in bindings(function))


def _results(e: relax.SeqExpr, look: Callable[[Any], None]) -> None:
    """Look at what is read outside calls: results of the function and of its branches, and conditions."""
    look(e.body)
    if isinstance(e.body, relax.Tuple):
        for field in e.body.fields:
            look(field)
    for block in e.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                look(binding.value.cond)
                _results(binding.value.true_branch, look)
                _results(binding.value.false_branch, look)


def _did(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    for title, function in functions(after).items():
        if products := matches(function):
            variable = next(iter(products))
            return (
                f"In {title}, {variable.name} still multiplies a value by its own sigmoid, {products[variable].name}."
            )
    limit = counts(before)[SILU] + sum(len(matches(f)) for f in functions(before).values())
    count = counts(after)[SILU]
    if count < limit:
        return f"Expected {calls(limit, SILU)}; there {_are(count)}."
    return None


def _spared(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    names = functions(before).keys() - functions(after).keys()
    if names:
        return f"The function {min(names)} is gone; the pass may only change the bodies of functions."
    if lost := _lost_attribute(before, after):
        return lost
    limit = counts(before)[SILU] + sum(len(matches(f)) for f in functions(before).values())
    if (count := counts(after)[SILU]) > limit:
        return f"Expected {calls(limit, SILU)}; there {_are(count)}: not every product with a sigmoid is a silu."
    keep = sum(map(_alive, functions(before).values()))
    if (count := counts(after)[SIGMOID]) < keep:
        return f"{calls(keep, SIGMOID)} {is_or_are(keep)} still used elsewhere; {count} left."
    old, new = (Counter({o: n for o, n in counts(m).items() if o not in _MINE}) for m in (before, after))
    products = counts(before)[MULTIPLY] - sum(len(matches(f)) for f in functions(before).values())
    if (count := counts(after)[MULTIPLY]) < products:
        return f"{calls(products, MULTIPLY)} {is_or_are(products)} not a silu; {count} left."
    if old != new:
        changed = min(o for o in old.keys() | new.keys() if old[o] != new[o])
        return f"{calls(old[changed], changed)} became {new[changed]}; the pass must not touch this operator."
    return None


def _lost_attribute(before: Any, after: Any) -> str | None:
    """Return which attribute of the module or of a function is not what it was, or None."""
    from tvm_ffi import structural_equal

    new = functions(after)
    pairs = [("the module", before, after), *((f"the function {n}", f, new[n]) for n, f in functions(before).items())]
    for where, old, now in pairs:
        kept = dict(now.attrs.items()) if now.attrs else {}
        for key, value in old.attrs.items() if old.attrs else ():
            if key not in kept:
                return f"The attribute {key} of {where} is gone."
            if not structural_equal(kept[key], value):
                return f"The attribute {key} of {where} is no longer {value}."
    return None


def _cost(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    keep = sum(map(_alive, functions(before).values()))
    count = counts(after)[SIGMOID]
    if count > keep:
        return f"{calls(count, SIGMOID)} {is_or_are(count)} left, but only {keep} used. Remove the rest."
    return None


_MINE = (MULTIPLY, SIGMOID, SILU)


def _are(number: int) -> str:
    return f"{is_or_are(number)} {number or 'none'}"


_judge_pass = judge_pass(_did, _spared, _cost, kinds=())


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Yield the five verdicts; the module that the pass was given must stay as it was."""
    from tvm_ffi import structural_equal

    yield from _judge_pass(case, value["module"])
    if not structural_equal(case.build()[0], value["given"], map_free_vars=True):
        yield Finding(
            "spared",
            False,
            "The module that the pass was given was changed. Write new functions into the mutator's builder "
            "(mutator.builder_.update_func), and return the module that builder_.get() makes.",
        )


def _orders(e: Any, x: Any, y: Any) -> Any:
    left = e(op.multiply(x, e(op.sigmoid(x))))
    right = e(op.multiply(e(op.sigmoid(left)), left))
    return e(op.add(right, y))


def _others(e: Any, x: Any, y: Any) -> Any:
    gate = e(op.sigmoid(x))
    a = e(op.multiply(x, gate))
    b = e(op.multiply(y, gate))
    c = e(op.multiply(y, e(op.tanh(y))))
    d = e(op.multiply(gate, relax.const(2.0)))
    return e(op.add(e(op.add(a, b)), e(op.add(c, d))))


def _helped(e: Any, x: Any) -> Any:
    y = e(e.helper(x))
    return e(op.multiply(e(op.sigmoid(y)), y)), e(op.nn.silu(x))


def _helper(e: Any, x: Any) -> Any:
    y = e(op.negative(x))
    return e(op.multiply(y, e(op.sigmoid(y))))


def cases() -> list[Case]:
    both = ("did", "spared", "cost")
    return [
        case("both orders", module(_orders, IMAGE, IMAGE), *both, run=False),
        case("gates of other values", module(_others, IMAGE, IMAGE), *both),
        case("a second function", module(_helped, (3, 4), helper=_helper), *both, run=False),
    ]
