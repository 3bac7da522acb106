"""Hidden cases and answers of day11.reduce."""

from __future__ import annotations

import math
import random
from functools import lru_cache

import numpy as np

from autograder.authoring.answers import right, wrong
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
        table(rng.choice([20, 24, 26, 28]), rng.choice([3, 4, 5])),
        table(17, rng.choice([2, 4])),
        table(rng.choice([32, 35]), 2),
        table(26, rng.choice([32, 40, 48, 64])),
        table(11, 32),
        table(4, 3),
        table(8, 1),
    ]


EQUIVALENT = {
    ("start, last = [0, 0], [0, 0]", "start, last = [0, 0], [0, 1]"): "no line of one core is split",
    ("start, last = [0, 0], [0, 0]", "start, last = [0, 1], [0, 0]"): "all trees begin a cycle later",
    ("range(2, cores + 1)", "range(2, cores + 2)"): "one line more than needed",
    ("words * (i > 1)", "words * (i >= 1)"): "the trees that it builds are within a tenth, too",
}

# ---------------------------------------------------------------------------------------------------- answers


@wrong("cost", "builds the trees of least energy with at most three children a core; the best of these, simulated")
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


@right("how many cores are summed by each cycle, until they are all; then the same splits from the end")
def by_time(cores, words):
    reach = [1]  # cycle → cores whose sum can begin to leave
    while reach[-1] < cores:
        t = len(reach)
        complete = max(reach[t - words] if t >= words else 1, 1)
        reach.append(max([1, *(i + reach[t - i - 5] for i in range(1, complete + 1) if t >= i + 5)]))
    parents, parts = [-1] * cores, [(0, cores, len(reach) - 1)]
    while parts:
        first, count, t = parts.pop()
        if count > 1:
            near = reach[t - words] if t >= words else 1
            i = next(i for i in range(1, min(near, count - 1) + 1) if t >= i + 5 and reach[t - i - 5] >= count - i)
            parents[first + i] = first
            parts += [(first, i, t - words), (first + i, count - i, t - i - 5)]
    return parents


def two_phase_of(cores, group):
    return [-1] + [core - (group if core % group == 0 else 1) for core in range(1, cores)]


def simulated(tree, words):
    return simulate(program(Machine(1, len(tree)), reduce_messages(tree, words))).cycles


@right("the best tree of fewer cores by recursion; two parts are one tree with the second moved along; a tuple")
def recursive(cores, words):
    @lru_cache(None)
    def best(count):
        if count == 1:
            return 0, (-1,)
        options = []
        for i in range(1, count):
            (near, left), (far, right) = best(i), best(count - i)
            start = max(near + (words if i > 1 else 0), far + i + 5)
            options.append((start, (*left, 0, *(core + i for core in right[1:]))))
        return min(options)

    return best(cores)[1]


def of_a_table(cores, words, tree=True, star=True, sizes=None):
    """The best of the lesson's trees, by simulation."""
    trees = [two_phase_of(cores, size) for size in sizes or range(1, cores)]
    trees += [[-1, *(core & (core - 1) for core in range(1, cores))]] * tree + [[-1] + [0] * (cores - 1)] * star
    return min(trees, key=lambda tree: simulated(tree, words))


@wrong("cost", "takes the best of the lesson's four trees, with groups of any size: for some P and B none is near")
def tried(cores, words):
    return of_a_table(cores, words)


@wrong("did", "takes the best of the lesson's trees, the binary one on powers of two alone, as its formula")
def powers_of_two(cores, words):
    return of_a_table(cores, words, tree=cores & (cores - 1) == 0)


@wrong("did", "takes the best of star and groups, but forgets the binary tree")
def no_tree(cores, words):
    return of_a_table(cores, words, tree=False)


@wrong("did", "takes the best of binary tree and groups, but forgets the star")
def no_star(cores, words):
    return of_a_table(cores, words, star=False)


@wrong("cost", "tries star, binary tree and groups of the root of P only")
def root_only(cores, words):
    return of_a_table(cores, words, sizes=[round(cores**0.5)])


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
