"""Day 8, yesterday's pass, ported: visible cases and judge."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from passlab.exercises.day08._shared import (
    CLIP,
    CONV,
    IMAGE,
    RELU,
    WEIGHT,
    calls,
    conv,
    launches,
    other_calls,
    readings,
)
from passlab.judge import Case, and_more, cases_in, plural
from passlab.relax.cases import case, module, op
from passlab.tvm.judge import is_primitive, judge_pass
from passlab.tvm.modules import functions


def joinable(mod: Any) -> tuple[list[str], list[str]]:
    """Return the relus that can join their conv, and the others, by the names of their variables."""
    joined, others = [], []
    for reading in readings(mod):
        for node in reading.nodes.values():
            if node.name == RELU:
                conv = reading.made(node.expr.args[0], CONV)
                joins = conv is not None and reading.only_reader(conv.var) is not None
                (joined if joins else others).append(node.var.name)
    return joined, others


def _ported(before: Any, after: Any, case: Case) -> str | None:
    joined, others = joinable(before)
    fused = launches(after).count((CONV, RELU)) - launches(before).count((CONV, RELU))
    clips = calls(after)[CLIP] - calls(before)[CLIP]
    bare = sum(node.name == RELU for reading in readings(after) for node in reading.nodes.values())
    if fused < len(joined):
        return (
            f"{len(joined)} conv2d whose only consumer is a relu ({and_more(joined)}) should be in one primitive "
            f"function with it; {fused} are. Such a function contains the two calls and has the attribute Primitive."
        )
    if bare:
        return f"{plural(bare, 'relu')} left. In the given module, replace {and_more(others) or and_more(joined)}."
    if clips < len(others):
        return f"{plural(len(others), 'relu')} should become clip ({and_more(others)}); {clips} did."
    for low, high in _limits(after) - _limits(before):
        if (low, high) != (0, math.inf):
            return f"A relu became clip(x, {low:g}, {high:g}); relu(x) is clip(x, 0, inf)."
    return None


def _limits(mod: Any) -> Counter[tuple[float, float]]:
    """Return the limits of all clips."""
    clips = [node.expr for reading in readings(mod) for node in reading.nodes.values() if node.name == CLIP]
    return Counter((float(low.value), float(high.value)) for _, low, high in (clip.args for clip in clips))


def _port_spared(before: Any, after: Any, case: Case) -> str | None:
    joined, _ = joinable(before)
    convs = calls(before)[CONV], calls(after)[CONV]
    if convs[1] > convs[0]:
        return (
            f"{plural(convs[0], 'conv2d')} became {convs[1]}: a convolution with other consumers now runs twice, or "
            "one that was fused is still bound."
        )
    if (fused := launches(after).count((CONV, RELU)) - launches(before).count((CONV, RELU))) > len(joined):
        return (
            f"You fused {fused} conv2d with a relu; only {len(joined)} may be: the values of the others are also used "
            "elsewhere, or returned."
        )
    if changed := _changed_primitive(before, after):
        return f"The function {changed} has the attribute Primitive, and must stay as it is."
    return other_calls(before, after, {RELU, CLIP})


def _changed_primitive(before: Any, after: Any) -> str | None:
    """Return the name of a primitive function of `before` that `after` does not have under any name, or None."""
    from tvm_ffi import structural_equal

    present = [function for function in functions(after).values() if is_primitive(function)]
    for name, function in functions(before).items():
        if is_primitive(function) and not any(structural_equal(function, other) for other in present):
            return name
    return None


judge = judge_pass(_ported, _port_spared, kernels=is_primitive)


def helper(e: Any, x: Any) -> Any:
    return e(op.nn.relu(e(op.negative(x))))


@case("two convs, three relus", module(..., IMAGE, WEIGHT), "did")
def chain(e: Any, x: Any, w: Any) -> Any:
    y = e(op.nn.relu(e(conv(x, w))))
    z = e(op.nn.relu(e(conv(y, w))))
    return e(op.nn.relu(e(op.add(z, x))))


@case("a conv with two consumers", module(..., IMAGE, WEIGHT), "did", "spared")
def fork(e: Any, x: Any, w: Any) -> Any:
    y = e(conv(x, w))
    return e(op.nn.relu(y)), e(op.sigmoid(y))


@case("a conv that is returned, too", module(..., IMAGE, WEIGHT), "did", "spared", run=False)
def returned(e: Any, x: Any, w: Any) -> Any:
    y = e(conv(x, w))
    return y, e(op.nn.relu(y)), e(op.nn.relu(e(conv(x, w, dilation=1))))


@case("a function that main calls", module(..., IMAGE, WEIGHT, helper=helper), "did")
def calls_program(e: Any, x: Any, w: Any) -> Any:
    y = e(e.helper(x))
    return e(op.nn.relu(e(conv(y, w))))


@case("stride, padding, groups", module(..., IMAGE, (4, 2, 3, 3)))
def attributes(e: Any, x: Any, w: Any) -> Any:
    y = e(op.nn.relu(e(op.nn.conv2d(x, w, strides=2, padding=(0, 1, 2, 1), groups=2))))
    return e(op.clip(y, -1, 1))


def cases() -> list[Case]:
    return [*cases_in(__name__)]
