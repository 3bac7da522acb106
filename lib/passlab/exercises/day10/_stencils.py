"""Stencils, which two exercises of day 10 use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from passlab.exercises.day10._isl import example

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Stencil:
    """A nest of one statement S whose iterations depend on others at fixed distances.

    `bounds`: iterator → first and one past the last, as text; `vectors`: the distances, source to target.
    """

    bounds: dict[str, tuple[str, str]]
    vectors: tuple[Vector, ...]
    parameters: str = "T, N"

    def _inside(self, names: Sequence[str]) -> str:
        return " and ".join(f"{a} <= {n} < {b}" for n, (a, b) in zip(names, self.bounds.values(), strict=True))

    @property
    def domain(self) -> str:
        return f"[{self.parameters}] -> {{ S[{', '.join(self.bounds)}] : {self._inside(list(self.bounds))} }}"

    @property
    def dependences(self) -> str:
        point = list(self.bounds)
        pieces = []
        for vector in self.vectors:
            target = [f"{name} + {step}" for name, step in zip(point, vector, strict=True)]
            inside = f"{self._inside(point)} and {self._inside(target)}"
            pieces.append(f"S[{', '.join(point)}] -> S[{', '.join(target)}] : {inside}")
        return f"[{self.parameters}] -> {{ {'; '.join(pieces)} }}"


def stencil(names: str, *vectors: Vector) -> Stencil:
    """Return a stencil on a grid of N (and M, K) points with T steps; the first name is the time."""
    time, *space = names.split()
    sizes = ("N", "M", "K")[: len(space)]
    bounds = {time: ("0", "T")} | {name: ("1", f"{size} - 1") for name, size in zip(space, sizes, strict=True)}
    return Stencil(bounds, vectors, ", ".join(("T", *sizes)))


def flow_of(*offsets: Vector, lag: int = 1) -> tuple[Vector, ...]:
    """Return the distances of a stencil with two arrays: a point needs these neighbours, `lag` steps earlier."""
    return tuple((lag, *(-x for x in offset)) for offset in offsets)


JACOBI_1D = stencil("t i", *flow_of((-1,), (0,), (1,)))


def times_of(pairs: isl.UnionMap, schedule: isl.UnionMap) -> str:
    """Return a clause that says when the two instances of one of the pairs run."""
    one = isl.UnionMap.from_map(isl.Map.from_basic_map(pairs.sample()))
    times = isl.Map.from_union_map(one.apply_domain(schedule).apply_range(schedule))
    first, second = example(isl.UnionMap.from_map(times)).split(" (")[0].split(" → ")
    ends = example(one)
    if first == second:
        return f"In {ends} both run at the same time, {first}"
    return f"In {ends} the first runs at {first}, the second at {second}"
