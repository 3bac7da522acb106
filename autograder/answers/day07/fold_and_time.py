"""Hidden cases and answers of day07.fold-and-time.

Most wrong answers measure as they should, and measure the wrong thing.
"""

from __future__ import annotations

import random
import statistics
from functools import partial

from autograder.authoring.answers import right, wrong
from passlab.exercises.day07.fold_and_time import conv, network, norm
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import number, tuple_of, weight

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
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
    ]
    forwards = network("the norm comes first", first, 1, 4, size, size, add=1)
    elsewhere = network("the conv is read elsewhere", readers, 1, 4, size, size, add=1, multiply=1)
    return [rng.choice(networks), forwards, elsewhere]


EQUIVALENT = {
    (
        "passes.FoldScaleAxis(), passes.FoldConstant()",
        "passes.FoldScaleAxis()",
    ): "FoldScaleAxis is a sequence that ends with FoldConstant",
    ("passes.FoldConstant(), ...", "..."): "FoldScaleAxis moves the scale into the weights before it is computed, too",
    ("...(opt_level=3)", "...(opt_level=4)"): "these passes want level 3 at most",
    ("for _ in range(20): ...", "for _ in range(21): ..."): "at least 5 runs are asked",
    ("graph.run()", "pass"): "the median of 20 runs does not see the first",
}


# ---------------------------------------------------------------------------------------------------- answers

OFF = ("SimplifyInference", "AlterOpLayout")


def _folded(mod, *names, level=3):
    passes = [getattr(relay.transform, name)() for name in names]
    with tvm.transform.PassContext(opt_level=level):
        return tvm.transform.Sequential(passes)(mod)


ALL = ("SimplifyInference", "FoldConstant", "FoldScaleAxis", "FoldConstant")


def _graph(mod, x, off=OFF, level=3):
    with tvm.transform.PassContext(opt_level=level, disabled_pass=list(off)):
        built = relay.build(mod, target="llvm")
    graph = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    graph.set_input(mod["main"].params[0].name_hint, x)
    return graph


def _times(mod, x, off=OFF, level=3, runs=5):
    return _graph(mod, x, off, level).benchmark(tvm.cpu(), repeat=runs, number=2).results


def _answer(plain, folded, x, off=OFF, folded_off=None, level=3, times=_times, mean=statistics.median):
    sides = {}
    for name, module, disabled in (
        ("plain", plain, off),
        ("folded", folded, off if folded_off is None else folded_off),
    ):
        seconds = list(times(module, x, disabled, level))
        sides[name] = {"module": module, "level": level, "disabled": list(disabled), "seconds": seconds}
    return {**sides, "ratio": mean(sides["plain"]["seconds"]) / mean(sides["folded"]["seconds"])}


@right("folds with the parts of FoldScaleAxis, and lets TVM take the times")
def by_parts(mod, x):
    parts = ("SimplifyInference", "FoldConstant", "BackwardFoldScaleAxis", "ForwardFoldScaleAxis", "FoldConstant")
    folded = _folded(mod, *parts)
    return _answer(mod, folded, x)


@right("calls the passes one by one, which asks for no level, and takes the times in the process that builds")
def one_by_one(mod, x):
    from passlab.tvm.builds import run_module

    folded = mod
    for name in ("SimplifyInference", "FoldConstant", "BackwardFoldScaleAxis", "ForwardFoldScaleAxis", "FoldConstant"):
        folded = getattr(relay.transform, name)()(folded)
    return _answer(
        mod, folded, x, times=lambda m, x, off, level: run_module(m, [(x,)], level=level, disabled=off, repeats=9).times
    )


@wrong("did", "builds the plain side as usual: the build folds it, too")
def as_usual(mod, x):
    return _answer(mod, _folded(mod, *ALL), x, off=())


@wrong("did", "switches SimplifyInference off and nothing else: the plain side does not build")
def one_off(mod, x):
    return _answer(mod, _folded(mod, *ALL), x, off=("SimplifyInference",))


@wrong("spared", "switches off for the plain side only: half of the ratio is the layout")
def one_side(mod, x):
    return _answer(mod, _folded(mod, *ALL), x, folded_off=())


@wrong("spared", "builds at level 2, where AlterOpLayout does not run")
def level_two(mod, x):
    return _answer(mod, _folded(mod, *ALL), x, off=("SimplifyInference",), level=2)


@wrong("did", "SimplifyInference and FoldConstant: the scale is still a multiply")
def no_scale_axis(mod, x):
    return _answer(mod, _folded(mod, "SimplifyInference", "FoldConstant"), x)


@wrong("did", "moves scales backwards alone: that of a norm before its convolution stays")
def backwards(mod, x):
    return _answer(mod, _folded(mod, "SimplifyInference", "FoldConstant", "BackwardFoldScaleAxis", "FoldConstant"), x)


@wrong("same", "takes the batch norm out, which does nothing in inference, or forgets its shift")
def taken_out(mod, x):
    class Out(relay.ExprMutator):
        def visit_tuple_getitem(self, get):
            call = get.tuple_value
            if isinstance(call, relay.Call) and call.op.name == "nn.batch_norm":
                return self.visit(call.args[0])
            return super().visit_tuple_getitem(get)

    folded = relay.transform.InferType()(tvm.IRModule.from_expr(Out().visit(mod["main"])))
    return _answer(mod, folded, x)


@wrong("spared", "the plain side is the folded module: two times the same")
def twice_the_same(mod, x):
    folded = _folded(mod, *ALL)
    return _answer(folded, folded, x)


@wrong("did", "folded over plain: the ratio is upside down")
def upside_down(mod, x):
    result = _answer(mod, _folded(mod, *ALL), x)
    return {**result, "ratio": 1 / result["ratio"]}


@wrong("did", "measures too little: each side once, means in the place of runs, or nothing at all")
def once(mod, x):
    return _answer(mod, _folded(mod, *ALL), x, times=partial(_times, runs=1))


@wrong("valid", "gives the two modules and not how they are built")
def modules_only(mod, x):
    return {"plain": mod, "folded": _folded(mod, *ALL), "ratio": 1.3}
