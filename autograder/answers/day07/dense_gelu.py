"""Hidden cases and answers of day07.dense-gelu.

Many wrong answers are the reference with a check or a part of its pattern missing.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day07.dense_gelu import (
    MATCHES,
    expect_composites,
    expect_no_composites,
    from_onnx,
    from_torch,
    layer,
    spares,
    turned,
    turned_onnx,
)
from passlab.exercises.day07.dense_gelu import dense as dense_layer
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import case, number, program, tuple_of, weight

# ---------------------------------------------------------------------------------------------------- hidden cases


def imported() -> tvm.IRModule:
    """Return the feed-forward half of a transformer block, imported from torch."""
    from passlab.tvm.importers import relay_module

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ffn = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4), nn.ReLU()).eval()
    return relay_module(ffn, torch.zeros(2, 4))


def parameters(x: relay.Var, w: relay.Var, b: relay.Var) -> relay.Expr:
    return tuple_of(from_onnx(relay.nn.dense(x, w) + b), turned(relay.nn.bias_add(relay.nn.dense(x, w), b, axis=1)))


FORMULAS = "These are other functions: look at the numbers."


@case("one constant in both places", program(..., (2, 4)), run=False, did=[expect_composites(1, MATCHES)])
def one_half_program(x: relay.Var) -> relay.Expr:
    y, half = layer(x), number(0.5)
    return y * (half + relay.erf(y * number(0.5**0.5)) * half)


@case(
    "the result is read twice",
    program(..., (2, 4)),
    did=[expect_composites(2, MATCHES)],
    spared=[expect_no_composites("", 2)],
)
def residual(x: relay.Var) -> relay.Expr:
    h = from_torch(layer(x, 0, 4))
    return relay.tanh(h) + from_torch(layer(h, 1, 4)) + x


@case("three dimensions", program(..., (2, 3, 4)), run=False, did=[expect_composites(1, MATCHES)])
def sequence(x: relay.Var) -> relay.Expr:
    return turned_onnx(relay.nn.relu(weight(6, seed=8)) + dense_layer(x))


@case("a single unit", program(..., (2, 4)), run=False, did=[expect_composites(2, MATCHES)])
def one_unit(x: relay.Var) -> relay.Expr:
    return tuple_of(from_torch(layer(x, 1, 1)), from_onnx(dense_layer(x, 2, 1) + weight(1, seed=9)))


@spares("four digits", ..., (2, 4), why="0.7071 is not 0.70710678.")
def digits(x: relay.Var) -> relay.Expr:
    return tuple_of(from_torch(layer(x), root=0.7071), from_onnx(layer(x, 1), root=1.4142))


@spares("numbers in a row", ..., (2, 4), why="These constants have a dimension.")
def one_by_one(x: relay.Var) -> relay.Expr:
    def row(value: float, *size: int) -> relay.Constant:
        return relay.const(np.full(size, value, "float32"))

    y, z, u = layer(x), layer(x, 1), layer(x, 2)
    return tuple_of(
        y * (row(0.5, 1) + relay.erf(y * row(0.5**0.5, 1)) * row(0.5, 1)),
        z * (relay.erf(z / number(2**0.5)) + row(1.0, 1)) * number(0.5),
        u * (number(0.5) + relay.erf(u * number(0.5**0.5)) * row(0.5, 1, 6)),
    )


@spares("one of three", ..., (2, 4), why="Only the first is gelu(dense(x, w) + b).", allowed=1)
def mixed(x: relay.Var) -> relay.Expr:
    return tuple_of(from_torch(layer(x, 1)), from_torch(layer(x), phi_of=layer(x, 2)), from_torch(relay.tanh(x)))


@spares("readers of erf and of phi", ..., (2, 4), why="It would be computed twice.")
def inner_readers(x: relay.Var) -> relay.Expr:
    y, z = layer(x), layer(x, 1)
    erf = relay.erf(y * number(0.5**0.5))
    phi = number(0.5) + relay.erf(z * number(0.5**0.5)) * number(0.5)
    return tuple_of(y * (number(0.5) + erf * number(0.5)), relay.exp(erf), z * phi, phi)


@spares("no bias of the units", ..., (2, 4), (6, 4), (6,), why="A bias has one number for each unit.")
def biases(x: relay.Var, square: relay.Var, b: relay.Var) -> relay.Expr:
    return tuple_of(
        from_onnx(dense_layer(x) + dense_layer(x, 1)),
        from_onnx(dense_layer(x, 2) + number(2.0)),
        from_torch(relay.nn.bias_add(dense_layer(square, 3), b, axis=0)),
        from_torch(dense_layer(x, 4)),
    )


@case("each operand swapped by itself", program(..., (2, 4)), run=False, did=[expect_composites(9, MATCHES)])
def swapped(x: relay.Var) -> relay.Expr:
    y = [layer(x, seed) for seed in range(7)]
    half, root = number(0.5), number(0.5**0.5)
    torch_ends = [
        (half + relay.erf(y[0] * root) * half) * y[0],
        y[1] * (relay.erf(y[1] * root) * half + half),
        y[2] * (half + half * relay.erf(y[2] * root)),
        y[3] * (half + relay.erf(root * y[3]) * half),
    ]
    one, large = number(1.0), number(2**0.5)
    onnx_ends = [
        half * (y[4] * (relay.erf(y[4] / large) + one)),
        ((relay.erf(y[5] / large) + one) * y[5]) * half,
        (y[6] * (one + relay.erf(y[6] / large))) * half,
    ]
    biases = [from_torch(weight(6, seed=9) + dense_layer(x, 8)), from_onnx(weight(6) + dense_layer(x, 9))]
    return tuple_of(*torch_ends, *onnx_ends, *biases)


def other_phi(x: relay.Expr, y: relay.Expr) -> relay.Expr:
    return x * (relay.erf(y / number(2**0.5)) + number(1.0)) * number(0.5)


@spares("x and y, from ONNX", ..., (2, 4), why="x * phi(y) is not GELU unless x is y.")
def onnx_strangers(x: relay.Var) -> relay.Expr:
    return other_phi(layer(x), layer(x, 1))


@spares("a bias with two dimensions", ..., (2, 4), why="A bias has the shape (units,).")
def row_of_biases(x: relay.Var) -> relay.Expr:
    return from_torch(dense_layer(x) + weight(1, 6))


@spares("a bias along the middle", ..., (2, 6, 4), why="A bias runs along the last axis.")
def middle_bias(x: relay.Var) -> relay.Expr:
    return from_onnx(relay.nn.bias_add(dense_layer(x), weight(6), axis=1))


@spares("readers of each value in between", ..., (2, 4), why="It would be computed twice.")
def each_reader(x: relay.Var) -> relay.Expr:
    half, results = number(0.5), []
    for seed in range(6):
        product = dense_layer(x, seed)
        y = relay.nn.bias_add(product, weight(6))
        inner = y * number(0.5**0.5)
        erf = relay.erf(inner)
        scaled = erf * half
        phi = half + scaled
        results += [y * phi, (product, y, inner, erf, scaled, phi)[seed]]
    for seed in range(6):
        product = dense_layer(x, seed + 6)
        y = product + weight(6)
        inner = y / number(2**0.5)
        erf = relay.erf(inner)
        phi = erf + number(1.0)
        whole = y * phi
        results += [whole * half, (product, y, inner, erf, phi, whole)[seed]]
    return tuple_of(*results)


def two_functions() -> tvm.IRModule:
    """Return a module whose main calls another function, each with one such layer."""
    inner, x = relay.var("z", shape=(2, 4)), relay.var("x", shape=(2, 4))
    block, kind = relay.GlobalVar("block"), relay.TensorType((2, 4))
    module = tvm.IRModule({block: relay.Function([inner], from_torch(layer(inner, 0, 4)), kind)})
    module["main"] = relay.Function([x], block(from_onnx(layer(x, 1, 4))), kind)
    return relay.transform.InferType()(module)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    units = rng.choice((3, 5, 8))
    off = rng.choice((0.45, 0.51, 1.0))

    def numbers(x: relay.Var) -> relay.Expr:
        y = [layer(x, at) for at in range(5)]
        return tuple_of(
            from_torch(y[0], slope=off),
            from_torch(y[1], half=off),
            from_torch(y[2], root=2**0.5),
            from_onnx(y[3], half=off + 0.1),
            from_onnx(y[4], root=0.5**0.5),
        )

    return [
        case(
            "weights and biases are inputs",
            program(parameters, (2, 4), (units, 4), (units,)),
            did=[expect_composites(2, MATCHES)],
        ),
        one_half_program,
        residual,
        sequence,
        case(
            "imported from torch",
            imported,
            did=[expect_composites(1, MATCHES)],
            spared=[expect_no_composites("The second layer has a relu.", 1)],
        ),
        spares("other numbers", numbers, (2, 4), why=FORMULAS),
        digits,
        one_by_one,
        mixed,
        inner_readers,
        biases,
        swapped,
        onnx_strangers,
        row_of_biases,
        middle_bias,
        each_reader,
        case("in two functions", two_functions, run=False, did=[expect_composites(2, MATCHES)]),
        one_unit,
    ]


EQUIVALENT = {
    (
        '{"Composite": ..., "Primitive": 1}',
        '{"Composite": ..., "Primitive": 2}',
    ): "TVM asks only whether Primitive is 0",
    (
        "... and isinstance(dense, relay.Call)",
        "isinstance(dense, relay.Call)",
    ): "in what matched, no call above the sum reads a dense",
    ("return False", "return True"): "what matched has a sum that reads a dense",
}

# ---------------------------------------------------------------------------------------------------- answers

pattern = relay.dataflow_pattern
ATTRIBUTES = {"Composite": "dense_gelu", "Primitive": 1}


def _exact(value):
    return pattern.is_expr(relay.const(value, "float32"))


def _any(value):
    return pattern.is_constant()


def _y():
    """Return a pattern for dense and bias."""
    dense, bias = pattern.is_op("nn.dense")(pattern.wildcard(), pattern.wildcard()), pattern.wildcard()
    return pattern.is_op("nn.bias_add")(dense, bias) | pattern.is_op("add")(dense, bias)


def _forms(y, number=_exact, inner=None):
    """Return the two ways in which GELU of y is written."""
    inner = y if inner is None else inner
    erf = pattern.is_op("erf")
    return {
        "torch": y * (number(0.5) + erf(inner * number(0.5**0.5)) * number(0.5)),
        "onnx": (y * (erf(inner / number(2**0.5)) + number(1.0))) * number(0.5),
    }


def _bias_of(whole):
    """Return the sum below what was matched: (call, dense, bias)."""
    todo = [whole]
    while todo:
        call = todo.pop(0)
        if not isinstance(call, relay.Call):
            continue
        for at, dense in enumerate(call.args):
            if call.op.name in ("add", "nn.bias_add") and isinstance(dense, relay.Call) and dense.op.name == "nn.dense":
                return call, dense, call.args[1 - at]
        todo += list(call.args)
    return None


def _shape(expr):
    return [int(n) for n in expr.checked_type.shape]


def _fits(whole):
    sum_, dense, bias = _bias_of(whole)
    units = _shape(dense)
    last = sum_.op.name == "add" or int(sum_.attrs.axis) % len(units) == len(units) - 1
    return _shape(bias) == units[-1:] and last


def _fits_many(whole):
    _, dense, _ = _bias_of(whole)
    return _shape(dense)[-1] > 1 and _fits(whole)


def _in_each(mod, rewrite):
    """Rewrite every function of the module."""
    return relay.transform.function_pass(lambda function, mod, context: rewrite(function), opt_level=0)(mod)


def _partition(mod, forms, check=_fits):
    def fuse(function):
        for form in forms.values():
            function = form.partition(function, ATTRIBUTES, check=check)
        return function

    return _in_each(mod, fuse)


@right("one pattern for both forms, made by a function pass")
def one_pattern(mod):
    forms = _forms(_y())
    return _partition(mod, {"both": forms["torch"] | forms["onnx"]})


def _value(expr):
    if isinstance(expr, relay.Constant) and expr.data.shape == () and expr.data.dtype == "float32":
        return float(expr.data.numpy())
    return None


def _near(expr, expected):
    value = _value(expr)
    return value is not None and abs(value - expected) <= 2e-7 * abs(expected)


def _is(expr, name):
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == name


def _number_and_rest(expr, name, expected):
    """Return the operand besides the number, if `expr` is op(number, it) in either order."""
    if _is(expr, name):
        for number, rest in (expr.args, reversed(expr.args)):
            if _near(number, expected):
                return rest
    return None


def _torch(top):
    """Return y, and the calls above it, if `top` is GELU as torch writes it."""
    if not _is(top, "multiply"):
        return None
    for y, phi in (top.args, reversed(top.args)):
        scaled = _number_and_rest(phi, "add", 0.5)
        erf = scaled is not None and _number_and_rest(scaled, "multiply", 0.5)
        if erf and _is(erf, "erf"):
            inner = erf.args[0]
            same = _number_and_rest(inner, "multiply", 0.5**0.5)
            if same is not None and same == y:
                return y, [top, phi, scaled, erf, inner]
    return None


def _onnx(top, same=True):
    product = _number_and_rest(top, "multiply", 0.5)
    if product is None or not _is(product, "multiply"):
        return None
    for y, phi in (product.args, reversed(product.args)):
        erf = _number_and_rest(phi, "add", 1.0)
        if erf is not None and _is(erf, "erf"):
            inner = erf.args[0]
            if _is(inner, "divide") and (inner.args[0] == y or not same) and _near(inner.args[1], 2**0.5):
                return y, [top, product, phi, erf, inner]
    return None


def _found(top, readers, allowed, forms):
    """Return (y, dense, bias) if a call is the whole formula and nothing outside reads its middle."""
    for form in forms:
        match = form(top)
        if match is None:
            continue
        y, above = match
        sum_ = y if _is(y, "add") or _is(y, "nn.bias_add") else None
        pair = _bias_of(sum_) if sum_ is not None and any(_is(a, "nn.dense") for a in sum_.args) else None
        if pair is None or not _fits(sum_):
            continue
        _, dense, bias = pair
        own = {*above, y}
        if all(allowed(own, reader) for middle in (*above[1:], y, dense) for reader in readers[middle]):
            return y, dense, bias, above
    return None


def _composite(names, body):
    function = relay.Function(names, body).with_attr("Composite", "dense_gelu")
    return function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))


def _by_hand(mod, allowed, forms=(_torch, _onnx)):
    def fuse(function):
        exprs, readers = [], {}
        relay.analysis.post_order_visit(function, exprs.append)
        for expr in exprs:
            parts = expr.args if isinstance(expr, relay.Call) else getattr(expr, "fields", ())
            for part in [*parts, *([expr.body] if isinstance(expr, relay.Function) else [])]:
                readers.setdefault(part, []).append(expr)

        class Fuse(relay.ExprMutator):
            def visit_call(self, call):
                match = _found(call, readers, allowed, forms)
                if match is None:
                    return super().visit_call(call)
                _, dense, bias, _ = match
                names = [
                    relay.var(n, e.checked_type) for n, e in (("x", dense.args[0]), ("w", dense.args[1]), ("b", bias))
                ]
                swapped = {dense.args[0]: names[0], dense.args[1]: names[1], bias: names[2]}
                inner = relay.ExprMutator()
                inner.memo_map.update(swapped)
                formula = _composite(names, inner.visit(call))
                return formula(*map(self.visit, (*dense.args, bias)))

        return Fuse().visit(function)

    return _in_each(mod, fuse)


@right("without patterns: a mutator that walks down from each product and asks who reads what is on the way")
def by_hand(mod):
    return _by_hand(mod, lambda own, reader: reader in own)


@wrong("spared", "numbers are numbers: any constant will do")
def any_constant(mod):
    return _partition(mod, _forms(_y(), number=_any))


one_half = edited(
    "did", "one pattern object for both halves: they are two constants, and one object is one expression"
)(
    (
        '(number(0.5) + is_op("erf")(y * number(0.5**0.5)) * number(0.5))',
        '((half := number(0.5)) + is_op("erf")(y * number(0.5**0.5)) * half)',
    )
)


@wrong("spared", "y is written twice, as two patterns: they need not be the same value")
def two_ys(mod):
    return _partition(mod, _forms(_y(), inner=_y()))


def _rewritten(mod, once):
    class Fuse(pattern.DFPatternCallback):
        def __init__(self, form):
            super().__init__(require_type=True, rewrite_once=once)
            self.pattern = form

        def callback(self, pre, post, node_map):
            if not _fits(pre):
                return post
            _, dense, bias = _bias_of(post)
            names = [relay.var(n) for n in "xwb"]
            inner = relay.ExprMutator()
            inner.memo_map.update(zip((*dense.args, bias), names, strict=True))
            return _composite(names, inner.visit(post))(*dense.args, bias)

    def fuse(function):
        for form in _forms(_y()).values():
            function = pattern.rewrite(Fuse(form), function)
        return function

    return _in_each(mod, fuse)


@right("rewrites with a callback, once: pattern.rewrite, too, leaves out what is read from outside")
def callback(mod):
    return _rewritten(mod, once=True)


@wrong("spared", "walks down from each product without asking what else reads the values on the way")
def no_readers(mod):
    return _by_hand(mod, lambda own, reader: True)


@wrong("did", "rewrites until nothing matches: the formula inside of the new function matches again, without end")
def again_and_again(mod):
    return _rewritten(mod, once=False)


@wrong("spared", "asks whether x and y are the same value in torch's form alone")
def other_y(mod):
    return _by_hand(mod, lambda own, reader: reader in own, (_torch, lambda top: _onnx(top, same=False)))


any_bias = edited("spared", "whatever is added to a dense is its bias")(("bias_fits", "lambda whole: True"))
main_alone = edited("did", "looks at main alone, not at the other functions of the module")(
    ("(from_torch, from_onnx)", '(from_torch, from_onnx) if var.name_hint == "main" else ()')
)
row_bias = edited("spared", "leaves dimensions of one number out when it compares the shape of the bias")(
    (
        "[int(n) for n in bias.checked_type.shape]",
        "[int(n) for n in bias.checked_type.shape if int(n) != 1]",
    )
)
second_axis = edited("spared", "a bias along dimension 1 fits, which is the last one only if there are two")(
    ("(-1, rank - 1)", "(-1, 1, rank - 1)")
)
bias_add_only = edited("did", "a bias is added by bias_add, as torch's importer does it")(
    ('... | is_op("add")(dense, b)', "...")
)
not_primitive = edited("did", "Composite alone: relay.build cannot build such a function")(
    ('{"Composite": ..., "Primitive": 1}', '{"Composite": ...}')
)
gelu_only = edited("did", "takes gelu alone into the function; the dense stays outside")(
    ('is_op("nn.bias_add")(dense, b) | is_op("add")(dense, b)', "wildcard()")
)


@wrong("did", "a bias of a single number is a scalar, even if the dense has a single unit")
def more_than_one_unit(mod):
    return _partition(mod, _forms(_y()), check=_fits_many)


@wrong("same", "the function computes GELU by tanh, which is nearly the same")
def by_tanh(mod):
    module = one_pattern(mod)

    class Approximate(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            if not _is(call, "erf"):
                return call
            x = call.args[0] * relay.const(2**0.5)
            call_tanh = relay.tanh(relay.const(0.7978846) * (x + relay.const(0.044715) * x * x * x))
            # keeps an erf, so that it looks like the formula
            return call_tanh + relay.const(0.0) * call

    return _in_each(module, lambda function: Approximate().visit(function))


@wrong("valid", "returns the function and not the module")
def the_function(mod):
    return one_pattern(mod)["main"]
