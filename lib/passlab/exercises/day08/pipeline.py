"""Day 8, exercise 6: cases and judge of a whole pipeline, beside TVM's default one and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from passlab import models
from passlab.equivalence.values import Tolerance, compare
from passlab.judge import Case, Finding
from passlab.measure import seconds
from passlab.tvm import builds

#: The most timings of a module: another program may take the core in the middle of some.
TIMINGS = 12
#: The required speedup over TVM's default pipeline. Both get one thread: a second core may be busy.
FASTER = 4.0


@dataclass(frozen=True)
class Task:
    """`faster`: the required speedup over TVM's default pipeline. `fewer`: must it launch fewer kernels, too?"""

    model: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, ...]
    faster: float
    fewer: bool


def pipeline_case(name: str, build: Callable[[], nn.Module], shape: tuple, faster: float, fewer: bool) -> Case:
    """fewer: whether kernels can be saved; otherwise there must not be more of them."""
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(1)),)
    about = ("valid", "same", "cost", *(["did"] if fewer else []))

    def arguments() -> tuple:
        from passlab.tvm.importers import relax_module

        return (relax_module(build(), *inputs),)

    return Case(name, arguments, about, expect=Task(build, inputs, faster, fewer))


def cases() -> list[Case]:
    return [
        pipeline_case("a small convolutional network", models.ZOO["convnet"].build, (1, 3, 32, 32), FASTER, True),
        pipeline_case("two images at once", models.ZOO["convnet"].build, (2, 3, 20, 36), FASTER, True),
        pipeline_case("a transformer block", models.ZOO["gpt"].build, (1, 16, 64), FASTER, False),
    ]


def judge(case: Case, value: object) -> Iterator[Finding]:
    from passlab.tvm.judge import valid

    task: Task = case.expect
    (before,) = case.build()
    broken = valid(before, value)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    default = _default(case, before)
    base = min(default.times)
    mine = _run(value, task, "none", base / task.faster)
    wrong = mine.error or _difference(mine, task)
    yield Finding("same", not wrong, wrong or "")
    if wrong:
        return
    here, there = len(mine.kernels), len(default.kernels)
    most = there - task.fewer
    said = f"One run launches {here} kernels, with TVM's default pipeline {there}"
    said += "; launch fewer." if task.fewer else "; do not launch more."
    yield Finding(
        "did", here <= most, "" if here <= most else f"{said} The last ones are {', '.join(mine.kernels[-3:])}."
    )
    least = min(mine.times)
    slow = f"On one thread it takes {seconds(least)}, TVM's default pipeline {seconds(base)}: "
    slow += f"{base / least:.1f} times as fast; at least {task.faster:g} times is required."
    yield Finding("cost", base / least >= task.faster, "" if base / least >= task.faster else slow)


def _run(module: Any, task: Task, pipeline: str | None, enough: float = 0.0) -> builds.Built:
    from passlab.relax.pipelines import host

    how = {"repeats": TIMINGS, "enough": enough} if enough else {"repeats": 3}
    return builds.run_module(module, [task.inputs], target=str(host()), pipeline=pipeline, threads=1, seconds=60, **how)


def _default(case: Case, module: Any) -> builds.Built:
    """Return the build of a case's module with TVM's default pipeline; one build for each case."""
    if case.name not in _defaults:
        built = _run(module, case.expect, None)
        if not built.ok:
            raise RuntimeError(f"TVM's default pipeline fails on {case.name}: {built.error}")
        _defaults[case.name] = built
    return _defaults[case.name]


_defaults: dict[str, builds.Built] = {}


def _difference(built: builds.Built, task: Task) -> str | None:
    """Return where the outputs differ from torch's, or None."""
    with torch.no_grad():
        want = task.model()(*task.inputs)
    outputs = built.outputs[0]
    if len(outputs) != 1:
        return f"The model has one output; the build returned {len(outputs)}."
    tolerance = Tolerance.of(torch.float32, depth=200)
    found = compare(want, builds.as_torch(outputs[0]), tolerance)
    return f"It does not compute what torch does: {found[0].sentence}" if found else None
