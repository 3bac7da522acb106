"""Day 7, exercises 1 to 4: the cases that learners do not see. Generated modules, zoo models, traps made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from passlab.exercises.cases_day07_counts import block, counts_case, fused_twice, ladder, zoo
from passlab.exercises.cases_day07_groups import groups_case, simplified
from passlab.exercises.cases_day07_mutators import clip_case, conv, instruction, norm, norm_case, whole
from passlab.exercises.cases_day07_programs import number, program, tuple_of, typed, weight
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.generate import random_relay

SHAPE = (1, 4, 6, 6)
TEN_MODELS = ("mlp", "convnet", "skip", "residual", "attention", "gpt", "vit", "lstm", "unet", "resnet18")
Build = Callable[[], tvm.IRModule]


def generated(rng: random.Random, size: int, *features: str) -> Build:
    return partial(random_relay, rng.randrange(10**6), size, features)


# ---------------------------------------------------------------------------------------------------- counts


def counts(seed: int) -> list[Case]:
    rng = random.Random(seed)
    passes = ["SimplifyExpr", "EliminateCommonSubexpr", "CanonicalizeOps", "FoldScaleAxis", "FastMath"]

    def chosen(*last: str) -> list[str]:
        return [*rng.sample(passes, 3), *last]

    def nested(x: relay.Var) -> relay.Expr:
        a, b = relay.var("a", shape=(2, 3)), relay.var("b", shape=(2, 3))
        inner = relay.Function([b], relay.nn.relu(b) * number(2.0))
        outer = relay.Function([a], inner(relay.tanh(a)) + inner(a))
        return outer(x) - outer(relay.exp(x))

    def pieces(x: relay.Var) -> relay.Expr:
        left, right = relay.split(x, 2, axis=1)
        return tuple_of(relay.tanh(right), tuple_of(left, number(1.0)))

    def three() -> tvm.IRModule:
        module, shape = tvm.IRModule(), relay.TensorType((2, 3))
        last = None
        for name in ("square", "twice", "main"):
            x = relay.var("x", shape=(2, 3))
            body = x * x if last is None else relay.tanh(last(x)) + last(relay.nn.relu(x))
            last = relay.GlobalVar(name)
            module[last] = relay.Function([x], body, shape)
        return relay.transform.InferType()(module)

    return [
        *(
            counts_case(
                f"generated, number {i + 1}",
                generated(rng, 20, "pointwise", "diamond", "repeat", "identity", "reduce", "views"),
                *chosen("FuseOps", *["DefuseOps"] * (i == 1)),
            )
            for i in range(3)
        ),
        counts_case(
            "a bound block", program(block, SHAPE), *chosen("SimplifyInference", "FoldScaleAxis", "FoldConstant")
        ),
        counts_case("GPT", zoo("gpt"), "SimplifyInference", "EliminateCommonSubexpr", "FoldConstant", "FuseOps"),
        counts_case("no pass at all", zoo("skip")),
        counts_case("functions in functions", program(nested, (2, 3)), "InferType", about="spared"),
        counts_case("one kernel, called twice", program(fused_twice, (4, 3)), "FuseOps", about="spared"),
        counts_case("tuples and constants", program(pieces, (2, 4)), "FuseOps", about="spared"),
        counts_case("a ladder", program(ladder, (3, 2)), "EliminateCommonSubexpr", "FuseOps", about="spared"),
        counts_case("three functions", three, *chosen("FuseOps")),
    ]


# ---------------------------------------------------------------------------------------------------- relu to clip


def random_images(seed: int) -> Build:
    """Convolutions, relus and what reads them, in any order."""

    def build() -> tvm.IRModule:
        rng = random.Random(seed)
        pool = [relay.var("x", shape=SHAPE)]
        inputs = list(pool)
        for at in range(10):
            x, y = rng.choice(pool[-3:]), rng.choice(pool[-4:])
            make = rng.choice(("conv", "conv", "relu", "relu", "relu", "add", "pool", "norm"))
            pool.append(
                {
                    "conv": lambda x=x, at=at: conv(x, at, groups=rng.choice((1, 2))),
                    "relu": lambda x=x: relay.nn.relu(x),
                    "add": lambda x=x, y=y: x * number(0.5) + y,
                    "pool": lambda x=x: relay.nn.max_pool2d(x, (3, 3), padding=(1, 1, 1, 1)),
                    "norm": lambda x=x: x * weight(4, 1, 1),
                }[make]()
            )
        return typed(relay.Function(inputs, tuple_of(pool[-1], *rng.sample(pool[1:], 2))))

    return build


def relu_to_clip(seed: int) -> list[Case]:
    rng, relu = random.Random(seed), relay.nn.relu

    def nhwc(x: relay.Var) -> relay.Expr:
        kernel = relay.transpose(weight(4, 4, 3, 3), (2, 3, 1, 0))
        return relu(
            relay.nn.conv2d(x, kernel, data_layout="NHWC", kernel_layout="HWIO", channels=4, kernel_size=(3, 3))
        )

    def in_tuples(x: relay.Var) -> relay.Expr:
        c, d = conv(x), conv(x, 1)
        return tuple_of(tuple_of(relu(c), c), relay.concatenate([relu(d), d], axis=1), relu(relu(conv(x, 2))))

    def two_relus(x: relay.Var) -> relay.Expr:
        c = conv(x)
        return tuple_of(relu(c), relu(c) + relu(x))

    def shared(x: relay.Var) -> relay.Expr:
        y = relu(conv(x))
        return relay.tanh(y) + relu(conv(y, 1)) + y

    def among_instructions(x: relay.Var) -> relay.Expr:
        y = instruction(relu(x))
        return relu(conv(y, 1)) * relu(y)

    def whole_numbers(n: relay.Var) -> relay.Expr:
        return tuple_of(relu(relay.cast(n * number(100.0), "int32")), relu(relay.cast(n, "int8")))

    def half(x: relay.Var) -> relay.Expr:
        return relu(relay.cast(x, "float16"))

    def unread(x: relay.Var, y: relay.Var) -> relay.Expr:
        return relu(conv(y))

    def other_convs(x: relay.Var) -> relay.Expr:
        across = relay.nn.conv2d_transpose(x, weight(4, 4, 3, 3), channels=4, kernel_size=(3, 3))
        return tuple_of(relu(across), relay.nn.leaky_relu(conv(x), 0.1), relay.clip(conv(x, 1), 0.0, 6.0))

    images = [random_images(rng.randrange(10**6)) for _ in range(4)]
    return [
        *(clip_case(f"generated, number {i + 1}", build, "did", "spared", run=i < 1) for i, build in enumerate(images)),
        *(
            clip_case(
                f"generated, of any kind, number {i + 1}",
                generated(rng, 20, "conv", "diamond", "pointwise", "outputs"),
                *("did", "spared"),
                run=False,
            )
            for i in range(2)
        ),
        clip_case("channels last", program(nhwc, (1, 6, 6, 4)), "did"),
        clip_case("read by tuples", program(in_tuples, SHAPE), "did", "spared"),
        clip_case("two relus of one convolution", program(two_relus, SHAPE), "spared", run=False),
        clip_case("an instruction that is read twice", program(shared, SHAPE), "did", "spared", run=False),
        clip_case("among instructions", program(among_instructions, SHAPE), "did", "spared", run=False),
        clip_case("whole numbers", program(whole_numbers, (5,)), "did"),
        clip_case("half precision", program(half, (5,)), "did", "spared", run=False),
        clip_case("an input that nobody reads", program(unread, SHAPE, SHAPE), "did", run=False),
        clip_case("other convolutions, other relus", program(other_convs, SHAPE), "did", "spared", run=False),
        clip_case("ResNet-18", zoo("resnet18", simplified=True), "did", "spared", run=False),
    ]


# ---------------------------------------------------------------------------------------------------- batch norm


def _random_norms(seed: int) -> Build:
    """Three batch norms with settings drawn, one after another."""

    def body(x: relay.Var) -> relay.Expr:
        rng, sizes = random.Random(seed), (2, 3, 4, 5)
        for at in range(3):
            axis = rng.choice((0, 1, 2, 3, -1))
            flags = rng.choice(({}, {"scale": False}, {"center": False}))
            x = norm(x, sizes[axis], at, axis=axis, epsilon=rng.choice((1e-5, 0.1)), **flags)[0]
            x = relay.nn.relu(x) if rng.random() < 0.5 else x
        return x

    return program(body, (2, 3, 4, 5))


def batchnorm(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def twice_first(x: relay.Var) -> relay.Expr:
        results = whole(norm(x, 4))
        return relay.TupleGetItem(results, 0) * relay.tanh(relay.TupleGetItem(results, 0))

    def statistics(x: relay.Var) -> relay.Expr:
        one, two, three = (norm(x, 4, i) for i in range(3))
        return tuple_of(one[1], tuple_of(two[0], two[2]), relay.nn.relu(three[0]), whole(three))

    def half(x: relay.Var) -> relay.Expr:
        stats = [
            relay.cast(v, "float16") for v in (weight(4), weight(4, seed=1), weight(4, seed=2), relay.exp(weight(4)))
        ]
        return relay.nn.batch_norm(relay.cast(x, "float16"), *stats)[0]

    def shared(x: relay.Var) -> relay.Expr:
        stats = weight(4), weight(4, seed=1), weight(4, seed=2), relay.exp(weight(4, seed=3))
        a, b = relay.nn.batch_norm(x, *stats)[0], relay.nn.batch_norm(relay.nn.relu(x), *stats)[0]
        return a + b * relay.nn.batch_norm(a, *stats, epsilon=0.1)[0]

    def other_tuples(x: relay.Var) -> relay.Expr:
        left, right = relay.split(x, 2, axis=1)
        group = relay.nn.group_norm(x, weight(4), weight(4, seed=1), num_groups=2)
        return norm(left, 2)[0] * right + relay.sum(relay.nn.instance_norm(group, weight(4), weight(4)))

    laws = ("did", "cost")
    return [
        *(norm_case(f"drawn settings, number {i + 1}", _random_norms(rng.randrange(10**6)), *laws) for i in range(3)),
        norm_case("generated", generated(rng, 15, "conv", "diamond", "pointwise"), "did"),
        norm_case("read twice", program(twice_first, SHAPE), *laws, run=False),
        norm_case("new statistics are returned", program(statistics, SHAPE), "did", "spared", run=False),
        norm_case("in half precision", program(half, SHAPE), "did", run=False),
        norm_case("the same statistics for three", program(shared, SHAPE), *laws),
        norm_case("other tuples, other norms", program(other_tuples, SHAPE), "did", "spared", run=False),
        norm_case("a residual block", zoo("residual", bind=True), *laws, run=False),
        norm_case("a ladder, no batch norm", program(ladder, (2, 3)), "spared", run=False),
        norm_case("ResNet-18", zoo("resnet18"), "did", "spared", run=False),
    ]


# ---------------------------------------------------------------------------------------------------- fusion groups


def groups(seed: int) -> list[Case]:
    rng = random.Random(seed)
    kinds = (
        ("pointwise", "diamond", "conv", "reduce"),
        ("tuples", "views", "pointwise", "outputs"),
        ("conv", "views", "tuples", "diamond", "outputs"),
        ("pointwise", "constant", "reduce", "views", "integers", "repeat"),
    )

    def projections(x: relay.Var) -> relay.Expr:
        a, b, c = relay.split(relay.nn.relu(x), 3, axis=1)
        pair = relay.concatenate([relay.concatenate([a, relay.exp(b)], 1), c], 1)
        return tuple_of(relay.transpose(pair, (0, 2, 1)), relay.sum(relay.tanh(b)), a)

    def two_convs(x: relay.Var) -> relay.Expr:
        joined = conv(x) + conv(x, 1)
        return relay.nn.relu(relay.nn.bias_add(joined, weight(4))) * relay.nn.max_pool2d(joined, (1, 1))

    def inception(x: relay.Var) -> relay.Expr:
        a, b = relay.nn.relu(conv(x)), relay.nn.relu(conv(x, 1))
        first = relay.concatenate([a, relay.transpose(b, (0, 1, 3, 2))], 1)
        return relay.nn.relu(relay.concatenate([relay.tanh(first), relay.exp(x)], 1))

    def broadcast(x: relay.Var) -> relay.Expr:
        small = relay.sum(x, axis=[2, 3], keepdims=True)
        return conv(x) * relay.sigmoid(small) + relay.expand_dims(weight(6), 0) + number(1.0)

    def long(x: relay.Var) -> relay.Expr:
        for at in range(300):
            x = relay.tanh(x) if at % 3 else x + number(1.0)
        return x

    def sorted_rows(x: relay.Var) -> relay.Expr:
        order = relay.argsort(relay.nn.relu(x), axis=1, dtype="int32")
        return relay.take(relay.exp(x), relay.reshape(order, (-1,)), axis=1) + relay.cast(number(2, "int32"), "float32")

    return [
        *(groups_case(name, zoo(name, simplified=True)) for name in TEN_MODELS),
        *(
            groups_case(f"generated, number {i + 1}", generated(rng, rng.randrange(12, 36), *rng.choice(kinds)), *limit)
            for i, limit in enumerate(((), (), (), (), (), (), (3,), (8,)))
        ),
        groups_case("projections", program(projections, (2, 6, 4))),
        groups_case("two convolutions meet", program(two_convs, SHAPE)),
        groups_case("two tuples", program(inception, SHAPE)),
        groups_case("broadcast into a convolution", program(broadcast, SHAPE)),
        groups_case("very long", program(long, (2, 3))),
        groups_case("an order", program(sorted_rows, (2, 3))),
        groups_case("a bound block", simplified(zoo("residual", bind=True)), rng.choice((4, 6))),
    ]
