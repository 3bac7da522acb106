"""Hidden cases and answers of day11.reduce."""

from __future__ import annotations

import math
import random

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day11.reduce import bound, table
from passlab.judge import Case
from passlab.wafer import FORMULAS, Machine, program, reduce_messages, simulate
from passlab.wafer.collectives import two_phase


def _near(cores: int, words: int) -> bool:
    """Return whether two good ways both come near the bound: groups of the best size, and `generated`."""
    size = min(range(1, cores + 1), key=lambda size: FORMULAS["two-phase"](cores, words, group=size))
    most = 1.095 * bound(cores, words)
    return all(simulated(way(cores, words), words) < most for way in (lambda *_: two_phase(cores, size), generated))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(cores: range, words: range) -> Case:
        while True:
            pair = rng.choice(cores), rng.choice(words)
            if _near(*pair):
                return table(*pair)

    return [
        table(rng.randint(3, 9), 1),
        table(rng.randint(24, 64), 1),
        table(16, 4),
        table(32, rng.choice([4, 5, 8])),
        table(64, 4),
        table(rng.choice([16, 32]), rng.choice([6, 8])),
        table(3, 2),
        drawn(range(12, 25), range(13, 30)),
        drawn(range(32, 49), range(32, 64)),
        drawn(range(50, 65), range(64, 200)),
        table(rng.randint(8, 24), rng.randint(500, 4000)),
        table(rng.randint(40, 64), 4096),
        table(2, rng.randint(3, 9)),
    ]


EQUIVALENT = {
    ("cores & (cores - 1)", "cores & (cores - 2)"): "true of the same numbers",
    ("list(min(trees, key=trees.get))", "min(trees, key=trees.get)"): "a tuple will do",
}

# ---------------------------------------------------------------------------------------------------- answers


@right("the least energy for each depth and number of children, by dynamic programming; the best of these, simulated")
def generated(cores, words):
    if words == 1:
        return [-1, *[0] * (cores - 1)]
    trees = [list(range(-1, cores - 1)), [-1, *(core & (core - 1) for core in range(1, cores))]]
    for most in (2, 3):
        deepest = min(cores - 1, 14)
        energy = np.full((deepest + 1, most + 1, cores + 1), np.inf)
        pick = np.zeros(energy.shape, int)
        energy[:, :, 1] = 0
        for d in range(1, deepest + 1):
            for k in range(1, most + 1):
                for p in range(2, cores + 1):
                    sums = energy[d, k - 1, 1:p] + energy[d - 1, most, p - 1 : 0 : -1] + np.arange(1, p)
                    pick[d, k, p] = sums.argmin() + 1
                    energy[d, k, p] = sums.min()

        def build(parents, low, count, d, k, pick=pick, most=most):
            while count > 1:
                i = int(pick[d, k, count])
                parents[low + i] = low
                build(parents, low + i, count - i, d - 1, most)
                count, k = i, k - 1
            return parents

        for d in range(1, deepest + 1):
            if np.isfinite(energy[d, most, cores]):
                trees.append(build([-1] * cores, 0, cores, d, most))
    return min(trees, key=lambda tree: simulated(tree, words))


def two_phase_of(cores, group):
    return [-1] + [core - (group if core % group == 0 else 1) for core in range(1, cores)]


def simulated(tree, words):
    return simulate(program(Machine(1, len(tree)), reduce_messages(tree, words))).cycles


@right("simulates the star, the binary tree and groups of some sizes, and takes the best")
def tried(cores, words):
    sizes = sorted({1, *range(2, 13), cores})
    trees = [[-1] + [0] * (cores - 1), [-1] + [core & (core - 1) for core in range(1, cores)]]
    trees += [two_phase_of(cores, size) for size in sizes if size <= cores]
    return tuple(min(trees, key=lambda tree: simulated(tree, words)))


@wrong("did", "always a chain: it is the best for many words")
def chained(cores, words):
    return list(range(-1, cores - 1))


@wrong("cost", "always a star: everything is one message from core 0")
def starred(cores, words):
    return [-1] + [0] * (cores - 1)


@wrong("cost", "always the binary tree, as on a cluster, where distance costs nothing")
def binary(cores, words):
    return [-1] + [core & (core - 1) for core in range(1, cores)]


@wrong("did", "groups of the root of P, whatever the words")
def two_phases(cores, words):
    return two_phase_of(cores, max(1, round(math.sqrt(cores))))


@wrong("valid", "a chain away from core 0, core 0 sends to itself, or pairs of cores instead of a target for each")
def away(cores, words):
    return [*range(1, cores), -1]


no_star = edited(
    "did", "forgets the star", ('trees[tuple([-1] + [0] * (cores - 1))] = FORMULAS["star"](cores, words)', "pass")
)
no_tree = edited("did", "forgets the binary tree", ("cores & (cores - 1) == 0", "cores == 1"))
root_only = edited(
    "cost",
    "tries groups of the root of P only",
    ("for size in range(1, cores): ...", "for size in [round(cores**0.5)]: ..."),
)
one_word = edited(
    "cost", "chooses as if each core had one word", ("...(cores, words, group=size)", "...(cores, 1, group=size)")
)
