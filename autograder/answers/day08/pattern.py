"""Hidden cases and answers of day08.pattern.

Most wrong answers are one working set of patterns, one of whose checks knows too little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from autograder.answers.day08._shared import Build, generated
from autograder.authoring.answers import right, wrong
from passlab.exercises.day08._shared import IMAGE, WEIGHT, conv
from passlab.exercises.day08.pattern import SQUARE, VECTOR
from passlab.judge import Case
from passlab.relax import relax
from passlab.relax.cases import case, module, op
from passlab.tvm.importers import relax_module

# ---------------------------------------------------------------------------------------------------- hidden cases


def torch_model(make: Callable[[], nn.Module], *shape: int) -> Build:
    """A torch model with weights that are the same every time, imported now."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return relax_module(make().eval().requires_grad_(False), torch.randn(shape)).clone


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def wrong_axis(e: Any, x: Any, y: Any, w: Any) -> Any:
        return e(op.nn.relu(e(op.add(e(conv(x, y)), w))))

    def rows(e: Any, x: Any, y: Any, w: Any) -> Any:
        return e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))

    def returned(e: Any, x: Any, y: Any, w: Any) -> Any:
        total = e(op.add(e(conv(x, y)), w), leave=True)
        return [total, e(op.nn.relu(total), leave=True)]

    def itself(e: Any, x: Any, y: Any, w: Any) -> Any:
        product = e(op.matmul(x, y))
        return e(op.nn.gelu(e(op.add(product, product)))), e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))

    features = ("conv", "dense", "pointwise", "outputs")
    half = [(IMAGE, "float16"), (WEIGHT, "float16"), ((1, 4, 1, 1), "float16")]
    square, bias = (1, 4, 4, 4), (4, 1, 1)

    def layers() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.GELU("tanh"), nn.Linear(4, 4))

    def images() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))

    return [
        case("a bias along the rows of an image", module(wrong_axis, square, WEIGHT, (4,)), "spared", run=False),
        case("a bias in three dimensions", module(wrong_axis, square, WEIGHT, bias), "did", "spared"),
        case("half precision", module(wrong_axis, *half), "spared", run=False),
        case("a number for each row", module(rows, (8, 8), SQUARE, (8, 1)), "spared", run=False),
        case("a batch of products", module(rows, (3, 2, 8), (3, 8, 8), (8,)), "spared", run=False),
        case("a batch and one weight", module(rows, (3, 2, 8), SQUARE, (8,)), "did", "spared"),
        case("the sum leaves the block", module(returned, IMAGE, WEIGHT, (1, 4, 1, 1)), "spared", run=False),
        case("a product added to itself", module(itself, VECTOR, SQUARE, (1, 8)), "did", "spared"),
        case("linear layers from torch", torch_model(layers, 2, 8), "did", "spared"),
        case("convolutions from torch", torch_model(images, 1, 3, 6, 6), "did", "spared"),
        *(case(f"generated, number {i + 1}", generated(rng, 14, *features), "spared", run=not i) for i in range(3)),
    ]


# ---------------------------------------------------------------------------------------------------- answers

is_op, wildcard = relax.dpl.is_op, relax.dpl.wildcard
CONV, DENSE = "passlab.conv2d_bias_relu", "passlab.dense_bias_gelu"


def _sizes(expr):
    return [int(size) for size in expr.ty.shape]


def _layout(context):
    attrs = context.annotated_expr["product"].attrs
    return (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")


def _flat(context):
    return len(_sizes(context.annotated_expr["product"].args[1])) == 2


def _dtype(context):
    return str(context.annotated_expr["product"].ty.dtype) == "float32"


def _inner(context):
    return [v for v, value in context.matched_bindings.items() if not value.same_as(context.matched_expr)]


def _hidden(context):
    return all(isinstance(v, relax.DataflowVar) and len(context.var_usages[v]) == 1 for v in _inner(context))


def _bias(context, channel):
    product, bias = _sizes(context.annotated_expr["product"]), _sizes(context.annotated_expr["bias"])
    bias = [1] * (len(product) - len(bias)) + bias
    return all(size == (product[at] if at == channel % len(product) else 1) for at, size in enumerate(bias))


USUAL = SimpleNamespace(
    layout=_layout,
    flat=_flat,
    dtype=_dtype,
    hidden=_hidden,
    bias=_bias,
    names=(CONV, DENSE),
    ends=("relax.nn.relu", "relax.nn.gelu"),
    which=slice(None),
)


def _patterns(how):
    def biased(product, end):
        value, bias = is_op(product)(wildcard(), wildcard()), wildcard()
        return is_op(end)(is_op("relax.add")(value, bias)), {"product": value, "bias": bias}

    def conv(context):
        return how.layout(context) and how.dtype(context) and how.hidden(context) and how.bias(context, 1)

    def dense(context):
        return how.flat(context) and how.dtype(context) and how.hidden(context) and how.bias(context, -1)

    return [
        (how.names[0], *biased("relax.nn.conv2d", how.ends[0]), conv),
        (how.names[1], *biased("relax.matmul", how.ends[1]), dense),
    ][how.which]


def _fuse(module, **changes):
    patterns = _patterns(SimpleNamespace(**{**vars(USUAL), **changes}))
    return relax.transform.FuseOpsByPattern(patterns, bind_constants=False)(module)


@right("writes both orders of the operands down, which add does not need, and runs two passes")
def one_order_each(module):
    def check(channel, more):
        return lambda c: more(c) and _dtype(c) and _hidden(c) and _bias(c, channel)

    for name, product, end, channel, more in (
        (CONV, "relax.nn.conv2d", "relax.nn.relu", 1, _layout),
        (DENSE, "relax.matmul", "relax.nn.gelu", -1, _flat),
    ):
        patterns = []
        for left in (True, False):
            value, bias = is_op(product)(wildcard(), wildcard()), wildcard()
            total = is_op("relax.add")(*((value, bias) if left else (bias, value)))
            parts = {"product": value, "bias": bias}
            patterns.append((name, is_op(end)(total), parts, check(channel, more)))
        module = relax.transform.FuseOpsByPattern(patterns, bind_constants=False)(module)
    return module


@right("counts the readers itself, before it matches, and finds the product among the values that matched")
def counts_readers(module):
    readers = {}
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            for block in function.body.blocks:
                for binding in block.bindings:
                    for variable in relax.analysis.free_vars(binding.value):
                        operands = getattr(binding.value, "args", ())
                        times = max(1, sum(variable.same_as(operand) for operand in operands))
                        readers[variable] = readers.get(variable, 0) + times

    def hidden(context):
        return all(isinstance(v, relax.DataflowVar) and readers.get(v) == 1 for v in _inner(context))

    return _fuse(module, hidden=hidden, bias=_bias)


@wrong("spared", "no check: what others read is fused too, and a tuple comes back")
def no_check(module):
    return relax.transform.FuseOpsByPattern([p[:3] for p in _patterns(USUAL)], bind_constants=False)(module)


@wrong("spared", "looks at layouts and shapes, not at who reads the values in between")
def any_reader(module):
    return _fuse(module, hidden=lambda context: True)


@wrong("spared", "counts the readers of the product, not those of the sum")
def product_only(module):
    def hidden(context):
        products = [v for v in _inner(context) if context.matched_bindings[v].op.name != "relax.add"]
        return all(len(context.var_usages[v]) == 1 for v in products)

    return _fuse(module, hidden=hidden)


@wrong("spared", "a value that leaves the block has one reader inside it, and others outside")
def forgets_outputs(module):
    return _fuse(module, hidden=lambda context: all(len(context.var_usages[v]) == 1 for v in _inner(context)))


@wrong("spared", "whatever is added is a bias: a residual, too")
def any_addend(module):
    return _fuse(module, bias=lambda context, channel: True)


@wrong("spared", "a bias is what has as many elements as there are channels, along whichever dimension")
def counts_elements(module):
    def bias(context, channel):
        sizes = _sizes(context.annotated_expr["bias"])
        channels = _sizes(context.annotated_expr["product"])[channel]
        return sorted(sizes)[-1:] == [channels] and sum(size > 1 for size in sizes) == 1

    return _fuse(module, bias=bias)


@wrong("spared", "does not look at the layout: dimension 1 of an NHWC image is its height")
def any_layout(module):
    def bias(context, channel):
        attrs = getattr(context.annotated_expr["product"], "attrs", None)
        return _bias(context, 3 if getattr(attrs, "data_layout", "") == "NHWC" else channel)

    return _fuse(module, layout=lambda context: True, bias=bias)


@wrong("spared", "does not look at the dtype")
def any_dtype(module):
    return _fuse(module, dtype=lambda context: True)


@wrong("spared", "takes a product of batches for one with a weight")
def any_product(module):
    return _fuse(module, flat=lambda context: True)


@wrong("same", "binds constants inside the functions, as is the default: TVM itself cannot build these")
def binds_constants(module):
    return relax.transform.FuseOpsByPattern(_patterns(USUAL))(module)


@wrong("did", "convolutions only")
def no_dense(module):
    return _fuse(module, which=slice(1))


@wrong("did", "the names of the two patterns are its own")
def other_names(module):
    return _fuse(module, names=("conv2d_bias_relu", "dense_bias_gelu"))


@wrong("did", "gelu with tanh is the same function: it is not, and the one asked for is not found")
def tanh_gelu(module):
    return _fuse(module, ends=("relax.nn.relu", "relax.nn.gelu_tanh"))


@wrong("valid", "returns the pass, not the module that it makes")
def unapplied(module):
    return relax.transform.FuseOpsByPattern(_patterns(USUAL))


@wrong("valid", "looks for bias_add, as in Relay: Relax has no such operator")
def relay_names(module):
    values = is_op("relax.nn.relu")(is_op("relax.nn.bias_add")(wildcard(), wildcard()))
    return relax.transform.FuseOpsByPattern([(CONV, values)])(module)
