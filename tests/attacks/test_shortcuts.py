"""Functions of the library and of torch that do an exercise, handed in as the answer: closed, they earn nothing."""

from __future__ import annotations

import pytest
from torch import fx
from torch._functorch.compile_utils import fx_graph_cse
from torch._inductor.constant_folding import constant_fold
from torch._inductor.fx_passes.pre_grad import fuse_conv_bn
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.passes.dialect.common.cse_pass import CSEPass

from passlab import exercises
from passlab.capstone import reference
from passlab.fx import rewrites, stages, torch_passes
from passlab.judge import judge
from passlab.quantization import fold, graphs, move


def split(gm):
    folded = split_const_subgraphs(gm)
    folded.run_folding()
    return folded


def fold_in_place(gm):
    constant_fold(gm)
    return gm


def merge(gm):
    return CSEPass()(gm).graph_module


def merge_by_graph(gm):
    return fx.GraphModule(gm, fx_graph_cse(gm.graph))


FUNCTIONS = {
    "day02.fold-batchnorm": (
        *(rewrites.conv_bn_relu, reference.fold_batchnorm, torch_passes.fuse, graphs.functional),
        fuse_conv_bn,
    ),
    "day03.constant-folding": (stages.fold, torch_passes.fold, reference.fold_constants, split, fold_in_place),
    "day03.dce": (stages.dce, torch_passes.eliminate, reference.dce, fold, move),
    "day03.cse": (stages.cse, torch_passes.merge, reference.cse, merge, merge_by_graph),
}
CORES = {name + exercises.CORE: functions for name, functions in FUNCTIONS.items() if name != "day03.dce"}
ROWS = [(name, function) for name, functions in (FUNCTIONS | CORES).items() for function in functions]


@pytest.mark.parametrize(("name", "function"), ROWS, ids=lambda value: getattr(value, "__qualname__", value))
def test_a_function_of_the_library_earns_nothing(name, function):
    def answer(gm, *limit):
        return function(gm)

    assert judge(exercises.find(name), answer).points == 0
