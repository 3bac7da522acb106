"""Hidden cases and answers of day07.relu-to-clip.

Most wrong answers are the reference with one piece left out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial

from autograder.answers.day07._shared import SHAPE, Build, generated
from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day07._shared import clip_case, conv
from passlab.exercises.day07.pipeline_counts import zoo
from passlab.exercises.day07.relu_to_clip import instruction
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import number, program, tuple_of, typed, weight
from passlab.relay.dialect import parts_of
from passlab.tvm.judge import has_composite, is_primitive

# ---------------------------------------------------------------------------------------------------- hidden cases


def random_images(seed: int) -> Build:
    """Return convolutions, relus and what reads them, in any order."""

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


def among_kernels(x: relay.Var) -> relay.Expr:
    y, z = (relay.var(name, shape=SHAPE) for name in "yz")
    kernel = relay.Function([y], relay.tanh(relay.nn.relu(y))).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    other = relay.Function([z], relay.nn.relu(conv(z))).with_attr("Composite", "conv2d_relu6")
    return kernel(x) + other.with_attr("Primitive", tvm.tir.IntImm("int32", 1))(relay.nn.relu(x))


def wide_sums(x: relay.Var) -> relay.Expr:
    kernel = relay.cast(weight(4, 4, 3, 3) * number(10.0), "int8")
    settings = {"channels": 4, "kernel_size": (3, 3), "out_dtype": "int32"}
    return relay.nn.relu(relay.nn.conv2d(relay.cast(x * number(10.0), "int8"), kernel, **settings))


def nhwc(x: relay.Var) -> relay.Expr:
    kernel = relay.transpose(weight(4, 4, 3, 3), (2, 3, 1, 0))
    return relay.nn.relu(
        relay.nn.conv2d(x, kernel, data_layout="NHWC", kernel_layout="HWIO", channels=4, kernel_size=(3, 3))
    )


def in_tuples(x: relay.Var) -> relay.Expr:
    c, d = conv(x), conv(x, 1)
    return tuple_of(
        tuple_of(relay.nn.relu(c), c),
        relay.concatenate([relay.nn.relu(d), d], axis=1),
        relay.nn.relu(relay.nn.relu(conv(x, 2))),
    )


def two_relus(x: relay.Var) -> relay.Expr:
    c = conv(x)
    return tuple_of(relay.nn.relu(c), relay.nn.relu(c) + relay.nn.relu(x))


def shared(x: relay.Var) -> relay.Expr:
    y = relay.nn.relu(conv(x))
    return relay.tanh(y) + relay.nn.relu(conv(y, 1)) + y


def among_instructions(x: relay.Var) -> relay.Expr:
    y = instruction(relay.nn.relu(x))
    return relay.nn.relu(conv(y, 1)) * relay.nn.relu(y)


def by_an_instruction(x: relay.Var) -> relay.Expr:
    c = conv(x, 3)
    return instruction(c, 1) + relay.nn.relu(c)


def whole_numbers(n: relay.Var) -> relay.Expr:
    return tuple_of(relay.nn.relu(relay.cast(n * number(100.0), "int32")), relay.nn.relu(relay.cast(n, "int8")))


def half(x: relay.Var) -> relay.Expr:
    return relay.nn.relu(relay.cast(x, "float16"))


def unread(x: relay.Var, y: relay.Var) -> relay.Expr:
    return relay.nn.relu(conv(y))


def other_convs(x: relay.Var) -> relay.Expr:
    across = relay.nn.conv2d_transpose(x, weight(4, 4, 3, 3), channels=4, kernel_size=(3, 3))
    product = relay.nn.dense(relay.nn.batch_flatten(x), weight(5, math.prod(SHAPE[1:])))
    clipped = relay.clip(conv(x, 1), 0.0, 6.0)
    return tuple_of(relay.nn.relu(across), relay.nn.leaky_relu(conv(x), 0.1), clipped, relay.nn.relu(product))


def no_instructions(x: relay.Var) -> relay.Expr:
    y, z, u = (relay.var(name, shape=SHAPE) for name in "yzu")
    zero = relay.Function([y], relay.nn.relu(y)).with_attr("Primitive", tvm.tir.IntImm("int32", 0))
    named = relay.Function([u], relay.tanh(relay.nn.relu(u))).with_attr("Composite", "relu_tanh")
    return zero(x) + relay.Function([z], relay.nn.relu(conv(z)))(x) + named(x)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def images(i: int) -> Case:
        build = random_images(rng.randrange(10**6))
        return clip_case(f"generated, number {i + 1}", build, "did", "spared", run=i < 1)

    def of_any_kind(i: int) -> Case:
        build = generated(rng, 20, "conv", "diamond", "pointwise", "outputs")
        return clip_case(f"generated, of any kind, number {i + 1}", build, "did", "spared", run=False)

    return [
        *(something_to_do("day07.relu-to-clip", partial(images, i)) for i in range(4)),
        *(something_to_do("day07.relu-to-clip", partial(of_any_kind, i)) for i in range(2)),
        clip_case("channels last", program(nhwc, (1, 6, 6, 4)), "did"),
        clip_case("read by tuples", program(in_tuples, SHAPE), "did", "spared"),
        clip_case("two relus of one convolution", program(two_relus, SHAPE), "spared", run=False),
        clip_case("an instruction that is read twice", program(shared, SHAPE), "did", "spared", run=False),
        clip_case("among instructions", program(among_instructions, SHAPE), "did", "spared", run=False),
        clip_case("read by an instruction", program(by_an_instruction, SHAPE), "spared", run=False),
        clip_case("kernels and other instructions", program(among_kernels, SHAPE), "did", "spared", run=False),
        clip_case("sums of another type", program(wide_sums, SHAPE), "did", run=False),
        clip_case("functions that are no instructions", program(no_instructions, SHAPE), "did", "spared", run=False),
        clip_case("whole numbers", program(whole_numbers, (5,)), "did"),
        clip_case("half precision", program(half, (5,)), "did", "spared", run=False),
        clip_case("an unused input", program(unread, SHAPE, SHAPE), "did", run=False),
        clip_case("other convolutions, other relus", program(other_convs, SHAPE), "did", "spared", run=False),
        clip_case("a note on main", program(two_relus, SHAPE, note="kept"), "did", "spared", run=False),
        clip_case("ResNet-18", zoo("resnet18", simplified=True), "did", "spared", run=False),
    ]


EQUIVALENT = {
    ('...("int32", 1)', '...("int32", 2)'): "TVM asks only whether Primitive is 0",
    ("bool(function.attrs) and ...", "..."): "the attributes of a function that has none are empty",
    ("isinstance(e, relay.TupleGetItem)", "False"): "a projection reads a tuple, which no convolution is",
    ("[e.tuple_value]", "[]"): "a projection reads a tuple, which no convolution is",
    ("[e.body] if ... else []", "[] if ... else []"): "a convolution that main returns is read by no relu",
    ("isinstance(e, relay.Function)", "False"): "a convolution that main returns is read by no relu",
}

# ---------------------------------------------------------------------------------------------------- answers

CONV, RELU = relay.op.get("nn.conv2d"), relay.op.get("nn.relu")


def _is(e, op):
    return isinstance(e, relay.Call) and e.op == op


def _top(dtype):
    return tvm.tir.max_value(dtype).value


def _wrapped(conv, args):
    params = [relay.var(f"p{i}", a.checked_type) for i, a in enumerate(conv.args)]
    f = relay.Function(params, relay.nn.relu(relay.Call(conv.op, params, conv.attrs)))
    f = f.with_attr("Composite", "conv2d_relu").with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.Call(f, args)


class _Chip(relay.ExprMutator):
    """The pass; a convolution with more than `limit` readers gets no instruction."""

    limit = 1

    def __init__(self, function):
        super().__init__()
        self.readers = Counter()
        relay.analysis.post_order_visit(function, lambda e: self.readers.update(parts_of(e)))

    def visit_function(self, f):
        return f if is_primitive(f) else super().visit_function(f)

    def clip(self, x, dtype):
        return relay.clip(x, 0.0, _top(dtype))

    def visit_call(self, call):
        if not _is(call, RELU):
            return super().visit_call(call)
        x = call.args[0]
        if _is(x, CONV) and self.readers[x] <= self.limit:
            return _wrapped(x, [self.visit(a) for a in x.args])
        return self.clip(self.visit(x), call.checked_type.dtype)

    @classmethod
    def run(cls, mod):
        return typed(cls(mod["main"]).visit(mod["main"]))


@right("TVM's MergeComposite finds the convolutions, and then their functions are made anew")
def by_merge_composite(mod):
    from tvm.relay.dataflow_pattern import is_op, wildcard

    pattern, nodes = is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard())), []
    relay.analysis.post_order_visit(mod["main"], nodes.append)
    if any(isinstance(e, relay.Function) and is_primitive(e) for e in nodes):
        return _Chip.run(mod)  # MergeComposite would look into these

    class Open(relay.ExprMutator):
        """MergeComposite leaves constants inside of its functions; here they become operands."""

        def visit_function(self, f):
            return f if is_primitive(f) else super().visit_function(f)

        def visit_call(self, call):
            f = call.op
            if not isinstance(f, relay.Function) or is_primitive(f) or not has_composite("conv2d_relu")(f):
                return super().visit_call(call)
            arguments = dict(zip(f.params, (self.visit(a) for a in call.args), strict=True))
            conv = f.body.args[0]
            return _wrapped(conv, [arguments.get(a, a) for a in conv.args])

    merged = relay.transform.MergeComposite([("conv2d_relu", pattern)])(mod)
    merged = relay.transform.InferType()(merged)
    return _Chip.run(typed(Open().visit(merged["main"])))


@right("goes through the nodes in post-order with a dictionary, without a mutator")
def in_post_order(mod):
    main, order, readers, new = mod["main"], [], Counter(), {}
    relay.analysis.post_order_visit(main, order.append)
    for e in order:
        readers.update(parts_of(e))
    for e in order:
        if isinstance(e, relay.Call) and _is(e, RELU):
            x = e.args[0]
            alone = _is(x, CONV) and readers[x] == 1
            args = [new[a] for a in x.args] if alone else []
            new[e] = _wrapped(x, args) if alone else relay.clip(new[x], 0, _top(e.checked_type.dtype))
        elif isinstance(e, relay.Call):
            new[e] = relay.Call(new.get(e.op, e.op), [new[a] for a in e.args], e.attrs, e.type_args)
        elif isinstance(e, relay.Tuple):
            new[e] = relay.Tuple([new[f] for f in e.fields])
        elif isinstance(e, relay.TupleGetItem):
            new[e] = relay.TupleGetItem(new[e.tuple_value], e.index)
        elif isinstance(e, relay.Function) and not is_primitive(e):
            new[e] = relay.Function(e.params, new[e.body], e.ret_type, e.type_params, e.attrs)
        else:
            new[e] = e
    return typed(relay.Function(main.params, new[main.body], main.ret_type, main.type_params, main.attrs))


@right("two passes: the instructions first, then everything that is left")
def two_passes(mod):
    class Instructions(_Chip):
        def clip(self, x, dtype):
            return relay.nn.relu(x)

    class Clips(_Chip):
        limit = -1

    return Clips.run(Instructions.run(mod))


@wrong("spared", "does not count readers: a convolution that others read is computed twice")
def never_counts(mod):
    class Any(_Chip):
        limit = 10**6

    return Any.run(mod)


clips_only = edited("did", "clips everything, in instructions, too, or makes no instructions")(
    ("self.readers[x] == 1", "False")
)
instructions_only = edited("did", "leaves the relus that stand elsewhere")(
    ("relay.clip(self.visit(x), 0, tvm.tir.max_value(call.checked_type.dtype).value)", "super().visit_call(call)")
)
operands_as_they_were = edited("did", "does not visit the operands of the convolution")(
    ("(self.visit(a) for a in x.args)", "x.args")
)
not_primitive = edited("did", "forgets Primitive: later passes look inside")(
    ('...("Primitive", tvm.tir.IntImm("int32", 1))', 'fused.with_attr("Composite", "conv2d_relu")')
)
into_instructions = edited("did", "looks into instructions that are there already, and replaces their relu")(
    ("function if is_primitive(function) else ...", "...")
)
into_other_instructions = edited(
    "spared", "spares the inside of its own instructions alone, not that of all functions that are Primitive"
)(
    (
        "function if is_primitive(function) else ...",
        'function if is_primitive(function) and "Composite" in function.attrs '
        'and function.attrs["Composite"] == "conv2d_relu" else super().visit_function(function)',
    )
)
default_dtype = edited("valid", "makes the convolution anew and leaves out the dtype of its result")(
    (
        "relay.Call(x.op, [data, weight], x.attrs)",
        "relay.nn.conv2d(data, weight, **{k: x.attrs[k] for k in x.attrs.keys() if k not in "
        '("out_dtype", "out_layout", "auto_scheduler_rewritten_layout", "meta_schedule_original_shape")})',
    )
)
composite = edited("did", "takes each function with a Composite for an instruction, Primitive or not")(
    (
        "function if is_primitive(function) else ...",
        'function if is_primitive(function) or function.attrs and "Composite" in function.attrs '
        "else super().visit_function(function)",
    )
)
without_composite = edited("spared", "makes each inner function anew, without its attributes")(
    (
        "function if is_primitive(function) else ...",
        "function if is_primitive(function) else super().visit_function(function) if function.attrs is None "
        'or "Composite" not in function.attrs else relay.Function(function.params, self.visit(function.body))',
    )
)
of_products = edited("did", "makes the same instruction of a dense product")(
    ('x.op == relay.op.get("nn.conv2d")', 'x.op in (relay.op.get("nn.conv2d"), relay.op.get("nn.dense"))')
)
once = edited("spared", "makes one clip of a relu of a relu")(
    (
        'if call.op != relay.op.get("nn.relu"): ...',
        'if call.op == relay.op.get("nn.relu") and getattr(call.args[0], "op", None) == call.op:\n'
        "    return self.visit(call.args[0])\n"
        'if call.op != relay.op.get("nn.relu"):\n    return super().visit_call(call)',
    )
)
relu6 = edited("same", "clips at 6, as many phones do")(("tvm.tir.max_value(call.checked_type.dtype).value", "6.0"))
default_settings = edited("valid", "makes the convolution anew and leaves out its strides, dilation and groups")(
    (
        "relay.Call(x.op, [data, weight], x.attrs)",
        "relay.nn.conv2d(data, weight, padding=x.attrs.padding, channels=x.attrs.channels)",
    )
)


@wrong("valid", "takes the free variables of the body as parameters: an unused input is lost")
def free_variables(mod):
    new = _Chip(mod["main"]).visit(mod["main"])
    return typed(relay.Function(relay.analysis.free_vars(new.body), new.body))


@wrong("valid", "returns the function, not a module")
def a_function(mod):
    return _Chip.run(mod)["main"]


@wrong("valid", "remembers nothing: a value that is read twice is rebuilt twice, and a ladder never ends")
def no_memory(mod):
    class Forgets(_Chip):
        def visit(self, e):
            self.memo_map.clear()
            return super().visit(e)

    return Forgets.run(mod)
