"""Day 8, exercise 5: cases and judge of a tuner. Its proposals are looked up in a table that only the judge has.

The tables are those of random machines, so that a verdict depends neither on this machine nor on its load.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from passlab.judge import Case, Finding, core, shown
from passlab.measure import seconds

#: All candidate schedules of a matmul. rows × columns: a tile of the result; innermost: the loop
#: that runs fastest, over the tile's columns (a vector), its rows (a vector that jumps) or the sum; depth: how many
#: terms are added before the next tile's turn (0: all); local: the sums of the tile are kept in separate memory.
SPACE = [
    {"rows": rows, "columns": columns, "depth": depth, "local": local, "innermost": innermost}
    for rows, columns, depth, local, innermost in itertools.product(
        (1, 2, 4, 8, 16), (4, 8, 16, 32, 64, 128), (8, 0), (0, 1), ("columns", "rows", "sum")
    )
]

#: How many random starts a case has; how much of the way from random search's best to the best there is must be gone;
#: how near to the best there is a tuner has to come.
STARTS, BEATS, NEAR = 20, 0.5, 1.2


def scheduled(n: int, m: int, k: int, config: dict[str, Any]) -> Any:
    """Return the matmul with one of the schedules."""
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(naive(n, m, k))
    block = schedule.get_sblock("C")
    local = schedule.cache_write(block, 0, "local") if config["local"] else None
    i, j, r = schedule.get_loops(block)
    rows, row = schedule.split(i, [None, config["rows"]])
    columns, column = schedule.split(j, [None, config["columns"]])
    steps, step = schedule.split(r, [None, config["depth"] or k])
    tile = {"columns": (step, row, column), "rows": (step, column, row), "sum": (row, column, step)}
    inner = tile[config["innermost"]]
    schedule.reorder(*((columns, rows, steps) if local else (steps, columns, rows)), *inner)
    if local:
        schedule.reverse_compute_at(local, rows)
        schedule.vectorize(schedule.get_loops(local)[-1])
    if config["innermost"] != "sum":
        schedule.unroll(inner[1])
        schedule.vectorize(inner[2])
    schedule.decompose_reduction(block, steps)
    return schedule.mod


def drawn_machine(seed: int) -> list[float]:
    """Return the microseconds of all candidates on an imaginary machine: its best tile and its dislikes are random."""
    rng = random.Random(seed)
    rows, columns = rng.uniform(0, 4), rng.uniform(2, 7)
    steep, slant = rng.uniform(0.2, 0.3), rng.uniform(-0.06, 0.06)

    def tile(x: float, y: float) -> float:
        x, y = x - rows, y - columns
        return steep * (x * x + y * y) + slant * x * y

    return _times(rng, tile, noise=0.04)


def plain_machine(seed: int) -> list[float]:
    """Return the microseconds on a machine on which each doubling of rows, and of columns, costs the same factor."""
    rng = random.Random(seed)
    of_rows, of_columns = (rng.choice((-1, 1)) * rng.uniform(0.2, 0.5) for _ in range(2))
    return _times(rng, lambda x, y: of_rows * x + of_columns * y, noise=0.02)


def _times(rng: random.Random, tile: Callable[[float, float], float], noise: float) -> list[float]:
    """Return the microseconds of all candidates: `tile` gives the logarithm's part for log2 of rows and columns."""
    dislikes = {
        knob: dict(zip(values, rng.sample(penalties, len(values)), strict=True))
        for knob, values, penalties in (
            ("innermost", ("columns", "rows", "sum"), (0.0, 0.9, 1.8)),
            ("depth", (8, 0), (0.0, 0.4)),
            ("local", (0, 1), (0.0, 0.5)),
        )
    }
    times = []
    for config in SPACE:
        slow = tile(math.log2(config["rows"]), math.log2(config["columns"]))
        slow += sum(of[config[knob]] for knob, of in dislikes.items())
        times.append(100 * math.exp(slow + rng.gauss(0, noise)))
    return times


@dataclass(frozen=True)
class Table:
    """`times` of all candidates, which only the judge knows; `starts`: indices of those measured already."""

    times: tuple[float, ...]
    starts: tuple[tuple[int, ...], ...]
    k: int

    def expected(self) -> float:
        """Return the expected best time of random search with as many measurements: the mean of a minimum."""
        n, all_of_them = len(self.starts[0]) + self.k, len(self.times)
        ways = math.comb(all_of_them, n)
        return sum(t * math.comb(all_of_them - i - 1, n - 1) / ways for i, t in enumerate(sorted(self.times)))


def tuner_case(name: str, times: Sequence[float], seed: int, measured: int = 24, k: int = 2) -> Case:
    rng = random.Random(seed)
    starts = tuple(tuple(rng.sample(range(len(times)), measured)) for _ in range(STARTS))
    histories = [[(at, times[at] * 1e-6) for at in start] for start in starts]
    return Case(name, lambda: ([dict(c) for c in SPACE], histories, k), expect=Table(tuple(times), starts, k))


def cases() -> list[Case]:
    return [
        core(tuner_case("plain: a machine", plain_machine(1), 1)),
        core(tuner_case("plain: another machine", plain_machine(2), 2)),
        tuner_case("a machine", drawn_machine(3), 1),
        tuner_case("another machine", drawn_machine(1), 2),
        tuner_case("a third machine", drawn_machine(2), 3),
    ]


def judge(case: Case, value: object) -> Iterator[Finding]:
    table: Table = case.expect
    for start, chosen in zip(table.starts, value, strict=True):
        if broken := _broken(chosen, start, table):
            yield Finding("valid", False, broken)
            return
    yield Finding("valid", True)
    times = [min(table.times[i] for i in (*s, *chosen)) for s, chosen in zip(table.starts, value, strict=True)]
    mean, luck, best = statistics.mean(times), table.expected(), min(table.times)
    mean_time, luck_time, best_time = (seconds(t / 1e6) for t in (mean, luck, best))
    mean_text = f"Over {len(times)} starts, the best candidates found take {mean_time} on average"
    good = mean <= luck - BEATS * (luck - best)
    short = f"{mean_text}; random search finds {luck_time} with as many measurements, the best there is {best_time}."
    yield Finding("did", good, "" if good else short)
    near = mean <= NEAR * best
    far = f"{mean_text}: {mean / best - 1:.0%} more than the best ({best_time}); at most {NEAR - 1:.0%} is allowed."
    yield Finding("cost", near, "" if near else far)


def _broken(chosen: Any, start: tuple[int, ...], table: Table) -> str | None:
    """Return why this is not a list of candidates to measure, or None."""
    if not isinstance(chosen, list | tuple) or not all(type(i) is int for i in chosen):
        return f"Return a list of {table.k} indices into candidates; it returned {shown(chosen)}."
    if len(chosen) != table.k or len(set(chosen)) != table.k:
        return f"There are {table.k} measurements left; choose {table.k} different candidates, not {len(set(chosen))}."
    if outside := [i for i in chosen if not 0 <= i < len(table.times)]:
        return f"There is no candidate {shown(outside[0])}: indices are 0 to {len(table.times) - 1}."
    if repeated := [i for i in chosen if i in start]:
        return f"Candidate {repeated[0]} has been measured already. Choose one that has not."
    return None
