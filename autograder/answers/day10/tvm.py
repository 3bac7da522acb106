"""Hidden cases and answers of day10.tvm.

Most wrong answers are the reference with a split, an order or a check changed.
"""

from __future__ import annotations

import random
import re
from itertools import pairwise

import islpy as isl

from autograder.authoring.answers import edited, right, wrong
from passlab import polyhedral
from passlab.exercises.day10.tvm import PRODUCT, TRANSPOSE, tvm_case
from passlab.judge import Case
from passlab.relax import tvm

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m, k = rng.sample(range(9, 16), 3)
    a, b, c = rng.randrange(2, 5), rng.randrange(2, 4), rng.randrange(2, 4)

    def product(name: str, times: str, **options: bool) -> Case:
        return tvm_case(name, PRODUCT, f"{{ S[i, j, k] -> [{times}] }}", N=n, M=m, K=k, **options)

    def transpose(name: str, times: str, **options: bool) -> Case:
        return tvm_case(name, TRANSPOSE, f"{{ S[i, j] -> [{times}] }}", N=n + 9, M=m + 9, **options)

    one, two, three = rng.choice(("ikj", "jik", "jki", "kij", "kji"))  # not as it is written
    row, column = rng.choice(("ij", "ji"))
    tiles = f"floor({one}/{a * b}), floor({two}/{c}), floor({one}/{b}), {three}, {two}, {one}"
    return [
        product("drawn: tiles of tiles", tiles, run=True),
        product("drawn: split alone", f"floor({one}/{a}), {two}, {three}, {one}"),
        product("everything twice", f"{one}, floor({one}/{a}), {two}, {one}, floor({two}/{c}), {three}"),
        transpose("three levels", f"floor(j/{4 * b}), i, floor(j/4), floor(j/2), 3, j", run=True),
        transpose("one tile is all", "floor(i/100), floor(j/50), j, i"),
        transpose("the second goes back", f"floor(i/{a}), -j, i", can=False),
        transpose("twice as far", "i + 2j, j", can=False),
        transpose("skewed tiles", f"floor(i/{a}), floor((i + j)/{b + 1}), i, j", can=False),
        # isl writes the first as it is, and the second as floor((j + 1)/2) - 1.
        transpose("tiles that begin elsewhere", "floor((j + 2)/5), i, j", can=False),
        transpose("tiles of two that begin elsewhere", "floor((j - 1)/2), i, j", can=False),
        transpose("tiles of four in tiles of six", "floor(i/6), floor(i/4), j, i", can=False),
        transpose("tiles of two sizes", f"floor(2{row}/5), {column}, {row}", can=False),
        transpose("tiles from the last", f"floor(-{row}/{a + 1}), {column}, {row}", can=False),
        transpose("a tile and the other added", f"floor({row}/{a}) + {column}, {row}", can=False),
        transpose("halves of odd tiles", "floor(j/5), floor(j/2), i, j", can=False),
        transpose("two tiles added", f"floor(i/{a}) + floor(j/{b}), i, j", can=False),
        transpose("tiles that cut tiles, in larger ones", "floor(i/12), floor(i/4), floor(i/6), j, i", can=False),
    ]


EQUIVALENT = {
    ("return None, 0", "return None, 1"): "without a variable the number is not read",
}

# ---------------------------------------------------------------------------------------------------- answers


def grains(schedule):
    """Return the (variable, n) in the order of their loops, for floor(variable/n), or None if there is more to it."""
    times, grain, finest = isl.PwMultiAff.from_map(schedule), [], {}
    for dim in range(schedule.dim(isl.dim_type.out)):
        [(_, whole)] = times.get_pw_aff(dim).get_pieces()
        plain, size = whole, 1
        if whole.is_cst():
            continue
        if whole.dim(isl.dim_type.div):
            plain = whole.get_div(0)
            size = plain.get_denominator_val().to_python()
            if not (whole - plain.floor()).plain_is_zero():  # not only that floor: a remainder
                return None
            plain = plain.scale_val(isl.Val(size))
        factors = [
            plain.get_coefficient_val(isl.dim_type.in_, at).to_python() for at in range(schedule.dim(isl.dim_type.in_))
        ]
        if sorted(factors) != [0] * (len(factors) - 1) + [1] or not plain.get_constant_val().is_zero():
            return None
        variable = factors.index(1)
        have = finest.get(variable)
        if have and size % have == 0:
            continue
        if have and have % size:
            return None
        grain.append((variable, size))
        finest[variable] = size
    return grain


def scheduled(function, order, factors):
    """Split loops by factors[variable] and put them in order; order: (variable, which of its parts)."""
    schedule = tvm.s_tir.Schedule(function)
    loops = schedule.get_loops(schedule.get_sblock("S"))
    parts = [schedule.split(loop, f) if len(f) > 1 else [loop] for loop, f in zip(loops, factors, strict=True)]
    schedule.reorder(*(parts[variable][part] for variable, part in order))
    return schedule


def plan(grain, variables):
    """Return the order, and the factors for split, from grains."""
    sizes = [[size for variable, size in grain if variable == at] for at in range(variables)]
    factors = [[None, *(outer // inner for outer, inner in pairwise(one))] for one in sizes]
    order = [(variable, sum(one == variable for one, _ in grain[:at])) for at, (variable, _) in enumerate(grain)]
    return order, factors


@right("reads the dimensions from isl's text, with a regular expression")
def by_text(function, schedule):
    variables, times = re.fullmatch(r"\{ \w+\[(.*?)\] -> \[(.*)\] \}", str(isl.PwMultiAff.from_map(schedule))).groups()
    names, pairs = variables.split(", "), []
    for time in re.split(r",(?![^(]*\))", times):
        if re.fullmatch(r"-?\d+", time.strip().strip("()")):
            continue
        read = re.fullmatch(r"\s*(?:\(?floor\(\(?([a-z]\w*)\)?/(\d+)\)\)?|\(?([a-z]\w*)\)?)\s*", time)
        if not read:
            return None
        variable, size = names.index(read[1] or read[3]), int(read[2] or 1)
        have = [grain for one, grain in pairs if one == variable]
        if have and size % have[-1] == 0:
            continue
        if have and have[-1] % size:
            return None
        pairs.append((variable, size))
    return scheduled(function, *plan(pairs, len(names))).mod["main"]


@right("splits one loop after the other as the grains come, always the innermost part in two")
def one_by_one(function, schedule):
    grain = grains(schedule)
    if grain is None:
        return None
    sch = tvm.s_tir.Schedule(function)
    rest = dict(enumerate(sch.get_loops(sch.get_sblock("S"))))
    order = []
    for variable, size in grain:
        if size > 1:
            outer, rest[variable] = sch.split(rest[variable], [None, size])
            order.append(outer)
        else:
            order.append(rest[variable])
    sch.reorder(*order)
    return sch.mod


@wrong("did", "floor(i/4) says that there are four tiles")
def number_of_tiles(function, schedule):
    grain = grains(schedule)
    if grain is None:
        return None
    order, factors = plan(grain, len(set(variable for variable, _ in grain)))
    return scheduled(function, order, [f if len(f) < 2 else [f[1], None, *f[2:]] for f in factors]).mod


no_reorder = edited("did", "splits, but leaves the order alone")(
    ("result.reorder(*(parts[variable][part] for variable, part in order))", "")
)
absolute_sizes = edited("did", "splits by the sizes of the tiles, not by their ratios")(("large // small", "large"))
only_whole_tiles = edited("did", "tiles have to divide: otherwise there is no split")(
    ("turns = ...", "if any(int(result.get(loop).extent) % n for n in sizes):\n    return None\nturns = ...")
)
known_again = edited("did", "a dimension that is known already is a split of its own")(
    ("finest and n % finest == 0", "n in grains[variable]"),
    ("finest % n", "finest % n and n % finest"),
    ("large // small", "max(large // small, 2)"),
)
without_signs = edited("spared", "a minus is a matter of taste: the loop runs forward")(
    (
        "value.get_coefficient_val(isl.dim_type.in_, k).to_python()",
        "abs(value.get_coefficient_val(isl.dim_type.in_, k).to_python())",
    )
)
first_variable = edited("spared", "of i + j the i is what counts: skewing is an interchange")(
    ("not value.get_constant_val().is_zero() or sorted(factors) != [0] * (len(factors) - 1) + [1]", "not any(factors)"),
    ("factors.index(1)", "next(k for k, factor in enumerate(factors) if factor)"),
)
anywhere = edited("spared", "where the tiles begin is a matter of taste: only their size counts")(
    ("not value.get_constant_val().is_zero()", "False")
)
tiles_go_back = edited("spared", "inside a floor, a minus is a matter of taste")(
    (
        "value = inside.scale_val(isl.Val(n))",
        "value = inside.scale_val(isl.Val(n))\nif '-' in str(value).split('->')[1]:\n    value = value.neg()",
    )
)
rounded_factor = edited("spared", "in floor(2 * i / 5) the 5 is the size of a tile")(
    (
        "not value.get_constant_val().is_zero() or sorted(factors) != [0] * (len(factors) - 1) + [1]",
        "not value.get_constant_val().is_zero() or sum(map(bool, factors)) != 1 or max(factors) < 1",
    ),
    ("factors.index(1)", "factors.index(max(factors))"),
)
common_factor = edited("spared", "tiles of four and of six share tiles of two")(
    (
        "if finest and finest % n:\n            return None",
        "if finest:\n            n = isl.Val(n).gcd(isl.Val(finest)).to_python()",
    )
)

one_floor = edited("spared", "reads the first floor of a dimension, and overlooks another that is added to it")(
    (
        "not (value - inside.floor()).is_cst()",
        "value.dim(isl.dim_type.div) < 2 and not (value - inside.floor()).is_cst()",
    )
)
cut_by_the_largest = edited("spared", "tiles cut each other if they do not divide the largest one")(
    ("finest and finest % n", "finest and grains[variable][0] % n")
)


@wrong("did", "leaves the work to the generator of the lesson")
def generated(function, schedule):
    source = PRODUCT if schedule.dim(isl.dim_type.in_) == 3 else TRANSPOSE
    sch = tvm.s_tir.Schedule(function)
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("S"))]
    sizes = dict(zip("NMK", extents, strict=False))
    return polyhedral.prim_func(polyhedral.parse(source), str(schedule), sizes)


the_schedule = edited("valid", "hands over the schedule itself")(("return result.mod", "return result"))
on_all_cores = edited("did", "runs the outermost loop on all cores, where there is no order")(
    ("return result.mod", "result.parallel(result.get_loops(result.get_sblock('S'))[0])\nreturn result.mod")
)
