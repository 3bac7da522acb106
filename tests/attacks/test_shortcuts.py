"""Functions of the library that do an exercise, handed in as the answer: they are closed, and earn nothing."""

from __future__ import annotations

import pytest

from passlab import exercises
from passlab.capstone import reference
from passlab.fx import rewrites, stages, torch_passes
from passlab.judge import judge
from passlab.quantization import fold, graphs, move

FUNCTIONS = {
    "day02.fold-batchnorm": (rewrites.conv_bn_relu, reference.fold_batchnorm, torch_passes.fuse, graphs.functional),
    "day03.constant-folding": (stages.fold, torch_passes.fold, reference.fold_constants),
    "day03.dce": (stages.dce, torch_passes.eliminate, reference.dce, fold, move),
    "day03.cse": (stages.cse, torch_passes.merge, reference.cse),
}
CORES = {name + exercises.CORE: functions for name, functions in FUNCTIONS.items() if name != "day03.dce"}
ROWS = [(name, function) for name, functions in (FUNCTIONS | CORES).items() for function in functions]


@pytest.mark.parametrize(("name", "function"), ROWS, ids=lambda value: getattr(value, "__qualname__", value))
def test_a_function_of_the_library_earns_nothing(name, function):
    def answer(gm, *limit):
        return function(gm)

    assert judge(exercises.find(name), answer).points == 0
