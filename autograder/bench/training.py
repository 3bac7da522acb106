"""`make bench`, part training: gradients beside torch's, what the cut of a joint graph saves, an optimizer step."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most, cpu, growth, versus

#: Drawn graphs, and their size in nodes.
GRAPHS, SIZE = 100, 14
#: Drawn graphs whose cuts are compared with all others, the most values in one, and the share of the bytes that may be
#: saved where the work is compared: of those that the gradients read.
SMALL, MOST, BUDGET = 30, 14, 0.6
#: Networks whose peaks are measured.
PEAKS = ("mlp", "convnet", "residual", "gpt")
#: Drawn graphs whose gradients are compared with torch's.
GRADIENTS = 500
#: The largest difference of two gradients in float64 that counts as rounding, where terms cancel.
ROUNDING = 1e-6


def training(largest: int) -> Iterator[Figure | str]:
    yield from models()
    yield from drawn()
    yield from small()
    yield from peaks()
    yield from gradients()
    yield from optimizers()
    yield from times(min(largest, 2_000))


def models() -> Iterator[Figure | str]:
    """Bytes saved for the backward pass of each network of the zoo, beside torch's minimum cut."""
    from passlab.capture import lower
    from passlab.models import ZOO

    for name, row in ZOO.items():
        yield f"{name}: capturing"
        low = lower(row.build(), *row.inputs(), gradients=True)
        saved = _saved(low)
        baseline = f"{saved:,} B / {low.saved_bytes:,} B"
        yield at_most(f"{name}: saved bytes / torch's minimum cut", saved / low.saved_bytes, 1, "", baseline)


def drawn() -> Iterator[Figure | str]:
    """The share of random graphs on which no more is saved than by torch's cut."""
    from passlab import random_graph
    from passlab.capture import lower

    least, both = 0, 0
    for seed in range(GRAPHS):
        yield f"random graph {seed}"
        gm = random_graph(seed, SIZE, mutation=False, random=False)
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in gm.meta["inputs"]]
        low = lower(gm, *inputs)
        if low.joint is None:  # its outputs are integers
            continue
        both += 1
        least += _saved(low) <= low.saved_bytes
    yield at_least(
        "random graphs with at most torch's saved bytes, share", least / both, 0.95, "", f"{least} of {both}"
    )


def small() -> Iterator[Figure | str]:
    """The cut, and the work of computing once more under a budget, beside the best of all sets of values."""
    from passlab import random_graph
    from passlab.autodiff import RECOMPUTED, joint, partition, saved_values, work_of
    from passlab.autodiff.joint import ends_of, outputs_of
    from passlab.capture import lower

    right: list[bool] = []
    ratios: list[float] = []
    for seed in range(SMALL):
        yield f"all cuts of random graph {seed}"
        gm = random_graph(seed, 8, mutation=False, random=False)
        low = lower(gm, *gm.meta["inputs"]).forward
        if not ends_of(low):  # its outputs are integers
            continue
        whole, number = joint(low), len(outputs_of(low))
        needed, choices = values(whole, number)
        if not 1 <= len(choices) <= MOST:
            continue
        right.append(_bytes(saved_values(whole, number)) == least_bytes(whole, number))
        budget = max(_bytes(saved_values(whole, number, ())), int(BUDGET * _bytes(needed)))
        _, backward = partition(whole, num_fwd_outputs=number, budget=budget)
        work = sum(work_of(node) for node in backward.graph.nodes if node.meta.get(RECOMPUTED))
        ratios.append((work + 1) / (least_work(whole, number, budget) + 1))
    yield at_least(
        f"cuts of graphs of up to {MOST} values that are the least", sum(right) / len(right), 1, "", f"of {len(right)}"
    )
    yield at_most(
        f"work under {BUDGET:.0%} of the bytes, over the least", max(ratios), 1.1, "", f"of {len(ratios)} graphs"
    )


def peaks() -> Iterator[Figure | str]:
    """The most bytes that live at once in a step of training, seen while it runs, with all saved and with a budget."""
    import torch

    from passlab import peak_memory
    from passlab.autodiff import partition, rejoin, saved_values
    from passlab.capture import lower, save_all
    from passlab.memory.buffers import lower_bound
    from passlab.memory.liveness import liveness
    from passlab.memory.tasks import peak, tasks_of
    from passlab.models import ZOO

    for name in PEAKS:
        yield f"{name}: peaks"
        low = lower(ZOO[name].build(), *ZOO[name].inputs(), gradients=True, partition=save_all)
        assert low.joint is not None and low.backward is not None
        least = _bytes(saved_values(low.joint, low.outputs, ()))
        budget = max(least, int(BUDGET * low.saved_bytes))
        parts = partition(low.joint, num_fwd_outputs=low.outputs, budget=budget)
        gen = torch.Generator().manual_seed(0)
        seen, modelled, of_tasks = [], [], []
        for step in (rejoin(low.forward, low.backward, low.outputs), rejoin(*parts, low.outputs)):
            inputs = [_like(node.meta["val"], gen) for node in step.graph.find_nodes(op="placeholder")]
            tasks = tasks_of(step, *inputs)
            seen.append(int(peak_memory(step, *inputs)))
            modelled.append(lower_bound(liveness(step, *inputs)))
            of_tasks.append(peak(tasks, [task.name for task in tasks]))
        about = f"{seen[1]:,} B of {seen[0]:,} B"
        share = f"{budget / low.saved_bytes:.0%} of the bytes saved"
        yield at_most(f"{name}: measured peak of a step, {share} / all saved", seen[1] / seen[0], 1, "", about)
        off = max(abs(model / measured - 1) for model, measured in zip(modelled, seen, strict=True))
        about = "as tasks, whose results live as a whole, " + " and ".join(f"{of_task:,} B" for of_task in of_tasks)
        yield at_most(f"{name}: day 5's live storages beside the measured peaks, largest difference", off, 0, "", about)


def values(whole: Any, outputs: int) -> tuple[set, list]:
    """Return the forward values that the gradients of a joint graph need, and the values that can be saved."""
    from passlab.autodiff import bytes_of
    from passlab.autodiff.partition import _forward_nodes, _needed_by_backward

    forward = _forward_nodes(whole)
    choices = [node for node in whole.graph.nodes if node in forward and bytes_of(node) is not None]
    return _needed_by_backward(whole, outputs, forward), choices


def cuts(whole: Any, outputs: int, once: Collection[Any], budget: float = math.inf) -> Iterator[tuple[int, set]]:
    """Yield, for each set of values that can be saved within a budget, its bytes and what is computed once more."""
    from passlab.autodiff.partition import _can_be_computed_again

    needed, choices = values(whole, outputs)
    for keep in itertools.product([False, True], repeat=len(choices)):
        saved = set(itertools.compress(choices, keep))
        size = _bytes(saved)
        if size > budget:
            continue
        again: set = set()
        todo = [node for node in needed if node not in saved]
        while todo:
            node = todo.pop()
            if node not in again:
                again.add(node)
                todo += [operand for operand in node.all_input_nodes if operand not in saved]
        if all(_can_be_computed_again(node, once) for node in again):
            yield size, again


def least_bytes(whole: Any, outputs: int) -> int:
    """Return the fewest bytes that can be saved, by trying all sets of values."""
    from passlab.autodiff import EXPENSIVE

    return min(size for size, _ in cuts(whole, outputs, EXPENSIVE))


def least_work(whole: Any, outputs: int, budget: float) -> int:
    """Return the least work that computes once more what a budget cannot hold, by trying all sets of values."""
    from passlab.autodiff import work_of

    return min(sum(map(work_of, again)) for _, again in cuts(whole, outputs, (), budget))


def gradients() -> Iterator[Figure | str]:
    """How many random graphs have gradients that differ from torch's by more than rounding, in float64."""
    wrong = []
    for seed in range(GRADIENTS):
        yield f"gradients of random graph {seed}"
        if not same_gradients(seed):
            wrong.append(seed)
    yield at_most(
        f"random graphs of {GRADIENTS} whose gradients are not torch's", len(wrong), 0, "", ", ".join(map(str, wrong))
    )


def same_gradients(seed: int) -> Any:
    """Return the comparison of a random graph's joint graph with torch's, on ordinary inputs and at the edges."""
    import torch

    from passlab import equivalent, random_graph
    from passlab.autodiff import joint, torch_joint
    from passlab.autodiff.joint import ends_of
    from passlab.capture import lower

    gm = random_graph(seed, SIZE, mutation=False, random=False).requires_grad_(False)
    close: dict[str, Any] = {}
    try:
        inputs = [x.double() if x.is_floating_point() else x for x in gm.meta["inputs"]]
        low = lower(copy.deepcopy(gm).double(), *inputs).forward
        close = {"rtol": ROUNDING, "atol": ROUNDING}
    except RuntimeError:  # it converts a value to float32 and then multiplies it with a weight
        low = lower(gm, *gm.meta["inputs"]).forward
    if not ends_of(low):
        return True  # its outputs are integers, which have no gradient
    norms = [node for node in low.graph.nodes if "batch_norm" in str(node.target)]
    statistics = {part for node in norms for part in node.args[3:5]}  # torch has no gradient of these
    floats = [n for n in low.graph.find_nodes(op="placeholder") if n.meta["val"].is_floating_point()]
    wrt = [node.name for node in floats if node not in statistics]
    whole, gen = joint(low, wrt), torch.Generator().manual_seed(seed)
    values = [_like(node.meta["val"], gen) for node in whole.graph.find_nodes(op="placeholder")]
    trials = ("given", "double", "extreme", "nonfinite", "structured")
    return equivalent(torch_joint(low, wrt), whole, tuple(values), trials=trials, **close)


def _like(val: Any, gen: Any) -> Any:
    import torch

    if val.is_floating_point():
        return torch.rand(val.shape, generator=gen, dtype=val.dtype) + 0.1
    return torch.zeros(val.shape, dtype=val.dtype)


def optimizers() -> Iterator[Figure | str]:
    """Kernels and time of one step of an optimizer, beside torch.optim's loop and its lists."""
    import torch

    from passlab import launches, timed
    from passlab.autodiff import ADAM, SGD, Fused
    from passlab.models import ZOO

    rows: list[tuple[Any, Any, dict[str, Any]]] = [
        (ADAM, torch.optim.Adam, {"lr": 1e-3}),
        (SGD, torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    ]
    for method, theirs, options in rows:
        yield f"{method.name}: a step"
        model = ZOO["gpt"].build().requires_grad_(True)
        steps = {
            "loop": theirs(model.parameters(), **options, foreach=False).step,
            "lists": theirs(model.parameters(), **options, foreach=True).step,
            "one kernel": Fused(method, model.parameters(), **options).step,
        }
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for step in steps.values():
            step()
        counted = {name: launches(step) for name, step in steps.items()}
        baseline = ", ".join(f"{name}: {int(number)}" for name, number in counted.items())
        yield at_most(
            f"{method.name} on the GPT block: launches of a step", int(counted["one kernel"]), 3, "", baseline
        )
        seconds = {row.name: row.min for row in timed(steps).rows}
        yield versus(f"{method.name} on the GPT block", seconds, "one kernel", "loop")


def _saved(low: Any) -> int:
    """Return the bytes that this course's cut saves of what `lower` returned."""
    from passlab.autodiff import saved_values

    return _bytes(saved_values(low.joint, low.outputs))


def _bytes(nodes: Iterable[Any]) -> int:
    from passlab.autodiff import bytes_of

    return sum(bytes_of(node) or 0 for node in nodes)


def times(largest: int) -> Iterator[Figure | str]:
    """CPU time of the joint graph and of its cut, for random graphs of up to `largest` nodes."""
    from passlab import random_graph
    from passlab.autodiff import joint, partition
    from passlab.autodiff.joint import outputs_of
    from passlab.capture import lower

    seconds: dict[str, dict[int, float]] = {"joint graph": {}, "partition": {}}
    for size in (largest // 8, largest // 4, largest // 2, largest):
        yield f"{size} nodes: capturing"
        gm = random_graph(1, size, mutation=False, random=False, conv=False, modules=False)
        low = lower(gm, *gm.meta["inputs"]).forward
        whole, seconds["joint graph"][size] = cpu(partial(joint, low), 1)
        number = len(outputs_of(low))
        cut = cpu(partial(partition, whole, num_fwd_outputs=number))
        seconds["partition"][size] = cut.seconds
    yield at_most(f"partition of a graph of {largest:,} nodes", seconds["partition"][largest], 2, " s")
    for what, measured in seconds.items():
        yield from growth(what, measured, 1.3)
