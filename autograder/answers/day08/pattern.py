"""Hidden cases and answers of day08.pattern.

Most wrong answers are the reference with a check that looks at too little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autograder.answers.day08._shared import Build, generated
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day08._shared import IMAGE, WEIGHT, conv
from passlab.exercises.day08.pattern import SQUARE, VECTOR
from passlab.judge import Case, as_decorator
from passlab.relax import relax
from passlab.relax.cases import case, module, op
from passlab.tvm.importers import relax_module

# ---------------------------------------------------------------------------------------------------- hidden cases


@as_decorator
def torch_model(make: Callable[[], nn.Module], *shape: int) -> Build:
    """Return a torch model with weights that are the same every time, imported now."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return relax_module(make().eval().requires_grad_(False), torch.randn(shape)).clone


def wrong_axis(e: Any, x: Any, y: Any, w: Any) -> Any:
    return e(op.nn.relu(e(op.add(e(conv(x, y)), w))))


def rows(e: Any, x: Any, y: Any, w: Any) -> Any:
    return e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))


FEATURES = ("conv", "dense", "pointwise", "outputs")
HALF = [(IMAGE, "float16"), (WEIGHT, "float16"), ((1, 4, 1, 1), "float16")]
DENSE_HALF, DENSE_DOUBLE = ([(size, kind) for size in (VECTOR, SQUARE, (8,))] for kind in ("float16", "float64"))
SQUARE_CASE, BIAS = (1, 4, 4, 4), (4, 1, 1)


@case("other layouts", module(..., *[(4, 4, 4, 4)] * 2, BIAS), "spared", run=False)
def other_layouts(e: Any, x: Any, y: Any, w: Any) -> Any:
    hows = [{"kernel_layout": "HWIO"}, {"kernel_layout": "IOHW"}]
    hows += [{"data_layout": "NHWC"}, {"out_layout": "NHWC"}, {"data_layout": "NHWC", "out_layout": "NCHW"}]
    layers = [e(op.nn.relu(e(op.add(e(op.nn.conv2d(x, y, padding=(1, 1, 2, 2), **how)), w)))) for how in hows]
    return tuple(layers)


@case("the sum leaves the block", module(..., IMAGE, WEIGHT, (1, 4, 1, 1)), "spared", run=False)
def returned(e: Any, x: Any, y: Any, w: Any) -> Any:
    total = e(op.add(e(conv(x, y)), w), leave=True)
    return [total, e(op.nn.relu(total), leave=True)]


@case("the result leaves the block", module(..., IMAGE, WEIGHT, (1, 4, 1, 1)), "did", "spared")
def result_leaves(e: Any, x: Any, y: Any, w: Any) -> Any:
    last = e(op.nn.relu(e(op.add(e(conv(x, y)), w))), leave=True)
    return [last, e(op.add(last, last), leave=True)]


@case("a product added to itself", module(..., VECTOR, SQUARE, (1, 8)), "did", "spared")
def itself(e: Any, x: Any, y: Any, w: Any) -> Any:
    product = e(op.matmul(x, y))
    return e(op.nn.gelu(e(op.add(product, product)))), e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))


@case("linear layers from torch", torch_model(..., 2, 8), "did", "spared")
def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.GELU("tanh"), nn.Linear(4, 4))


@case("convolutions from torch", torch_model(..., 1, 3, 6, 6), "did", "spared")
def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))


@case("one number for all channels", module(..., IMAGE, WEIGHT, (1, 1, 1, 1), (1,)), "spared", run=False)
def one_number(e: Any, x: Any, y: Any, w: Any, b: Any) -> Any:
    flat = e(op.reshape(x, (24, 6)))
    product = e(op.matmul(flat, e(op.reshape(y, (6, 24)))))
    wide = e(op.nn.relu(e(op.add(e(conv(x, y)), w))))
    return wide, e(op.nn.relu(e(op.add(e(conv(x, y)), b)))), e(op.nn.gelu(e(op.add(product, b))))


@case(
    "a bias of more dimensions than the product",
    module(..., IMAGE, WEIGHT, (1, 1, 4, 1, 1), (1, 4, 1, 1, 1), SQUARE, (1, 1, 8)),
    "spared",
    run=False,
)
def more_dimensions(e: Any, x: Any, y: Any, w: Any, b: Any, u: Any, row: Any) -> Any:
    images = [e(op.nn.relu(e(op.add(e(conv(x, y)), bias)))) for bias in (w, b)]
    return *images, e(op.nn.gelu(e(op.add(e(op.matmul(u, u)), row))))


@case("the product leaves the block", module(..., IMAGE, WEIGHT, (1, 4, 1, 1)), "spared", run=False)
def product_leaves(e: Any, x: Any, y: Any, w: Any) -> Any:
    product = e(conv(x, y), leave=True)
    return [product, e(op.nn.relu(e(op.add(product, w))), leave=True)]


@case("the other activation", module(..., VECTOR, SQUARE, (8,), IMAGE, WEIGHT, (4, 1, 1)), "spared", run=False)
def activations(e: Any, x: Any, y: Any, w: Any, b: Any, u: Any, v: Any) -> Any:
    return e(op.nn.relu(e(op.add(e(op.matmul(x, y)), w)))), e(op.nn.gelu(e(op.add(e(conv(b, u)), v))))


@case("values in between that are read again", module(..., IMAGE, WEIGHT, (4, 1, 1), VECTOR, SQUARE, (8,)), "spared")
def read_again(e: Any, x: Any, y: Any, w: Any, u: Any, v: Any, b: Any) -> Any:
    product = e(conv(x, y))
    total = e(op.add(e(op.matmul(u, v)), b))
    layers = e(op.nn.relu(e(op.add(product, w)))), e(op.nn.gelu(total))
    return e(op.add(layers[0], product)), e(op.multiply(layers[1], total))


@case(
    "wide sums of half precision",
    module(..., *((shape, "float16") for shape in (IMAGE, WEIGHT, VECTOR, SQUARE)), (4, 1, 1), (8,)),
    *("did", "spared"),
    run=False,
)
def wide_sums(e: Any, x: Any, y: Any, u: Any, v: Any, w: Any, b: Any) -> Any:
    image = e(op.nn.relu(e(op.add(e(conv(x, y, out_dtype="float32")), w))))
    return image, e(op.nn.gelu(e(op.add(e(op.matmul(u, v, out_dtype="float32")), b))))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        case("a bias along the rows of an image", module(wrong_axis, SQUARE_CASE, WEIGHT, (4,)), "spared", run=False),
        case("the same, in three dimensions", module(wrong_axis, SQUARE_CASE, WEIGHT, (1, 1, 4)), "spared", run=False),
        case("a bias in three dimensions", module(wrong_axis, SQUARE_CASE, WEIGHT, BIAS), "did", "spared"),
        other_layouts,
        case("half precision", module(wrong_axis, *HALF), "spared", run=False),
        case("products in half precision", module(rows, *DENSE_HALF), "spared", run=False),
        case("products in double precision", module(rows, *DENSE_DOUBLE), "spared", run=False),
        one_number,
        more_dimensions,
        product_leaves,
        activations,
        read_again,
        wide_sums,
        case("a number for each row", module(rows, (8, 8), SQUARE, (8, 1)), "spared", run=False),
        case("a batch of products", module(rows, (3, 2, 8), (3, 8, 8), (8,)), "spared", run=False),
        case("a batch and one weight", module(rows, (3, 2, 8), SQUARE, (8,)), "did", "spared"),
        returned,
        result_leaves,
        itself,
        layers,
        images,
        *(case(f"generated, number {i + 1}", generated(rng, 14, *FEATURES), "spared", run=not i) for i in range(3)),
    ]


# ---------------------------------------------------------------------------------------------------- answers

is_op, wildcard = relax.dpl.is_op, relax.dpl.wildcard
CONV, DENSE = "passlab.conv2d_bias_relu", "passlab.dense_bias_gelu"


def _sizes(expr):
    return [int(size) for size in expr.ty.shape]


def _layout(context):
    attrs = context.annotated_expr["product"].attrs
    return (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) == ("NCHW", "OIHW", "NCHW")


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
    return len(bias) == len(product) and all(
        size == (product[at] if at == channel % len(product) else 1) for at, size in enumerate(bias)
    )


def _fits_conv(context):
    return _layout(context) and _dtype(context) and _hidden(context) and _bias(context, 1)


def _fits_dense(context):
    return _flat(context) and _dtype(context) and _hidden(context) and _bias(context, -1)


def _patterns(*, swapped=False):
    """Return (name, pattern, its parts) of both layers; `swapped`: with the bias on the left."""
    for name, product, end in ((CONV, "relax.nn.conv2d", "relax.nn.relu"), (DENSE, "relax.matmul", "relax.nn.gelu")):
        value, bias = is_op(product)(wildcard(), wildcard()), wildcard()
        total = is_op("relax.add")(*((bias, value) if swapped else (value, bias)))
        yield name, is_op(end)(total), {"product": value, "bias": bias}


@right("writes both orders of the operands down, which add does not need, and runs two passes")
def one_order_each(module):
    for both, fits in zip(
        zip(_patterns(), _patterns(swapped=True), strict=True), (_fits_conv, _fits_dense), strict=True
    ):
        module = relax.transform.FuseOpsByPattern([(*one, fits) for one in both], bind_constants=False)(module)
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

    def fits(context):
        hidden = all(isinstance(v, relax.DataflowVar) and readers.get(v) == 1 for v in _inner(context))
        if "conv2d" in context.annotated_expr["product"].op.name:
            return hidden and _layout(context) and _dtype(context) and _bias(context, 1)
        return hidden and _flat(context) and _dtype(context) and _bias(context, -1)

    patterns = [(*one, fits) for one in _patterns()]
    return relax.transform.FuseOpsByPattern(patterns, bind_constants=False)(module)


@wrong("spared", "no check: what others read is fused too, and a tuple comes back")
def no_check(module):
    return relax.transform.FuseOpsByPattern(list(_patterns()), bind_constants=False)(module)


any_reader = edited("spared", "looks at layouts and shapes, not at who reads each of the values in between")(
    ("layouts and hidden(context)", "layouts"), ("flat and hidden(context)", "flat")
)
any_addend = edited("spared", "takes any addend for a bias")(('... == "float32" and ...', '... == "float32"'))
_LAYOUTS = 'layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) == ("NCHW", "OIHW", "NCHW")'
stated_layouts_ignored = edited("spared", "does not look at all of the layouts: those of image, weights and result")(
    (_LAYOUTS, "layouts = True")
)
conv_dtype = edited("spared", "looks at the dtype of convolutions alone")(
    ('str(product.dtype) == "float32"', '(str(product.dtype) == "float32" or channel == -1)')
)
not_half = edited("spared", "leaves out half precision alone")(
    ('str(product.dtype) == "float32"', 'str(product.dtype) != "float16"')
)
read_in_the_block = edited("spared", "asks whether the values in between leave the block, not who else reads them")(
    (
        "isinstance(variable, relax.DataflowVar) and len(context.var_usages[variable]) == 1",
        "isinstance(variable, relax.DataflowVar)",
    )
)
operand_dtype = edited("did", "asks for float32 operands, not for a float32 product")(
    ('str(product.dtype) == "float32"', 'str(context.annotated_expr["product"].args[0].ty.dtype) == "float32"')
)
any_place = edited("spared", "takes a bias along another dimension of the same size")(
    ("... == shape", "sorted(...) == sorted(shape)")
)
any_number = edited("spared", "takes one number for all channels for a bias, because it broadcasts")(
    ("... == shape", "all(a in (1, b) for a, b in zip(..., shape, strict=True))")
)
from_behind = edited(
    "spared", "compares the sizes from behind as far as both go: a bias may make an image of five dimensions"
)(("... == shape", "all(a == b for a, b in zip((...)[::-1], shape[::-1], strict=False))"))
sum_alone = edited("spared", "asks of the sum alone whether it leaves the block")(
    (
        "isinstance(variable, relax.DataflowVar)",
        '(isinstance(variable, relax.DataflowVar) or value.op.name != "relax.add")',
    )
)
any_dtype = edited("spared", "does not look at the dtype")(('str(product.dtype) == "float32" and ...', "..."))
binds_constants = edited("same", "binds constants, as is the default: TVM cannot build the functions")(
    ("...(patterns, bind_constants=False)", "...(patterns)")
)
no_dense = edited("did", "convolutions only")(("patterns", "patterns[:1]"))
other_names = edited("did", "the names of the two patterns are its own")(
    ('"passlab.conv2d_bias_relu"', '"conv2d_bias_relu"'), ('"passlab.dense_bias_gelu"', '"dense_bias_gelu"')
)
tanh_gelu = edited("did", "takes gelu with tanh for gelu, and misses the other")(
    ('"relax.nn.gelu"', '"relax.nn.gelu_tanh"')
)
unapplied = edited("valid", "returns the pass, not the module that it makes")(("...(module)", "..."))
