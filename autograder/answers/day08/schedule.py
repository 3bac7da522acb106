"""Hidden cases and answers of day08.schedule.

Most answers apply other primitives to the textbook's loop nest, or compute something else.
"""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day08.schedule import naive, schedule_case
from passlab.judge import Case
from passlab.relax import tvm
from passlab.relax.pipelines import cpu_schedule

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    prime = rng.choice((59, 67, 83, 101))
    return [
        schedule_case(*rng.choice(((256, 384, 320), (320, 384, 256), (384, 320, 320))), timed=True),
        schedule_case(rng.randrange(3, 60), rng.randrange(65, 120), prime),
        schedule_case(prime, 1, rng.randrange(2, 40)),
        schedule_case(1, prime, 1),
        schedule_case(1, 1, 1),
        schedule_case(5, 384, 6),
    ]


#: Of a schedule only its speed is asked, so a step may be missing that is worth little here.
EQUIVALENT = {
    ('...((n, k), name="A")', "...((n, k))"): "parameters count by their order",
    ('...((k, m), name="B")', "...((k, m))"): "parameters count by their order",
    ("i, [None, 8]", "i, [None, 9]"): "as fast",
    ("schedule.reverse_compute_at(local, tile)", "pass"): "the sums are written back later, as fast",
    ("schedule.parallel(tile)", "pass"): "the kernel is timed on one thread",
    ("schedule.unroll(row)", "pass"): "LLVM unrolls a loop of eight turns",
    ("schedule.vectorize(column)", "pass"): "LLVM makes vectors of a loop of 32 turns",
    ("schedule.decompose_reduction(block, r)", "pass"): "LLVM takes the first turn out of the loop",
}


# ---------------------------------------------------------------------------------------------------- answers


def _start(n, m, k):
    schedule = tvm.s_tir.Schedule(naive(n, m, k))
    block = schedule.get_sblock("C")
    return schedule, block, schedule.get_loops(block)


@right("the steps of the lesson: a tile of 4 rows and 16 columns, and rows of tiles for each core")
def as_in_the_lesson(n, m, k):
    schedule, block, (i, j, r) = _start(n, m, k)
    columns, column = schedule.split(j, [None, 16])
    rows, row = schedule.split(i, [None, 4])
    schedule.reorder(rows, columns, r, row, column)
    schedule.vectorize(column)
    local = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(local, columns)
    schedule.unroll(row)
    schedule.parallel(rows)
    schedule.decompose_reduction(block, r)
    return schedule.mod


@right("a tile of 4 rows and 32 columns kept in local memory, on one core")
def on_one_core(n, m, k):
    schedule, block, (i, j, r) = _start(n, m, k)
    local = schedule.cache_write(block, 0, "local")
    rows, row = schedule.split(i, [None, 4])
    columns, column = schedule.split(j, [None, 32])
    schedule.reorder(columns, rows, r, row, column)
    schedule.reverse_compute_at(local, rows)
    schedule.unroll(row)
    schedule.vectorize(column)
    schedule.decompose_reduction(block, r)
    return schedule.mod


@right("B is first copied into panels that lie side by side in memory")
def packed(n, m, k):
    schedule, block, (i, j, r) = _start(n, m, k)
    panel = schedule.cache_read(block, 1, "global")
    local = schedule.cache_write(block, 0, "local")
    rows, row = schedule.split(i, [None, 8])
    columns, column = schedule.split(j, [None, 32])
    schedule.reorder(columns, rows, r, row, column)
    schedule.compute_at(panel, columns)
    schedule.reverse_compute_at(local, rows)
    schedule.parallel(columns)
    schedule.unroll(row)
    schedule.vectorize(column)
    schedule.decompose_reduction(block, r)
    return schedule.mod


@wrong("cost", "the loop nest as it is, on more cores, or with its sum unrolled: LLVM will see to it")
def untouched(n, m, k):
    return _start(n, m, k)[0].mod


@wrong("cost", "one reorder, or vectors alone: the row of C is loaded and stored for every term")
def one_reorder(n, m, k):
    schedule, _, (i, j, r) = _start(n, m, k)
    schedule.reorder(i, r, j)
    return schedule.mod


@wrong("valid", "hands the naive nest to passlab's own rule")
def by_rule(n, m, k):
    return cpu_schedule(naive(n, m, k)).mod


transposed = edited("same", "reads B as if it were transposed (with the sizes made to fit)")(
    ("b[r, j]", "b[(j * k + r) // m, (j * k + r) % m]")
)
whole_tiles = edited("same", "whole tiles only: the columns that are left over keep the last whole tile's values")(
    ("b[r, j]", "b[r, te.min(j, max(m // 16 * 16, 1) - 1)]")
)
whole_rows = edited("cost", "makes one vector of a whole row where it has no whole tiles")(
    ("j, [None, 32]", "j, [None, 32 if m % 32 == 0 else m]")
)
as_long_as_divides = edited("cost", "the longest vector that divides a row: 128 numbers, even")(
    ("j, [None, 32]", "j, [None, 128 if m % 128 == 0 else 32]")
)
a_loop_that_turns = edited("valid", "takes for granted that some loop has more than one turn")(
    ("schedule.split(j, [None, 32])", "schedule.split(j, [None, min(32, *(x for x in (n, m, k) if x > 1))])"),
)
half_sums = edited("same", "half precision is enough to add up in")(
    ("a[i, r] * b[r, j]", 'a[i, r].astype("float16").astype("float32") * b[r, j].astype("float16").astype("float32")')
)
late_start = edited("same", "the sum starts one step late: the first product is taken for the initial value")(
    ("a[i, r] * b[r, j]", "te.if_then_else(r > 0, a[i, r] * b[r, j], 0.0)")
)


the_schedule = edited("valid", "hands over the schedule itself, or a function with other parameters")(
    ("return schedule.mod\n", "return schedule\n")
)
