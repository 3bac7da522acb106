"""Day 11, near what they talk to: visible cases and judge."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from passlab.exercises.day11._zoo import by_rows, talk, travelled, wrong_cores
from passlab.given.day11.near import call
from passlab.judge import Case, Finding
from passlab.wafer.machine import Machine
from passlab.wafer.placing import greedy

__all__ = ["call", "cases", "judge"]

Words = Sequence[tuple[int, int, int]]
#: By how much row by row has to be beaten, as a mean over the networks of a case.
FACTOR = 1.4
NETWORKS = ("gpt", "mlp", "residual", "vit")


def small_case(name: str, words: Words, count: int, rows: int, columns: int, about: str, most: float) -> Case:
    """Return a case of one small network; words × hops may be at most `most`."""
    return Case(
        name, lambda: ([(list(words), count, rows, columns)],), ("valid", about), expect=[(name, FACTOR * most)]
    )


def zoo_case(rng: random.Random, mixed: bool = False, tries: int = 6) -> Case:
    """Return a case of several networks of the zoo in pieces; with `mixed`, their tasks are numbered at random.

    `expect` holds (name, words × hops row by row in the order of the graph) of each.
    """
    networks, expect = [], []
    for family in NETWORKS:
        _, seed, rows, columns = drawn(rng, family, tries)
        pieces, words = talk(family, seed, rows, columns)
        count = len(pieces)
        expect.append((family, travelled(words, by_rows(count, columns))))
        number = rng.sample(range(count), count) if mixed else range(count)
        networks.append(([(number[a], number[b], w) for a, b, w in words], count, rows, columns))
    name = "networks of the zoo, numbered at random" if mixed else "networks of the zoo"
    return Case(name, lambda: (networks,), ("valid", "spared" if mixed else "did"), expect=expect)


def connected(words: Words, count: int, rng: random.Random) -> list[int]:
    """Return the tasks, each time the one with the most words to those before it; of several, any."""
    talks: list[dict[int, int]] = [{} for _ in range(count)]
    for a, b, number in words:
        talks[a][b] = talks[a].get(b, 0) + number
        talks[b][a] = talks[b].get(a, 0) + number
    pull, order = {task: 0 for task in rng.sample(range(count), count)}, []
    while pull:
        order.append(max(pull, key=pull.get))
        del pull[order[-1]]
        for other, number in talks[order[-1]].items():
            if other in pull:
                pull[other] += number
    return order


def drawn(rng: random.Random, family: str, tries: int) -> tuple[str, int, int, int]:
    """Return (family, seed, rows, columns): of some draws the one on which greedy placements are most clearly within
    the limit, and rows that go to and fro are most clearly beyond it."""
    draws = []
    for _ in range(tries):
        rows, columns, seed = rng.randint(9, 12), rng.randint(10, 13), rng.randrange(2**31)
        pieces, words = talk(family, seed, rows, columns)
        machine, straight = Machine(rows, columns), by_rows(len(pieces), columns)
        snake = [(r, columns - 1 - c if r % 2 else c) for r, c in straight]
        orders = [None, *(connected(words, len(pieces), rng) for _ in range(3))]
        near = [[divmod(core, columns) for core in greedy(pieces, machine, order).tolist()] for order in orders]
        base, worst = travelled(words, straight), max(travelled(words, place) for place in near)
        draws.append((min(base / worst / FACTOR, FACTOR * travelled(words, snake) / base), family, seed, rows, columns))
    return max(draws)[1:]


#: Two pairs, and one task without messages.
PAIRS = [(0, 3, 100), (3, 0, 20), (1, 2, 50)]


def cases() -> list[Case]:
    rng = random.Random(11)
    return [
        small_case("two pairs", PAIRS, 5, 2, 3, "did", 170),
        zoo_case(rng, tries=2),
        zoo_case(rng, mixed=True, tries=2),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (networks,) = case.build()
    verdict = next(about for about in case.about if about != "valid")
    ratios, worst, dearest = {}, 0.0, ""
    for (name, base), (words, count, rows, columns), cores in zip(case.expect, networks, value, strict=True):
        if broken := wrong_cores(cores, count, rows, columns):
            yield Finding("valid", False, f"{name}: {broken}" if len(networks) > 1 else broken)
            return
        far = travelled(words, cores)
        ratios[name] = base / far if far else max(FACTOR, base)
        if words and far / (base or 1) > worst:
            worst = far / (base or 1)
            a, b, number = max(words, key=lambda one, cores=cores: travelled([one], cores))
            dearest = f"in {name}, {number} words from task {a} on {tuple(cores[a])} to task {b} on {tuple(cores[b])}"
    yield Finding("valid", True)
    mean = statistics.geometric_mean(ratios.values())
    if len(networks) > 1:
        each = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        message = (
            f"Row by row has {mean:.2f} times your traffic ({each}); it should be {FACTOR} times. "
            f"The dearest: {dearest}."
        )
    else:
        message = f"{far:,.0f} words × hops; at most {base / FACTOR:,.0f} are allowed. The dearest: {dearest}."
    yield Finding(verdict, mean >= FACTOR * (1 - 1e-9), "" if mean >= FACTOR * (1 - 1e-9) else message)
