"""Matrix products on a mesh: blocks that are shifted or broadcast, on real arrays, cycles counted.

Core (i, j) of n × n begins with A[i, j] and B[i, j] and ends with C[i, j]. An algorithm is a list of steps, a step a
list of `Move`s; after each, every core multiplies the two blocks that it has.

- `summa`: in step k, column k sends its blocks of A along the rows, row k its blocks of B along the columns.
- `cannon`: blocks are skewed once, then shifted by one core a step, the last of a row going all the way back.
- `shift`: the same on a ring that is folded, 0 2 4 … 5 3 1, so that no block goes further than two links
  (He et al., "WaferLLM", OSDI 2025: MeshGEMM; its model PLMR: parallelism, latency, memory, routing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from passlab.wafer.machine import Core, Machine
from passlab.wafer.program import Message, program
from passlab.wafer.simulate import simulate


@dataclass(frozen=True)
class Move:
    """The block of a matrix that `source` holds goes to `targets`, cores of one row or column, in one direction.

    It is handed over; with `keep`, the source keeps it, and the targets use their copies in this step only.
    """

    matrix: str
    source: Core
    targets: tuple[Core, ...]
    keep: bool = False


@dataclass(frozen=True)
class Product:
    """C, and what it took: per step the cycles of the messages, the cycles of one multiplication of blocks, and the
    longest way of a block in a step after the first, in links."""

    c: np.ndarray
    messages: tuple[int, ...]
    work: int
    hops: int

    @property
    def cycles(self) -> int:
        """Return the cycles of all steps, if blocks move while others are multiplied."""
        first, *rest = self.messages
        return first + sum(max(cycles, self.work) for cycles in rest) + self.work


def fold(n: int) -> list[int]:
    """Return the places of a ring on a line, neighbours at most two links apart: 0 2 4 … 5 3 1."""
    return [*range(0, n, 2), *reversed(range(1, n, 2))]


def shift(n: int) -> list[list[Move]]:
    """Return the steps of a product by shifts on a folded ring."""
    return _rotate(n, fold(n))


def cannon(n: int) -> list[list[Move]]:
    """Return the steps of Cannon's algorithm: the ring is the line, with a long way back."""
    return _rotate(n, list(range(n)))


def _rotate(n: int, ring: list[int]) -> list[list[Move]]:
    place = {core: p for p, core in enumerate(ring)}
    skew = []
    for i in range(n):
        for j in range(n):
            away = ring[(place[j] - place[i]) % n], ring[(place[i] - place[j]) % n]
            if away[0] != j:
                skew.append(Move("A", (i, j), ((i, away[0]),)))
            if away[1] != i:
                skew.append(Move("B", (i, j), ((away[1], j),)))
    back = {core: ring[p - 1] for p, core in enumerate(ring)}
    cores = [(i, j) for i in range(n) for j in range(n)]
    turn = [Move("A", (i, j), ((i, back[j]),)) for i, j in cores] + [
        Move("B", (i, j), ((back[i], j),)) for i, j in cores
    ]
    return [skew] + [turn] * (n - 1) if n > 1 else [[]]


def summa(n: int) -> list[list[Move]]:
    """Return the steps of SUMMA: each is a broadcast from one column and one row."""
    steps = []
    for k in range(n):
        step = []
        for i in range(n):
            for side in (range(k - 1, -1, -1), range(k + 1, n)):
                if side:
                    step.append(Move("A", (i, k), tuple((i, j) for j in side), keep=True))
                    step.append(Move("B", (k, i), tuple((j, i) for j in side), keep=True))
        steps.append(step)
    return steps


#: Name → `steps(n)`: the moves of blocks before each product, on n × n cores.
ALGORITHMS: dict[str, Callable[[int], list[list[Move]]]] = {"summa": summa, "cannon": cannon, "shift": shift}


def run(machine: Machine, steps: Sequence[Sequence[Move]], a: np.ndarray, b: np.ndarray) -> Product:
    """Return the product of two square arrays (N, N), N a multiple of the n of the machine's n × n cores, in blocks.

    Multiplying two blocks takes a core one cycle for each of (N / n)³ products of two numbers. ValueError, with a
    sentence, if a message cannot be sent, or a core multiplies nothing, the wrong blocks, or the same ones twice.
    """
    n, size = machine.rows, len(a) // machine.rows
    if machine.columns != n or a.shape != b.shape or a.shape != (n * size, n * size):
        raise ValueError(f"{a.shape} and {b.shape} are not square matrices in {n} × {n} blocks.")
    used = blocks_used(machine, steps)
    left, right = (x.reshape(n, size, n, size).swapaxes(1, 2) for x in (a, b))
    c = np.zeros((n, n, size, size), np.result_type(a, b))
    for step in used:
        for (i, j), k in step.items():
            c[i, j] += left[i, k] @ right[k, j]
    times = tuple(cycles(machine, step, size * size) for step in steps)
    hops = [machine.distance(m.source, m.targets[-1]) for step in steps[1:] for m in step]
    return Product(c.swapaxes(1, 2).reshape(a.shape), times, size**3, max(hops, default=0))


def cycles(machine: Machine, step: Sequence[Move], words: int) -> int:
    """Return the cycles of the messages of a step, with blocks of this many words: those of A, then those of B."""
    total = 0
    for matrix in "AB":
        moves = [move for move in step if move.matrix == matrix]
        messages = [Message(machine.route(m.source, m.targets[-1]), words, drops=m.targets) for m in moves]
        total += simulate(program(machine, messages)).cycles if messages else 0
    return total


def blocks_used(machine: Machine, steps: Sequence[Sequence[Move]]) -> list[dict[Core, int]]:
    """Return, for each step, core (i, j) → the k of the A[i, k] and B[k, j] that it multiplies.

    Raises ValueError for steps in which a core lacks a block, or that do not multiply each pair of blocks exactly once.
    """
    n = machine.rows
    held = {matrix: {(i, j): (i, j) for i in range(n) for j in range(n)} for matrix in "AB"}
    done: set[tuple[int, int, int]] = set()
    found = []
    for number, step in enumerate(steps):
        after, now = {m: dict(held[m]) for m in "AB"}, {}
        for move in step:
            if not move.keep:
                after[move.matrix].pop(move.source, None)
        for move in step:
            if move.source not in held[move.matrix]:
                raise ValueError(f"In step {number}, core {move.source} holds no block of {move.matrix} to send.")
            for target in move.targets:
                now[move.matrix, target] = held[move.matrix][move.source]
                if not move.keep:
                    after[move.matrix][target] = held[move.matrix][move.source]
        used = {}
        for core in ((i, j) for i in range(n) for j in range(n)):
            a, b = (now.get((m, core), after[m].get(core)) for m in "AB")
            if a is None or b is None:
                raise ValueError(f"In step {number}, core {core} has no block of {'A' if a is None else 'B'}.")
            if (a[0], b[1]) != core or a[1] != b[0]:
                raise ValueError(f"In step {number}, core {core} has A{list(a)} and B{list(b)}: not a part of its C.")
            if (*core, a[1]) in done:
                raise ValueError(f"In step {number}, core {core} multiplies A{list(a)} and B{list(b)} again.")
            done.add((*core, a[1]))
            used[core] = a[1]
        held = after
        found.append(used)
    for i, j, k in ((i, j, k) for i in range(n) for j in range(n) for k in range(n)):
        if (i, j, k) not in done:
            raise ValueError(f"Core {(i, j)} never multiplies A{[i, k]} and B{[k, j]}.")
    return found
