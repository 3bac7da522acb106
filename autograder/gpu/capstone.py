"""Compiled models of day 12, built for the device: the course's compiler, with Triton kernels where it can write them.

Each program is compared with its graph, each kernel with its group. On a GPU they are timed by turns with eager and
torch.compile; without one, Triton's interpreter runs the kernels, and no time is taken.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autograder.bench.figures import Figure, not_measured
from autograder.gpu.job import Job
from passlab.judge import plural

FAMILIES = ("mlp", "convnet", "residual", "gpt", "lstm", "vit")
GRAPHS = 6
#: Rows and columns of the chain: what fills a GPU, and what an interpreter does in a second.
LARGE, SMALL = (4096, 4096), (64, 96)
#: Rounds in which the competitors are timed.
ROUNDS = 9


def models(job: Job) -> Iterator[tuple[str, Any, tuple]]:
    """Yield (name, graph, inputs), on the CPU."""
    import torch

    from passlab.capstone.families import drawn, generated
    from passlab.exercises.day12.faster import chain
    from passlab.fx.cases import graph

    torch.manual_seed(job.seed)
    gm = graph(chain, *[SMALL if job.interpret else LARGE] * 2)()
    yield "chain", gm, tuple(gm.meta["inputs"])
    for at in range(GRAPHS):
        drawn_graph = generated(job.seed + at, 30, random=False, views=False)
        yield drawn_graph.name, drawn_graph.graph(), drawn_graph.inputs
    for family in FAMILIES:
        model = drawn(family, job.seed)
        yield family, model.graph(), model.inputs


def with_kernels(compiled: Any, inputs: tuple) -> Any:
    """Return a compiled model with the course's Triton kernels for those groups that are element-wise."""
    from passlab.capstone.compiled import with_shapes
    from passlab.capstone.triton import generated
    from passlab.kernels import Unsupported, subgraph

    gm, kernels = with_shapes(compiled.graph, inputs), {}
    for group in compiled.groups:
        try:
            kernels[group[0]] = generated(subgraph(gm, group))
        except Unsupported:
            continue
    return replace(compiled, kernels=kernels)


def capstone(job: Job) -> Iterator[Figure | str]:
    """Build each model on the device, compare it with its graph, and time it."""
    if importlib.util.find_spec("triton") is None:
        yield not_measured("compiled models", "the package triton is missing here")
        return
    from passlab.capstone import BASELINES, build, examined, measure, on
    from passlab.capstone.reference import compile
    from passlab.fx.programs import to_device

    device, ran, right, kernels, kinds = "cpu" if job.interpret else job.device, 0, 0, 0, Counter()
    for name, gm, inputs in models(job):
        if job.left < 5 or (job.sample and ran >= job.sample):
            yield not_measured(f"the models from {name} on", "the time or the sample of this part was over")
            break
        ran += 1
        yield name
        compiled = with_kernels(compile(gm, inputs), inputs)
        kernels += len(compiled.kernels)
        report = examined(compiled, inputs, gm, 0, None, device)
        if problem := report["broken"] or report["differs"]:
            yield Figure(name, f"wrong: {problem}", held=False)
            continue
        right += 1
        if not job.interpret:
            kinds.update(build(on(device, compiled), to_device(inputs, device)).kinds.values())
            chosen = {one: BASELINES[one] for one in ("eager", "torch.compile")}
            entry = measure(gm, compiled, inputs, chosen, name, ROUNDS, device)
            note = ", ".join(f"{row.name} {row.missing or f'{row.ratio:.2f}'}" for row in entry.rows[1:])
            ratio = entry["mine"].ratio
            yield Figure(f"{name}: time over eager's", f"{ratio:.3g}x", note, value=ratio)
    about = f"{kernels} Triton kernels as their groups"
    about += f"; steps: {', '.join(plural(count, kind) for kind, count in kinds.items())}" if kinds else ""
    yield Figure(
        "programs that compute what their graph does", f"{right} of {ran}", about, "all", right == ran > 0, right
    )
    if job.interpret:
        yield not_measured("time of compiled models", "there is no GPU")
