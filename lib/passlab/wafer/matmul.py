"""Matrix products on a mesh: blocks that are shifted or broadcast, on real arrays, cycles counted.

Core (i, j) of n × n begins with A[i, j] and B[i, j] and ends with C[i, j]. An algorithm is a list of steps, a step a
list of `Move`s; after each, every core multiplies its two blocks.

- `summa`: in step k, column k sends its blocks of A along the rows, row k its blocks of B along the columns.
- `cannon`: blocks are skewed once, then shifted by one core a step, the last of a row back to its start.
- `shift`: the same on a folded ring, 0 2 4 … 5 3 1, so that a block moves at most two links
  (He et al., "WaferLLM", OSDI 2025: MeshGEMM; its model PLMR: parallelism, latency, memory, routing).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from passlab.wafer.machine import Core, Machine
from passlab.wafer.program import Message, program
from passlab.wafer.simulate import simulate

#: matrix → core → the (row, column) of the block that it holds
Blocks = dict[str, dict[Core, Core]]


@dataclass(frozen=True)
class Move:
    """Move the block of a matrix from `source` to `targets`, cores of one row or column, in one direction.

    keep: copy it instead; the targets use their copies in this step only.
    """

    matrix: str
    source: Core
    targets: tuple[Core, ...]
    keep: bool = False


@dataclass(frozen=True)
class Product:
    """C, and its cost: the cycles of each step's messages, the cycles of one multiplication of blocks, and the longest
    path of a block in a step after the first, in links."""

    c: np.ndarray
    messages: tuple[int, ...]
    work: int
    hops: int

    @property
    def cycles(self) -> int:
        """Return the cycles of all steps, if blocks move while others are multiplied."""
        first, *others = self.messages
        return first + sum(max(cycles, self.work) for cycles in others) + self.work


def fold(n: int) -> list[int]:
    """Return the places of a ring on a line, neighbours at most two links apart: 0 2 4 … 5 3 1."""
    return [*range(0, n, 2), *reversed(range(1, n, 2))]


def shift(n: int) -> list[list[Move]]:
    """Return the steps of a product by shifts on a folded ring."""
    return _rotate(n, fold(n))


def cannon(n: int) -> list[list[Move]]:
    """Return the steps of Cannon's algorithm: the ring is the line, and its last link is long."""
    return _rotate(n, list(range(n)))


def _rotate(n: int, ring: list[int]) -> list[list[Move]]:
    place = {core: p for p, core in enumerate(ring)}
    skew = []
    for i in range(n):
        for j in range(n):
            start = ring[(place[j] - place[i]) % n], ring[(place[i] - place[j]) % n]
            if start[0] != j:
                skew.append(Move("A", (i, j), ((i, start[0]),)))
            if start[1] != i:
                skew.append(Move("B", (i, j), ((start[1], j),)))
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

    Multiplying two blocks takes a core one cycle for each of (N / n)³ products of two numbers. Raises ValueError if a
    message cannot be sent, or a core multiplies nothing, the wrong blocks, or the same ones twice.
    """
    n, size = machine.rows, len(a) // machine.rows
    if machine.columns != n or a.shape != b.shape or a.shape != (n * size, n * size):
        raise ValueError(f"{a.shape} and {b.shape} are not square matrices in {n} × {n} blocks.")
    products = blocks_used(machine, steps)
    blocks_a, blocks_b = (x.reshape(n, size, n, size).swapaxes(1, 2) for x in (a, b))
    c = np.zeros((n, n, size, size), np.result_type(a, b))
    for step in products:
        for (i, j), k in step.items():
            c[i, j] += blocks_a[i, k] @ blocks_b[k, j]
    times = tuple(cycles(machine, step, size * size) for step in steps)
    hops = [machine.distance(m.source, m.targets[-1]) for step in steps[1:] for m in step]
    return Product(c.swapaxes(1, 2).reshape(a.shape), times, size**3, max(hops, default=0))


def cycles(machine: Machine, step: Sequence[Move], words: int) -> int:
    """Return the cycles of a step's messages, with blocks of `words` words: those of A, then those of B."""
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
    grid = list(product(range(machine.rows), repeat=2))
    blocks: Blocks = {matrix: {core: core for core in grid} for matrix in "AB"}
    multiplied: set[tuple[int, int, int]] = set()
    result: list[dict[Core, int]] = []
    for number, step in enumerate(steps):
        blocks, copies = _moved(number, step, blocks)
        result.append({})
        for core in grid:
            a, b = (copies.get((matrix, core), blocks[matrix].get(core)) for matrix in "AB")
            if reason := _why_not_a_product(core, a, b, multiplied):
                raise ValueError(f"In step {number}, core {core} {reason}.")
            multiplied.add((*core, a[1]))
            result[-1][core] = a[1]
    for i, j, k in product(range(machine.rows), repeat=3):
        if (i, j, k) not in multiplied:
            raise ValueError(f"Core {(i, j)} never multiplies A{[i, k]} and B{[k, j]}.")
    return result


def _moved(number: int, step: Sequence[Move], blocks: Blocks) -> tuple[Blocks, dict[tuple[str, Core], Core]]:
    """Return the blocks of each core after a step, and those that reach cores in it: (matrix, core) → block."""
    after, copies = {matrix: dict(blocks[matrix]) for matrix in "AB"}, {}
    for move in step:
        if not move.keep:
            after[move.matrix].pop(move.source, None)
    for move in step:
        if move.source not in blocks[move.matrix]:
            raise ValueError(f"In step {number}, core {move.source} holds no block of {move.matrix} to send.")
        for target in move.targets:
            copies[move.matrix, target] = blocks[move.matrix][move.source]
            if not move.keep:
                after[move.matrix][target] = blocks[move.matrix][move.source]
    return after, copies


def _why_not_a_product(core: Core, a: Core | None, b: Core | None, multiplied: Container[tuple[int, int, int]]) -> str:
    if a is None or b is None:
        return f"has no block of {'A' if a is None else 'B'}"
    if (a[0], b[1]) != core or a[1] != b[0]:
        return f"has A{list(a)} and B{list(b)}: not a part of its C"
    if (*core, a[1]) in multiplied:
        return f"multiplies A{list(a)} and B{list(b)} again"
    return ""
