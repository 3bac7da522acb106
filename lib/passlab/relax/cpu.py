"""Schedule the loops of a kernel for a CPU: questions about a schedule, steps that TVM may reject, and a rule.

    schedule = cpu_schedule(function)       # tvm.tirx.PrimFunc in, tvm.s_tir.Schedule out

`passlab.kernels.schedule` builds another rule from the same parts, for the kernels of FX graphs.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

#: Steps of a loop nest below which a second core costs more than it saves: waking it takes several microseconds.
WORTH_A_CORE = 2**17


def host() -> tvm.target.Target:
    """Return this machine's processor as a target. Plain "llvm" uses no vector instructions newer than SSE2 (2001)."""
    from passlab.relax import tvm

    return tvm.target.Target.from_device("cpu")


# ------------------------------------------------------------------------------------------------ questions


def blocks(schedule: Any) -> list:
    """Return the stages of a kernel, in order."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def is_spatial(schedule: Any, block: Any) -> bool:
    """Return whether a stage is free of reductions."""
    return not reduces(schedule.get(block))


def reduces(stage: Any) -> bool:
    return any(int(axis.iter_type) != 0 for axis in stage.iter_vars)


def extent(schedule: Any, loop: Any) -> int:
    """Return a loop's trip count; 0 if unknown."""
    size = schedule.get(loop).extent
    return getattr(size, "value", size) if isinstance(getattr(size, "value", size), int) else 0


def widest(size: int, limit: int) -> int:
    """Return the largest divisor of a loop's size that is at most `limit`."""
    return max((d for d in range(1, min(size, limit) + 1) if size % d == 0), default=1)


def variables(expr: Any) -> list:
    """Return the variables in an index, as often as they occur."""
    import tvm_ffi

    from passlab.relax import tvm

    variables: list = []
    tvm_ffi.structural_walk(expr, (tvm.tirx.Var, variables.append), order="post")
    return variables


# ------------------------------------------------------------------------------------------------ steps


def tried(schedule: Any, *steps: Callable[[Any], None]) -> Any:
    """Return the schedule after the first step that TVM accepts, None if it accepts none."""
    from passlab.relax import tvm

    for step in steps:
        trial = schedule.copy()
        with contextlib.suppress(tvm.s_tir.ScheduleError):
            step(trial)
            return trial
    return None


def refuse(reason: str) -> None:
    """Reject a step, as TVM does."""
    from passlab.relax import tvm

    raise tvm.s_tir.ScheduleError(reason)


def parallel_if_long(schedule: Any, loop: Any, steps: int) -> None:
    """Split a loop over the cores, if its nest has enough steps to be worth it."""
    if steps >= WORTH_A_CORE:
        schedule.parallel(loop)


# ------------------------------------------------------------------------------------------------ a rule: cpu_schedule


def cpu_schedule(function: Any) -> Any:
    """Schedule a kernel for a CPU: several cores, vector registers, and a tile of the result kept in registers.

    1. Element-wise stages with one consumer are inlined into it.
    2. A reduction (convolution, matmul, pooling, softmax's sums) gets a tile: the innermost spatial loop becomes a
       vector, as wide as two registers, if the elements it reads are adjacent in memory; the last spatial loop that the
       vector's operand does not depend on gives the tile its rows, so that each loaded vector is used once per row; the
       reduction loops run around the tile, and the consumer of the result follows within it.
    3. All other stages are split over the cores, with a vectorized innermost loop.
    A step that TVM rejects is skipped: schedule primitives never change what is computed.
    """
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(function)
    for block in blocks(schedule):
        readers = schedule.get_consumers(block)
        if len(readers) == 1 and is_spatial(schedule, block) and is_spatial(schedule, readers[0]):
            schedule = tried(schedule, lambda trial, block=block: trial.compute_inline(block)) or schedule
    for block in blocks(schedule):
        if not is_spatial(schedule, block):
            ways = [functools.partial(_tile, block=block, alone=alone) for alone in (False, True)]
            schedule = tried(schedule, *ways, functools.partial(_only_parallel, block=block)) or schedule
    for block in blocks(schedule):
        scheduled = any(int(schedule.get(loop).kind) for loop in schedule.get_loops(block))
        if is_spatial(schedule, block) and not scheduled:
            schedule = tried(schedule, functools.partial(_spread, block=block)) or schedule
    return schedule


def _lanes(dtype: str) -> int:
    """Return how many numbers of a type fit into a vector register of the current target."""
    from passlab.relax import tvm

    target = tvm.target.Target.current(allow_none=True) or host()
    bits = int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz") or 8)
    return max(tvm.target.codegen.llvm_get_vector_width(target) // bits, 2)


def _steps(axes: list) -> int:
    """Return how many steps a nest of (loop, axis) has; a loop of unknown length counts as a long one."""
    return math.prod(getattr(axis.dom.extent, "value", WORTH_A_CORE) for _, axis in axes)


def _read_by(block: Any) -> list[list[set]]:
    """Return, for each buffer that a block reads, the iteration variables in each of its indices."""
    return [[set(variables(index.min)) for index in read.region] for read in block.reads if len(read.region)]


def _tile(schedule: Any, block: Any, alone: bool) -> None:
    stage = schedule.get(block)
    loops = schedule.get_loops(block)
    if len(loops) != len(stage.iter_vars):
        refuse("a loop is missing")
    axes = list(zip(loops, stage.iter_vars, strict=True))
    spatial = [(loop, axis.var) for loop, axis in axes if int(axis.iter_type) == 0]
    reducing = [loop for loop, axis in axes if int(axis.iter_type) != 0]
    reads, readers = _read_by(stage), schedule.get_consumers(block)
    lanes = _lanes(str(stage.writes[0].source.dtype))
    vector, last = spatial[-1] if spatial else refuse("nothing is spatial")
    loaded = [indices for indices in reads if last in indices[-1]]
    width = widest(extent(schedule, vector), 2 * lanes)
    if not loaded or width < min(4, lanes):
        refuse("the elements of a vector would not be adjacent in memory")
    if alone:
        after = schedule.cache_write(block, 0, "local")
    elif len(readers) == 1 and is_spatial(schedule, readers[0]):
        (after,) = readers
        schedule.set_scope(block, 0, "local")
    else:
        refuse("no stage can follow within the tile")

    around, inside = [loop for loop, _ in spatial[:-1]], []
    reused = [at for at, (_, axis) in enumerate(spatial[:-1]) if not any(axis in i for read in loaded for i in read)]
    if reused and len(reads) > 1:
        at, most = reused[-1], 8 if lanes >= 16 else 4
        around[at], rows = schedule.split(around[at], [None, widest(extent(schedule, around[at]), most)])
        inside.append(rows)
    columns, vector = schedule.split(vector, [None, width])
    schedule.reorder(columns, *around, *reducing, *inside, vector)
    tile = schedule.fuse(columns, *around)
    schedule.reverse_compute_at(after, tile)
    parallel_if_long(schedule, tile, _steps(axes))
    schedule.vectorize(vector)
    schedule.vectorize(schedule.get_loops(after)[-1])
    for rows in inside:
        schedule.unroll(rows)
    schedule.decompose_reduction(block, reducing[0])


def _only_parallel(schedule: Any, block: Any) -> None:
    """Spread a reduction's elements over cores; put the innermost spatial loop last, where LLVM may vectorize it."""
    stage, loops = schedule.get(block), schedule.get_loops(block)
    axes = list(zip(loops, stage.iter_vars, strict=False))
    spatial = [loop for loop, axis in axes if int(axis.iter_type) == 0]
    if not spatial:
        refuse("nothing is spatial")
    parallel_if_long(schedule, schedule.fuse(*spatial), _steps(axes))


def _spread(schedule: Any, block: Any) -> None:
    """Spread an element-wise stage over cores and vectors."""
    *outer, inner = schedule.get_loops(block)
    axes = list(zip((*outer, inner), schedule.get(block).iter_vars, strict=False))
    width = widest(extent(schedule, inner), 64)
    if width > 1:
        split, inner = schedule.split(inner, [None, width])
        schedule.vectorize(inner)
        outer.append(split)
    if outer:
        parallel_if_long(schedule, schedule.fuse(*outer), _steps(axes))
