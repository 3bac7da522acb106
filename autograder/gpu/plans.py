"""Memory plans, run in an arena on the device: day 5's arenas hold what the graphs make, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from autograder.bench.figures import Figure, not_measured
from autograder.gpu.job import Job
from passlab import models, random_graph
from passlab.equivalence.values import Tolerance, compare
from passlab.fx.programs import Program, to_device
from passlab.memory.arena import bit_equal, run
from passlab.memory.plan import planned
from passlab.memory.storages import storages
from passlab.memory.training import forward, joint

#: Models whose plans run in seconds on any device.
MODELS = ("tiny", "mlp", "convnet", "skip", "residual", "attention", "lstm")
RANDOM = 40


def programs(job: Job) -> Iterator[tuple[str, Any, tuple]]:
    """Yield (name, graph, inputs) on the device: the zoo, forward and with its gradients, and random graphs."""
    for name in MODELS:
        for kind, trace in (("forward", forward), ("training", joint)):
            model, inputs = to_device((models.ZOO[name].build(), models.ZOO[name].inputs()), job.device)
            yield f"{name}, {kind}", *trace(model, *inputs)
    for seed in range(job.seed, job.seed + RANDOM):
        gm = to_device(random_graph(seed, 25, random=False), job.device)
        if Program(gm).run(gm.meta["inputs"], device=job.device).error is None:
            yield f"random graph {seed}", gm, gm.meta["inputs"]


def plans(job: Job) -> Iterator[Figure | str]:
    """Run each program as its plan says, and compare with eager torch on the same device.

    Equality up to rounding is enough on a GPU: a library chooses an algorithm by the alignment of the operands, which
    is 64 bytes in an arena and 512 in torch's own memory, and some add by atomics, in no fixed order. On a CPU all bits
    have to be equal.
    """
    ran, equal, near, arena, total = 0, 0, 0, 0, 0
    for name, gm, inputs in programs(job):
        if job.left < 0 or (job.sample and ran >= job.sample):
            yield not_measured(f"the programs from {name} on", "the time or the sample of this part was over")
            break
        ran += 1
        yield name
        plan = planned(gm, *inputs)
        results, expected = run(gm, plan, *inputs), gm(*inputs)
        arena += plan.arena
        total += sum(one.size for one in storages(gm, *inputs) if one.kind == "value")
        if bit_equal(results, expected):
            equal += 1
            continue
        rounding = Tolerance.of(torch.float32, len(gm.graph.nodes))
        if differences := compare(expected, results, rounding):
            text = differences[0].sentence.replace(" before and ", " by itself and ").replace(" after", " in the arena")
            yield Figure(name, f"wrong: {text}", held=False)
        else:
            near += 1
            yield Figure(name, "equal up to rounding, not bit by bit", held=False if job.interpret else None)
    right, about = equal if job.interpret else equal + near, f"{equal} bit by bit, {near} up to rounding"
    title, share = "programs that are in an arena what they are", f"{right} of {ran}"
    yield Figure(title, share, about, "all", right == ran > 0, float(equal))
    if total:
        about = f"{arena:,} bytes in arenas, {total:,} bytes of values"
        yield Figure("arenas / bytes of all values", f"{arena / total:.3g}", about, value=arena / total)
