"""Hidden cases and answers of day07.pipeline-counts.

Passes that do not run, and calls that are counted too often or not at all.
"""

from __future__ import annotations

import random
from collections import Counter

from autograder.answers.day07._shared import SHAPE, generated
from autograder.authoring.answers import right, wrong
from passlab.exercises.day07._shared import block, ladder
from passlab.exercises.day07.pipeline_counts import counts_case, fused_twice, zoo
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import number, program, tuple_of

# ---------------------------------------------------------------------------------------------------- hidden cases


PASSES = ["SimplifyExpr", "EliminateCommonSubexpr", "CanonicalizeOps", "FoldScaleAxis", "FastMath"]


def three() -> tvm.IRModule:
    module, shape = tvm.IRModule(), relay.TensorType((2, 3))
    last = None
    for name in ("square", "twice", "main"):
        x = relay.var("x", shape=(2, 3))
        body = x * x if last is None else relay.tanh(last(x)) + last(relay.nn.relu(x))
        last = relay.GlobalVar(name)
        module[last] = relay.Function([x], body, shape)
    return relay.transform.InferType()(module)


@counts_case("functions in functions", program(..., (2, 3)), "InferType", about="spared")
def nested(x: relay.Var) -> relay.Expr:
    a, b = relay.var("a", shape=(2, 3)), relay.var("b", shape=(2, 3))
    inner = relay.Function([b], relay.nn.relu(b) * number(2.0))
    outer = relay.Function([a], inner(relay.tanh(a)) + inner(a))
    return outer(x) - outer(relay.exp(x))


@counts_case("tuples and constants", program(..., (2, 4)), "FuseOps", about="spared")
def pieces(x: relay.Var) -> relay.Expr:
    left, right = relay.split(x, 2, axis=1)
    return tuple_of(relay.tanh(right), tuple_of(left, number(1.0)))


@counts_case("a let and an if", program(..., (2, 3)), "FastMath", "ToANormalForm")
def branches(x: relay.Var) -> relay.Expr:
    y = relay.var("y")
    taken = relay.If(relay.min(y) < number(0.0), relay.nn.relu(y), relay.tanh(y) * y)
    return relay.Let(y, relay.exp(x), taken)


@counts_case("equal calls of one value", program(..., (2, 3)), "FastMath", "FuseOps")
def equal(x: relay.Var) -> relay.Expr:
    return relay.tanh(x) * relay.exp(x) - relay.tanh(x) / relay.exp(x)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def chosen(*last: str) -> list[str]:
        return [*rng.sample(PASSES, 3), *last]

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
        nested,
        counts_case("one kernel, called twice", program(fused_twice, (4, 3)), "FuseOps", about="spared"),
        pieces,
        counts_case("a ladder", program(ladder, (3, 2)), "EliminateCommonSubexpr", "FuseOps", about="spared"),
        branches,
        equal,
        counts_case("three functions", three, *chosen("FastMath", "FuseOps")),
    ]


EQUIVALENT = {
    ("...(opt_level=4)", "...(opt_level=5)"): "no pass has a level above 4",
    (
        "dict(Counter(e.op.name for e in calls if ...))",
        "Counter(e.op.name for e in calls if ...)",
    ): "a Counter is a dictionary",
}

# ---------------------------------------------------------------------------------------------------- answers


def _expressions(mod):
    expressions = []
    for function in mod.functions.values():
        relay.analysis.post_order_visit(function, expressions.append)
    return expressions


def _is_op(e):
    return isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)


def _count(mod):
    return Counter(e.op.name for e in _expressions(mod) if _is_op(e))


def _rows(mod, passes, count=_count):
    rows = [count(mod)]
    with tvm.transform.PassContext(opt_level=4):
        for name in passes:
            mod = getattr(relay.transform, name)()(mod)
            rows.append(count(mod))
    return rows


@right("walks with a visitor of its own")
def with_a_visitor(mod, passes):
    class Calls(relay.ExprVisitor):
        def __init__(self):
            super().__init__()
            self.number = {}

        def visit_call(self, call):
            if isinstance(call.op, tvm.ir.Op):
                self.number[call.op.name] = self.number.get(call.op.name, 0) + 1
            super().visit_call(call)

    def count(mod):
        calls = Calls()
        for var in mod.get_global_vars():
            calls.visit(mod[var])
        return calls.number

    return _rows(mod, passes, count)


@right("asks TVM's own list_op_freqs for each function")
def by_list_op_freqs(mod, passes):
    def count(mod):
        total = Counter()
        for function in mod.functions.values():
            total.update({name: int(n) for name, n in relay.analysis.list_op_freqs(_alone(function)).items()})
        return total

    def _alone(function):
        return tvm.IRModule.from_expr(relay.Function(function.params, function.body))

    return _rows(mod, passes, count)


@right("runs the passes as instruments see them: one Sequential, with a pass between that writes the counts down")
def one_sequence(mod, passes):
    rows = []

    @tvm.transform.module_pass(opt_level=0)
    def note(mod, context):
        rows.append(_count(mod))
        return mod

    steps = [note]
    for name in passes:
        steps += [getattr(relay.transform, name)(), note]
    with tvm.transform.PassContext(opt_level=4):
        tvm.transform.Sequential(steps)(mod)
    return rows


@wrong("did", "runs the passes at the default level: those of level 3 and 4 are left out without a word")
def default_level(mod, passes):
    rows = [_count(mod)]
    for name in passes:
        mod = tvm.transform.Sequential([getattr(relay.transform, name)()])(mod)
        rows.append(_count(mod))
    return rows


@wrong("did", "runs the passes at level 3, relay.build's: FastMath asks for 4")
def level_three(mod, passes):
    rows = [_count(mod)]
    with tvm.transform.PassContext(opt_level=3):
        for name in passes:
            mod = tvm.transform.Sequential([getattr(relay.transform, name)()])(mod)
            rows.append(_count(mod))
    return rows


@wrong("did", "gives every pass the module from the start, not what the one before it left")
def each_from_the_start(mod, passes):
    with tvm.transform.PassContext(opt_level=4):
        return [_count(mod), *(_count(getattr(relay.transform, name)()(mod)) for name in passes)]


@wrong("did", "counts in main only: other functions of the module are code, too")
def main_only(mod, passes):
    return _rows(mod, passes, lambda mod: _count(tvm.IRModule({mod.get_global_var("main"): mod["main"]})))


@wrong("did", "counts equal calls once: two calls that compute the same are still two kernels")
def equal_is_one(mod, passes):
    def count(mod):
        calls = {}
        for e in _expressions(mod):
            if _is_op(e):
                calls.setdefault(tvm.ir.structural_hash(e), e.op.name)
        return Counter(calls.values())

    return _rows(mod, passes, count)


@wrong("did", "tells which operators there are, not how often they are called")
def which_not_how_often(mod, passes):
    return _rows(mod, passes, lambda mod: dict.fromkeys(_count(mod), 1))


@wrong("spared", "walks the graph as a tree: what is read twice is counted twice")
def as_a_tree(mod, passes):
    def count(mod):
        def walk(e, left=20_000):
            nonlocal steps
            steps += 1
            if steps > left:
                return
            if _is_op(e):
                total[e.op.name] += 1
            for part in _parts(e):
                walk(part)

        total, steps = Counter(), 0
        for function in mod.functions.values():
            walk(function)
        return total

    return _rows(mod, passes, count)


@wrong("spared", "counts calls of functions as if they were operators, or does not look into them")
def functions_too(mod, passes):
    def count(mod):
        calls = [e for e in _expressions(mod) if isinstance(e, relay.Call)]
        return Counter(e.op.name if _is_op(e) else "fn" for e in calls)

    return _rows(mod, passes, count)


@wrong("spared", "counts tuples and constants among the operators")
def everything(mod, passes):
    def count(mod):
        kinds = relay.Call, relay.Tuple, relay.TupleGetItem, relay.Constant
        nodes = [e for e in _expressions(mod) if isinstance(e, kinds)]
        return Counter(e.op.name if _is_op(e) else type(e).__name__ for e in nodes)

    return _rows(mod, passes, count)


@wrong("valid", "forgets the row before the first pass, or gives the sums alone")
def no_start(mod, passes):
    return _rows(mod, passes)[1:]


def _parts(e):
    if isinstance(e, relay.Call):
        return [e.op, *e.args]
    if isinstance(e, relay.Function):
        return [e.body]
    if isinstance(e, relay.Tuple):
        return e.fields
    return [e.tuple_value] if isinstance(e, relay.TupleGetItem) else []
