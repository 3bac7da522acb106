"""Hidden cases and answers of day04.cost.

Most answers are one small model with a term of it left out or exchanged.
"""

from __future__ import annotations

import random

import torch

from autograder.authoring.answers import right, wrong
from passlab.exercises.day04.cost import cost_case, situations
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [cost_case("twelve choices", situations(rng))]


# ---------------------------------------------------------------------------------------------------- answers

DEAR = (torch.exp, torch.erf, torch.tanh, torch.sigmoid)


def _numel(node):
    return node.meta["tensor_meta"].shape.numel()


def _added_up(node):
    if node.target is torch.matmul:
        return node.args[0].meta["tensor_meta"].shape[-1]
    return _numel(node.args[0]) // _numel(node) if node.target is torch.sum else 1


def _steps(node, machine):
    if node.target in DEAR:
        return machine["dear"]
    return (2 if node.target is torch.matmul else 1) * _added_up(node)


def _result(kernel):
    return next(node for node in kernel if not any(user in kernel for user in node.users))


def _times(kernel):
    """How often each node is computed, from the readers' side."""
    times = {}
    for node in reversed(kernel):
        readers = [user for user in node.users if user in kernel]
        times[node] = sum(times[user] * _added_up(user) for user in readers) if readers else _numel(node)
    return times


def _moved(kernel):
    read = {a for node in kernel for a in node.all_input_nodes if a not in kernel}
    return 4 * sum(map(_numel, {_result(kernel), *read}))


def _kernels(gm, groups):
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    grouped = {name for group in groups for name in group}
    fused = [[node for node in calls if node.name in group] for group in groups]
    return [[node] for node in calls], fused + [[node] for node in calls if node.name not in grouped]


def _seconds(kernel, machine, times=_times, steps=_steps, combine=max):
    counted = times(kernel)
    work = sum(counted[node] * steps(node, machine) for node in kernel)
    return machine["launch"] + combine(_moved(kernel) / machine["bandwidth"], work * machine["step"])


def _choose(gm, groups, machine, price=_seconds, **terms):
    apart, fused = _kernels(gm, groups)
    return bool(sum(price(k, machine, **terms) for k in fused) < sum(price(k, machine, **terms) for k in apart))


@right("moves first and computes then: the sum of the terms, not the longer one")
def in_turn(gm, groups, machine):
    return _choose(gm, groups, machine, combine=lambda moving, computing: moving + computing)


@right("sets what is computed again against what is not started and not moved")
def balance(gm, groups, machine):
    apart, fused = _kernels(gm, groups)

    def work(kernels):
        return sum(n * _steps(node, machine) for kernel in kernels for node, n in _times(kernel).items())

    saved = (len(apart) - len(fused)) * machine["launch"]
    saved += (sum(map(_moved, apart)) - sum(map(_moved, fused))) / machine["bandwidth"]
    return saved > (work(fused) - work(apart)) * machine["step"]


@wrong("spared", "fuses whatever can be fused: fewer bytes and fewer launches, always")
def always(gm, groups, machine):
    return True


@wrong("did", "never fuses: what is computed once needs to be computed once")
def never(gm, groups, machine):
    return False


@wrong("spared", "counts bytes only: what is computed again is free")
def bytes_only(gm, groups, machine):
    return _choose(gm, groups, machine | {"step": 0.0, "launch": 0.0})


@wrong("spared", "counts launches only")
def launches_only(gm, groups, machine):
    apart, fused = _kernels(gm, groups)
    return len(fused) < len(apart)


@wrong("spared", "a value is computed again for every reader, but not for every element that reads it")
def by_readers(gm, groups, machine):
    return _choose(gm, groups, machine, times=lambda kernel: {node: _numel(node) for node in kernel})


@wrong("spared", "all operations cost the same: exp is one instruction")
def exp_is_cheap(gm, groups, machine):
    return _choose(gm, groups, machine | {"dear": 1})


@wrong("spared", "fusing pays as soon as something large is not written")
def large_values(gm, groups, machine):
    return (
        any(len(group) > 1 for group in groups)
        and sum(_numel(node) for node in gm.graph.nodes if node.op == "call_function") * 4 / machine["bandwidth"]
        > 0.1 * machine["launch"]
    )


@wrong("did", "never fuses a product or a sum: TVM's patterns say they are not element-wise")
def element_wise_only(gm, groups, machine):
    inside = {name for group in groups for name in group}
    return not any(node.target in (torch.matmul, torch.sum) for node in gm.graph.nodes if node.name in inside)


@wrong("spared", "never fuses what is dear, and all else")
def nothing_dear(gm, groups, machine):
    inside = {name for group in groups for name in group}
    return not any(node.target in DEAR for node in gm.graph.nodes if node.name in inside)


@wrong("did", "small tensors are not worth a kernel of their own making")
def large_only(gm, groups, machine):
    largest = max(_numel(node) for node in gm.graph.nodes if node.op == "call_function")
    return largest >= 10_000 and _choose(gm, groups, machine)


@wrong("did", "a value that its kernel would compute more than once must not be in it")
def nothing_again(gm, groups, machine):
    _, fused = _kernels(gm, groups)
    return all(count <= _numel(node) for kernel in fused for node, count in _times(kernel).items())


@wrong("valid", "returns the seconds that fusing saves")
def seconds_saved(gm, groups, machine):
    apart, fused = _kernels(gm, groups)
    return sum(_seconds(k, machine) for k in apart) - sum(_seconds(k, machine) for k in fused)
