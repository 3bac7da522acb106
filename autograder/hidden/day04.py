"""Day 4: the cases that learners do not see, drawn from a seed."""

from __future__ import annotations

from autograder.hidden import day04_chains as chains
from autograder.hidden import day04_convex as convex
from autograder.hidden import day04_kernels as kernels
from autograder.hidden import day04_rewrites as rewrites
from passlab.judge import Case


def groups(seed: int) -> list[Case]:
    from autograder.hidden import day04_groups  # needs Relay's TVM, which the other exercises' processes do without

    return day04_groups.groups(seed)


HIDDEN = {
    "day04.chains": chains.chains,
    "day04.groups": groups,
    "day04.convex": convex.convex,
    "day04.linear-act": rewrites.linear_act,
    "day04.attention": rewrites.attention,
    "day04.codegen": kernels.codegen,
    "day04.cost": kernels.cost,
    "day04.measure": kernels.measure,
}
