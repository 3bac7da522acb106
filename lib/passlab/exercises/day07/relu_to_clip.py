"""Day 7, a chip without relu: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from passlab.exercises.day07._shared import CONV, LEVEL, RELU, SHAPE, clip_case, conv, ladder, named, outside
from passlab.judge import Case, cases_in, is_or_are, times
from passlab.relay import relay, tvm
from passlab.relay.cases import attributes_kept, calls, number, program, tuple_of, weight
from passlab.relay.dialect import parts_of
from passlab.tvm.judge import counts, has_composite, is_primitive, judge_pass


def _alone(module: tvm.IRModule) -> int:
    """Count the relus that are the only consumer of a convolution."""
    values = outside(module["main"])
    readers = Counter(operand for e in values for operand in parts_of(e))
    return sum(named(e, RELU) and named(e.args[0], CONV) and readers[e.args[0]] == 1 for e in values)


def _instructions(module: tvm.IRModule) -> list[relay.Function]:
    """Return the function of each call of one whose Composite is conv2d_relu."""
    called = [e.op for e in outside(module["main"]) if isinstance(e, relay.Call)]
    functions = [f for f in called if isinstance(f, relay.Function) and f.attrs]
    return [f for f in functions if "Composite" in f.attrs and str(f.attrs["Composite"]) == "conv2d_relu"]


def _misformed(f: relay.Function) -> str | None:
    if not is_primitive(f):
        return 'A function with Composite="conv2d_relu" lacks Primitive=1: the next pass would change its inside.'
    inside = f.body
    good = named(inside, RELU) and named(inside.args[0], CONV) and list(inside.args[0].args) == list(f.params)
    if not good:
        return (
            f'A function with Composite="conv2d_relu" holds {", ".join(counts(f)) or "no operator"}; it should be '
            "relu(conv2d(data, weight)), with data and weight as its parameters."
        )
    return None


def _clip_did(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    rest = [e for e in outside(after["main"]) if named(e, RELU)]
    if rest:
        left = f"{calls(len(rest), RELU)} {is_or_are(len(rest))} left"
        return f"Outside the instructions, {left}, but the chip has no relu."
    wrong = next((reason for f in _instructions(after) if (reason := _misformed(f))), None)
    if wrong:
        return wrong
    expected, count = _alone(before) + len(_instructions(before)), len(_instructions(after))
    if count < expected:
        occurs = f"conv2d_relu occurs {times(count)}"
        return f"{times(expected).capitalize()} a relu is the only consumer of a convolution; {occurs}."
    return None


def _clip_spared(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    expected, count = _alone(before) + len(_instructions(before)), len(_instructions(after))
    convs, k = counts(before)[CONV], counts(after)[CONV]
    if k != convs:
        return f"{calls(convs, CONV)} became {k}: one with other consumers has to stay, so fusing it computes it twice."
    if count > expected:
        return f"conv2d_relu occurs {times(count)}; expected {times(expected)}."
    old, new = (sum(named(e, RELU) or named(e, "clip") for e in outside(m["main"])) for m in (before, after))
    if old != new + count - len(_instructions(before)):
        return f"{calls(old, 'relu and clip')} became {new}, besides those in conv2d_relu; each relu becomes one clip."
    known = {_limits(e) for e in outside(before["main"]) if named(e, "clip")}
    for clip in outside(after["main"]):
        if named(clip, "clip") and _limits(clip) not in known and (reason := _no_relu(clip)):
            return reason
    were, are = (Counter({op: n for op, n in counts(m).items() if op not in (RELU, "clip")}) for m in (before, after))
    if were != are:
        op = min(op for op in were.keys() | are.keys() if were[op] != are[op])
        return f"{calls(were[op], op)} became {are[op]}; replace only relu."
    if _kernels(before) - _kernels(after):
        return "A function that was Primitive in the given module has changed; what is inside belongs to it."
    if lost := _composites(before) - _composites(after):
        return f"A function has lost its attribute Composite={min(lost)!r}: make the new one with function.attrs."
    return attributes_kept(before, after)


def _composites(module: Any) -> Counter[str]:
    """Count the values of Composite among the functions in main."""
    nodes: list[Any] = []
    relay.analysis.post_order_visit(module["main"], nodes.append)
    functions = [e for e in nodes if isinstance(e, relay.Function) and e.attrs]
    return Counter(str(f.attrs["Composite"]) for f in functions if "Composite" in f.attrs)


def _kernels(module: tvm.IRModule) -> Counter[int]:
    """Count the Primitive functions in main, by structural hash."""
    functions = [e for e in outside(module["main"]) if isinstance(e, relay.Function) and is_primitive(e)]
    return Counter(tvm.ir.structural_hash(f) for f in functions)


def _no_relu(clip: relay.Call) -> str | None:
    """Return why a typed clip is not from 0 to the largest number of its dtype, or None. Floats may be rounded."""
    (low, high), dtype = _limits(clip), clip.checked_type.dtype
    top = float(tvm.tir.max_value(dtype).value)
    if low == 0 and np.isclose(high, top, rtol=1e-5 if "float" in dtype else 0, atol=0):
        return None
    return f"relu became clip(x, {low:.10g}, {high:.10g}), of {dtype}, whose largest number is {top:.10g}."


def _limits(clip: relay.Call) -> tuple[float, float]:
    return clip.attrs.a_min, clip.attrs.a_max


judge = judge_pass(_clip_did, _clip_spared, kernels=has_composite("conv2d_relu"), level=LEVEL)


def instruction(x: relay.Expr, seed: int = 0) -> relay.Expr:
    """Return relu(conv(x)) as the pass leaves it."""
    data, kernel = relay.var("data", shape=SHAPE), weight(4, 4, 3, 3, seed=seed)
    w = relay.var("weight", shape=(4, 4, 3, 3))
    inside = relay.nn.relu(relay.nn.conv2d(data, w, padding=(1, 1), channels=4, kernel_size=(3, 3)))
    f = relay.Function([data, w], inside).with_attr("Composite", "conv2d_relu")
    return f.with_attr("Primitive", tvm.tir.IntImm("int32", 1))(x, kernel)


RELU_CASE = relay.nn.relu


@clip_case("settings", program(..., SHAPE), "did")
def settings(x: relay.Var) -> relay.Expr:
    strided = RELU_CASE(conv(x, strides=(2, 2), groups=2))
    return tuple_of(strided, RELU_CASE(conv(x, 1, padding=(2, 1, 2, 1), dilation=(2, 1))))


@clip_case("convolutions with other consumers", program(..., SHAPE), "spared", run=False)
def read_twice(x: relay.Var) -> relay.Expr:
    c, d = conv(x), conv(x, 1)
    return tuple_of(RELU_CASE(c) + relay.sigmoid(c), RELU_CASE(d), d)


@clip_case("relu elsewhere", program(..., SHAPE, note="kept"), "did", "spared")
def elsewhere(x: relay.Var) -> relay.Expr:
    biased = RELU_CASE(relay.nn.bias_add(conv(x), weight(4)))
    return RELU_CASE(relay.nn.max_pool2d(biased, (2, 2))) + relay.clip(relay.sum(RELU_CASE(x)), -1.0, 6.0)


@clip_case("one after another", program(..., SHAPE), "did", "spared", run=False)
def one_after_another(x: relay.Var) -> relay.Expr:
    y = RELU_CASE(conv(RELU_CASE(x)))
    return RELU_CASE(conv(y, 1)) + y


@clip_case("instructions that are there already", program(..., SHAPE), "did", "spared", run=False)
def already(x: relay.Var) -> relay.Expr:
    return RELU_CASE(conv(instruction(x), 1)) + instruction(x, 2)


@clip_case("integers", program(..., (7,)), "did")
def integers(n: relay.Var) -> relay.Expr:
    return RELU_CASE(relay.cast(n * number(8.0), "int32"))


def cases() -> list[Case]:
    return [
        *cases_in(__name__),
        clip_case("every value read twice", program(ladder, (2, 3)), "did", "spared", run=False),
    ]
