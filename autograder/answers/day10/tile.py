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


@wrong("did", "the loops as they are: the compiler will see to it")
def untouched(program, sizes):
    return program.schedule, {}


@wrong("cost", "tiles for the cache alone: innermost is still the sum, which no vector can take")
def sums_innermost(program, sizes):
    return polyhedral.tile(program.schedule, [0, 1], [32, 32]), {}


@wrong("cost", "i and j interchanged: neither of them was the problem")
def columns_first(program, sizes):
    return polyhedral.interchange(program.schedule, 0, 1), {}


@wrong("cost", "the lesson's schedule of a product, as it is: in gram its vector jumps from row to row")
def of_the_lesson(program, sizes):
    nests = polyhedral.distribute(program.schedule, 2, 2)
    cached = polyhedral.tile(nests, [1, 2, 3], [32, 128, 128])
    small_blocks = polyhedral.tile(cached, [4, 5], [4, 32])
    blocked = polyhedral.interchange(polyhedral.interchange(small_blocks, 6, 8), 7, 8)
    return blocked, {"parallel": [1], "unroll": [7], "vectorize": [8]}


same_for_both = edited(
    "cost",
    "one order is best for every product",
    ('("j", "i") if program.name == "gram" else ("i", "j")', '("i", "j")'),
)
on_one_core = edited("cost", "one core is fast enough", ('{"parallel": [0], "vectorize": [5]}', '{"vectorize": [5]}'))
no_vector = edited("cost", "LLVM makes its own vectors", ('{"parallel": [0], "vectorize": [5]}', '{"parallel": [0]}'))
inner_parallel = edited("cost", "each tile starts its own threads for its rows", ("0", "4"))
long_vector = edited(
    "cost",
    "the longer a vector, the better",
    ('f"floor({rows}/8), floor({columns}/32)"', 'f"floor({rows}/8), floor({columns}/128)"'),
)


@wrong("same", "the innermost loop is the one to vectorize, whatever it does")
def vector_of_sums(program, sizes):
    return program.schedule, {"vectorize": [3]}


@wrong("same", "the outermost loop is the one to run in parallel, whatever it does")
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


@wrong("valid", "loops are marked by the names of their variables")
def marks_by_name(program, sizes):
    return "{ S[i, j] -> [i, 0, 0, j]; T[i, j, k] -> [i, 1, k, j] }", {"parallel": ["i"], "vectorize": ["j"]}
