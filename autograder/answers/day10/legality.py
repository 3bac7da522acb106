"""Hidden cases and answers of day10.legality.

Most wrong answers compare too little of the times, or too few sizes.
"""

from __future__ import annotations

import random

import islpy as isl

from autograder.answers.day10._shared import drawn
from autograder.authoring.answers import edited, reference, right, wrong
from passlab import polyhedral
from passlab.exercises.day10._stencils import stencil
from passlab.exercises.day10.legality import legality_case
from passlab.exercises.day10.skew import JACOBI_2D, SEIDEL_1D
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    size, far = rng.choice((16, 24, 48)), rng.randint(2, 5)
    seidel, heat = SEIDEL_1D.dependences, JACOBI_2D.dependences
    back = stencil("t i", (1, -far), (1, 0)).dependences
    chain = "[N] -> { S[i] -> S[i + 1] : 0 <= i < N"
    wide = f"[N, M] -> {{ S[i] -> S[i + 1] : 0 <= i < N and M > N + {far} }}"
    shifts = f"[N] -> {{ S[i] -> T[i - {far}] : {far} <= i < N }}"
    turns = "[N] -> { S[i] -> T[i] : 0 <= i < N; T[i] -> S[i + 1] : 0 <= i < N - 1 }"
    i, j, time = f"floor(i/{size})", f"floor(j/{size})", f"floor(t/{size})"
    variants = [
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
        ("only where N is small", f"{chain} and N < {far + 2} }}", "{ S[i] -> [-i] }"),
        ("only where M is larger", wide, "{ S[i] -> [-i] }"),
        ("of two kinds, one within an iteration", turns, "{ S[i] -> [i, 1]; T[i] -> [i, 0] }"),
        ("of two kinds, one to the next iteration", turns, "{ S[i] -> [0, i]; T[i] -> [1, i] }"),
        ("no iteration at all", f"{chain} and N < 0 }}", "{ S[i] -> [-i] }"),
    ]
    for number in range(1, 7):
        nest = drawn(rng, 2)
        rows = [rng.choice(("t", "i", "-i", "t + i", "2t + i", "t - i", "i + 3t")) for _ in range(2)]
        tiled = [f"floor(({row})/{size})" for row in rows] if rng.random() < 0.5 else []
        variants.append(
            (f"drawn, number {number}", nest.dependences, f"{{ S[t, i] -> [{', '.join([*tiled, *rows, 't', 'i'])}] }}")
        )
    variants += [
        ("only where N is 1", f"{chain} and N = 1 }}", "{ S[i] -> [-i] }"),
        ("only where N is less than 0", "[N] -> { S[i] -> S[i + 1] : 0 <= i < 9 and N < 0 }", "{ S[i] -> [-i] }"),
    ]
    return [_legality_case(*one) for one in variants]


def _legality_case(name: str, dependences: str, schedule: str) -> Case:
    pair = reference("day10.legality")(isl.UnionMap(dependences), isl.UnionMap(schedule))
    return legality_case(name, dependences, schedule, pair is None)


# ---------------------------------------------------------------------------------------------------- answers


def _sample(violated):
    return None if violated.is_empty() else violated.sample()


def _not_before(schedule):
    return schedule.lex_ge_union_map(schedule)


def _times(dependences, schedule):
    """Return the dependences as a map from times to times."""
    return isl.Map.from_union_map(dependences.apply_domain(schedule).apply_range(schedule))


def _at(dependences, value):
    """Return the dependences where every parameter has one value."""
    return dependences.intersect_params(_parameters(dependences, f"{{}} = {value}"))


@right("intersects with the pairs that are not in order, and writes the pair as text")
def by_intersection(dependences, schedule):
    pair = _sample(dependences.intersect(_not_before(schedule)))
    return None if pair is None else str(pair)


@right("goes through the dimensions: the first in which the times differ decides")
def by_dimensions(dependences, schedule):
    if dependences.is_empty():
        return None
    times = _times(dependences, schedule)
    depth = times.dim(isl.dim_type.out)
    late = isl.Map.empty(times.get_space())
    equal = times
    for k in range(depth):
        late = late.union(equal.order_gt(isl.dim_type.in_, k, isl.dim_type.out, k))
        equal = equal.equate(isl.dim_type.in_, k, isl.dim_type.out, k)
    back = schedule.apply_range(isl.UnionMap.from_map(late.union(equal))).apply_range(schedule.reverse())
    return _sample(dependences.intersect(back))


@wrong("did", "at the same time is in time: two instances at once do not hurt each other")
def ties_are_fine(dependences, schedule):
    return _sample(dependences.intersect(schedule.lex_gt_union_map(schedule)))


@wrong("did", "the outermost dimension alone says what comes first")
def outermost_alone(dependences, schedule):
    if dependences.is_empty():
        return None
    times = _times(dependences, schedule)
    late = isl.UnionMap.from_map(times.order_gt(isl.dim_type.in_, 0, isl.dim_type.out, 0))
    return _sample(schedule.apply_range(late).apply_range(schedule.reverse()).intersect(dependences))


@wrong("spared", "the outermost dimension must go forward: what is equal there is wrong")
def outermost_forward(dependences, schedule):
    if dependences.is_empty():
        return None
    times = _times(dependences, schedule)
    good = isl.UnionMap.from_map(times.order_lt(isl.dim_type.in_, 0, isl.dim_type.out, 0))
    return _sample(dependences.subtract(schedule.apply_range(good).apply_range(schedule.reverse())))


@wrong("did", "what holds for N = 8 holds for every N")
def small_sizes(dependences, schedule):
    return _sample(_at(dependences, 8).intersect(_not_before(schedule)))


@wrong("did", "what holds for N of ten and more holds for every N")
def large_sizes(dependences, schedule):
    late = dependences.intersect(_not_before(schedule))
    return _sample(late.intersect_params(_parameters(late, "{} >= 10")))


@wrong("did", "a single turn has no order: looks at N of two and more")
def two_turns(dependences, schedule):
    late = dependences.intersect(_not_before(schedule))
    return _sample(late.intersect_params(_parameters(late, "not ({} = 1)")))


@wrong("did", "sizes are not negative, so parameters are not")
def no_negative_parameter(dependences, schedule):
    late = dependences.intersect(_not_before(schedule))
    return _sample(late.intersect_params(_parameters(late, "{} >= 0")))


@wrong("did", "what holds for a square holds for every rectangle")
def squares(dependences, schedule):
    late = dependences.intersect(_not_before(schedule))
    first = late.space.get_dim_name(isl.dim_type.param, 0) if late.dim(isl.dim_type.param) else ""
    return _sample(late.intersect_params(_parameters(late, f"{{}} = {first}")))


def _parameters(relation, condition):
    """Return the values of the parameters of which each satisfies a condition."""
    names = [relation.space.get_dim_name(isl.dim_type.param, k) for k in range(relation.dim(isl.dim_type.param))]
    return isl.Set(f"[{', '.join(names)}] -> {{ : {' and '.join(map(condition.format, names)) or 'true'} }}")


@wrong("did", "looks at the dependences from one statement to one other only")
def one_kind(dependences, schedule):
    kinds = dependences.get_map_list()
    if not kinds.n_map():
        return None
    return _sample(isl.UnionMap.from_map(kinds.get_at(0)).intersect(_not_before(schedule)))


target_first = edited(
    "did", "names the wrong pair or none: the target first, instances that do not depend, or no parameters"
)(("violated.sample()", "violated.reverse().sample()"))
any_dependence = edited("did", "names the first dependence that there is, violated or not")(
    ("violated.sample()", "dependences.sample()")
)


any_change = edited("spared", "a schedule that changes the order of the iterators is illegal")(
    ("None if ... else violated.sample()", "dependences.sample() if ... else violated.sample()")
)


@wrong("valid", "lets the library find the pair")
def by_the_library(dependences, schedule):
    pair = polyhedral.violated(dependences, schedule)
    return pair and f"{{ {pair[0]} -> {pair[1]} }}"


all_of_them = edited("valid", "returns all violations at once, or times in the place of instances")(
    ("violated.sample()", "violated")
)
yes_or_no = edited("valid", "returns whether it is legal")(
    ("None if violated.is_empty() else violated.sample()", "violated.is_empty()")
)
