"""Day 7, exercises 5 to 10: the cases that learners do not see. Generated programs, imported ones, traps made by hand.

What a generated program must become is asked of the reference answer: at most as many calls as it leaves.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import nn

from autograder.bank import reference
from passlab.exercises.cases_day07_classics import DRAWS, EFFECT, ONCE, OTHER, UNREAD
from passlab.exercises.cases_day07_instruments import logged, normed, twice, two_functions
from passlab.exercises.cases_day07_patterns import (
    MATCHES,
    dense,
    from_onnx,
    from_torch,
    layer,
    made,
    none_made,
    spares,
    turned,
    turned_onnx,
)
from passlab.exercises.cases_day07_programs import (
    Expectation,
    attributes_kept,
    case,
    field,
    least,
    let,
    lets,
    most,
    number,
    program,
    tuple_of,
    weight,
)
from passlab.exercises.cases_day07_timing import conv, network, norm
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.tvm.judge import counts

# ---------------------------------------------------------------------------------------------------- instruments

PASSES = (
    "SimplifyInference",
    "EliminateCommonSubexpr",
    "DeadCodeElimination",
    "ToANormalForm",
    "ToGraphNormalForm",
    "CanonicalizeOps",
    "FastMath",
    "FoldScaleAxis",
    "FuseOps",
)


def instrument(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def steps() -> tuple[str, ...]:
        chosen = rng.sample(PASSES[:-1], 4)  # FuseOps last: few passes take what it makes
        return (*chosen, "FuseOps")

    network, shared = program(normed, (1, 3, 6, 6), *[(4,)] * 4), program(twice, (3, 2))
    return [
        *(logged(f"level {level}", rng.choice((network, shared)), steps(), level=level) for level in range(5)),
        logged("two functions", two_functions, ("ToANormalForm", "FastMath", "FuseOps")),
        logged("three contexts", shared, ("FuseOps",), ("FastMath", "Fails"), steps()),
        logged("the first pass fails", network, ("Fails", "FuseOps")),
        logged("the same pass three times", network, ("SimplifyInference",) * 3),
    ]


def levels(seed: int) -> list[Case]:
    rng = random.Random(seed)
    off = (
        "FastMath",
        "AlterOpLayout",
        "EliminateCommonSubexpr",
        "SimplifyInference",
        "CanonicalizeOps",
        "InlineGlobals",
    )
    chosen = tuple(rng.sample(off, 3))

    def chain(x: relay.Var, y: relay.Var) -> relay.Expr:
        return relay.nn.dense(relay.exp(x), y)

    build = program(chain, (rng.randint(2, 5), 4), (3, 4))
    return [
        Case("a chain", lambda: (build(),)),
        Case(f"without {' and '.join(chosen)}", lambda: (build(), chosen)),
    ]


# ---------------------------------------------------------------------------------------------------- generated

UNARY = {
    "tanh": relay.tanh,
    "relu": relay.nn.relu,
    "sigmoid": relay.sigmoid,
    "softmax 0": lambda x: relay.nn.softmax(x, axis=0),
    "softmax 1": lambda x: relay.nn.softmax(x, axis=1),
    "leaky": lambda x: relay.nn.leaky_relu(x, 0.3),
    "plus one": lambda x: x + number(1),
    "times row": lambda x: x * weight(4, seed=3),
    "left half": lambda x: relay.concatenate([field(relay.split(x, 2, axis=1).astuple(), 0)] * 2, axis=1),
}
BINARY = {"add": relay.add, "subtract": relay.subtract, "maximum": relay.maximum}


def recipe(rng: random.Random, steps: int) -> list[tuple[str, ...]]:
    """Steps (op, numbers of its operands) on two inputs or earlier steps; a third of them repeat an earlier one."""
    made: list[tuple] = []
    for at in range(steps):
        if made and rng.random() < 0.35:
            made.append(rng.choice(made))
        elif rng.random() < 0.5:
            made.append((rng.choice(list(UNARY)), rng.randrange(at + 2)))
        else:
            made.append((rng.choice(list(BINARY)), rng.randrange(at + 2), rng.randrange(at + 2)))
    return made


def _apply(step: tuple, values: list[relay.Expr]) -> relay.Expr:
    op, *at = step
    return (UNARY.get(op) or BINARY[op])(*(values[i] for i in at))


def graph_of(steps: list[tuple], outputs: int) -> Callable[[], tvm.IRModule]:
    """The program without names: the last values are returned."""

    def body(x: relay.Var, y: relay.Var) -> relay.Expr:
        values = [x, y]
        for step in steps:
            values.append(_apply(step, values))
        return tuple_of(*values[-outputs:])

    return program(body, (2, 4), (2, 4))


def named(steps: list[tuple], outputs: list[int], draw: int) -> Callable[[], tvm.IRModule]:
    """The program with a name for each step; after `draw` steps something is drawn that nobody reads."""

    def body(x: relay.Var, y: relay.Var) -> relay.Expr:
        def rest(values: list[relay.Expr]) -> relay.Expr:
            at = len(values) - 2
            if at == len(steps):
                pair = tuple_of(values[-1], values[-2])
                return let(pair, lambda t: tuple_of(field(t, 0), *(values[i] for i in outputs)))
            step = let(_apply(steps[at], values), lambda v: rest([*values, v]))
            return let(relay.nn.dropout(x, 0.5), lambda _: step) if at == draw else step

        return rest([x, y])

    return program(body, (2, 4), (2, 4))


def fewest(limit: int, why: str) -> Expectation:
    """At most `limit` calls of operators in all."""

    def law(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
        there = counts(after).total()
        return None if there <= limit else f"{why} {counts(before).total()} calls became {there}; {limit} are enough."

    return law


def generated(name: str, builds: list[Callable[[], tvm.IRModule]], why: str, **more: list[Expectation]) -> list[Case]:
    answer = reference(f"day07.{name}")
    return [
        case(f"generated, number {i + 1}", build, did=[fewest(counts(answer(build())).total(), why)], **more)
        for i, build in enumerate(builds)
    ]


# ---------------------------------------------------------------------------------------------------- CSE, DCE


def with_helper(body: Callable, helper: Callable) -> Callable[[], tvm.IRModule]:
    """main(x) = body(x, @helper), in a module with @helper."""

    def build() -> tvm.IRModule:
        var, x, z = relay.GlobalVar("helper"), relay.var("x", shape=(2, 4)), relay.var("z", shape=(2, 4))
        module = tvm.IRModule({var: relay.Function([z], helper(z), z.type_annotation)})
        module["main"] = relay.Function([x], body(x, var), x.type_annotation)
        return relay.transform.InferType()(module)

    return build


def cse(seed: int) -> list[Case]:
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

    def shapes(x: relay.Var) -> relay.Expr:
        return tuple_of(x + number(1), x + relay.const([1.0], "float32"), x + relay.const([1.0] * 4, "float32"))

    def types(x: relay.Var) -> relay.Expr:
        half = relay.cast(number(1, "int32"), "float32"), relay.cast(number(1, "int64"), "float32")
        return tuple_of(x * half[0], x * half[1], relay.cast(x, "int32"), relay.cast(x, "float64"))

    def nan(x: relay.Var) -> relay.Expr:
        return tuple_of(relay.maximum(x, number(float("nan"))), relay.maximum(x, number(float("nan"))) * x)

    def sums(x: relay.Var, y: relay.Var) -> relay.Expr:
        return relay.tanh(x + y) * relay.tanh(x + y) - (y + x)

    def masked(x: relay.Var) -> relay.Expr:
        first, second = (relay.nn.relu(relay.nn.dropout(x, 0.5)) for _ in range(2))
        return relay.exp(first * second) + relay.exp(first * second)

    def fields(x: relay.Var) -> relay.Expr:
        parts = relay.split(x, 2, axis=1)
        return tuple_of(relay.tanh(parts[0]), relay.tanh(parts[1]), field(parts.astuple(), 0) + parts[0])

    def same_tuple(x: relay.Var) -> relay.Expr:
        return tuple_of(tuple_of(x, relay.tanh(x)), tuple_of(x, relay.tanh(x)))

    def inside(z: relay.Var) -> relay.Expr:
        return relay.tanh(z) * relay.tanh(z)

    draws = "relu of one draw is not relu of another."
    return [
        case("deep twins", program(deep, (2, 4)), did=[most("add", depth, ONCE), most("multiply", 1, ONCE)]),
        case("constants of other shapes", program(shapes, (2, 4)), run=False, spared=[least("add", 3, OTHER)]),
        case(
            "constants and casts of other types",
            program(types, (2, 4)),
            run=False,
            spared=[least("cast", 4, OTHER), least("multiply", 2, OTHER)],
        ),
        case("NaN is the same NaN", program(nan, (2, 4)), run=False, did=[most("maximum", 1, ONCE)]),
        case("sums both ways", program(sums, (2, 4), (2, 4)), did=[most("tanh", 1, ONCE)]),
        case(
            "what is made of draws",
            program(masked, (2, 4)),
            run=False,
            did=[most("exp", 1, ONCE)],
            spared=[least("nn.dropout", 2, DRAWS), least("nn.relu", 2, draws)],
        ),
        case(
            "fields of one tuple",
            program(fields, (2, 4)),
            run=False,
            spared=[least("tanh", 2, "They read other fields.")],
        ),
        case("tuples in tuples", program(same_tuple, (2, 4)), run=False, did=[most("tanh", 1, ONCE)]),
        case(
            "in another function",
            with_helper(lambda x, f: relay.tanh(f(x)), inside),
            run=False,
            did=[most("tanh", 2, "There is a function besides main, and a function pass sees each.")],
            spared=[attributes_kept],
        ),
        *generated("cse", [graph_of(recipe(rng, 10), 3) for _ in range(2)], ONCE),
    ]


def dce(seed: int) -> list[Case]:
    rng = random.Random(seed)
    length = rng.randint(12, 20)

    def long(x: relay.Var) -> relay.Expr:
        def rest(last: relay.Expr, left: int) -> relay.Expr:
            return let(relay.tanh(last), lambda v: rest(v, left - 1)) if left else relay.exp(x)

        return rest(x, length)

    def nested(x: relay.Var) -> relay.Expr:
        inner = let(relay.tanh(x), lambda _: let(relay.exp(x), lambda b: relay.nn.relu(b)))
        return let(inner, lambda a: a * a)

    def tuples(x: relay.Var, y: relay.Var) -> relay.Expr:
        inner = tuple_of(relay.tanh(x), relay.sigmoid(y))
        outer = tuple_of(inner, relay.exp(x))
        return let(outer, lambda t: let(field(t, 0), lambda u: field(field(t, 0), 0) + field(u, 0)))

    def split(x: relay.Var) -> relay.Expr:
        return let(relay.split(x, 2, axis=1).astuple(), lambda t: let(relay.tanh(field(t, 1)), lambda _: field(t, 0)))

    def branch(x: relay.Var, flag: relay.Var) -> relay.Expr:
        yes = let(relay.tanh(x), lambda _: relay.nn.relu(x))
        return relay.If(relay.min(flag) > number(0), yes, let(relay.exp(x), lambda b: b))

    def drawing(z: relay.Var) -> relay.Expr:
        return relay.nn.dropout(z, 0.5)

    def called(x: relay.Var, helper: relay.GlobalVar) -> relay.Expr:
        return let(helper(x), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x)))

    def closure(x: relay.Var) -> relay.Expr:
        z = relay.var("z", shape=(2, 4))
        return let(
            relay.Function([z], relay.nn.dropout(z, 0.5)),
            lambda f: let(f(x), lambda _: let(relay.tanh(x), lambda _: relay.nn.relu(x))),
        )

    def literal(x: relay.Var) -> relay.Expr:
        return let(relay.tanh(x), lambda _: field(tuple_of(relay.nn.dropout(x, 0.5), relay.nn.relu(x)), 1))

    def late(x: relay.Var) -> relay.Expr:
        return let(
            relay.tanh(x),
            lambda a: let(relay.exp(a), lambda b: let(relay.nn.dropout(b, 0.5), lambda _: let(a * b, lambda _: x))),
        )

    read = "It is read."
    return [
        case("a long dead chain", program(long, (2, 4)), did=[lets(0, UNREAD), most("tanh", 0, UNREAD)]),
        case(
            "a let in the value of a let",
            program(nested, (2, 4)),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("exp", 1, read), least("nn.relu", 1, read)],
        ),
        case(
            "tuples in tuples",
            program(tuples, (2, 4), (2, 4)),
            run=False,
            did=[
                most("sigmoid", 0, "No field that is taken needs it."),
                most("exp", 0, "No field that is taken needs it."),
            ],
            spared=[least("tanh", 1, read)],
        ),
        case(
            "fields of what is no tuple",
            program(split, (2, 4)),
            did=[most("tanh", 0, UNREAD)],
            spared=[least("split", 1, "A call gives this tuple: one of its fields is read.")],
        ),
        case(
            "in a branch",
            program(branch, (2, 4), (1,)),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("exp", 1, read), least("nn.relu", 1, read)],
        ),
        case(
            "a call of a function that draws",
            with_helper(called, drawing),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("nn.dropout", 1, EFFECT), lets(1, UNREAD), _calls_helper],
        ),
        case(
            "a call of a closure that draws",
            program(closure, (2, 4)),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("nn.dropout", 1, "The function is called, and what it does is not known.")],
        ),
        case(
            "a draw in a tuple without a name",
            program(literal, (2, 4)),
            run=False,
            did=[most("tanh", 0, UNREAD)],
            spared=[least("nn.dropout", 1, EFFECT)],
        ),
        case(
            "what a draw reads",
            program(late, (2, 4)),
            run=False,
            did=[most("multiply", 0, UNREAD)],
            spared=[least("nn.dropout", 1, EFFECT), least("tanh", 1, "The draw reads it.")],
        ),
        *generated("dce", [_with_names(rng) for _ in range(2)], UNREAD, spared=[least("nn.dropout", 1, EFFECT)]),
    ]


def _with_names(rng: random.Random) -> Callable[[], tvm.IRModule]:
    steps = recipe(rng, 8)
    return named(steps, rng.sample(range(10), 2), rng.randrange(8))


def _calls_helper(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(after["main"], found.append)
    if any(isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.GlobalVar) for e in found):
        return None
    return "@helper is not called any more: what another function does is not known here, and this one draws."


# ---------------------------------------------------------------------------------------------------- patterns


def imported() -> tvm.IRModule:
    """The feed-forward half of a transformer block, imported from torch."""
    from passlab.tvm.importers import relay_module

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ffn = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4), nn.ReLU()).eval()
    return relay_module(ffn, torch.zeros(2, 4))


def dense_gelu(seed: int) -> list[Case]:
    rng = random.Random(seed)
    units = rng.choice((3, 5, 8))
    off = rng.choice((0.45, 0.51, 1.0))

    def parameters(x: relay.Var, w: relay.Var, b: relay.Var) -> relay.Expr:
        return tuple_of(from_onnx(relay.nn.dense(x, w) + b), turned(relay.nn.bias_add(relay.nn.dense(x, w), b, axis=1)))

    def one_half(x: relay.Var) -> relay.Expr:
        y, half = layer(x), number(0.5)
        return y * (half + relay.erf(y * number(0.5**0.5)) * half)

    def residual(x: relay.Var) -> relay.Expr:
        h = from_torch(layer(x, 0, 4))
        return relay.tanh(h) + from_torch(layer(h, 1, 4)) + x

    def sequence(x: relay.Var) -> relay.Expr:
        return turned_onnx(relay.nn.relu(weight(6, seed=8)) + dense(x))

    def numbers(x: relay.Var) -> relay.Expr:
        y = [layer(x, at) for at in range(5)]
        return tuple_of(
            from_torch(y[0], slope=off),
            from_torch(y[1], half=off),
            from_torch(y[2], root=2**0.5),
            from_onnx(y[3], half=off + 0.1),
            from_onnx(y[4], root=0.5**0.5),
        )

    def digits(x: relay.Var) -> relay.Expr:
        return tuple_of(from_torch(layer(x), root=0.7071), from_onnx(layer(x, 1), root=1.4142))

    def mixed(x: relay.Var) -> relay.Expr:
        return tuple_of(from_torch(layer(x, 1)), from_torch(layer(x), phi_of=layer(x, 2)), from_torch(relay.tanh(x)))

    def inner_readers(x: relay.Var) -> relay.Expr:
        y, z = layer(x), layer(x, 1)
        erf = relay.erf(y * number(0.5**0.5))
        phi = number(0.5) + relay.erf(z * number(0.5**0.5)) * number(0.5)
        return tuple_of(y * (number(0.5) + erf * number(0.5)), relay.exp(erf), z * phi, phi)

    def biases(x: relay.Var, square: relay.Var, b: relay.Var) -> relay.Expr:
        return tuple_of(
            from_onnx(dense(x) + dense(x, 1)),
            from_onnx(dense(x, 2) + number(2.0)),
            from_torch(relay.nn.bias_add(dense(square, 3), b, axis=0)),
            from_torch(dense(x, 4)),
        )

    formulas = "These are other functions: look at the numbers."
    return [
        case(
            "weights and biases are inputs",
            program(parameters, (2, 4), (units, 4), (units,)),
            did=[made(2, MATCHES)],
        ),
        case("one constant in both places", program(one_half, (2, 4)), run=False, did=[made(1, MATCHES)]),
        case("the result is read twice", program(residual, (2, 4)), did=[made(2, MATCHES)], spared=[none_made("", 2)]),
        case("three dimensions", program(sequence, (2, 3, 4)), run=False, did=[made(1, MATCHES)]),
        case(
            "imported from torch",
            imported,
            did=[made(1, MATCHES)],
            spared=[none_made("The second layer has a relu.", 1)],
        ),
        spares("other numbers", numbers, (2, 4), why=formulas),
        spares("four digits", digits, (2, 4), why="0.7071 is not 0.70710678."),
        spares("one of three", mixed, (2, 4), why="Only the first is gelu(dense(x, w) + b).", allowed=1),
        spares("readers of erf and of phi", inner_readers, (2, 4), why="It would be computed twice."),
        spares("no bias of the units", biases, (2, 4), (6, 4), (6,), why="A bias has one number for each unit."),
    ]


# ---------------------------------------------------------------------------------------------------- folding


def fold_and_time(seed: int) -> list[Case]:
    rng = random.Random(seed)
    channels, size = rng.choice((4, 6)), rng.choice((6, 7, 8))

    def depthwise(x: relay.Var) -> relay.Expr:
        y = relay.nn.bias_add(conv(x, 4, 4, groups=4), weight(4, seed=2))
        return relay.nn.relu(norm(y, 4, seed))

    def first(x: relay.Var) -> relay.Expr:
        return conv(relay.nn.relu(norm(x, 4, seed)), 4, channels)

    def readers(x: relay.Var) -> relay.Expr:
        y = conv(x, 4, channels)
        return tuple_of(relay.nn.relu(norm(y, channels, seed)), relay.tanh(y))

    def shortcut(x: relay.Var) -> relay.Expr:
        return relay.nn.relu(norm(conv(x, 4, 4), 4, seed) + x * number(1.5))

    networks = [
        network("with a shortcut", shortcut, 1, 4, size, size, multiply=1, add=2),
        network("depthwise, with a bias", depthwise, 1, 4, size, size, add=1),
        network("the norm comes first", first, 1, 4, size, size, add=1),
    ]
    elsewhere = network("the conv is read elsewhere", readers, 1, 4, size, size, add=1, multiply=1)
    return [*rng.sample(networks, 2), elsewhere]
