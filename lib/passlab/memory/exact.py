"""The smallest arena by a constraint solver, for instances on which it finishes.

Each buffer is a rectangle with a fixed time and a variable offset. CP-SAT forbids overlaps and minimizes the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from passlab.memory.buffers import Buffer, aligned, lower_bound


@dataclass(frozen=True)
class Exact:
    """The solver's result. `status`: optimal, feasible, impossible or unknown; `bound`: no arena is smaller."""

    status: str
    arena: int | None
    bound: int
    offsets: Mapping[str, int] | None


def exact(
    buffers: Sequence[Buffer],
    alignment: int = 1,
    seconds: float = 10.0,
    workers: int = 1,
    seed: int = 0,
    hint: Mapping[str, int] | None = None,
    within: int | None = None,
) -> Exact:
    """Return the smallest arena for the buffers, or the best one and a bound after `seconds`.

    within: only check whether a plan fits in this many bytes. This is far easier; the lower bound often suffices.
    """
    from ortools.sat.python import cp_model

    sizes = [aligned(buffer.size, alignment) for buffer in buffers]
    unit = gcd(*sizes, alignment) if alignment > 1 else gcd(*sizes) or 1
    least, limit = lower_bound(buffers), sum(sizes) if within is None else within
    padded = any(size != buffer.size for size, buffer in zip(sizes, buffers, strict=True))
    if limit < least or any(buffer.size > limit for buffer in buffers):
        return Exact("impossible", None, least, None)
    model = cp_model.CpModel()
    top = model.new_int_var(-(-least // unit), -(-limit // unit), "top")
    height = model.new_int_var(least, limit, "height") if padded else top * unit  # the last buffer needs no padding
    times, places, heights, starts = [], [], [], {}
    for buffer, size in zip(buffers, sizes, strict=True):
        if not size or buffer.upper <= buffer.lower:
            continue
        start = starts[buffer.name] = model.new_int_var(0, (limit - buffer.size) // unit, buffer.name)
        times.append(model.new_fixed_size_interval_var(buffer.lower, buffer.upper - buffer.lower, ""))
        places.append(model.new_fixed_size_interval_var(start, size // unit, ""))
        heights.append(size // unit)
        model.add(start + size // unit <= top)
        model.add(start * unit + buffer.size <= height)
        if hint:
            model.add_hint(start, hint[buffer.name] // unit)
    model.add_no_overlap_2d(times, places)
    model.add_cumulative(times, heights, top)  # redundant, but it helps the solver
    if within is None:
        model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Exact("impossible", None, max(least, within + 1 if padded else (within // unit + 1) * unit), None)
    bound = max(least, int(solver.best_objective_bound) if within is None else 0)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Exact("unknown", None, bound, None)
    offsets = {buffer.name: 0 for buffer in buffers}
    offsets |= {name: solver.value(start) * unit for name, start in starts.items()}
    arena = max((offsets[b.name] + b.size for b in buffers), default=0)
    proved = status == cp_model.OPTIMAL if within is None else arena == least
    return Exact("optimal" if proved else "feasible", arena, bound, offsets)
