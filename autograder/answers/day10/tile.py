"""Hidden cases and answers of day10.tile.

Orders of the two products, and what is marked in them.
"""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab import polyhedral
from passlab.exercises.day10.tile import tile_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    prime = rng.choice((31, 37, 41, 43))
    return [
        tile_case("matmul", timed=True, N=160, M=224, K=192),
        tile_case("gram", timed=True, N=200, K=160),
        tile_case("matmul", N=rng.randrange(2, 30), M=prime, K=rng.randrange(1, 12)),
        tile_case("matmul", N=prime, M=1, K=3),
        tile_case("gram", N=prime, K=rng.randrange(1, 12)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@right("transforms the program's own schedule step by step, and unrolls")
def step_by_step(program, sizes):
    schedule = polyhedral.tile(_by_rows(program), [0, 1], [4, 32])  # [I, J, i, j, 0 or 1, k]
    schedule = polyhedral.interchange(schedule, 2, 4)  # [I, J, 0 or 1, j, i, k]
    schedule = polyhedral.interchange(schedule, 3, 5)  # [I, J, 0 or 1, k, i, j]
    return schedule, {"parallel": [0], "vectorize": [5], "unroll": [4]}


def _by_rows(program):
    """Return the program's own schedule, but the second loop runs along the rows of C."""
    return polyhedral.interchange(program.schedule, 0, 1) if program.name == "gram" else program.schedule


@right("all zeros first, then tiles in three dimensions for the cache; no loop is unrolled")
def three_dimensions(program, sizes):
    y, x = "ji" if program.name == "gram" else "ij"
    zeros = f"S[i, j] -> [0, floor({y}/32), floor({x}/32), 0, {y}, 0, {x}]"
    sums = f"T[i, j, k] -> [1, floor({y}/32), floor({x}/32), floor(k/32), {y}, k, {x}]"
    return f"{{ {zeros}; {sums} }}", {"parallel": [1], "vectorize": [6]}


@wrong("did", "the loops as they are, interchanged, or with the sum innermost: the compiler will see to it")
def untouched(program, sizes):
    return program.schedule, {}


same_for_both = edited(
    "cost", "one order is best for every product: in gram, the lesson's vector jumps from row to row"
)(('("j", "i") if program.name == "gram" else ("i", "j")', '("i", "j")'))
no_vector = edited(
    "cost", "LLVM makes its own vectors, one core is fast enough, or each tile starts threads of its own"
)(('{"parallel": [0], "vectorize": [5]}', '{"parallel": [0]}'))


@wrong("same", "the outermost loop is the one to run in parallel, or the innermost to vectorize, whatever it does")
def parallel_sums(program, sizes):
    return "{ S[i, j] -> [0, 0, i, j]; T[i, j, k] -> [1, k, i, j] }", {"parallel": [1]}


@wrong("same", "where the zeros are set does not matter: they come last")
def zeros_last(program, sizes):
    tiles = "floor(i/8), floor(j/32)"
    return f"{{ S[i, j] -> [{tiles}, 1, 0, i, j]; T[i, j, k] -> [{tiles}, 0, k, i, j] }}", {"vectorize": [5]}


@wrong("valid", "the zeros need no time: TVM sets them by itself")
def no_zeros(program, sizes):
    return "{ T[i, j, k] -> [floor(i/8), floor(j/32), k, i, j] }", {"vectorize": [4]}


@wrong("valid", "a tile is a point in time: what comes first inside of it is left open")
def tiles_alone(program, sizes):
    tiles = "floor(i/8), floor(j/32)"
    return f"{{ S[i, j] -> [{tiles}, 0, 0]; T[i, j, k] -> [{tiles}, 1, k] }}", {}


@wrong("valid", "each statement has as many times as it has loops")
def of_two_lengths(program, sizes):
    return "{ S[i, j] -> [0, i, j]; T[i, j, k] -> [1, i, k, j] }", {"vectorize": [3]}
