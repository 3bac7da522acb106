"""Day 8: visible cases and judges of the ported pass and of fusion by pattern."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from passlab.exercises.cases_day08 import case, module, op
from passlab.judge import Case
from passlab.relax import relax
from passlab.tvm.judge import judge_pass
from passlab.tvm.modules import Node, bindings, consumers, functions, is_primitive, nodes

CONV, RELU, CLIP = "relax.nn.conv2d", "relax.nn.relu", "relax.clip"
ADD, MATMUL, GELU = "relax.add", "relax.matmul", "relax.nn.gelu"


def plural(number: int, one: str) -> str:
    return f"{number} {one}" + ("" if number == 1 else "s")


# ------------------------------------------------------------------------------------------------ reading a module


class Reading:
    """One function of a module: what makes a variable (`made`), who reads it, and whether it leaves the block."""

    def __init__(self, mod: Any, name: str):
        self.nodes = {node.var: node for node in nodes(mod, name)}
        self.readers = consumers(mod, name)
        self.values = dict(bindings(functions(mod)[name]))

    def only_reader(self, var: Any) -> Node | None:
        """The one call that reads `var`, where nothing else does and the function does not return it."""
        readers = self.readers.get(var, [])
        hidden = isinstance(var, relax.DataflowVar)
        return self.nodes.get(readers[0]) if hidden and len(readers) == 1 else None

    def made(self, var: Any, name: str) -> Node | None:
        """The call that makes `var`, if it is one of this operator."""
        node = self.nodes.get(var)
        return node if node is not None and node.name == name else None


def readings(mod: Any) -> list[Reading]:
    return [Reading(mod, name) for name, function in functions(mod).items() if not is_primitive(function)]


def launches(mod: Any) -> list[tuple[str, ...]]:
    """What is called outside primitive functions: the operators of each, in order, one for a bare operator.

    Calls count, not functions: two equal ones may share a function.
    """
    inside = {name: tuple(node.name for node in nodes(mod, name)) for name in functions(mod)}
    fused = {name for name, function in functions(mod).items() if is_primitive(function)}
    found = [(node.name,) for name in inside if name not in fused for node in nodes(mod, name)]
    for name in inside.keys() - fused:
        for _, value in bindings(functions(mod)[name]):
            called = getattr(getattr(value, "op", None), "name_hint", None)
            if called in fused:
                found.append(inside[called])
    return found


def calls(mod: Any) -> Counter[str]:
    """How often each operator is called, those in a primitive function once for each call of it."""
    return Counter(name for launch in launches(mod) for name in launch)


# ------------------------------------------------------------------------------------------------ 1 · the ported pass


def joinable(mod: Any) -> tuple[list[str], list[str]]:
    """(the relus that join their conv, the others), by the names of what they are bound to."""
    joined, others = [], []
    for reading in readings(mod):
        for node in reading.nodes.values():
            if node.name == RELU:
                conv = reading.made(node.expr.args[0], CONV)
                joins = conv is not None and reading.only_reader(conv.var) is not None
                (joined if joins else others).append(node.var.name)
    return joined, others


def names(listed: list[str]) -> str:
    shown = listed[:4] + (["…"] if len(listed) > 4 else [])
    return ", ".join(shown)


def _ported(before: Any, after: Any, case: Case) -> str | None:
    joined, others = joinable(before)
    fused = launches(after).count((CONV, RELU))
    left, clips = calls(after)[RELU] - fused, calls(after)[CLIP] - calls(before)[CLIP]
    if fused < len(joined):
        return (
            f"{len(joined)} conv2d whose value only a relu reads ({names(joined)}) should be in one primitive function "
            f"with it; {fused} are. Such a function holds the two calls and has the attribute Primitive."
        )
    if left > 0:
        return (
            f"{plural(left, 'relu')} stayed. In the module given, {names(others) or names(joined)} are to be replaced."
        )
    if clips < len(others):
        return f"{plural(len(others), 'relu')} should become clip ({names(others)}); {clips} did."
    return None


def _port_spared(before: Any, after: Any, case: Case) -> str | None:
    joined, _ = joinable(before)
    convs = calls(before)[CONV], calls(after)[CONV]
    if convs[1] > convs[0]:
        return f"{plural(convs[0], 'conv2d')} became {convs[1]}: a convolution whose value others read runs twice now."
    if (fused := launches(after).count((CONV, RELU))) > len(joined):
        return (
            f"{fused} conv2d were fused with a relu, and only {len(joined)} may be: the value of the others is read "
            "elsewhere, too, or returned."
        )
    return _others(before, after, {RELU, CLIP})


def _others(before: Any, after: Any, free: set[str]) -> str | None:
    """What else is called more or less often than before."""
    old, new = calls(before), calls(after)
    for name in sorted((old | new).keys() - free):
        if old[name] != new[name]:
            return f"{name} was called {plural(old[name], 'time')} and is now called {plural(new[name], 'time')}."
    return None


judge_port = judge_pass(_ported, _port_spared)

IMAGE, WEIGHT = (1, 4, 6, 6), (4, 4, 3, 3)


def conv(x: Any, w: Any, **how: Any) -> Any:
    return op.nn.conv2d(x, w, padding=1, **how)


def port_cases() -> list[Case]:
    def chain(e: Any, x: Any, w: Any) -> Any:
        y = e(op.nn.relu(e(conv(x, w))))
        z = e(op.nn.relu(e(conv(y, w))))
        return e(op.nn.relu(e(op.add(z, x))))

    def fork(e: Any, x: Any, w: Any) -> Any:
        y = e(conv(x, w))
        return e(op.nn.relu(y)), e(op.sigmoid(y))

    def returned(e: Any, x: Any, w: Any) -> Any:
        y = e(conv(x, w))
        return y, e(op.nn.relu(y)), e(op.nn.relu(e(conv(x, w, dilation=1))))

    def calls(e: Any, x: Any, w: Any) -> Any:
        y = e(e.helper(x))
        return e(op.nn.relu(e(conv(y, w))))

    def helper(e: Any, x: Any) -> Any:
        return e(op.nn.relu(e(op.negative(x))))

    def attributes(e: Any, x: Any, w: Any) -> Any:
        y = e(op.nn.relu(e(op.nn.conv2d(x, w, strides=2, padding=(0, 1, 2, 1), groups=2))))
        return e(op.clip(y, -1, 1))

    return [
        case("two convs, three relus", module(chain, IMAGE, WEIGHT), "did"),
        case("a conv that two read", module(fork, IMAGE, WEIGHT), "did", "spared"),
        case("a conv that is returned, too", module(returned, IMAGE, WEIGHT), "did", "spared", run=False),
        case("a function that main calls", module(calls, IMAGE, WEIGHT, helper=helper), "did"),
        case("stride, padding, groups", module(attributes, IMAGE, (4, 2, 3, 3)), "did", "spared"),
    ]


# ------------------------------------------------------------------------------------------------ 2 · by pattern

CONV_NAME, DENSE_NAME = "passlab.conv2d_bias_relu", "passlab.dense_bias_gelu"
COMPOSITES = {CONV_NAME: (CONV, ADD, RELU), DENSE_NAME: (MATMUL, ADD, GELU)}


def _shape(expr: Any) -> list[int] | None:
    shape = getattr(expr.ty, "shape", None)
    return None if shape is None else [int(dim) for dim in shape]


def _bias(bias: Any, product: Any, channel: int) -> bool:
    """Is it one number for each channel: a size other than 1 in that dimension of the product only?"""
    shape, full = _shape(bias), _shape(product)
    if shape is None or full is None or len(shape) > len(full):
        return False
    padded = [1] * (len(full) - len(shape)) + shape
    return all(dim == (full[at] if at == channel % len(full) else 1) for at, dim in enumerate(padded))


def _fits_conv(call: Any) -> bool:
    attrs = call.attrs
    return (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) == ("NCHW", "OIHW", "NCHW")


def _fits_dense(call: Any) -> bool:
    return len(_shape(call.args[1]) or ()) == 2


KINDS = (
    (CONV_NAME, CONV, RELU, 1, _fits_conv),
    (DENSE_NAME, MATMUL, GELU, -1, _fits_dense),
)


def fitting(mod: Any) -> Counter[str]:
    """How many composites of each name there should be."""
    found: Counter[str] = Counter()
    for reading in readings(mod):
        for name, first, last, channel, fits in KINDS:
            for node in reading.nodes.values():
                if node.name != first or not fits(node.expr) or str(node.var.ty.dtype) != "float32":
                    continue
                total = reading.only_reader(node.var)
                if total is None or total.name != ADD:
                    continue
                other = [arg for arg in total.expr.args if not arg.same_as(node.var)]
                end = reading.only_reader(total.var)
                if len(other) == 1 and _bias(other[0], node.var, channel) and end is not None and end.name == last:
                    found[name] += 1
    return found


def composites(mod: Any) -> list[tuple[str, str, Any]]:
    """(Composite, name, function) for every call of a function that a pattern made."""
    made = {
        n: (str(f.attrs["Composite"]), n, f) for n, f in functions(mod).items() if f.attrs and "Composite" in f.attrs
    }
    values = [value for f in functions(mod).values() for _, value in bindings(f)]
    called = [getattr(getattr(value, "op", None), "name_hint", None) for value in values]
    return [made[name] for name in called if name in made]


def _composed(before: Any, after: Any, case: Case) -> str | None:
    wanted, found = fitting(before), Counter(composite for composite, *_ in composites(after))
    for composite, number in wanted.items():
        if found[composite] < number:
            return (
                f"{plural(number, 'place')} fit {composite}; {found[composite]} became a function with that Composite."
            )
    return None


def _pattern_spared(before: Any, after: Any, case: Case) -> str | None:
    wanted, found = fitting(before), Counter()
    for composite, name, function in composites(after):
        found[composite] += 1
        if composite not in COMPOSITES:
            return f"There is a function {name} with the Composite {composite!r}, which nobody asked for."
        inside = tuple(node.name for node in nodes(after, name))
        if inside != COMPOSITES[composite]:
            return f"{name} has the Composite {composite} and holds {', '.join(inside)}."
        if isinstance(function.ret_ty, relax.TupleType):
            inner = "A value inside the pattern is read outside it: the check has to say no."
            return f"{name} returns a tuple of {len(function.ret_ty.fields)} values, not one. {inner}"
    for composite, number in found.items():
        if number > wanted[composite]:
            return f"{plural(wanted[composite], 'place')} fit {composite} and {number} were fused: {WHY}."
    return _others(before, after, set())


WHY = "look at who reads the values in between, at layouts, dtypes and the shape of what is added"

judge_pattern = judge_pass(_composed, _pattern_spared)


VECTOR, SQUARE = (2, 8), (8, 8)


def pattern_cases() -> list[Case]:
    def block(e: Any, x: Any, y: Any, w: Any) -> Any:
        first = e(op.nn.relu(e(op.add(e(conv(x, y)), w))))
        return e(op.nn.relu(e(op.add(w, e(conv(first, y))))))

    def dense(e: Any, x: Any, y: Any, w: Any) -> Any:
        constant = relax.const(np.linspace(-1, 1, 8, dtype="float32"))
        hidden = e(op.nn.gelu(e(op.add(constant, e(op.matmul(x, y))))))
        return e(op.nn.gelu(e(op.add(e(op.matmul(hidden, e(op.permute_dims(y)))), w))))

    def fork(e: Any, x: Any, y: Any, w: Any) -> Any:
        first = e(op.add(e(conv(x, y)), w))
        product = e(conv(e(op.nn.relu(first)), y))
        return e(op.sigmoid(first)), e(op.nn.relu(e(op.add(product, w)))), e(op.exp(product))

    def handed_out(e: Any, x: Any, y: Any, w: Any) -> Any:
        total = e(op.add(e(op.matmul(x, y)), w))
        return total, e(op.nn.gelu(total))

    def look_alikes(e: Any, x: Any, y: Any, w: Any, b: Any) -> Any:
        residual = e(op.nn.relu(e(op.add(e(conv(x, y)), x))))
        last = e(op.nn.conv2d(e(op.permute_dims(x, [0, 2, 3, 1])), y, padding=1, data_layout="NHWC"))
        last = e(op.nn.relu(e(op.add(last, b))))
        scaled = e(op.nn.relu(e(op.multiply(e(conv(x, y)), w))))
        return residual, last, scaled

    def gelus(e: Any, x: Any, y: Any, w: Any) -> Any:
        almost = e(op.nn.gelu_tanh(e(op.add(e(op.matmul(x, y)), w))))
        return e(op.nn.gelu(e(op.add(e(op.matmul(almost, y)), w))))

    bias = (1, 4, 1, 1)
    return [
        case("the bias left and right", module(block, IMAGE, WEIGHT, bias), "did"),
        case("dense, bias, gelu", module(dense, VECTOR, SQUARE, (8,)), "did"),
        case("values that others read", module(fork, IMAGE, WEIGHT, bias), "spared"),
        case("a value that is returned", module(handed_out, VECTOR, SQUARE, (8,)), "spared", run=False),
        case("what is no bias, another layout", module(look_alikes, IMAGE, WEIGHT, bias, (4,)), "spared", run=False),
        case("the other gelu", module(gelus, VECTOR, SQUARE, (8,)), "did", "spared"),
    ]
