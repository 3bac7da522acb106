"""Day 7: two rewrites by a mutator, relu for a chip that has none, and batch norm. Visible cases and laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from passlab.exercises.cases_day07_counts import ladder
from passlab.exercises.cases_day07_programs import calls, number, program, tuple_of, typed, weight
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.tvm.judge import counts, is_primitive, judge_pass

CONV, RELU, NORM = "nn.conv2d", "nn.relu", "nn.batch_norm"


def named(e: Any, op: str) -> bool:
    """Is `e` a call of the operator `op`?"""
    return isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op) and e.op.name == op


def operands(e: Any) -> list[Any]:
    """What an expression reads."""
    if isinstance(e, relay.Call):
        return list(e.args)
    if isinstance(e, relay.Tuple):
        return list(e.fields)
    if isinstance(e, relay.TupleGetItem):
        return [e.tuple_value]
    return [e.body] if isinstance(e, relay.Function) else []


def outside(function: relay.Function) -> list[Any]:
    """The expressions of a function, operands first, each once; what is inside of Primitive functions is left out."""
    found: list[Any] = []
    relay.analysis.post_order_visit(function, found.append)
    hidden: set[Any] = set()
    for e in found:
        if isinstance(e, relay.Function) and is_primitive(e):
            relay.analysis.post_order_visit(e.body, hidden.add)
    return [e for e in found if e not in hidden]


def times(number_of: int) -> str:
    return {1: "once", 2: "twice"}.get(number_of, f"{number_of} times")


# ---------------------------------------------------------------------------------------------------- relu to clip


def _alone(module: tvm.IRModule) -> int:
    """How many relus read a convolution that nobody else reads."""
    there = outside(module["main"])
    readers = Counter(operand for e in there for operand in operands(e))
    return sum(named(e, RELU) and named(e.args[0], CONV) and readers[e.args[0]] == 1 for e in there)


def _instructions(module: tvm.IRModule) -> list[relay.Function]:
    """The functions that say they are conv2d_relu."""
    there = [e for e in outside(module["main"]) if isinstance(e, relay.Function) and e.attrs]
    return [f for f in there if "Composite" in f.attrs and str(f.attrs["Composite"]) == "conv2d_relu"]


def _misformed(f: relay.Function) -> str | None:
    if not is_primitive(f):
        return 'A function with Composite="conv2d_relu" lacks Primitive=1: the next pass would take it apart.'
    inside = f.body
    good = named(inside, RELU) and named(inside.args[0], CONV) and list(inside.args[0].args) == list(f.params)
    if not good:
        return (
            f'A function with Composite="conv2d_relu" holds {", ".join(counts(f)) or "no operator"}; it should be '
            "relu(conv2d(data, weight)), with data and weight as its parameters."
        )
    return None


def _clip_did(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    left = [e for e in outside(after["main"]) if named(e, RELU)]
    if left:
        return f"{calls(len(left), RELU)} left outside of the instructions: the chip has no relu."
    wrong = next((why for f in _instructions(after) if (why := _misformed(f))), None)
    if wrong:
        return wrong
    wanted, there = _alone(before) + len(_instructions(before)), len(_instructions(after))
    if there < wanted:
        found = f"conv2d_relu is there {times(there) if there else 'nowhere'}"
        return f"{times(wanted).capitalize()} a relu is the only reader of a convolution; {found}."
    return None


def _clip_spared(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    wanted, there = _alone(before) + len(_instructions(before)), len(_instructions(after))
    convs, now = counts(before)[CONV], counts(after)[CONV]
    if now != convs:
        return f"{calls(convs, CONV)} became {now}: what others read, too, has to stay, and is then computed twice."
    if there > wanted:
        return f"conv2d_relu is there {times(there)}, and should be {times(wanted) if wanted else 'nowhere'}."
    top = {float(tvm.tir.max_value(d).value) for d in ("float32", "float16", "int32", "int8")}
    odd = [
        e for e in outside(after["main"]) if named(e, "clip") and (e.attrs.a_min, e.attrs.a_max) not in _clips(before)
    ]
    cut = next((e for e in odd if e.attrs.a_min != 0 or not any(np.isclose(e.attrs.a_max, t) for t in top)), None)
    if cut is not None:
        return f"relu became clip(x, {cut.attrs.a_min:g}, {cut.attrs.a_max:g}): that cuts off at the top."
    old, new = (Counter({op: n for op, n in counts(m).items() if op not in (RELU, "clip")}) for m in (before, after))
    if old != new:
        op = min(op for op in old.keys() | new.keys() if old[op] != new[op])
        return f"{calls(old[op], op)} became {new[op]}; only relu is to be replaced."
    return None


def _clips(module: tvm.IRModule) -> set[tuple[float, float]]:
    return {(e.attrs.a_min, e.attrs.a_max) for e in outside(module["main"]) if named(e, "clip")}


#: Modules are built at level 1: constants are not folded, which takes a build for each, and layouts stay.
LEVEL = 1
judge_clip = judge_pass(_clip_did, _clip_spared, level=LEVEL)


def conv(x: relay.Expr, seed: int = 0, channels: int = 4, groups: int = 1, **settings: Any) -> relay.Expr:
    """A 3 × 3 convolution with constant weights. `x` has four channels."""
    kernel = weight(channels, 4 // groups, 3, 3, seed=seed)
    settings = {"padding": (1, 1), "channels": channels, "kernel_size": (3, 3), "groups": groups} | settings
    return relay.nn.conv2d(x, kernel, **settings)


def instruction(x: relay.Expr, seed: int = 0) -> relay.Expr:
    """relu(conv(x)) as the pass leaves it."""
    data, kernel = relay.var("data", shape=SHAPE), weight(4, 4, 3, 3, seed=seed)
    w = relay.var("weight", shape=(4, 4, 3, 3))
    inside = relay.nn.relu(relay.nn.conv2d(data, w, padding=(1, 1), channels=4, kernel_size=(3, 3)))
    f = relay.Function([data, w], inside).with_attr("Composite", "conv2d_relu")
    return f.with_attr("Primitive", tvm.tir.IntImm("int32", 1))(x, kernel)


SHAPE = (1, 4, 6, 6)


def clip_cases() -> list[Case]:
    relu = relay.nn.relu

    def settings(x: relay.Var) -> relay.Expr:
        strided = relu(conv(x, strides=(2, 2), groups=2))
        return tuple_of(strided, relu(conv(x, 1, padding=(2, 1, 2, 1), dilation=(2, 1))))

    def read_twice(x: relay.Var) -> relay.Expr:
        c, d = conv(x), conv(x, 1)
        return tuple_of(relu(c) + relay.sigmoid(c), relu(d), d)

    def elsewhere(x: relay.Var) -> relay.Expr:
        biased = relu(relay.nn.bias_add(conv(x), weight(4)))
        return relu(relay.nn.max_pool2d(biased, (2, 2))) + relay.clip(relay.sum(relu(x)), -1.0, 6.0)

    def one_after_another(x: relay.Var) -> relay.Expr:
        y = relu(conv(relu(x)))
        return relu(conv(y, 1)) + y

    def already(x: relay.Var) -> relay.Expr:
        return relu(conv(instruction(x), 1)) + instruction(x, 2)

    def integers(n: relay.Var) -> relay.Expr:
        return relu(relay.cast(n * number(8.0), "int32"))

    return [
        clip_case("settings", program(settings, SHAPE), "did"),
        clip_case("convolutions that others read", program(read_twice, SHAPE), "spared", run=False),
        clip_case("relu elsewhere", program(elsewhere, SHAPE), "did", "spared"),
        clip_case("one after another", program(one_after_another, SHAPE), "did", "spared", run=False),
        clip_case("instructions that are there already", program(already, SHAPE), "did", "spared", run=False),
        clip_case("integers", program(integers, (7,)), "did"),
        clip_case("every value read twice", program(ladder, (2, 3)), "did", "spared", run=False),
    ]


def clip_case(name: str, build: Callable[[], tvm.IRModule], *about: str, run: bool = True) -> Case:
    """A case about these verdicts besides valid, and about same if it is `run`: building takes a second."""
    return Case(name, lambda: (build(),), ("valid", *(["same"] if run else []), *about))


# ---------------------------------------------------------------------------------------------------- batch norm


def _first_results(module: tvm.IRModule) -> list[relay.TupleGetItem]:
    """The projections that read the first result of a batch norm."""
    there = outside(module["main"])
    return [e for e in there if isinstance(e, relay.TupleGetItem) and named(e.tuple_value, NORM) and e.index == 0]


def _kept(module: tvm.IRModule) -> int:
    """How many batch norms are read other than through their first result."""
    firsts = set(_first_results(module))
    readers = [operand for e in outside(module["main"]) if e not in firsts for operand in operands(e)]
    return len({e for e in readers if named(e, NORM)})


def _norm_did(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    left = _first_results(after)
    if not left:
        return None
    attrs = left[0].tuple_value.attrs
    return f"The first result of a batch norm (axis={attrs.axis}, epsilon={attrs.epsilon:g}) is still read from it."


def _norm_spared(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    kept, there = _kept(before), counts(after)[NORM]
    if there < kept:
        return f"{calls(kept, NORM)} is read for another result, or as a whole; {there} are left."
    old, new = counts(before), counts(after)
    lost = next((op for op in sorted(old) if op != NORM and new[op] < old[op]), None)
    return f"{calls(old[lost], lost)} became {new[lost]}; only batch norms are to be replaced." if lost else None


def _large(module: tvm.IRModule, elements: int) -> int:
    """Calls of operators whose result is one tensor of that many elements or more."""
    there = [e for e in outside(module["main"]) if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)]
    tensors = [e.checked_type for e in there if isinstance(e.checked_type, relay.TensorType)]
    return sum(int(np.prod([int(n) for n in t.shape])) >= elements for t in tensors)


def _norm_cost(before: tvm.IRModule, after: tvm.IRModule, case: Case) -> str | None:
    norms = [e for e in outside(before["main"]) if named(e, NORM)]
    if not norms:
        return None
    smallest = min(int(np.prod([int(n) for n in e.args[0].checked_type.shape])) for e in norms)
    most = _large(before, smallest) + 2 * len(_first_results(before))
    there = _large(after, smallest)
    if there <= most:
        return None
    return f"{there} operators work on whole tensors, not on vectors of one number per channel; {most} are enough."


judge_norm = judge_pass(_norm_did, _norm_spared, _norm_cost, level=LEVEL)


def norm(x: relay.Expr, channels: int, seed: int = 0, **settings: Any) -> Any:
    """A batch norm with constant, all different statistics: the tuple of its results."""
    gamma, beta, mean, variance = (weight(channels, seed=4 * seed + i) for i in range(4))
    positive = relay.const(np.abs(variance.data.numpy()) + 0.25)
    return relay.nn.batch_norm(x, gamma, beta, mean, positive, **settings)


def whole(result: Any) -> relay.Expr:
    """The tuple itself behind TVM's wrapper, which unpacks it."""
    return result.astuple() if hasattr(result, "astuple") else result


def free_norm() -> tvm.IRModule:
    """A batch norm whose statistics are inputs of main."""
    x, *stats = relay.var("x", shape=SHAPE), *(relay.var(n, shape=(4,)) for n in ("gamma", "beta", "mean", "root"))
    gamma, beta, mean, root = stats
    normal = relay.nn.batch_norm(x, gamma, beta, mean, root * root)
    return typed(relay.Function([x, *stats], relay.nn.relu(normal[0])))


def norm_cases() -> list[Case]:
    def after_conv(x: relay.Var) -> relay.Expr:
        return relay.nn.relu(norm(conv(x), 4)[0])

    def last_axis(x: relay.Var) -> relay.Expr:
        return tuple_of(norm(x, 6, axis=3)[0], norm(x, 6, 1, axis=-1)[0], norm(x, 5, 2, axis=2)[0])

    def without(x: relay.Var) -> relay.Expr:
        return tuple_of(
            norm(x, 4, scale=False)[0], norm(x, 4, 1, center=False)[0], norm(x, 4, 2, epsilon=0.5, scale=False)[0]
        )

    def flat(x: relay.Var) -> relay.Expr:
        return norm(relay.nn.dense(x, weight(3, 5)), 3, epsilon=0.01)[0]

    def others_read(x: relay.Var) -> relay.Expr:
        one, two = norm(x, 4), norm(x, 4, 1)
        return tuple_of(one[0], one[1], whole(two))

    def other_norms(x: relay.Var) -> relay.Expr:
        layer = relay.nn.layer_norm(x, weight(6), weight(6, seed=1))
        return norm(relay.nn.relu(layer), 4)[0] * relay.nn.dropout(x, 0.5)

    def in_a_row(x: relay.Var) -> relay.Expr:
        first = norm(x, 4)[0]
        return norm(first + x, 4, 1)[0] * first

    laws = ("did", "cost")
    return [
        norm_case("after a convolution", program(after_conv, SHAPE), *laws),
        norm_case("other axes", program(last_axis, (2, 4, 5, 6)), *laws),
        norm_case("without scale, without center", program(without, SHAPE), *laws),
        norm_case("two dimensions", program(flat, (4, 5)), "did"),
        norm_case("statistics are inputs", free_norm, "did", run=False),
        norm_case("other results are read", program(others_read, SHAPE), "did", "spared", run=False),
        norm_case("other norms", program(other_norms, SHAPE), "did", "spared", run=False),
        norm_case("in a row", program(in_a_row, SHAPE), *laws, run=False),
    ]


#: The two exercises write their cases down alike.
norm_case = clip_case
