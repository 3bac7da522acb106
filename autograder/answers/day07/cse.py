"""Hidden cases and answers of day07.cse.

Most wrong answers are the reference with keys that say too little or too much.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from autograder.answers.day07._recipes import apply, generated, recipe, with_helper
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day07.cse import DRAWS, ONCE, OTHER
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import attributes_kept, case, field, least, most, number, program, tuple_of, weight

# ---------------------------------------------------------------------------------------------------- hidden cases


def graph_of(steps: list[tuple], outputs: int) -> Callable[[], tvm.IRModule]:
    """Return the program without names: the last values are returned."""

    def body(x: relay.Var, y: relay.Var) -> relay.Expr:
        values = [x, y]
        for step in steps:
            values.append(apply(step, values))
        return tuple_of(*values[-outputs:])

    return program(body, (2, 4), (2, 4))


def twice(x: relay.Var, helper: relay.GlobalVar) -> relay.Expr:
    return helper(x) + helper(x) * relay.tanh(x) + relay.tanh(x)


def drawing(z: relay.Var) -> relay.Expr:
    return relay.nn.dropout(z, 0.5)


DRAWS_CASE = "relu of one draw is not relu of another."


@case("constants of other shapes", program(..., (2, 4)), run=False, spared=[least("add", 3, OTHER)])
def shapes(x: relay.Var) -> relay.Expr:
    return tuple_of(x + number(1), x + relay.const([1.0], "float32"), x + relay.const([1.0] * 4, "float32"))


@case(
    "constants and casts of other types",
    program(..., (2, 4)),
    run=False,
    spared=[least("cast", 4, OTHER), least("multiply", 2, OTHER)],
)
def types(x: relay.Var) -> relay.Expr:
    half = relay.cast(number(1, "int32"), "float32"), relay.cast(number(1, "int64"), "float32")
    return tuple_of(x * half[0], x * half[1], relay.cast(x, "int32"), relay.cast(x, "float64"))


@case("NaN is the same NaN", program(..., (2, 4)), run=False, did=[most("maximum", 1, ONCE)])
def nan(x: relay.Var) -> relay.Expr:
    return tuple_of(relay.maximum(x, number(float("nan"))), relay.maximum(x, number(float("nan"))) * x)


@case("sums both ways", program(..., (2, 4), (2, 4)), did=[most("tanh", 1, ONCE)])
def sums(x: relay.Var, y: relay.Var) -> relay.Expr:
    return relay.tanh(x + y) * relay.tanh(x + y) - (y + x)


@case(
    "what is made of draws",
    program(..., (2, 4)),
    run=False,
    did=[most("exp", 1, ONCE)],
    spared=[least("nn.dropout", 2, DRAWS), least("nn.relu", 2, DRAWS_CASE)],
)
def masked(x: relay.Var) -> relay.Expr:
    first, second = (relay.nn.relu(relay.nn.dropout(x, 0.5)) for _ in range(2))
    return relay.exp(first * second) + relay.exp(first * second)


@case(
    "fields of one tuple",
    program(..., (2, 4)),
    run=False,
    spared=[least("tanh", 2, "They read other fields.")],
)
def fields(x: relay.Var) -> relay.Expr:
    parts = relay.split(x, 2, axis=1)
    return tuple_of(relay.tanh(parts[0]), relay.tanh(parts[1]), field(parts.astuple(), 0) + parts[0])


@case(
    "a tuple and its reverse",
    program(..., (2, 4), (2, 4)),
    did=[most("tanh", 1, ONCE)],
    spared=[least("concatenate", 2, "They have the same fields in another order.")],
)
def reverse(x: relay.Var, y: relay.Var) -> relay.Expr:
    first, second = relay.tanh(x), relay.exp(y)
    there, back = relay.concatenate([first, second], axis=1), relay.concatenate([second, relay.tanh(x)], axis=1)
    return tuple_of(there, back)


@case(
    "long constants that differ in the middle",
    program(..., (2, 2000)),
    run=False,
    did=[most("exp", 1, ONCE)],
    spared=[least("multiply", 2, OTHER)],
)
def long(x: relay.Var) -> relay.Expr:
    ones, others = np.ones(2000, "float32"), np.ones(2000, "float32")
    others[1000] = 2
    return tuple_of(relay.exp(x) * relay.const(ones), relay.exp(x) * relay.const(others))


@case("a second of other settings", program(..., (2, 4), (2, 4)), run=False, did=[most("nn.softmax", 2, ONCE)])
def settings(x: relay.Var, y: relay.Var) -> relay.Expr:
    rows, *columns = (relay.nn.softmax(y, axis=axis) for axis in (0, 1, 1))
    return tuple_of(rows, *columns)


@case("tuples in tuples", program(..., (2, 4)), run=False, did=[most("tanh", 1, ONCE)])
def same_tuple(x: relay.Var) -> relay.Expr:
    return tuple_of(tuple_of(x, relay.tanh(x)), tuple_of(x, relay.tanh(x)))


@case(
    "in another function",
    with_helper(lambda x, f: relay.tanh(f(x)), ...),
    run=False,
    did=[most("tanh", 2, "There is a function besides main, and a function pass sees each.")],
    spared=[attributes_kept],
)
def inside(z: relay.Var) -> relay.Expr:
    return relay.tanh(z) * relay.tanh(z)


@case("a difference of equal values", program(..., (2, 4)), did=[most("log", 1, "log(x) is computed twice.")])
def cancelled(x: relay.Var) -> relay.Expr:
    return relay.log(x) - relay.log(x)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    op = rng.choice((relay.negative, relay.nn.relu, relay.sigmoid))  # TVM takes minutes to build nested tanh
    depth = rng.randint(4, 8)

    def deep(x: relay.Var) -> relay.Expr:
        def chain() -> relay.Expr:
            y = x
            for at in range(depth):
                y = op(y) + weight(4, seed=at)
            return y

        return chain() * chain()

    def nans(x: relay.Var) -> relay.Expr:
        bits = 0x7FC00000 + np.array(rng.sample(range(2**16), 2), "uint32")
        return tuple_of(*(relay.maximum(x, relay.const(each.view("float32"))) for each in bits))

    zero = rng.choice((0, -3, 7))

    def same_bytes(x: relay.Var) -> relay.Expr:
        whole = np.array(zero, "int32")
        return tuple_of(x + relay.const(whole.view("float32")), relay.cast(x, "int32") + relay.const(whole))

    return [
        case("deep twins", program(deep, (2, 4)), did=[most("add", depth, ONCE), most("multiply", 1, ONCE)]),
        shapes,
        types,
        cancelled,
        case(
            "constants of other types and the same bytes",
            program(same_bytes, (2, 4)),
            run=False,
            spared=[least("add", 2, OTHER)],
        ),
        case(
            "two calls of a function that draws",
            with_helper(twice, drawing),
            run=False,
            did=[most("tanh", 1, ONCE)],
            spared=[_two_calls],
        ),
        nan,
        case("NaNs of other bits", program(nans, (2, 4)), run=False, spared=[least("maximum", 2, OTHER)]),
        sums,
        masked,
        fields,
        same_tuple,
        settings,
        inside,
        *generated("cse", lambda: graph_of(recipe(rng, 10), 3), ONCE),
        reverse,
        long,
    ]


def _two_calls(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
    nodes: list[relay.Expr] = []
    relay.analysis.post_order_visit(after["main"], nodes.append)
    calls = sum(isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.GlobalVar) for e in nodes)
    return None if calls == 2 else f"Two calls of @helper became {calls}: it draws, and each call draws anew."


EQUIVALENT = {
    ('("tuple", *...)', "(*...,)"): "no other key is of expressions alone",
    ('"field", ...', "..."): "no other key ends with a number",
}

# ---------------------------------------------------------------------------------------------------- answers


def _bits(constant):
    value = constant.data.numpy()
    return str(value.dtype), value.shape, value.tobytes()


def _settings(call):
    return tvm.ir.structural_hash(call.attrs) if call.attrs is not None else None


class _Merge(relay.ExprMutator):
    """Keys are tuples, with what `settings` makes of the attributes of a call."""

    def __init__(self, settings=_settings):
        super().__init__()
        self.table, self.settings = {}, settings

    def visit_constant(self, constant):
        return self.table.setdefault(("constant", *_bits(constant)), constant)

    def visit_tuple(self, value):
        result = super().visit_tuple(value)
        return self.table.setdefault(("tuple", *result.fields), result)

    def visit_tuple_getitem(self, value):
        result = super().visit_tuple_getitem(value)
        return self.table.setdefault(("field", result.tuple_value, result.index), result)

    def visit_call(self, call):
        result = super().visit_call(call)
        if not isinstance(result.op, tvm.ir.Op) or result.op.get_attr("TOpIsStateful"):
            return result
        return self.table.setdefault(("call", result.op, *result.args, self.settings(result)), result)


def _apply(module, **options):
    @relay.transform.function_pass(opt_level=0)
    def merge(function, mod, context):
        return _Merge(**options).visit(function)

    return merge(module)


@right("keys are tuples, settings in them as their hash")
def by_hash(mod):
    return _apply(mod)


@right("numbers all values first, and rewrites afterwards")
def numbers_first(mod):
    @relay.transform.function_pass(opt_level=0)
    def merge(function, mod, context):
        number, first = {}, {}  # expression -> number of its value; number -> the first expression of it

        def visit(e):
            key = e
            if isinstance(e, relay.Constant):
                key = _bits(e)
            elif isinstance(e, relay.Tuple):
                key = ("tuple", *(number[f] for f in e.fields))
            elif isinstance(e, relay.TupleGetItem):
                key = ("field", number[e.tuple_value], e.index)
            elif isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op) and not e.op.get_attr("TOpIsStateful"):
                key = (e.op, _settings(e), *(number[a] for a in e.args))
            number[e] = first.setdefault(key, (len(first), e))[0]

        relay.analysis.post_order_visit(function.body, visit)
        value = dict(first.values())

        class Firsts(relay.ExprMutator):
            def visit(self, expr):
                return super().visit(value[number[expr]] if expr in number else expr)

        return Firsts().visit(function)

    return merge(mod)


@wrong("spared", "the key is (operator, operands): settings are not looked at")
def no_settings(mod):
    return _apply(mod, settings=lambda call: None)


merges_draws = edited("spared", "two dropouts of one value are the same value")(
    ('... or call.op.get_attr("TOpIsStateful")', "...")
)
as_printed = edited("spared", "constants that are printed alike are equal: NumPy prints a long array as its two ends")(
    ("(str(value.dtype), value.shape, value.tobytes())", "(str(value.dtype), value.shape, str(value))")
)
in_any_order = edited("spared", "tuples of the same fields in another order are the same")(
    ('("tuple", *value.fields)', '("tuple", frozenset(value.fields))')
)
numbers_only = edited("spared", "constants of equal numbers are equal, whatever their shape")(
    ("value.shape, value.tobytes()", "*sorted(set(value.ravel().tolist()))")
)
by_bytes = edited("valid", "constants of the same bytes are equal, an integer and a floating-point number, too")(
    ("str(value.dtype), value.shape", "value.shape")
)
takes_off = edited("same", "takes a value less itself for 0: of NaN and inf it is NaN")(
    (
        "call = super().visit_call(call)",
        "call = super().visit_call(call)\n"
        "if call.op == relay.op.get('subtract') and call.args[0] == call.args[1]: "
        "return relay.zeros_like(call.args[0])",
    )
)
calls_of_functions = edited("spared", "two calls of one function on one value are the same value")(
    ("not isinstance(call.op, tvm.ir.Op)", "False")
)


by_identity = edited("did", "a constant is equal to itself only")(
    ("(str(value.dtype), value.shape, value.tobytes())", "constant")
)
no_tuples = edited("did", "tuples are not calls: two of the same fields stay two, and so does all that reads them")(
    ('self.first.setdefault(("tuple", *value.fields), value)', "value")
)
compares_once = edited("did", "compares a call with the first of its operator and operands, whose settings may differ")(
    ("for other in alike: ...", "for other in alike[:1]: ...")
)
free_only = edited("valid", "the parameters are the free variables of the body")(
    (
        "return Numbering().visit(func)",
        """
        body = Numbering().visit(func).body
        return relay.Function(relay.analysis.free_vars(body), body, None, None, func.attrs)
        """,
    )
)
one_level = edited("did", "compares the operands as they were before merging: twins of twins are not seen")(
    ("call = super().visit_call(call)", "old, call = call, super().visit_call(call)"),
    ("(call.op, *call.args)", "(call.op, *old.args)"),
)


@wrong("did", "TVM ships this pass: it compares calls and single numbers")
def tvm_ships_it(mod):
    return relay.transform.EliminateCommonSubexpr()(mod)


@wrong("did", "works on main, where a function pass sees every function")
def main_only(mod):
    merged = tvm.IRModule(dict(mod.functions.items()))
    merged["main"] = _Merge().visit(mod["main"])
    return relay.transform.InferType()(merged)


@wrong("valid", "returns the function and not the module")
def the_function(mod):
    return _apply(mod)["main"]
