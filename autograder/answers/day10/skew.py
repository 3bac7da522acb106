"""Hidden cases and answers of day10.skew.

Most wrong answers skew each dimension by t alone, too little, too much, or the wrong one.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Sequence
from itertools import product

import islpy as isl

from autograder.answers.day10._shared import drawn
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day10._stencils import Stencil, Vector, flow_of, stencil
from passlab.exercises.day10.skew import SEIDEL_2D, skew_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    around = [point for k in range(3) for point in ((0,) * k + (x,) + (0,) * (2 - k) for x in (-1, 1))]
    parts = {
        "two steps back": stencil("t i", (1, 0), (2, -3), (1, 1)),
        "heat-2d of two radii": stencil("t i j", *flow_of((0, 0), (-2, 0), (2, 0), (0, 1), (0, -1))),
        "wind from the right": stencil("t i j", *flow_of((0, 0), (1, 0), (0, -1))),
        "one distance": stencil("t i", (1, -2)),
        "wave equation": stencil("t i", *flow_of((-1,), (0,), (1,)), *flow_of((0,), lag=2)),
        "only the second loop carries": stencil("t i j", (0, 1, -2), (0, 1, 0), (0, 1, 1)),
        "seidel-2d with five points": stencil("t i j", (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, -1, 0), (1, 0, -1)),
        "seidel-2d, the other way": _mirrored(SEIDEL_2D),
        "four loops, of which the second carries": stencil(
            "t i j k", (0, 1, 0, 0), (0, 1, 0, -1), (1, -1, 0, 0), (1, 0, -1, 0)
        ),
        "heat-3d": stencil("t i j k", *flow_of((0, 0, 0), *around)),
        # j + t reaches 1, 1, 0 and 1; j + t - i adds up to less, 0, 2, 0 and 0, but reaches farther.
        "four mixed distances": stencil("t i j", (0, 1, 1), (1, -1, 0), (1, 0, -1), (1, 1, 0)),
        # j - i and j - t reach 1
        "a drift along a row": stencil("t i j", (1, 0, 0), (0, 1, 1), (0, 1, 2)),
        "a drift of a plane": stencil("t i j", (1, 0, 1), (1, 0, 2), (0, 1, 0)),
        # j + 7t + 7i; k + 3t + 3i + 3j
        "three loops, and far to the left": stencil("t i j", (0, 1, -7), (1, -1, 0)),
        "four loops, each skewed by all outside": stencil(
            "t i j k", (0, 0, 1, -3), (0, 1, -1, 0), (1, -1, 0, 0), (1, 0, 0, 0)
        ),
    }
    far = rng.randint(5, 9)
    parts["a far neighbour"] = stencil("t i", *flow_of((-far,), (0,), (far,)))
    parts["a strong drift"] = stencil("t i", (1, far), (1, far + 1))
    parts |= {f"drawn, number {i + 1}": drawn(rng, 2 + i % 2) for i in range(4)}
    farthest = stencil("t i", *flow_of((-40,), (0,), (40,)))  # t and 40·t + i reach 1 and 80
    return [
        *(skew_case(name, nest, least(nest.vectors)) for name, nest in parts.items()),
        skew_case("a neighbour 40 steps away", farthest, 81),
    ]


def _mirrored(nest: Stencil) -> Stencil:
    return stencil("t i j", *((t, i, -j) if (t, i) != (0, 0) else (t, i, j) for t, i, j in nest.vectors))


def least(vectors: Sequence[Vector]) -> int:
    """Return the least that the reaches of a skewing add up to: for each iterator the best multiples of outer ones.

    Multiples up to 12 are tried. That is exact, as isl says of 700 stencils drawn with distances of at most 3.
    """
    total = 0
    for k in range(len(vectors[0])):
        rows = itertools.product(range(-12, 13), repeat=k)
        steps = [[sum(map(operator.mul, (*row, 1), vector)) for vector in vectors] for row in rows]
        total += min(max(distances) for distances in steps if min(distances) >= 0)
    return total


# ---------------------------------------------------------------------------------------------------- answers


def _vectors(dependences):
    points = isl.Set.from_union_set(dependences.deltas()).project_out_all_params()
    depth, vectors = points.dim(isl.dim_type.set), []
    points.foreach_point(vectors.append)
    return [tuple(point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(depth)) for point in vectors]


def _schedule(rows):
    names = [f"i{k}" for k in range(len(rows[0]))]
    times = [" + ".join(f"{c}*{name}" for c, name in zip(row, names, strict=True)) for row in rows]
    return isl.UnionMap(f"{{ S[{', '.join(names)}] -> [{', '.join(times)}] }}")


def _steps(row, vectors):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for vector in vectors]


def _unit(k, depth):
    return [int(i == k) for i in range(depth)]


def _by_time(dependences, factor):
    """Return iterator k plus factor(k, vectors) · the outermost iterator."""
    vectors = _vectors(dependences)
    rows = [_unit(k, len(vectors[0])) for k in range(len(vectors[0]))]
    for k in range(1, len(rows)):
        rows[k][0] = factor(k, vectors)
    return _schedule(rows)


def _by_rows(vectors, factor):
    """Return iterator k plus `factor` times each row before it."""
    rows = []
    for k in range(len(vectors[0])):
        rows.append([factor * sum(row[i] for row in rows) + int(i == k) for i in range(len(vectors[0]))])
    return _schedule(rows)


def _best(vectors, most=None, reach=max):
    """Choose for each dimension from all multiples, up to `most`, of all iterators outside, the one of least reach."""
    depth, longest = len(vectors[0]), max(abs(step) for vector in vectors for step in vector)
    most = most or longest * (longest + 1)
    rows = []
    for k in range(depth):
        tried = ([*front, 1] + [0] * (depth - k - 1) for front in product(range(-most, most + 1), repeat=k))
        fitting = [row for row in tried if min(_steps(row, vectors)) >= 0] or [_unit(k, depth)]
        rows.append(min(fitting, key=lambda row: (reach(_steps(row, vectors)), row)))
    return rows


@right("tries multiples of the iterators, not of the rows before")
def of_iterators(domain, dependences):
    return _schedule(_best(_vectors(dependences)))


@right("puts the innermost iterator outermost: the order of the dimensions of a band is free")
def other_order(domain, dependences):
    return str(_schedule(_best(_vectors(dependences))[::-1]))


@wrong("did", "the order of the loops is tilable as it is, or skewed in the direction in which it goes anyway")
def unskewed(domain, dependences):
    return _by_time(dependences, lambda k, vectors: 0)


@wrong("did", "a skew of 1 is what stencils need")
def always_one(domain, dependences):
    return _by_time(dependences, lambda k, vectors: 1)


@wrong("did", "with four loops the outermost alone is what to skew by")
def by_time_alone(domain, dependences):
    vectors = _vectors(dependences)
    if len(vectors[0]) < 4:
        return _schedule(_best(vectors))
    return _by_time(dependences, lambda k, vectors: max(0, *(-v[k] for v in vectors if v[0])))


@wrong("cost", "skews by 100 to be safe")
def by_a_hundred(domain, dependences):
    return _by_rows(_vectors(dependences), 100)


@wrong("cost", "skews by the longest distance, in whichever direction it goes")
def by_the_longest(domain, dependences):
    vectors = _vectors(dependences)
    return _by_rows(vectors, max(abs(step) for vector in vectors for step in vector))


@wrong("did", "tries small multiples where there are several iterators outside")
def few_of_several(domain, dependences):
    vectors = _vectors(dependences)
    return _schedule(_best(vectors, most=5 if len(vectors[0]) > 2 else None))


@wrong("did", "skews a dimension by two iterators at most")
def by_two_at_most(domain, dependences):
    rows = _best(_vectors(dependences))
    for row in rows:
        if sum(map(bool, row)) > 3:
            row[0] = 0
    return _schedule(rows)


@wrong("did", "tries multiples up to 12: more is never needed")
def up_to_a_dozen(domain, dependences):
    return _schedule(_best(_vectors(dependences), most=12))


@wrong("cost", "the reach of a dimension is the sum of its distances, not the largest")
def sum_of_distances(domain, dependences):
    return _schedule(_best(_vectors(dependences), reach=sum))


never_back = edited("cost", "multiples are never negative: what goes forward is left as it is, however far it goes")(
    (
        '(f"0 <= {step} <= reach" for step in steps)',
        '([*(f"0 <= {step} <= reach" for step in steps), *(f"{m} >= 0" for m in multiples)])',
    )
)

never_back_but_in_time = edited("cost", "only multiples of the outermost iterator may be negative")(
    (
        '(f"0 <= {step} <= reach" for step in steps)',
        '([*(f"0 <= {step} <= reach" for step in steps), *(f"{m} >= 0" for m in multiples[1:])])',
    )
)
never_back_but_by_the_next = edited("cost", "only multiples of the next iterator outside may be negative")(
    (
        '(f"0 <= {step} <= reach" for step in steps)',
        '([*(f"0 <= {step} <= reach" for step in steps), *(f"{m} >= 0" for m in multiples[:-1])])',
    )
)
least_distance = edited("cost", "makes the smallest distance as small as it can be, not the largest")(
    (
        '" and ".join(f"0 <= {step} <= reach" for step in steps)',
        '" and ".join(f"0 <= {step}" for step in steps) + " and (" '
        '+ " or ".join(f"{step} <= reach" for step in steps) + ") and reach >= 0"',
    )
)


@wrong("valid", "asks isl's scheduler, which does what the exercise is about")
def isls(domain, dependences):
    constraints = isl.ScheduleConstraints.on_domain(domain).set_validity(dependences).set_proximity(dependences)
    return constraints.compute_schedule().get_map()


@wrong("did", "skews the time by the space: t + i, i")
def the_wrong_one(domain, dependences):
    vectors = _vectors(dependences)
    rows = [_unit(k, len(vectors[0])) for k in range(len(vectors[0]))]
    rows[0] = [1] * len(rows)
    return _schedule(rows)


@wrong("same", "turns back what goes back: -i in place of i")
def reversed_space(domain, dependences):
    depth = isl.Set.from_union_set(domain).dim(isl.dim_type.set)
    return _schedule([[-int(i == k) for i in range(depth)] for k in range(depth)])


@wrong("same", "space outside, time inside: each point is computed for all times while it is in the cache")
def interchanged(domain, dependences):
    depth = isl.Set.from_union_set(domain).dim(isl.dim_type.set)
    return _schedule([_unit(k, depth) for k in reversed(range(depth))])


@wrong("valid", "the wavefront alone: instances of one front have one time")
def wavefront_alone(domain, dependences):
    vectors = _vectors(dependences)
    row = [sum(column) for column in zip(*_best(vectors), strict=True)]
    return _schedule([row])
