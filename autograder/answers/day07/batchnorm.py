"""Hidden cases and answers of day07.batchnorm.

Most wrong answers are one working mutator with a setting forgotten or a step too many.
"""

from __future__ import annotations

import random

from autograder.answers.day07._shared import SHAPE, Build, generated
from autograder.authoring.answers import right, wrong
from passlab.exercises.day07._shared import ladder
from passlab.exercises.day07.batchnorm import norm, norm_case, whole
from passlab.exercises.day07.pipeline_counts import zoo
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import program, tuple_of, weight

# ---------------------------------------------------------------------------------------------------- hidden cases


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


def hidden(seed: int) -> list[Case]:
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


# ---------------------------------------------------------------------------------------------------- answers

NORM = relay.op.get("nn.batch_norm")


def _is_norm(e):
    return isinstance(e, relay.Call) and e.op == NORM


def _typed(function):
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


class _Norm(relay.ExprMutator):
    """The pass, with its parts to be replaced."""

    def visit_tuple_getitem(self, item):
        norm = item.tuple_value
        if not _is_norm(norm) or item.index != 0 or not self.wanted(norm):
            return super().visit_tuple_getitem(item)
        return self.unpacked(norm, [self.visit(a) for a in norm.args])

    def wanted(self, norm):
        return True

    def epsilon(self, attrs):
        return float(attrs.epsilon)

    def axis(self, attrs, rank):
        return int(attrs.axis) % rank

    def number(self, value, x):
        return relay.const(value, x.dtype)

    def factor(self, attrs, x, gamma, variance):
        inverse = relay.rsqrt(variance + self.number(self.epsilon(attrs), x))
        return inverse * gamma if attrs.scale else inverse

    def shift(self, attrs, factor, beta, mean):
        return beta - mean * factor if attrs.center else relay.negative(mean * factor)

    def spread(self, vector, x, axis):
        return relay.reshape(vector, (-1, *[1] * (len(x.shape) - 1 - axis)))

    def unpacked(self, norm, args):
        data, gamma, beta, mean, variance = args
        attrs, x = norm.attrs, norm.args[0].checked_type
        factor = self.factor(attrs, x, gamma, variance)
        shift = self.shift(attrs, factor, beta, mean)
        axis = self.axis(attrs, len(x.shape))
        return data * self.spread(factor, x, axis) + self.spread(shift, x, axis)

    @classmethod
    def run(cls, mod):
        return _typed(cls().visit(mod["main"]))


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
            self.pattern = is_tuple_get_item(wildcard(), 0)

        def callback(self, pre, post, found):
            norm = post.tuple_value
            return _Norm().unpacked(pre.tuple_value, list(norm.args)) if _is_norm(norm) else post

    return _typed(rewrite(Callback(), mod["main"]))


@right("moves the dimension of the channels to where broadcasting wants it, by shape arithmetic on each vector")
def by_broadcast_shape(mod):
    class Shaped(_Norm):
        def spread(self, vector, x, axis):
            shape = [int(n) if i == axis else 1 for i, n in enumerate(x.shape)]
            return relay.reshape(vector, shape)

    return Shaped.run(mod)


@wrong("same", "forgets epsilon")
def no_epsilon(mod):
    class Forgets(_Norm):
        def epsilon(self, attrs):
            return 0.0

    return Forgets.run(mod)


@wrong("same", "takes epsilon for 1e-5 whatever the setting says")
def usual_epsilon(mod):
    class Usual(_Norm):
        def epsilon(self, attrs):
            return 1e-5

    return Usual.run(mod)


@wrong("same", "multiplies by gamma even if scale is off")
def always_scales(mod):
    class Scales(_Norm):
        def factor(self, attrs, x, gamma, variance):
            return relay.rsqrt(variance + self.number(self.epsilon(attrs), x)) * gamma

    return Scales.run(mod)


@wrong("same", "adds beta even if center is off")
def always_centers(mod):
    class Centers(_Norm):
        def shift(self, attrs, factor, beta, mean):
            return beta - mean * factor

    return Centers.run(mod)


@wrong("same", "divides by the variance, not by its root")
def no_root(mod):
    class Variance(_Norm):
        def factor(self, attrs, x, gamma, variance):
            inverse = self.number(1.0, x) / (variance + self.number(self.epsilon(attrs), x))
            return inverse * gamma if attrs.scale else inverse

    return Variance.run(mod)


@wrong("same", "subtracts the mean without scaling it: x * s + (beta - mean)")
def mean_unscaled(mod):
    class Unscaled(_Norm):
        def shift(self, attrs, factor, beta, mean):
            return beta - mean if attrs.center else relay.negative(mean)

    return Unscaled.run(mod)


@wrong("valid", "the channels are always dimension 1")
def axis_one(mod):
    class One(_Norm):
        def axis(self, attrs, rank):
            return 1

    return One.run(mod)


@wrong("valid", "multiplies by the vector as it is, which broadcasts along the last dimension")
def no_dimensions(mod):
    class Flat(_Norm):
        def spread(self, vector, x, axis):
            return vector

    return Flat.run(mod)


@wrong("valid", "the numbers are float32, whatever the module computes in")
def float32_numbers(mod):
    class Single(_Norm):
        def number(self, value, x):
            return relay.const(value, "float32")

    return Single.run(mod)


@wrong("did", "leaves a batch norm whose channels are not dimension 1")
def only_axis_one(mod):
    class Only(_Norm):
        def wanted(self, norm):
            return int(norm.attrs.axis) == 1

    return Only.run(mod)


@wrong("did", "leaves a batch norm if another result of it is read, too")
def all_or_nothing(mod):
    read = set()

    def note(e):
        if isinstance(e, relay.TupleGetItem) and e.index:
            read.add(e.tuple_value)
        read.update([f for f in e.fields if _is_norm(f)] if isinstance(e, relay.Tuple) else [])

    relay.analysis.post_order_visit(mod["main"], note)

    class Whole(_Norm):
        def wanted(self, norm):
            return norm not in read

    return Whole.run(mod)


@wrong("did", "unpacks what follows a convolution alone")
def after_convolutions(mod):
    class Behind(_Norm):
        def wanted(self, norm):
            x = norm.args[0]
            return isinstance(x, relay.Call) and x.op.name == "nn.conv2d"

    return Behind.run(mod)


@wrong("did", "gives the operands as they were: a batch norm before a batch norm is not seen")
def one_level(mod):
    class Shallow(_Norm):
        def visit_tuple_getitem(self, item):
            if _is_norm(item.tuple_value) and item.index == 0:
                return self.unpacked(item.tuple_value, list(item.tuple_value.args))
            return super().visit_tuple_getitem(item)

    return Shallow.run(mod)


@wrong("spared", "puts a tuple with the old statistics in place of the batch norm, which others read")
def replaces_the_tuple(mod):
    class Tuples(relay.ExprMutator):
        def visit_call(self, call):
            new = super().visit_call(call)
            if not _is_norm(call):
                return new
            return relay.Tuple([_Norm().unpacked(call, list(new.args)), new.args[3], new.args[4]])

        def visit_tuple_getitem(self, item):
            new = self.visit(item.tuple_value)
            return new.fields[item.index] if isinstance(new, relay.Tuple) else relay.TupleGetItem(new, item.index)

    return _typed(Tuples().visit(mod["main"]))


@wrong("spared", "asks SimplifyInference, which takes layer norms and dropouts apart as well")
def simplify_inference(mod):
    return relay.transform.SimplifyInference()(mod)


@wrong("cost", "subtracts, multiplies, multiplies and adds on the whole tensor")
def four_large_steps(mod):
    class Steps(_Norm):
        def unpacked(self, norm, args):
            data, gamma, beta, mean, variance = args
            attrs, x = norm.attrs, norm.args[0].checked_type
            axis = self.axis(attrs, len(x.shape))
            inverse = relay.rsqrt(variance + self.number(self.epsilon(attrs), x))
            y = (data - self.spread(mean, x, axis)) * self.spread(inverse, x, axis)
            y = y * self.spread(gamma, x, axis) if attrs.scale else y
            return y + self.spread(beta, x, axis) if attrs.center else y

    return Steps.run(mod)


@wrong("cost", "writes the vectors out to the size of the tensor first")
def written_out(mod):
    class Wide(_Norm):
        def spread(self, vector, x, axis):
            return relay.broadcast_to(super().spread(vector, x, axis), [int(n) for n in x.shape])

    return Wide.run(mod)
