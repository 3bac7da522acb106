"""Day 8, exercise 6: cases and judge of a whole pipeline, beside TVM's default one and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from passlab import models
from passlab.building.arrays import as_torch
from passlab.building.requests import Built
from passlab.equivalence.values import Tolerance, compare
from passlab.exercises._speed import drawn, first_wrong, pace
from passlab.exercises._tensorir import foreign_in
from passlab.judge import Case, Finding
from passlab.measure import seconds
from passlab.tvm import builds

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
    """Return a case. fewer: whether kernels can be saved; otherwise there must not be more of them."""
    inputs = (torch.randn(shape, generator=torch.Generator().manual_seed(1)),)
    about = ("valid", "same", "cost", *(["did"] if fewer else []))

    @cache
    def imported() -> Any:
        from passlab.tvm.importers import relax_module

        return relax_module(build(), *inputs)

    def arguments() -> tuple:
        return (imported().clone(),)  # functions are never edited, modules may be

    return Case(name, arguments, about, expect=Task(build, inputs, faster, fewer))


def cases() -> list[Case]:
    return [
        pipeline_case("a network for two small images", models.ZOO["convnet"].build, (2, 3, 20, 36), FASTER, True),
        pipeline_case("a transformer block", models.ZOO["gpt"].build, (1, 16, 64), FASTER, False),
    ]


def judge(case: Case, value: object) -> Iterator[Finding]:
    from passlab.tvm.judge import why_not_valid

    task: Task = case.expect
    (before,) = case.build()
    broken = why_not_valid(before, value)
    if not broken and (name := foreign_in(value)):
        broken = f"The module calls code from elsewhere ({name}), which cannot be inspected. Use TVM's kernels only."
    broken = broken or _why_not_kernels(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    model = task.model()
    built, wrong, took, ratios = pace(lambda: _compared(value, task, model, before), [task.faster])
    yield Finding("same", not wrong, wrong)
    if wrong:
        return
    launches, default = len(built.kernels), len(built.beside[0].kernels)
    most = default - task.fewer
    message = f"One run launches {launches} kernels, with TVM's default pipeline {default}"
    message += "; launch fewer." if task.fewer else "; do not launch more."
    yield Finding(
        "did",
        launches <= most,
        "" if launches <= most else f"{message} The last ones are {', '.join(built.kernels[-3:])}.",
    )
    (ratio,) = ratios
    slow = f"On one thread it takes {seconds(took)}, TVM's default pipeline {seconds(took * ratio)}: "
    slow += f"{ratio:.1f} times as fast; at least {task.faster:g} times is required."
    yield Finding("cost", ratio >= task.faster, "" if ratio >= task.faster else slow)


def _why_not_kernels(module: Any) -> str:
    """Return which call of main is not that of a kernel, by call_tir, or ""."""
    from passlab.relax import relax, tvm

    calls: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.Call):
            calls.append(getattr(expression.op, "name", "") or str(expression.op))

    relax.analysis.post_order_visit(module["main"], visit)
    other = next((name for name in calls if name != "relax.call_tir"), "")
    return other and f"main calls {other}. Return a module whose main calls kernels only, each by call_tir."


def _compared(module: Any, task: Task, model: nn.Module, before: Any) -> tuple[Built, str]:
    """Return the build of a module, timed beside the module before, and how an output differs from torch's, or ""."""
    from passlab.relax.pipelines import host

    inputs, options = drawn([x.shape for x in task.inputs]), {"target": str(host()), "threads": 1, "seconds": 60}
    built = builds.run_module(module, inputs, pipeline="none", timed=True, beside=[before], **options)
    return built, first_wrong(built, inputs, lambda outputs, x: _difference(outputs, model, x))


def _difference(outputs: list[np.ndarray], model: nn.Module, inputs: tuple[np.ndarray, ...]) -> str | None:
    """Return where the outputs of a run differ from torch's, or None."""
    with torch.no_grad():
        want = model(*map(torch.from_numpy, inputs))
    if len(outputs) != 1:
        return f"The model has one output; the build returned {len(outputs)}."
    tolerance = Tolerance.of(torch.float32, depth=200)
    differences = compare(want, as_torch(outputs[0]), tolerance)
    return f"It does not compute what torch does: {differences[0].sentence}" if differences else None
