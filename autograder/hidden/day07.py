"""Day 7: the cases that learners do not see, drawn from a seed. Generated modules, zoo models, traps made by hand."""

from __future__ import annotations

from autograder.hidden import day07_passes as passes
from autograder.hidden import day07_rewrites as rewrites

HIDDEN = {
    "day07.pipeline-counts": rewrites.counts,
    "day07.relu-to-clip": rewrites.relu_to_clip,
    "day07.batchnorm": rewrites.batchnorm,
    "day07.fusion-groups": rewrites.groups,
    "day07.instrument": passes.instrument,
    "day07.levels": passes.levels,
    "day07.cse": passes.cse,
    "day07.dce": passes.dce,
    "day07.dense-gelu": passes.dense_gelu,
    "day07.fold-and-time": passes.fold_and_time,
}
