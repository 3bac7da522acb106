"""Hidden cases and answers of day10.tvm.

What a schedule says is read in one place; answers differ in what they make of it.
"""

from __future__ import annotations

import math
import random
import re
from itertools import pairwise

import islpy as isl

from autograder.authoring.answers import right, wrong
from passlab.exercises.day10.tvm import PRODUCT, TRANSPOSE, tvm_case
from passlab.judge import Case
from passlab.relax import tvm

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m, k = rng.sample(range(9, 16), 3)
    a, b, c = rng.randrange(2, 5), rng.randrange(2, 4), rng.randrange(2, 4)

    def product(name: str, times: str, **more: bool) -> Case:
        return tvm_case(name, PRODUCT, f"{{ S[i, j, k] -> [{times}] }}", N=n, M=m, K=k, **more)

    def transpose(name: str, times: str, **more: bool) -> Case:
        return tvm_case(name, TRANSPOSE, f"{{ S[i, j] -> [{times}] }}", N=n + 9, M=m + 9, **more)

    one, two, three = rng.sample("ijk", 3)
    tiles = f"floor({one}/{a * b}), floor({two}/{c}), floor({one}/{b}), {three}, {two}, {one}"
    return [
        product("drawn: tiles of tiles", tiles, run=True),
        product("drawn: split alone", f"floor({one}/{a}), {two}, {three}, {one}"),
        product("everything twice", f"{one}, floor({one}/{a}), {two}, {one}, floor({two}/{c}), {three}"),
        transpose("three levels", f"floor(j/{4 * b}), i, floor(j/4), floor(j/2), 3, j", run=True),
        transpose("one tile is all", "floor(i/100), floor(j/50), i, j"),
        transpose("the second goes back", f"floor(i/{a}), -j, i", can=False),
        transpose("twice as far", "i + 2j, j", can=False),
        transpose("skewed tiles", f"floor(i/{a}), floor((i + j)/{b + 1}), i, j", can=False),
        transpose("tiles that begin elsewhere", f"floor((j - 1)/{a}), i, j", can=False),
        transpose("tiles of four in tiles of six", "floor(i/6), floor(i/4), j, i", can=False),
        transpose("halves of odd tiles", "floor(j/5), floor(j/2), i, j", can=False),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def dimensions(schedule):
    """(variable, n, what else there is) for each dimension: floor(v/n) or v, with n = 1; a number has no variable."""
    times = isl.PwMultiAff.from_map(schedule)
    for dim in range(schedule.dim(isl.dim_type.out)):
        [(_, whole)] = times.get_pw_aff(dim).get_pieces()
        plain, size = whole, 1
        if whole.dim(isl.dim_type.div):
            plain = whole.get_div(0)
            size = plain.get_denominator_val().to_python()
            if not (whole - plain.floor()).plain_is_zero():  # not only that floor: a remainder
                yield [(0, 0)], size, 0
                continue
            plain = plain.scale_val(isl.Val(size))
        factors = [
            plain.get_coefficient_val(isl.dim_type.in_, at).to_python() for at in range(plain.dim(isl.dim_type.in_))
        ]
        yield [(at, factor) for at, factor in enumerate(factors) if factor], size, plain.get_constant_val().to_python()


def grains(schedule, strict=True):
    """The (variable, grain) in the order of their loops, or None."""
    found, finest = [], {}
    for variables, size, constant in dimensions(schedule):
        if not variables:
            continue
        if strict and (len(variables) > 1 or variables[0][1] != 1 or constant):
            return None
        variable = variables[0][0]
        have = finest.get(variable)
        if have and size % have == 0:
            continue
        if have and have % size:
            return None
        found.append((variable, size))
        finest[variable] = size
    return found


def scheduled(function, order, factors):
    """Loops split by factors[variable] and put in order; order: (variable, which of its parts)."""
    schedule = tvm.s_tir.Schedule(function)
    loops = schedule.get_loops(schedule.get_sblock("S"))
    parts = [schedule.split(loop, f) if len(f) > 1 else [loop] for loop, f in zip(loops, factors, strict=True)]
    schedule.reorder(*(parts[variable][part] for variable, part in order))
    return schedule


def plan(found, variables, factor=lambda outer, inner: outer // inner, first=None):
    """The order, and the factors for split, from grains."""
    sizes = [[size for variable, size in found if variable == at] for at in range(variables)]
    factors = [[first, *(factor(a, b) for a, b in pairwise(one))] for one in sizes]
    seen = [0] * variables
    order = []
    for variable, _ in found:
        order.append((variable, seen[variable]))
        seen[variable] += 1
    return order, factors


@right("reads the dimensions from isl's text, with a regular expression")
def by_text(function, schedule):
    variables, times = re.fullmatch(r"\{ \w+\[(.*?)\] -> \[(.*)\] \}", str(isl.PwMultiAff.from_map(schedule))).groups()
    names, found = variables.split(", "), []
    for time in re.split(r",(?![^(]*\))", times):
        if re.fullmatch(r"-?\d+", time.strip().strip("()")):
            continue
        read = re.fullmatch(r"\s*(?:\(?floor\(\(?(\w+)\)?/(\d+)\)\)?|\(?(\w+)\)?)\s*", time)
        if not read:
            return None
        variable, size = names.index(read[1] or read[3]), int(read[2] or 1)
        have = [grain for one, grain in found if one == variable]
        if have and size % have[-1] == 0:
            continue
        if have and have[-1] % size:
            return None
        found.append((variable, size))
    return scheduled(function, *plan(found, len(names))).mod["main"]


@right("splits one loop after the other as the grains come, always the innermost part in two")
def one_by_one(function, schedule):
    found = grains(schedule)
    if found is None:
        return None
    mine = tvm.s_tir.Schedule(function)
    rest = dict(enumerate(mine.get_loops(mine.get_sblock("S"))))
    order = []
    for variable, size in found:
        if size > 1:
            outer, rest[variable] = mine.split(rest[variable], [None, size])
            order.append(outer)
        else:
            order.append(rest[variable])
    mine.reorder(*order)
    return mine.mod


@wrong("did", "floor(i/4) says that there are four tiles")
def number_of_tiles(function, schedule):
    found = grains(schedule)
    if found is None:
        return None
    order, factors = plan(found, len(set(variable for variable, _ in found)))
    return scheduled(function, order, [f if len(f) < 2 else [f[1], None, *f[2:]] for f in factors]).mod


@wrong("did", "splitting is tiling: the loops stay where they are")
def no_reorder(function, schedule):
    found = grains(schedule)
    if found is None:
        return None
    order, factors = plan(found, len(set(variable for variable, _ in found)))
    return scheduled(function, sorted(order), factors).mod


@wrong("did", "the factors of a split are the sizes of the tiles, not of one tile in another")
def absolute_sizes(function, schedule):
    found = grains(schedule)
    if found is None:
        return None
    order, factors = plan(found, len(set(variable for variable, _ in found)), lambda outer, inner: outer)
    return scheduled(function, order, factors).mod


@wrong("did", "tiles have to divide: otherwise there is no split")
def only_whole_tiles(function, schedule):
    found = grains(schedule)
    if found is None:
        return None
    mine = tvm.s_tir.Schedule(function)
    extents = [int(mine.get(loop).extent) for loop in mine.get_loops(mine.get_sblock("S"))]
    if any(extents[variable] % size for variable, size in found):
        return None
    order, factors = plan(found, len(extents))
    return scheduled(function, order, factors).mod


@wrong("did", "a dimension that is known already is a split of its own")
def known_again(function, schedule):
    if grains(schedule) is None:
        return None
    found = []
    for variables, size, _ in dimensions(schedule):
        if variables and (variables[0][0], size) not in found:
            found.append((variables[0][0], size))
    order, factors = plan(found, len(set(variable for variable, _ in found)), lambda a, b: max(a // b, 2))
    return scheduled(function, order, factors).mod


@wrong("spared", "a minus is a matter of taste: the loop runs forward")
def without_signs(function, schedule):
    found = []
    for variables, size, constant in dimensions(schedule):
        if len(variables) > 1 or (variables and constant):
            return None
        if variables:
            found.append((variables[0][0], size))
    chains = {}
    for variable, size in found:
        chains.setdefault(variable, []).append(size)
    if any(b % a and a % b for chain in chains.values() for a, b in pairwise(chain)):
        return None
    kept = [it for n, it in enumerate(found) if not any(v == it[0] and it[1] % s == 0 for v, s in found[:n])]
    return scheduled(function, *plan(kept, len(chains))).mod


@wrong("spared", "of i + j the i is what counts: skewing is an interchange")
def first_variable(function, schedule):
    found = grains(schedule, strict=False)
    if found is None:
        return None
    count = schedule.dim(isl.dim_type.in_)
    for variable in range(count):
        if (variable, 1) not in found:
            found.append((variable, 1))
    return scheduled(function, *plan(found, count)).mod


@wrong("spared", "tiles of four and of six share tiles of two")
def common_factor(function, schedule):
    rows = list(dimensions(schedule))
    if any(len(them) > 1 or (them and (constant or them[0][1] != 1)) for them, _, constant in rows):
        return None
    found, finest = [], {}
    for variables, size, _ in rows:
        if not variables:
            continue
        variable = variables[0][0]
        size = math.gcd(size, finest.get(variable, size))
        if size != finest.get(variable):
            found.append((variable, size))
            finest[variable] = size
    return scheduled(function, *plan(found, len(finest))).mod


@wrong("valid", "hands over the schedule itself")
def the_schedule(function, schedule):
    found = grains(schedule)
    return found and scheduled(function, *plan(found, len(set(variable for variable, _ in found))))
