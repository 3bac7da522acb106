"""Schedule the loops of a kernel, for a CPU and for CUDA.

    on_cpu(function)       # tvm.tirx.PrimFunc in, tvm.tirx.PrimFunc out
    on_cuda(function)

A schedule never changes what is computed; if TVM rejects a step, the loops stay as they were before it. How wide its
vectors are and the like are numbers, `Knobs`, so that a schedule can be handed over as data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from passlab.relax.cpu import blocks, is_spatial, parallel_if_long, refuse, tried, variables, widest

if TYPE_CHECKING:
    import tvm

#: A reduction keeps a vector of up to this many sums; an element-wise loop is cut into chunks of about that many.
VECTOR, CHUNK = 64, 2**14

#: Knob of a schedule → its values, the default first.
KNOBS: Mapping[str, tuple] = {
    "tile": (CHUNK, *(2**n for n in range(8, 19) if 2**n != CHUNK)),
    "vector": (VECTOR, 1, 8, 16, 32, 128),
    "parallel": (True, False),
    "unroll": (1, 2, 4, 8, 16),
    "block": (1024, 128, 256, 512, 2048, 4096),
}


@dataclass(frozen=True)
class Knobs:
    """The numbers of a schedule, with values from `KNOBS`.

    `tile`: elements in a chunk of an element-wise loop; `vector`: the most sums that a reduction keeps side by side;
    `parallel`: whether large loops are spread over the cores; `unroll`: steps of the innermost element-wise loop that
    are written out; `block`: elements per program of a Triton kernel, on a GPU.
    """

    tile: int = CHUNK
    vector: int = VECTOR
    parallel: bool = True
    unroll: int = 1
    block: int = 1024


DEFAULT = Knobs()


def on_cpu(
    function: tvm.tirx.PrimFunc, vectors: bool = True, knobs: Knobs = DEFAULT, rows: bool = True
) -> tvm.tirx.PrimFunc:
    """Spread the outer loops over cores and the inner over vector registers; keep each row of a reduction together.

    LLVM vectorizes element-wise loops, but not reductions, since it may not reorder float additions: `vectors` says
    whether to do so here. rows: whether to try to go through all stages row by row.
    """
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(function)
    whole_rows = functools.partial(_by_rows, vectors=vectors, knobs=knobs)
    if rows and (scheduled := tried(schedule, whole_rows)) is not None:
        return scheduled.mod["main"]
    for nest in _nests(schedule):
        element_wise = is_spatial(schedule, nest[0])
        step = _element_wise if element_wise else functools.partial(_reduction, vectors=vectors)
        schedule = tried(schedule, functools.partial(step, nest=nest, knobs=knobs)) or schedule
    return schedule.mod["main"]


def on_cuda(function: tvm.tirx.PrimFunc, target: Any) -> tvm.tirx.PrimFunc:
    """Apply TVM's own rules for GPUs (dlight): a thread per element, a block of threads per row of a reduction."""
    from passlab.relax import tvm

    gpu = tvm.s_tir.dlight.gpu
    module = tvm.IRModule({"main": function})
    with target:
        module = tvm.s_tir.dlight.ApplyDefaultSchedule(gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())(module)
    return module["main"]


def _nests(schedule: Any) -> list[list]:
    """Group the stages by the loops they share."""
    nests: list[tuple[Any, list]] = []
    for block in blocks(schedule):
        loops = schedule.get_loops(block)
        outermost = schedule.get(loops[0]) if loops else None
        if nests and outermost is not None and nests[-1][0] is not None and nests[-1][0].same_as(outermost):
            nests[-1][1].append(block)
        else:
            nests.append((outermost, [block]))
    return [nest for _, nest in nests]


def _sizes(schedule: Any, loops: list) -> list[int]:
    return [int(schedule.get(loop).extent) for loop in loops]


def _parallel(schedule: Any, loop: Any, steps: int, knobs: Knobs) -> None:
    if knobs.parallel:
        parallel_if_long(schedule, loop, steps)


def _element_wise(schedule: Any, nest: list, knobs: Knobs) -> None:
    """Schedule a nest without reductions: over the cores, with an inner loop that LLVM can vectorize."""
    loops = schedule.get_loops(nest[0])
    if not loops:
        return
    steps = math.prod(_sizes(schedule, loops))
    if all(_is_plain(schedule.get(block)) for block in nest):
        loops = [schedule.fuse(*loops)]
    *outer, inner = loops
    (size,) = _sizes(schedule, [inner])
    if size > knobs.tile:
        even = widest(size, knobs.tile)
        rest, inner = schedule.split(inner, [None, even if even >= knobs.tile // 16 else knobs.tile])
        outer.append(rest)
    if outer:
        _parallel(schedule, schedule.fuse(*outer), steps, knobs)
    (size,) = _sizes(schedule, [inner])
    if knobs.unroll > 1 and size % knobs.unroll == 0:
        _, written_out = schedule.split(inner, [None, knobs.unroll])
        schedule.unroll(written_out)


def _is_plain(stage: Any) -> bool:
    """Return whether element (i, j) reads and writes only elements (i, j) and scalars."""
    axes = [axis.var for axis in stage.iter_vars]

    def plain(region: Any) -> bool:
        at = [index.min for index in region.region]
        return not any(_reads(index, axes) for index in at) or (
            len(at) == len(axes) and all(index.same_as(axis) for index, axis in zip(at, axes, strict=True))
        )

    return all(map(plain, [*stage.reads, *stage.writes]))


def _reads(index: Any, axes: list) -> bool:
    return any(variable.same_as(axis) for variable in variables(index) for axis in axes)


def _by_rows(schedule: Any, vectors: bool, knobs: Knobs) -> None:
    """Schedule reductions over the last dimensions and the nest that reads them: all of a row, then the next row."""
    from passlab.tvm.reach import cores

    *before, last = _nests(schedule)
    reducing = [block for nest in before for block in nest if not is_spatial(schedule, block)]
    blocks = [*reducing, *(b for b in last if not is_spatial(schedule, b))]
    if not blocks:
        refuse("nothing reduces")
    rows = min(sum(int(a.iter_type) == 0 for a in schedule.get(b).iter_vars) for b in blocks)
    sizes = [_sizes(schedule, schedule.get_loops(b))[:rows] for b in (*blocks, last[0])]
    if not rows or any(other != sizes[0] for other in sizes) or math.prod(sizes[0]) < cores():
        refuse("there are no rows")
    steps = max(math.prod(_sizes(schedule, schedule.get_loops(b))) for b in (*blocks, last[0]))
    row = schedule.fuse(*schedule.get_loops(last[0])[:rows])
    for nest in reversed(before):
        for block in nest:
            once = math.prod(_sizes(schedule, schedule.get_loops(block)))
            schedule.compute_at(block, row)
            if math.prod(_sizes(schedule, schedule.get_loops(block))) > once:
                refuse("a row needs what belongs to others")
            schedule.set_scope(block, 0, "local")
    for block in reducing if vectors else ():
        _vectors(schedule, block, knobs, shared=1)
    _parallel(schedule, row, steps, knobs)


def _reduction(schedule: Any, nest: list, vectors: bool, knobs: Knobs) -> None:
    """Schedule a single reduction: spread its elements over the cores."""
    loops = schedule.get_loops(nest[0])
    steps = math.prod(_sizes(schedule, loops))
    kinds = [int(axis.iter_type) for axis in schedule.get(nest[0]).iter_vars]
    plain = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == 0]
    outer = _vectors(schedule, nest[0], knobs, steps=steps) if vectors else plain
    if outer:
        _parallel(schedule, schedule.fuse(*outer), steps, knobs)


def _vectors(schedule: Any, block: Any, knobs: Knobs, shared: int = 0, steps: int = 0) -> list:
    """Keep a vector of a reduction's elements in registers while reducing, if they are adjacent in what it reads.

    Return the loops outside of that which are left; the first `shared` ones belong to other stages too. steps: of the
    whole nest, if the others may be spread over the cores: TVM does not do it once the reduction is decomposed.
    """
    stage, loops = schedule.get(block), schedule.get_loops(block)[shared:]
    axes = stage.iter_vars[-len(loops) :] if loops else []
    kinds = [int(axis.iter_type) for axis in axes]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == 0]
    reducing = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != 0]
    last = [axis.var for axis, kind in zip(axes, kinds, strict=True) if kind == 0][-1:]
    if not last or not any(len(read.region) and _reads(read.region[-1].min, last) for read in stage.reads):
        return spatial
    *outer, inner = spatial
    (size,) = _sizes(schedule, [inner])
    width = widest(size, knobs.vector)
    if width < 8:  # not worth the registers
        return spatial
    if width < size:
        rest, inner = schedule.split(inner, [None, width])
        outer.append(rest)
    schedule.reorder(*outer, *reducing, inner)
    schedule.vectorize(inner)
    if steps and outer:
        _parallel(schedule, schedule.fuse(*outer), steps, knobs)
        outer = []
    schedule.decompose_reduction(block, reducing[0])
    return outer
