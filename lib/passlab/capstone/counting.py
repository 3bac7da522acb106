"""Count the cost of a compiled model: the same on every machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from passlab.capstone.building import device_of, plan_of, steps_of
from passlab.capstone.comparing import differing, seconds_by_turns
from passlab.capstone.compiled import BadCompiled, Compiled, on, other_outputs, output_types
from passlab.fx.isolation import confined
from passlab.fx.measure import traffic
from passlab.fx.programs import Program, copy_inputs, to_device
from passlab.measure import launches, peak_memory
from passlab.memory.buffers import lower_bound, peak_step
from passlab.memory.liveness import liveness
from passlab.memory.plan import Plan

#: A compiled model's peak may be this multiple of the model's own, and this many bytes more.
SHARE_OF_PEAK, ROOM = 1.1, 4096


@dataclass(frozen=True)
class Counts:
    """`launches`: kernels started; `bytes`: read and written by the steps; `peak`: bytes of the plan's arena."""

    launches: int
    bytes: int
    peak: int

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def counts(compiled: Compiled, inputs: Sequence[Any], may_run: bool = True) -> Counts:
    """Return the cost of a compiled model on such inputs; a group is one launch. Raises BadCompiled.

    Nothing is built, and nothing runs: tensors without data pass through the graph. Only if a size depends on numbers
    does it run, if it `may_run`. A model that was not compiled is `Compiled(gm)`. A model on a GPU is counted in a copy
    on the CPU: a group is one launch there, too, though a library may start several kernels in its call.
    """
    if device_of(inputs).type != "cpu":
        compiled, inputs = on("cpu", compiled), to_device(tuple(inputs), "cpu")
    gm = steps_of(compiled, inputs)
    plan = plan_of(compiled, inputs, gm)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        shapes = tree_map_only(torch.Tensor, mode.from_tensor, tuple(inputs))
        return _counts(_without_data(copy.deepcopy(gm), mode.from_tensor), plan, lambda: shapes)
    except Exception as error:  # an operation needed data, and there is none
        if not may_run:
            message = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise BadCompiled(f"What the graph costs depends on numbers, and cannot be counted: {message}") from error
    return _counts(copy.deepcopy(gm), plan, lambda: copy_inputs(tuple(inputs)))  # a run may write into its buffers


def _counts(gm: fx.GraphModule, plan: Plan | None, inputs: Callable[[], tuple]) -> Counts:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        started = launches(gm, *inputs())
        moved = sum(traffic(gm, *inputs()).values())
        peak = plan.arena if plan is not None else peak_memory(gm, *inputs())
    return Counts(int(started), moved, int(peak))


def _without_data(gm: fx.GraphModule, fake: Callable[[torch.Tensor], torch.Tensor]) -> fx.GraphModule:
    """Replace every parameter, buffer and constant of a graph by a tensor without data."""
    copies: dict[int, torch.Tensor] = {}  # a tensor in two places stays one

    def replaced(t: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(t), fake(t.detach()))

    for module in gm.modules():
        for home in (module._parameters, module._buffers, vars(module)):
            for name, value in home.items():
                if isinstance(value, nn.Parameter):
                    home[name] = nn.Parameter(replaced(value), requires_grad=False)
                elif isinstance(value, torch.Tensor):
                    home[name] = replaced(value)
    return gm


def peak_sentence(gm: fx.GraphModule, plan: Plan, inputs: Sequence[Any]) -> str:
    """Return the peak of a plan's memory as a sentence: its step, and the largest buffer there."""
    buffers = liveness(gm, *inputs, order=plan.order)
    step = peak_step(buffers)
    live = [buffer for buffer in buffers if buffer.lower <= step < buffer.upper]
    if not live:
        return "No step needs any."
    largest = max(live, key=lambda buffer: buffer.size)
    where = f"{lower_bound(buffers):,} in step {plan.order[step]}, of which {largest.name} has {largest.size:,}"
    return f"The most bytes that live at once are {where}."


def allowed(before: fx.GraphModule, inputs: Sequence[Any]) -> tuple[int, int] | None:
    """Return the bytes that a model needs as it is, and may need compiled, or None if it cannot have a plan."""
    own = plan_of(Compiled(before), inputs)
    return None if own is None else (own.arena, int(SHARE_OF_PEAK * own.arena) + ROOM)


def too_much(compiled: Compiled, peak: int, inputs: Sequence[Any], own: int, most: int) -> str | None:
    """Return why a peak is more than `most`, for a model that needs `own` as it is, or None."""
    if peak <= most:
        return None
    sentence = f"It needs {peak:,} bytes for what it computes, and the model as it is {own:,}; at most {most:,} are"
    steps = steps_of(compiled, inputs)
    plan = plan_of(compiled, inputs, steps)
    where = peak_sentence(steps, plan, inputs) if plan is not None else ""
    return f"{sentence} allowed. {where}".strip()


def examined(
    compiled: Compiled,
    inputs: Sequence[Any],
    before: fx.GraphModule | None = None,
    rounds: int = 0,
    memory: tuple[int, int] | None = None,
    device: str = "cpu",
) -> dict:
    """Return all figures of a compiled model that passed `why_not_compiled`, as data. Raises ProcessLostError.

    "broken": why no program can be built from it, or ""; else "differs": how its kernels and layouts differ from its
    graph, or "", and "launches", "bytes", "peak" (see `Counts`). memory: the bytes that the model needs, and may need
    (`allowed`). With `before`, the model's own graph, and `rounds`, it is built and timed: "eager" and "mine" are then
    seconds per call, one number for each round. device: where it is built and compared with its graph, unless the
    inputs are on a GPU already.

    Counting happens in a process where nothing of it has run; see `passlab.capstone.comparing` for the rest.
    """
    figures = counted(compiled, inputs, output_types(before, inputs) if before is not None else None, memory)
    if figures.get("broken") != "":
        return figures
    if device != "cpu" and Program(compiled.graph).run(tuple(inputs), device=device).error is not None:
        device = "cpu"
    try:
        figures |= {"differs": differing(compiled, inputs, device)}
        if rounds and not figures["differs"]:
            figures |= seconds_by_turns(compiled, before, inputs, rounds)
    except BadCompiled as error:
        return {"broken": str(error)}
    return figures


@confined
def counted(
    compiled: Compiled, inputs: Sequence[Any], types: list | None = None, memory: tuple[int, int] | None = None
) -> dict:
    """Return "broken" or the counts of `examined`, by tensors without data; nothing runs.

    types: those of the outputs of the model's own graph (`output_types`).
    """
    try:
        if reason := other_outputs(compiled, inputs, types) if types is not None else None:
            return {"broken": reason}
        cost = counts(compiled, inputs, may_run=False)
        if memory is not None and (reason := too_much(compiled, cost.peak, inputs, *memory)):
            return {"broken": reason}
    except BadCompiled as error:
        return {"broken": str(error)}
    return {"broken": "", **cost.to_json()}
