"""Day 10, exercises 5 to 7: the cases that learners do not see, drawn from a seed."""

from __future__ import annotations

import random

from passlab.exercises.cases_day10_loops import (
    EITHER,
    EVERY_FIFTH,
    FIFTHS,
    LINE,
    RECTANGLE,
    SIEVE,
    SOLVE,
    STENCIL,
    TRIANGLE,
    TWO_LOOPS,
    generate_case,
)
from passlab.exercises.cases_day10_tile import tile_case
from passlab.exercises.cases_day10_tvm import PRODUCT, TRANSPOSE, tvm_case
from passlab.judge import Case


def generate(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.sample(range(6, 12), 2)
    a, b, c = rng.randrange(2, 5), rng.randrange(2, 5), rng.choice((-3, -2, 2, 3))
    tiles = f"{{ S[i, j] -> [floor((i - {a}j)/{b + 1}), i - {a}j, j] }}"
    both = f"{{ S[i, j] -> [floor((i - 3j)/{a + 2}), floor((i + j)/{b}), i - 3j, j] }}"
    apart = f"{{ S[i] -> [{a}i, 0]; T[i, j] -> [{a + 1}i + {b}, j + 1] }}"
    remainders = f"{{ S[i, j] -> [i mod {a}, i, j] }}"
    once = "{ S[t, i] -> [floor(t/3), floor((t + i)/4), t, t + i] }"
    tile = f"floor(i/{b})"
    solve = f"{{ S[i] -> [{tile}, i, 0, 0]; T[i, j] -> [{tile}, i, 1, j]; U[i] -> [{tile}, i, 2, 0] }}"
    fifths = f"{{ S[i] -> [floor(i/{a + 2}), i, 0]; T[i] -> [floor(i/{a + 2}), i, 1] }}"
    odd_back = f"{{ S[i] -> [i] : i % 2 = 0; S[i] -> [{2 * n} - i] : i % 2 = 1 }}"
    return [
        generate_case("skewed tiles of a rectangle", RECTANGLE, tiles, run=False, N=n, M=m),
        generate_case("tiles skewed both ways", RECTANGLE, both, N=7, M=9),
        generate_case("a triangle, stretched", TRIANGLE, f"{{ S[i, j] -> [{c}i + j, j] }}", N=n),
        generate_case("a lattice, by remainders", EVERY_FIFTH, remainders, run=False, N=n, M=m),
        generate_case("a triangular solve in tiles", SOLVE, solve, N=n),
        generate_case("two statements far apart", TWO_LOOPS, apart, N=n),
        generate_case("one iteration", STENCIL, once, run=False, T=1, N=3),
        generate_case("one branch or the other", EITHER, "{ S[i] -> [-i]; T[i] -> [-i] }", N=20 + n),
        generate_case("a branch in a branch", FIFTHS, fifths, N=20),
        generate_case("a sieve by diagonals", SIEVE, "{ S[i, j] -> [i - j, i] }", N=n, M=m),
        generate_case("odd ones from the end", LINE, odd_back, N=2 * n + 1),
        generate_case("a stencil by fronts", STENCIL, "{ S[t, i] -> [2t + i, t] }", T=n, N=m),
    ]


def tile(seed: int) -> list[Case]:
    rng = random.Random(seed)
    prime = rng.choice((31, 37, 41, 43))
    return [
        tile_case("matmul", timed=True, N=160, M=224, K=192),
        tile_case("gram", timed=True, N=200, K=160),
        tile_case("matmul", N=rng.randrange(2, 30), M=prime, K=rng.randrange(1, 12)),
        tile_case("matmul", N=prime, M=1, K=3),
        tile_case("gram", N=prime, K=rng.randrange(1, 12)),
    ]


def tvm(seed: int) -> list[Case]:
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
