"""Day 11, a search with a budget: visible cases and judge."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from functools import cache
from typing import Any

from passlab.exercises.day11._zoo import talk, travelled, wrong_cores
from passlab.judge import Case, Finding
from passlab.wafer.machine import Machine
from passlab.wafer.placing import greedy

#: Evaluations on each board.
BUDGET = 100_000
#: By how much the greedy placement has to be beaten, as a mean over the boards: a little, and well.
SOME, WELL = 1.05, 1.27
BOARDS = ("gpt", "mlp", "residual")
GRIDS = ((7, 8), (8, 8), (7, 9), (8, 9))


@cache
def board(family: str, seed: int, rows: int, columns: int) -> tuple:
    """Return (words, start, rows, columns): a network's pieces in the greedy placement."""
    pieces, words = talk(family, seed, rows, columns)
    start = [divmod(core, columns) for core in greedy(pieces, Machine(rows, columns)).tolist()]
    return words, tuple(start), rows, columns


def search_case(name: str, seed: int, about: tuple[str, ...] = ("valid", "did", "cost")) -> Case:
    """Return a case of three boards, whose networks and grids are drawn."""
    rng = random.Random(seed)
    drawn = [(family, rng.randrange(2**31), *rng.choice(GRIDS)) for family in BOARDS]
    return Case(name, lambda: ([board(*one) for one in drawn], BUDGET, seed % 2**31), about)


def cases() -> list[Case]:
    return [search_case("three boards", 1)]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    boards, *_ = case.build()
    ratios = []
    for name, (words, start, rows, columns), cores in zip(BOARDS, boards, value, strict=True):
        if broken := wrong_cores(cores, len(start), rows, columns):
            yield Finding("valid", False, f"On the board of {name}: {broken}")
            return
        ratios.append(travelled(words, start) / travelled(words, cores))
    yield Finding("valid", True)
    mean = statistics.geometric_mean(ratios)
    each = ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(BOARDS, ratios, strict=True))
    for verdict, least in (("did", SOME), ("cost", WELL)):
        message = (
            f"The greedy placement has {mean:.2f} times your traffic ({each}); it should be at least {least} times."
        )
        yield Finding(verdict, mean >= least, "" if mean >= least else message)
