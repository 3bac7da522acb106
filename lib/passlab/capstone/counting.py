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

from passlab.capstone.building import build, device_of, differing, plan_of, steps_of
from passlab.capstone.compiled import BadCompiled, Compiled, on, same_outputs
from passlab.fx.effects import has_effects
from passlab.fx.elsewhere import confined
from passlab.fx.programs import Program, copy_inputs, to_device
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

    A model that was not compiled is `Compiled(gm)`. One that is on a GPU is counted in a copy on the CPU: a group is
    one launch there, too, though a library may start several kernels in its call.
    """
    if device_of(inputs).type != "cpu":
        compiled, inputs = on("cpu", compiled), to_device(tuple(inputs), "cpu")
    gm = steps_of(compiled, inputs)
    plan = plan_of(compiled, inputs, gm)
    if has_effects(compiled.graph.graph):
        gm = copy.deepcopy(gm)  # a run may write into its buffers
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        started = launches(gm, *copy_inputs(tuple(inputs)))
        traffic = bytes_moved(gm, *copy_inputs(tuple(inputs)))
        peak = plan.arena if plan is not None else peak_memory(gm, *copy_inputs(tuple(inputs)))
    return Counts(int(started), int(traffic), int(peak))


def peak_sentence(gm: fx.GraphModule, plan: Plan, inputs: Sequence[Any]) -> str:
    """Return where a plan's memory is needed, as a sentence: the step of its peak, and the largest buffer there."""
    buffers = liveness(gm, *inputs, order=plan.order)
    step = peak_step(buffers)
    live = [buffer for buffer in buffers if buffer.lower <= step < buffer.upper]
    if not live:
        return "No step needs any."
    largest = max(live, key=lambda buffer: buffer.size)
    where = f"{lower_bound(buffers):,} in step {plan.order[step]}, of which {largest.name} has {largest.size:,}"
    return f"The most bytes that live at once are {where}."


def allowed(before: fx.GraphModule, inputs: Sequence[Any]) -> tuple[int, int] | None:
    """Return what a model needs as it is, and what it may need compiled, in bytes; None where it can have no plan."""
    own = plan_of(Compiled(before), inputs)
    return None if own is None else (own.arena, int(SHARE_OF_PEAK * own.arena) + ROOM)


def too_much(compiled: Compiled, peak: int, inputs: Sequence[Any], own: int, most: int) -> str | None:
    """Return why a compiled model with this peak needs more than the `most` of a model that needs `own`, or None."""
    if peak <= most:
        return None
    told = f"It needs {peak:,} bytes for what it computes, and the model as it is {own:,}; at most {most:,} are"
    steps = steps_of(compiled, inputs)
    plan = plan_of(compiled, inputs, steps)
    where = peak_sentence(steps, plan, inputs) if plan is not None else ""
    return f"{told} allowed. {where}".strip()


@confined
def examined(
    compiled: Compiled,
    inputs: Sequence[Any],
    before: fx.GraphModule | None = None,
    rounds: int = 0,
    memory: tuple[int, int] | None = None,
    device: str = "cpu",
) -> dict:
    """Return what there is to know of a compiled model whose form is right (`wrong`), as data.

    "broken": why no program can be built from it, or ""; else "differs": how its kernels and layouts compute something
    else than its graph, or "", and "launches", "bytes", "peak" (see `Counts`). memory: what the model needs, and may
    need (`allowed`). With `before`, the model's own graph, and `rounds`, it is built and timed: "eager" and "mine" are
    then seconds per call, one number for each round. device: where it is built and compared with its graph, unless that
    names another or is on a GPU already.
    """
    try:
        if why := same_outputs(before, compiled, inputs) if before is not None else None:
            return {"broken": why}
        found: dict[str, Any] = {"broken": "", **counts(compiled, inputs).to_json()}
        if memory is not None and (why := too_much(compiled, found["peak"], inputs, *memory)):
            return {"broken": why}
        here = device_of(inputs).type == "cpu"
        if here and device != "cpu" and Program(compiled.graph).run(inputs, device=device).error is None:
            compiled, inputs = on(device, compiled), to_device(tuple(inputs), device)
            before = to_device(copy.deepcopy(before), device)
        found["differs"] = differing(compiled, inputs)
        if rounds:
            keep_memory()
            calls = {"eager": before, "mine": build(compiled, inputs, parallel=False)}
            found |= seconds_by_turns(calls, inputs, rounds)
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


def seconds_by_turns(calls: Mapping[str, Callable], inputs: Sequence[Any], rounds: int) -> dict[str, list[float]]:
    """Return name → seconds per call in each round; in a round each function has its turn.

    On the CPU they are seconds of CPU time, on a GPU those between two events of its stream.
    """
    device = device_of(inputs)
    took = _gpu_seconds if device.type == "cuda" else _cpu_seconds
    inputs, times, counts_of = copy_inputs(tuple(inputs), str(device)), {name: [] for name in calls}, {}
    with torch.no_grad(), one_thread():
        for name, call in calls.items():
            for _ in range(3):
                call(*inputs)
            counts_of[name] = max(1, int(2e-3 / max(took(call, inputs, 1), 1e-6)))
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(took(call, inputs, counts_of[name]))
    return times


def _cpu_seconds(call: Callable, inputs: Sequence[Any], count: int) -> float:
    start = cpu_time()
    for _ in range(count):
        call(*inputs)
    return (cpu_time() - start) / count


def _gpu_seconds(call: Callable, inputs: Sequence[Any], count: int) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        call(*inputs)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / count
