"""Hidden cases and answers of day07.batchnorm.

Most wrong answers are the reference with a setting forgotten.
"""

from __future__ import annotations

import random

from autograder.answers.day07._shared import SHAPE, Build, generated
from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day07._shared import ladder
from passlab.exercises.day07.batchnorm import norm, norm_case, whole
from passlab.exercises.day07.pipeline_counts import zoo
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import program, tuple_of, typed, weight

# ---------------------------------------------------------------------------------------------------- hidden cases


def _random_norms(seed: int) -> Build:
    """Return three batch norms with settings drawn, one after another."""

    def body(x: relay.Var) -> relay.Expr:
        rng, sizes = random.Random(seed), (2, 3, 4, 5)
        for at in range(3):
            axis = rng.choice((0, 1, 2, 3, -1))
            flags = rng.choice(({}, {"scale": False}, {"center": False}))
            x = norm(x, sizes[axis], at, axis=axis, epsilon=rng.choice((1e-5, 0.1)), **flags)[0]
            x = relay.nn.relu(x) if rng.random() < 0.5 else x
        return x

    return program(body, (2, 3, 4, 5))


def twice_first(x: relay.Var) -> relay.Expr:
    results = whole(norm(x, 4))
    return relay.TupleGetItem(results, 0) * relay.tanh(relay.TupleGetItem(results, 0))


def shared(x: relay.Var) -> relay.Expr:
    stats = weight(4), weight(4, seed=1), weight(4, seed=2), relay.exp(weight(4, seed=3))
    a, b = relay.nn.batch_norm(x, *stats)[0], relay.nn.batch_norm(relay.nn.relu(x), *stats)[0]
    return a + b * relay.nn.batch_norm(a, *stats, epsilon=0.1)[0]


@norm_case("new statistics are returned", program(..., SHAPE), "did", "spared", run=False)
def statistics(x: relay.Var) -> relay.Expr:
    one, two, three = (norm(x, 4, i) for i in range(3))
    return tuple_of(one[1], tuple_of(two[0], two[2]), relay.nn.relu(three[0]), whole(three))


@norm_case("in half precision", program(..., SHAPE), "did", run=False)
def half(x: relay.Var) -> relay.Expr:
    stats = [relay.cast(v, "float16") for v in (weight(4), weight(4, seed=1), weight(4, seed=2), relay.exp(weight(4)))]
    return relay.nn.batch_norm(relay.cast(x, "float16"), *stats)[0]


@norm_case("other tuples, other norms", program(..., SHAPE), "did", "spared", run=False)
def other_tuples(x: relay.Var) -> relay.Expr:
    left, right = relay.split(x, 2, axis=1)
    group = relay.nn.group_norm(x, weight(4), weight(4, seed=1), num_groups=2)
    return norm(left, 2)[0] * right + relay.sum(relay.nn.instance_norm(group, weight(4), weight(4)))


@norm_case("a scale that comes from a batch norm", program(..., SHAPE), "did", "cost", run=False)
def scale_of_a_norm(x: relay.Var) -> relay.Expr:
    gamma = relay.mean(norm(x, 4, 7)[0], axis=(0, 2, 3))
    return relay.nn.batch_norm(x, gamma, weight(4), weight(4, seed=1), relay.exp(weight(4, seed=2)))[0]


@norm_case("an image smaller than a vector", program(..., (1, 8, 7, 7)), "did", "cost", run=False)
def pooled(x: relay.Var) -> relay.Expr:
    image = relay.nn.global_avg_pool2d(norm(x, 8)[0])
    return norm(relay.nn.conv2d(image, weight(4, 8, 1, 1)), 4, 1)[0]


@norm_case("an input is a tuple", ..., "did", "spared", run=False)
def free_tuple() -> tvm.IRModule:
    pair = relay.var("pair", relay.TupleType([relay.TensorType(SHAPE)] * 2))
    return typed(relay.Function([pair], norm(relay.TupleGetItem(pair, 0), 4)[0] + relay.TupleGetItem(pair, 1)))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def no_norms(x: relay.Var, y: relay.Var) -> relay.Expr:
        fields = tuple_of(norm(x, 4)[0], y)
        return relay.TupleGetItem(fields, first) * relay.exp(relay.TupleGetItem(fields, 1 - first))

    def of_any_kind() -> Case:
        return norm_case("generated", generated(rng, 15, "conv", "diamond", "pointwise"), "did")

    laws, first = ("did", "cost"), rng.randrange(2)
    return [
        *(norm_case(f"drawn settings, number {i + 1}", _random_norms(rng.randrange(10**6)), *laws) for i in range(3)),
        something_to_do("day07.batchnorm", of_any_kind),
        norm_case("read twice", program(twice_first, SHAPE), *laws, run=False),
        statistics,
        half,
        norm_case("the same statistics for three", program(shared, SHAPE), *laws),
        other_tuples,
        scale_of_a_norm,
        norm_case("fields of a tuple", program(no_norms, SHAPE, SHAPE), "did", "spared", run=False),
        free_tuple,
        pooled,
        norm_case("a residual block", zoo("residual", bind=True), *laws, run=False),
        norm_case("a ladder, no batch norm", program(ladder, (2, 3)), "spared", run=False),
        norm_case("ResNet-18", zoo("resnet18"), "did", "spared", run=False),
    ]


EQUIVALENT = {
    ("if behind: ...", "if True: ..."): "expand_dims by no dimensions leaves a vector as it is",
}

# ---------------------------------------------------------------------------------------------------- answers

NORM = relay.op.get("nn.batch_norm")


def _is_norm(e):
    return isinstance(e, relay.Call) and e.op == NORM


class _Norm(relay.ExprMutator):
    """The pass, with parts that a subclass can replace."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def visit_tuple_getitem(self, item):
        norm = item.tuple_value
        if not _is_norm(norm) or item.index != 0:
            return super().visit_tuple_getitem(item)
        if norm not in self.made:
            self.made[norm] = self.unpacked(norm, [self.visit(a) for a in norm.args])
        return self.made[norm]

    def epsilon(self, attrs):
        return float(attrs.epsilon)

    def inverse(self, norm, variance):
        return relay.rsqrt(variance + relay.const(self.epsilon(norm.attrs), norm.args[0].checked_type.dtype))

    def spread(self, vector, norm):
        x = norm.args[0].checked_type
        return relay.reshape(vector, (-1, *[1] * (len(x.shape) - 1 - int(norm.attrs.axis) % len(x.shape))))

    def unpacked(self, norm, args):
        data, gamma, beta, mean, variance = args
        factor = self.inverse(norm, variance)
        factor = factor * gamma if norm.attrs.scale else factor
        shift = beta - mean * factor if norm.attrs.center else relay.negative(mean * factor)
        return data * self.spread(factor, norm) + self.spread(shift, norm)

    @classmethod
    def run(cls, mod):
        return typed(cls().visit(mod["main"]))


@right("rsqrt and reshape, in place of a root, a quotient and expand_dims")
def with_rsqrt(mod):
    return _Norm.run(mod)


@right("a pattern that is rewritten, in place of a mutator")
def by_pattern(mod):
    from tvm.relay.dataflow_pattern import DFPatternCallback, is_tuple_get_item, rewrite, wildcard

    class Callback(DFPatternCallback):
        """The pattern is the projection alone: one that holds the batch norm does not match where others read that."""

        def __init__(self):
            super().__init__(require_type=True)
            self.pattern, self.made = is_tuple_get_item(wildcard(), 0), {}

        def callback(self, pre, post, matches):
            norm, old = post.tuple_value, pre.tuple_value
            if not _is_norm(norm):
                return post
            if old not in self.made:
                self.made[old] = _Norm().unpacked(old, list(norm.args))
            return self.made[old]

    return typed(rewrite(Callback(), mod["main"]))


@right("moves the dimension of the channels to where broadcasting wants it, by shape arithmetic on each vector")
def by_broadcast_shape(mod):
    class Shaped(_Norm):
        def spread(self, vector, norm):
            sizes = [int(n) for n in norm.args[0].checked_type.shape]
            axis = int(norm.attrs.axis) % len(sizes)
            return relay.reshape(vector, [n if i == axis else 1 for i, n in enumerate(sizes)])

    return Shaped.run(mod)


always_centers = edited("same", "adds beta even if center is off")(("attrs.center", "True"))
no_root = edited("same", "forgets epsilon, or divides by the variance, not by its root")(("relay.sqrt(...)", "..."))
mean_unscaled = edited("same", "subtracts the unscaled mean: x * s + (beta - mean)")(
    ("...(mean) * factor", "...(mean)")
)
axis_one = edited("valid", "the channels are always dimension 1")(("int(attrs.axis) % len(shape.shape)", "1"))
no_dimensions = edited("valid", "multiplies by the vector as it is, which broadcasts along the last dimension")(
    ("if behind: ...", "if False: ...")
)


bare_function = edited("spared", "makes main anew from parameters and body: its attributes are gone")(
    ("main", "relay.Function(main.params, main.body)")
)
after_convolutions = edited("did", "unpacks what follows a convolution alone")(
    (
        "item.index != 0",
        'item.index != 0 or not isinstance(norm.args[0], relay.Call) or norm.args[0].op.name != "nn.conv2d"',
    )
)
one_level = edited("did", "does not visit the operands, which may hold batch norms")(
    ("(self.visit(a) for a in norm.args)", "norm.args")
)
data_alone = edited("did", "visits x, but not the statistics, which may come from a batch norm, too")(
    ("(self.visit(a) for a in norm.args)", "(self.visit(norm.args[0]), *norm.args[1:])")
)


@wrong("spared", "asks SimplifyInference, which takes layer norms and dropouts apart as well")
def simplify_inference(mod):
    return relay.transform.SimplifyInference()(mod)


written_out = edited(
    "cost", "works on the whole tensor: in four steps, or with vectors that are written out to its size"
)(("x * factor + shift", "x * relay.broadcast_to(factor, shape.shape) + relay.broadcast_to(shift, shape.shape)"))
