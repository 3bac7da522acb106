"""Day 7, batch norm is two operations: visible cases and judge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from passlab.exercises.day07._shared import LEVEL, NORM, SHAPE, clip_case, conv, named, outside
from passlab.judge import Case, enough
from passlab.relay import relay, tvm
from passlab.relay.cases import attributes_kept, calls, program, tuple_of, typed, weight
from passlab.relay.dialect import parts_of
from passlab.tvm.judge import counts, judge_pass


def _first_results(module: tvm.IRModule) -> list[relay.TupleGetItem]:
    """Return the projections that read the first result of a batch norm."""
    values = outside(module["main"])
    return [e for e in values if isinstance(e, relay.TupleGetItem) and named(e.tuple_value, NORM) and e.index == 0]


def _norms_read(module: tvm.IRModule) -> int:
    """Count the batch norms that are read other than through their first result."""
    firsts = set(_first_results(module))
    readers = [operand for e in outside(module["main"]) if e not in firsts for operand in parts_of(e)]
    return len({e for e in readers if named(e, NORM)})


def _norm_did(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    rest = _first_results(after)
    if not rest:
        return None
    attrs = rest[0].tuple_value.attrs
    return f"The first result of a batch norm (axis={attrs.axis}, epsilon={attrs.epsilon:g}) is still used; replace it."


def _norm_spared(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    fewest, norms = _norms_read(before), counts(after)[NORM]
    if norms < fewest:
        return f"{calls(fewest, NORM)} must stay, because another result or the whole tuple is read; {norms} left."
    old, new = counts(before), counts(after)
    name = next((op for op in sorted(old) if op != NORM and new[op] < old[op]), None)
    if name:
        return f"{calls(old[name], name)} became {new[name]}; replace only batch norms."
    return attributes_kept(before, after)


def _large(module: tvm.IRModule, elements: int) -> int:
    """Count the calls of operators whose result is one tensor of at least `elements` elements."""
    calls = [e for e in outside(module["main"]) if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)]
    tensors = [e.checked_type for e in calls if isinstance(e.checked_type, relay.TensorType)]
    return sum(math.prod(int(n) for n in t.shape) >= elements for t in tensors)


def _norm_cost(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    norms = {e.tuple_value for e in _first_results(before)}
    shapes = {norm: [int(n) for n in norm.args[0].checked_type.shape] for norm in norms}
    longest = max((shape[norm.attrs.axis] for norm, shape in shapes.items()), default=0)
    # A tensor no longer than some vector does not count: what works on it could be what works on that vector.
    sizes = [size for shape in shapes.values() if (size := math.prod(shape)) > longest]
    if not sizes:
        return None
    smallest = min(sizes)
    most = _large(before, smallest) + 2 * len(sizes)
    calls = _large(after, smallest)
    if calls <= most:
        return None
    return (
        f"{calls} operators work on whole tensors, not on vectors of one number per channel; {enough(most)}: one "
        "multiply and one add for each batch norm, however often its first result is read."
    )


judge = judge_pass(_norm_did, _norm_spared, _norm_cost, level=LEVEL)


def norm(x: relay.Expr, channels: int, seed: int = 0, **settings: Any) -> Any:
    """Return a batch norm with constant statistics, all different: the tuple of its results."""
    gamma, beta, mean, variance = (weight(channels, seed=4 * seed + i) for i in range(4))
    positive = relay.const(np.abs(variance.data.numpy()) + 0.25)
    return relay.nn.batch_norm(x, gamma, beta, mean, positive, **settings)


def whole(result: Any) -> relay.Expr:
    """Return the tuple itself from TVM's wrapper, which unpacks it."""
    return result.astuple() if hasattr(result, "astuple") else result


def free_norm() -> tvm.IRModule:
    """Return a batch norm whose statistics are inputs of main."""
    x, *stats = relay.var("x", shape=SHAPE), *(relay.var(n, shape=(4,)) for n in ("gamma", "beta", "mean", "root"))
    gamma, beta, mean, root = stats
    normal = relay.nn.batch_norm(x, gamma, beta, mean, root * root)
    return typed(relay.Function([x, *stats], relay.nn.relu(normal[0])))


norm_case = clip_case


LAWS = ("did", "cost")


@norm_case("after a convolution", program(..., SHAPE), *LAWS)
def after_conv(x: relay.Var) -> relay.Expr:
    return relay.nn.relu(norm(conv(x), 4)[0])


@norm_case("other axes", program(..., (2, 4, 5, 6)), *LAWS)
def last_axis(x: relay.Var) -> relay.Expr:
    return tuple_of(norm(x, 6, axis=3)[0], norm(x, 6, 1, axis=-1)[0], norm(x, 5, 2, axis=2)[0])


@norm_case("without scale, without center", program(..., SHAPE), *LAWS)
def without(x: relay.Var) -> relay.Expr:
    return tuple_of(
        norm(x, 4, scale=False)[0], norm(x, 4, 1, center=False)[0], norm(x, 4, 2, epsilon=0.5, scale=False)[0]
    )


@norm_case("two dimensions", program(..., (4, 5)), "did")
def flat(x: relay.Var) -> relay.Expr:
    return norm(relay.nn.dense(x, weight(3, 5)), 3, epsilon=0.01)[0]


@norm_case("other results are read", program(..., SHAPE), "did", "spared", run=False)
def others_read(x: relay.Var) -> relay.Expr:
    one, two = norm(x, 4), norm(x, 4, 1)
    return tuple_of(one[0], one[1], whole(two))


@norm_case("other norms", program(..., SHAPE, note="kept"), "did", "spared", run=False)
def other_norms(x: relay.Var) -> relay.Expr:
    layer = relay.nn.layer_norm(x, weight(6), weight(6, seed=1))
    return norm(relay.nn.relu(layer), 4)[0] * relay.nn.dropout(x, 0.5)


@norm_case("in a row", program(..., SHAPE), *LAWS, run=False)
def in_a_row(x: relay.Var) -> relay.Expr:
    first = norm(x, 4)[0]
    return norm(first + x, 4, 1)[0] * first


def cases() -> list[Case]:
    return [
        after_conv,
        last_axis,
        without,
        flat,
        norm_case("statistics are inputs", free_norm, "did", run=False),
        others_read,
        other_norms,
        in_a_row,
    ]


#: Both exercises describe their cases in the same way.
