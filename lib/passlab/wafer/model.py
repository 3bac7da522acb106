"""The machine in closed form: the cost of a program from five numbers.

Luczynski, Gianinazzi, Iff, Wilson, De Sensi, Hoefler, "Near-Optimal Wafer-Scale Reduce", HPDC 2024 (arXiv:2404.15888).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from passlab.wafer.program import Program, in_order


@dataclass(frozen=True)
class Cost:
    """Five numbers of a program.

    `contention` C: the most words that one core sends, or receives. `energy` E: words times links, summed. `links` N:
    links that are used. `distance` L: links of the longest path of a word, or of a sum that contains it. `depth` D:
    messages in the longest chain of messages that wait for each other.
    """

    contention: float
    energy: float
    links: int
    distance: int
    depth: int

    def cycles(self, ramp: int = 2) -> float:
        """Return T = max(C, E / N + L) + (2 · T_R + 1) · D."""
        hops = self.energy / max(self.links, 1)
        return max(self.contention, hops + self.distance) + (2 * ramp + 1) * self.depth


def cost(program: Program) -> Cost:
    """Return the five numbers of a program, read off its messages."""
    if not program.count:
        return Cost(0, 0, 0, 0, 0)
    sizes = np.diff(program.offsets)
    hops = sizes - 1
    landed = np.flatnonzero(program.drops)
    owner = np.repeat(np.arange(program.count), sizes)
    received = np.bincount(program.cores[landed], weights=program.words[owner[landed]]).max()
    largest = np.bincount(program.sources, weights=program.words).max()
    inner = np.ones(len(program.cores), bool)
    inner[program.offsets[1:] - 1] = False
    pairs = np.stack([program.cores[inner], program.cores[np.flatnonzero(inner) + 1]], axis=1)
    depth, distance = _longest(program, hops)
    links = len(np.unique(pairs, axis=0))
    return Cost(
        int(max(received, largest)), int((program.words * hops).sum()), links, int(distance.max()), int(depth.max())
    )


def _longest(program: Program, hops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, per message, the messages and the links of the longest chain that ends with it."""
    parents: dict[int, list[int]] = {}
    for child, parent in zip(program.child.tolist(), program.parent.tolist(), strict=True):
        parents.setdefault(child, []).append(parent)
    depth, before = np.ones(program.count, np.int64), np.zeros(program.count, np.int64)
    for message in in_order(program):
        source = program.cores[program.offsets[message]]
        for parent in parents.get(message, []):
            route = program.cores[program.offsets[parent] : program.offsets[parent + 1]]
            # the parent's route may continue beyond this message's source
            length = before[parent] + int(np.flatnonzero(route == source)[0])
            before[message], depth[message] = max(before[message], length), max(depth[message], depth[parent] + 1)
    return depth, before + hops


# ------------------------------------------------------------------------- on a line of P cores, B words from each


def message(cores: int, words: int, ramp: int = 2) -> float:
    """Return the cycles of one message from one end of a line to the other; of a broadcast, too, by multicast."""
    return words + cores + 2 * ramp


def numbers(parents: Sequence[int], words: int) -> Cost:
    """Return the five numbers of a reduce on a line, in which core i sends to parents[i] < i (`collectives`)."""
    cores = len(parents)
    children = np.bincount(np.asarray(parents[1:], np.int64), minlength=cores)
    depth = [0] * cores
    for core in range(cores - 1, 0, -1):
        depth[parents[core]] = max(depth[parents[core]], depth[core] + 1)
    energy = words * sum(core - parents[core] for core in range(1, cores))
    return Cost(words * int(children.max()), energy, cores - 1, cores - 1, depth[0])


def chain(cores: int, words: int, ramp: int = 2) -> float:
    """Return the cycles of a chain: each core adds its words to those of its neighbour."""
    return words + (2 * ramp + 2) * (cores - 1)


def star(cores: int, words: int, ramp: int = 2) -> float:
    """Return the cycles of a star: every core sends to the first, which receives a word a cycle after the first word
    has crossed one link."""
    return words * (cores - 1) + 1 + (2 * ramp + 1)


def tree(cores: int, words: int, ramp: int = 2) -> float:
    """Return the cycles of a binary tree on 2^k cores: round i, over 2^i links, begins when the first word of round
    i − 1 has arrived, and not before all words of the round before are received.

    Raises ValueError for other numbers of cores.
    """
    if cores < 2 or cores & (cores - 1):
        raise ValueError(
            f"The formula for binary trees needs a power of 2, at least 2, for P; it is {cores}. Other trees can be "
            "simulated: simulate(program(Machine(1, P), reduce_messages(parents, words)))."
        )
    hop = 2 * ramp + 1
    return words + 1 + hop + sum(max(words, 2**i + hop) for i in range(1, cores.bit_length() - 1))


def two_phase(cores: int, words: int, ramp: int = 2, group: int | None = None) -> float:
    """Return the cycles of chains in groups of `group` cores (default √P), and a chain of their first cores.

    The first core of a group sends when it has its group's words and the next group's begin to arrive.
    """
    size = group or round(math.sqrt(cores))
    groups, hop = -(-cores // size), 2 * ramp + 1
    start = (hop + 1) * (cores - (groups - 1) * size - 1)
    for _ in range(groups - 1):
        start = max((hop + 1) * (size - 1) + words * (size > 1), start + size + hop)
    return words + start


#: the cycles of the four reduces on this machine; `numbers(...).cycles()` is the published law for any
FORMULAS = {"star": star, "chain": chain, "tree": tree, "two-phase": two_phase}


def least_energy(cores: int, depth: int) -> np.ndarray:
    """Return the fewest hops of a reduce of one word on a line: [d][p], p cores, at most d messages deep.

    The last message to the first core is from core i, which has gathered the cores behind it by a tree one message
    less deep (the recurrence of Luczynski et al.).
    """
    table = np.full((depth + 1, cores + 1), np.inf)
    table[:, :2] = 0
    for d in range(1, depth + 1):
        for p in range(2, cores + 1):
            i = np.arange(1, p)
            table[d, p] = (table[d, i] + table[d - 1, p - i] + i).min()
    return table


def bound(cores: int, words: int, ramp: int = 2) -> float:
    """Return the fewest cycles that the law allows for any reduce on a line: the least over all depths."""
    energy = least_energy(cores, cores - 1)[1:, cores]
    depth = np.arange(1, cores)
    return float((np.maximum(words, words * energy / (cores - 1) + cores - 1) + (2 * ramp + 1) * depth).min())
