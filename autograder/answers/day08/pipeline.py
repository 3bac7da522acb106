"""Hidden cases and answers of day08.pipeline.

Wrong answers leave a part of the pipeline away, or take a part that belongs elsewhere.
"""

from __future__ import annotations

import random

from torch import nn

from autograder.authoring.answers import right, wrong
from passlab import models
from passlab.exercises.day08.pipeline import FASTER, pipeline_case
from passlab.judge import Case
from passlab.relax import relax, tvm
from passlab.relax.pipelines import cpu_schedule, kernels, pipeline, schedule_pass

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    tokens = rng.choice((24, 32, 40))

    def block() -> nn.Module:
        """Return a block as wide as the visible one: TVM's default takes seconds to build and run wider ones."""
        return models.gpt(width=64, heads=4, context=tokens)

    def residual() -> nn.Module:
        """Begin and end like ResNet-18, with one block: to fold the constants of all eight takes ten seconds."""
        stem, head = [*models.conv_bn(3, 16, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], [nn.Flatten(), nn.Linear(32, 10)]
        net = nn.Sequential(*stem, models.basic(16, 32, 2), nn.AdaptiveAvgPool2d(1), *head)
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eps = 0.1  # not too small to be seen
        return models.fill(net, seed).requires_grad_(False).eval()

    return [
        pipeline_case("a residual block, two small images at once", residual, (2, 3, 24, 40), FASTER, True),
        pipeline_case(f"a block of {tokens} tokens", block, (1, tokens, 64), FASTER, False),
    ]


# ---------------------------------------------------------------------------------------------------- answers

step = relax.transform
#: A batch norm becomes element-wise operators.
NORMS = [step.DecomposeOpsForInference(), step.CanonicalizeBindings()]
#: Images are NHWC: what a vector loads lies side by side.
CHANNELS = [step.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}), step.Normalize()]


@right("TVM's passes by hand, in one Sequential, the schedule at its end")
def by_hand(module):
    steps = [*NORMS, *CHANNELS, step.LegalizeOps(), step.AnnotateTIROpPattern(), step.FoldConstant(), step.FuseOps()]
    with tvm.target.Target.from_device("cpu"):
        return tvm.transform.Sequential([*steps, step.FuseTIR(), schedule_pass(cpu_schedule)])(module)


@right("its own two rules: loops of one reduction get vectors, all others are left to cpu_schedule")
def two_rules(module):
    def pooling(function):
        return cpu_schedule(function) if "pool" in function.script() else None

    return kernels(before=[*NORMS, *CHANNELS], schedule=[pooling, cpu_schedule])(module)


@wrong(
    "cost",
    "the fewest kernels, so images stay NCHW: a vector loads what lies side by side, few columns of a small image",
)
def channels_first(module):
    return kernels(before=NORMS, schedule=cpu_schedule)(module)


@wrong("cost", "TVM's default is as fast as TVM gets")
def default(module):
    return kernels()(module)


@wrong("cost", "fewer kernels are faster kernels: no loop is touched")
def no_schedule(module):
    return kernels(before=NORMS)(module)


@wrong("did", "a batch norm in inference is free: nothing takes it apart, and it is fused with no convolution")
def keeps_norms(module):
    return kernels(schedule=cpu_schedule)(module)


@wrong("did", "schedules every operator alone: fusion is for GPUs")
def fuses_nothing(module):
    return kernels(before=NORMS, fuse=False, schedule=cpu_schedule)(module)


@wrong("valid", "hands back the operators: TVM will do the rest")
def untouched(module):
    return module


@wrong("cost", "a second core is what a CPU needs: no vectors, no tiles")
def only_parallel(module):
    def rule(function):
        schedule = tvm.s_tir.Schedule(function)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            schedule.parallel(schedule.get_loops(block)[0])
        return schedule

    return kernels(before=NORMS, schedule=rule)(module)


@wrong("same", "half the bits, half the time, as if float32 were not asked for")
def half_precision(module):
    return kernels(before=[*NORMS, step.ToMixedPrecision("float16")], schedule=cpu_schedule)(module)


@wrong("same", "a batch norm keeps mean 0 and variance 1, so that it can go")
def drops_norms(module):
    @relax.expr_functor.mutator
    class Drop(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if getattr(call.op, "name", "") == "relax.nn.batch_norm":
                return relax.Tuple([call.args[0], call.args[3], call.args[4]])
            return call

    after = module.clone()
    mutator = Drop(after)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            after.update_func(variable, mutator.visit_expr(function))
    return kernels(schedule=cpu_schedule)(after)


@wrong("same", "a batch norm has the epsilon that torch has by default")
def default_epsilon(module):
    @relax.expr_functor.mutator
    class Folded(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if getattr(call.op, "name", "") == "relax.nn.batch_norm":
                return relax.op.nn.batch_norm(*call.args, axis=1, epsilon=1e-5, training=False)
            return call

    after = module.clone()
    mutator = Folded(after)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            after.update_func(variable, mutator.visit_expr(function))
    return kernels(before=[*NORMS, *CHANNELS], schedule=cpu_schedule)(after)


@wrong("valid", "lowers main, too: its calls of kernels are no longer call_tir")
def lowered(module):
    return pipeline(before=[*NORMS, *CHANNELS], schedule=cpu_schedule)(module)


@wrong("valid", "returns the pass, not what it makes of the module")
def the_pass(module):
    return kernels(before=NORMS, schedule=cpu_schedule)
