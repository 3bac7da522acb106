"""What a compiled model costs, counted: the same on every machine."""

from __future__ import annotations

import contextlib
import copy
import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import fx

from passlab.capstone.building import build, grouped, plan_of
from passlab.capstone.compiled import BadCompiled, Compiled, same_outputs
from passlab.fx.effects import has_effects
from passlab.fx.elsewhere import confined
from passlab.fx.programs import copy_inputs
from passlab.measure import bytes_moved, launches, peak_memory
from passlab.memory.buffers import lower_bound, peak_step
from passlab.memory.liveness import liveness
from passlab.memory.plan import Plan
from passlab.process.clock import cpu_time

#: A compiled model's peak may be so much of the model's own, and so many bytes more.
SHARE_OF_PEAK, ROOM = 1.1, 4096
#: Settings of glibc's mallopt, from <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True)
class Counts:
    """`launches`: kernels started; `bytes`: read and written by the steps; `peak`: bytes of the plan's arena."""

    launches: int
    bytes: int
    peak: int

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def counts(compiled: Compiled, inputs: Sequence[Any]) -> Counts:
    """Return what a compiled model costs on such inputs. Nothing is built; a group is one launch. Raises BadCompiled.

    A model that was not compiled is `Compiled(gm)`.
    """
    gm = grouped(compiled.graph, compiled.groups, inputs)
    plan = plan_of(compiled, inputs)
    if has_effects(compiled.graph.graph):
        gm = copy.deepcopy(gm)  # a run may write into its buffers
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        started = launches(gm, *copy_inputs(tuple(inputs)))
        moved = bytes_moved(gm, *copy_inputs(tuple(inputs)))
        peak = plan.arena if plan is not None else peak_memory(gm, *copy_inputs(tuple(inputs)))
    return Counts(int(started), int(moved), int(peak))


def peak_told(gm: fx.GraphModule, plan: Plan, inputs: Sequence[Any]) -> str:
    """Return where a plan's memory is needed, as a sentence: the step of its peak, and the largest buffer there."""
    buffers = liveness(gm, *inputs, order=plan.order)
    step = peak_step(buffers)
    live = [buffer for buffer in buffers if buffer.lower <= step < buffer.upper]
    if not live:
        return "No step needs any."
    largest = max(live, key=lambda buffer: buffer.size)
    where = f"{lower_bound(buffers):,} in step {plan.order[step]}, of which {largest.name} has {largest.size:,}"
    return f"The most bytes that live at once are {where}."


def too_much(before: fx.GraphModule, compiled: Compiled, peak: int, inputs: Sequence[Any]) -> str | None:
    """Return why a compiled model with this peak needs more memory than it may, or None. Raises BadCompiled."""
    own, plan = plan_of(Compiled(before), inputs), plan_of(compiled, inputs)
    most = int(SHARE_OF_PEAK * own.arena) + ROOM if own is not None else peak
    if peak <= most:
        return None
    told = f"It needs {peak:,} bytes for what it computes, and the model as it is {own.arena:,}; at most {most:,} are"
    where = peak_told(grouped(compiled.graph, compiled.groups, inputs), plan, inputs) if plan is not None else ""
    return f"{told} allowed. {where}".strip()


@confined
def examined(compiled: Compiled, inputs: Sequence[Any], before: fx.GraphModule | None = None, rounds: int = 0) -> dict:
    """Return what there is to know of a compiled model whose form is right (`wrong`), as data.

    "broken": why no program can be built from it, or ""; else "launches", "bytes", "peak" (see `Counts`). With
    `before`, the model's own graph, its memory is limited, too (`too_much`); with `rounds` as well, it is built and
    timed: "eager" and "mine" are then seconds of CPU time per call, one number for each round.
    """
    try:
        if why := same_outputs(before, compiled, inputs) if before is not None else None:
            return {"broken": why}
        found: dict[str, Any] = {"broken": "", **counts(compiled, inputs).to_json()}
        if before is not None and (why := too_much(before, compiled, found["peak"], inputs)):
            return {"broken": why}
        if rounds:
            keep_memory()
            calls = {"eager": before, "mine": build(compiled, inputs, parallel=False)}
            found |= cpu_seconds(calls, inputs, rounds)
    except BadCompiled as error:
        return {"broken": str(error)}
    return found


def keep_memory() -> None:
    """Let this process keep the memory that it frees, where its C library can.

    Otherwise glibc gives the memory of large tensors back, or not, depending on what was freed earlier, and eager's
    time varies threefold with the faults of new pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD) if mallopt else ():
        mallopt(setting, 2**30)


@contextlib.contextmanager
def one_thread():
    """Let torch use one thread: several wait for each other on a busy machine, and waiting costs CPU time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cpu_seconds(calls: Mapping[str, Callable], inputs: Sequence[Any], rounds: int) -> dict[str, list[float]]:
    """Return name → seconds of CPU time per call in each round; in a round each function has its turn."""
    inputs, times, counts_of = copy_inputs(tuple(inputs)), {name: [] for name in calls}, {}
    with torch.no_grad(), one_thread():
        for name, call in calls.items():
            for _ in range(3):
                call(*inputs)
            start = cpu_time()
            call(*inputs)
            counts_of[name] = max(1, int(2e-3 / max(cpu_time() - start, 1e-6)))
        for _ in range(rounds):
            for name, call in calls.items():
                start = cpu_time()
                for _ in range(counts_of[name]):
                    call(*inputs)
                times[name].append((cpu_time() - start) / counts_of[name])
    return times
