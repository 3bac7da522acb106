"""Day 10, exercises 3 and 4: hidden cases. Stencils are drawn from a seed, with orders that are legal and not."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Sequence

import islpy as isl

from autograder.bank import reference
from passlab.exercises.cases_day10_orders import (
    JACOBI_2D,
    SEIDEL_1D,
    SEIDEL_2D,
    Stencil,
    Vector,
    flow_of,
    legality_case,
    skew_case,
    stencil,
)
from passlab.judge import Case


def legality(seed: int) -> list[Case]:
    rng = random.Random(seed)
    size, far = rng.choice((16, 24, 48)), rng.randint(2, 5)
    seidel, heat = SEIDEL_1D.dependences, JACOBI_2D.dependences
    back = stencil("t i", (1, -far), (1, 0)).dependences
    chain = "[N] -> { S[i] -> S[i + 1] : 0 <= i < N"
    shifts = f"[N] -> {{ S[i] -> T[i - {far}] : {far} <= i < N }}"
    i, j, time = f"floor(i/{size})", f"floor(j/{size})", f"floor(t/{size})"
    made = [
        ("seidel-1d: i backwards", seidel, "{ S[t, i] -> [t, -i] }"),
        ("seidel-1d: a wavefront alone", seidel, "{ S[t, i] -> [2t + i] }"),
        ("seidel-1d: too steep a wavefront", seidel, "{ S[t, i] -> [t + i] }"),
        ("skewed too little", back, f"{{ S[t, i] -> [floor(({far - 1}t + i)/{size}), t, i] }}"),
        ("skewed enough", back, f"{{ S[t, i] -> [floor(({far}t + i)/{size}), t, i] }}"),
        ("jacobi-2d: space interchanged", heat, "{ S[t, i, j] -> [t, j, i] }"),
        ("jacobi-2d: tiles in space alone", heat, f"{{ S[t, i, j] -> [t, {i}, {j}, i, j] }}"),
        ("jacobi-2d: tiles of time", heat, f"{{ S[t, i, j] -> [{time}, {i}, {j}, t, i, j] }}"),
        ("jacobi-2d: one dimension skewed", heat, f"{{ S[t, i, j] -> [{time}, floor((t + i)/{size}), {j}, t, i, j] }}"),
        ("fused and shifted", shifts, f"{{ S[i] -> [i, 0]; T[i] -> [i + {far}, 1] }}"),
        ("fused, shifted too little", shifts, f"{{ S[i] -> [i, 0]; T[i] -> [i + {far - 1}, 1] }}"),
        ("fused, T first", shifts, f"{{ S[i] -> [i, 1]; T[i] -> [i + {far}, 0] }}"),
        ("only where N is large", f"{chain} and N > {100 * far} }}", "{ S[i] -> [-i] }"),
        ("no iteration at all", f"{chain} and N < 0 }}", "{ S[i] -> [-i] }"),
    ]
    for number in range(1, 7):
        nest = drawn(rng, 2)
        rows = [rng.choice(("t", "i", "-i", "t + i", "2t + i", "t - i", "i + 3t")) for _ in range(2)]
        tiled = [f"floor(({row})/{size})" for row in rows] if rng.random() < 0.5 else []
        made.append(
            (f"drawn, number {number}", nest.dependences, f"{{ S[t, i] -> [{', '.join([*tiled, *rows, 't', 'i'])}] }}")
        )
    return [_legality_case(*one) for one in made]


def _legality_case(name: str, dependences: str, schedule: str) -> Case:
    pair = reference("day10.legality")(isl.UnionMap(dependences), isl.UnionMap(schedule))
    return legality_case(name, dependences, schedule, pair is None)


def skew(seed: int) -> list[Case]:
    rng = random.Random(seed)
    around = [point for k in range(3) for point in ((0,) * k + (x,) + (0,) * (2 - k) for x in (-1, 1))]
    made = {
        "two steps back": stencil("t i", (1, 0), (2, -3), (1, 1)),
        "heat-2d of two radii": stencil("t i j", *flow_of((0, 0), (-2, 0), (2, 0), (0, 1), (0, -1))),
        "wind from the right": stencil("t i j", *flow_of((0, 0), (1, 0), (0, -1))),
        "wave equation": stencil("t i", *flow_of((-1,), (0,), (1,)), *flow_of((0,), lag=2)),
        "only the second loop carries": stencil("t i j", (0, 1, -2), (0, 1, 0), (0, 1, 1)),
        "seidel-2d with five points": stencil("t i j", (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, -1, 0), (1, 0, -1)),
        "seidel-2d, the other way": _mirrored(SEIDEL_2D),
        "heat-3d": stencil("t i j k", *flow_of((0, 0, 0), *around)),
    }
    made |= {f"drawn, number {i + 1}": drawn(rng, 2 + i % 2) for i in range(4)}
    return [skew_case(name, nest, least(nest.vectors)) for name, nest in made.items()]


def _mirrored(nest: Stencil) -> Stencil:
    return stencil("t i j", *((t, i, -j) if (t, i) != (0, 0) else (t, i, j) for t, i, j in nest.vectors))


def drawn(rng: random.Random, depth: int) -> Stencil:
    """A stencil with a few distances at random; each goes forward in the first dimension that it moves in."""
    vectors = {(1, *(0,) * (depth - 1))}
    while len(vectors) < 4:
        vector = (rng.choice((0, 1, 1, 2)), *(rng.randint(-3, 3) for _ in range(depth - 1)))
        if next((step for step in vector if step), 0) > 0:
            vectors.add(vector)
    return stencil(" ".join("tij"[:depth]), *sorted(vectors))


def least(vectors: Sequence[Vector]) -> int:
    """The least that the reaches of a skewing add up to: the best multiples of the outer iterators, for each iterator.

    Multiples up to 12 are tried: with distances of at most 3 no more than 3 + 3·3 are needed.
    """
    total = 0
    for k in range(len(vectors[0])):
        rows = itertools.product(range(-12, 13), repeat=k)
        steps = [[sum(map(operator.mul, (*row, 1), vector)) for vector in vectors] for row in rows]
        total += min(max(distances) for distances in steps if min(distances) >= 0)
    return total
