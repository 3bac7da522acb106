"""Day 8, fusing by pattern, with a check: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from passlab.exercises.day08._shared import CONV, IMAGE, RELU, WEIGHT, conv, other_calls, readings
from passlab.judge import Case, cases_in, plural
from passlab.relax import relax
from passlab.relax.cases import case, module, op
from passlab.tvm.judge import has_composite, judge_pass
from passlab.tvm.modules import bindings, functions, nodes

ADD, MATMUL, GELU = "relax.add", "relax.matmul", "relax.nn.gelu"

CONV_NAME, DENSE_NAME = "passlab.conv2d_bias_relu", "passlab.dense_bias_gelu"
COMPOSITES = {CONV_NAME: (CONV, ADD, RELU), DENSE_NAME: (MATMUL, ADD, GELU)}


def _shape(expr: Any) -> list[int] | None:
    shape = getattr(expr.ty, "shape", None)
    return None if shape is None else [int(dim) for dim in shape]


def _bias(bias: Any, product: Any, channel: int) -> bool:
    """Return whether `bias` has one number for each channel: size 1 in all other dimensions of the product."""
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
    """Return how many composites of each name there should be."""
    counts: Counter[str] = Counter()
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
                    counts[name] += 1
    return counts


def composites(mod: Any) -> list[tuple[str, str, Any]]:
    """Return (Composite, name, function) for every call of a function that a pattern made."""
    by_name = {
        n: (str(f.attrs["Composite"]), n, f) for n, f in functions(mod).items() if f.attrs and "Composite" in f.attrs
    }
    values = [value for f in functions(mod).values() for _, value in bindings(f)]
    called = [getattr(getattr(value, "op", None), "name_hint", None) for value in values]
    return [by_name[name] for name in called if name in by_name]


def _composed(before: Any, after: Any, case: Case) -> str | None:
    fits, counts = fitting(before), Counter(composite for composite, *_ in composites(after))
    for composite, number in fits.items():
        if counts[composite] < number:
            return f"{plural(number, 'place')} should become calls of {composite}; {counts[composite]} did."
    return None


def _pattern_spared(before: Any, after: Any, case: Case) -> str | None:
    fits, counts = fitting(before), Counter()
    for composite, name, function in composites(after):
        counts[composite] += 1
        if composite not in COMPOSITES:
            return f"The function {name} has the Composite {composite!r}; use one of the two given names."
        inside = tuple(node.name for node in nodes(after, name))
        if inside != COMPOSITES[composite]:
            return f"{name} has the Composite {composite} but contains {', '.join(inside)}."
        if isinstance(function.ret_ty, relax.TupleType):
            inner = "A value inside the pattern is also used outside: the check must return False."
            return f"{name} returns a tuple of {len(function.ret_ty.fields)} values, not one. {inner}"
    for composite, number in counts.items():
        if number > fits[composite]:
            return f"{plural(fits[composite], 'place')} can become {composite}, but you fused {number}: {WHY}."
    return other_calls(before, after, set())


WHY = "check the consumers of the values in between, layouts, dtypes and the shape of the bias"

judge = judge_pass(_composed, _pattern_spared, kernels=has_composite(*COMPOSITES))

VECTOR, SQUARE = (2, 8), (8, 8)


BIAS = (1, 4, 1, 1)


@case("the bias left and right", module(..., IMAGE, WEIGHT, BIAS), "did")
def block(e: Any, x: Any, y: Any, w: Any) -> Any:
    first = e(op.nn.relu(e(op.add(e(conv(x, y)), w))))
    return e(op.nn.relu(e(op.add(w, e(conv(first, y))))))


@case("dense, bias, gelu", module(..., VECTOR, SQUARE, (8,)), "did")
def dense(e: Any, x: Any, y: Any, w: Any) -> Any:
    constant = relax.const(np.linspace(-1, 1, 8, dtype="float32"))
    hidden = e(op.nn.gelu(e(op.add(constant, e(op.matmul(x, y))))))
    return e(op.nn.gelu(e(op.add(e(op.matmul(hidden, e(op.permute_dims(y)))), w))))


@case("values with other consumers", module(..., IMAGE, WEIGHT, BIAS), "spared")
def fork(e: Any, x: Any, y: Any, w: Any) -> Any:
    first = e(op.add(e(conv(x, y)), w))
    product = e(conv(e(op.nn.relu(first)), y))
    return e(op.sigmoid(first)), e(op.nn.relu(e(op.add(product, w)))), e(op.exp(product))


@case("a value that is returned", module(..., VECTOR, SQUARE, (8,)), "spared", run=False)
def handed_out(e: Any, x: Any, y: Any, w: Any) -> Any:
    total = e(op.add(e(op.matmul(x, y)), w))
    return total, e(op.nn.gelu(total))


@case("not a bias, another layout", module(..., IMAGE, WEIGHT, BIAS, (4,)), "spared", run=False)
def look_alikes(e: Any, x: Any, y: Any, w: Any, b: Any) -> Any:
    residual = e(op.nn.relu(e(op.add(e(conv(x, y)), x))))
    last = e(op.nn.conv2d(e(op.permute_dims(x, [0, 2, 3, 1])), y, padding=1, data_layout="NHWC"))
    last = e(op.nn.relu(e(op.add(last, b))))
    scaled = e(op.nn.relu(e(op.multiply(e(conv(x, y)), w))))
    return residual, last, scaled


@case("the other gelu", module(..., VECTOR, SQUARE, (8,)), "did", "spared")
def gelus(e: Any, x: Any, y: Any, w: Any) -> Any:
    almost = e(op.nn.gelu_tanh(e(op.add(e(op.matmul(x, y)), w))))
    return e(op.nn.gelu(e(op.add(e(op.matmul(almost, y)), w))))


def cases() -> list[Case]:
    return [*cases_in(__name__)]
