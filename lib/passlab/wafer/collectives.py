"""Reduce, broadcast and all-reduce as programs: on a line of cores, on a grid, and any tree."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from passlab.wafer.machine import Machine
from passlab.wafer.program import Message, Program, join, on_lines

#: a reduce on a line of P cores: for each core 0 … P − 1 the core it sends to, nearer to 0; core 0 sends nowhere
Tree = Sequence[int]


def star(cores: int) -> list[int]:
    """Return the tree in which every core sends to the first."""
    return [-1] + [0] * (cores - 1)


def chain(cores: int) -> list[int]:
    """Return the tree in which every core sends to its neighbour."""
    return list(range(-1, cores - 1))


def tree(cores: int) -> list[int]:
    """Return the binary tree: core i sends to i without its lowest bit."""
    return [-1] + [core & (core - 1) for core in range(1, cores)]


def two_phase(cores: int, group: int | None = None) -> list[int]:
    """Return chains in groups of `group` cores (default √P), and a chain of the groups' first cores."""
    size = group or round(math.sqrt(cores))
    return [-1] + [core - size if core % size == 0 else core - 1 for core in range(1, cores)]


#: Name → `tree(cores)`: the core that each core sends to, in a reduce on a line.
TREES = {"star": star, "chain": chain, "tree": tree, "two-phase": two_phase}


def reduce_messages(parents: Tree, words: int) -> list[Message]:
    """Return the messages of a reduce on Machine(1, P), in which core i sends the sum of its subtree to parents[i].

    A core receives from its children in the order of their distance, nearest first, and streams the words of the last
    of them: its sum is complete, word by word, when they arrive.
    """
    cores = len(parents)
    children: dict[int, list[int]] = {}
    for core in range(1, cores):
        children.setdefault(parents[core], []).append(core)
    number = {core: cores - 1 - core for core in range(1, cores)}
    messages = []
    for core in range(cores - 1, 0, -1):
        own = [number[child] for child in children.get(core, [])]
        route = tuple((0, place) for place in range(core, parents[core] - 1, -1))
        messages.append(Message(route, words, waits=tuple(own[:-1]), streams=tuple(own[-1:])))
    return messages


def reduce_rows(machine: Machine, parents: Tree, words: int) -> Program:
    """Return the program in which every row reduces to its first core."""
    starts = np.arange(machine.rows) * machine.columns
    return on_lines(machine, reduce_messages(parents, words), starts, 1)


def reduce_grid(machine: Machine, rows: Tree, column: Tree, words: int) -> Program:
    """Return the program that reduces every row by the tree `rows`, then the first column by the tree `column`."""
    down = on_lines(machine, reduce_messages(column, words), np.zeros(1), machine.columns)
    return join(reduce_rows(machine, rows, words), down)


def broadcast_messages(cores: int, words: int) -> list[Message]:
    """Return the one message, a multicast, of a broadcast from the first core of Machine(1, P)."""
    route = tuple((0, place) for place in range(cores))
    return [Message(route, words, drops=route[1:])]


def broadcast_grid(machine: Machine, words: int) -> Program:
    """Return the program that copies the words of core (0, 0) to all: down its column, and on along every row.

    Core (0, 0) sends one message at a time, so the rest of row 0 gets its words from row 1.
    """
    if machine.rows == 1:
        return on_lines(machine, broadcast_messages(machine.columns, words), np.zeros(1), 1)
    down = on_lines(machine, broadcast_messages(machine.rows, words), np.zeros(1), machine.columns)
    if machine.columns == 1:
        return down
    rows = on_lines(
        machine, broadcast_messages(machine.columns, words), np.arange(1, machine.rows) * machine.columns, 1
    )
    up = on_lines(
        machine, broadcast_messages(2, words), machine.columns + np.arange(1, machine.columns), -machine.columns
    )
    rows.adds[:] = up.adds[:] = False
    return join(join(down, rows, stream=True), up, stream=True)


def all_reduce(machine: Machine, rows: Tree, column: Tree, words: int) -> Program:
    """Return the program that reduces to core (0, 0) and sends the sum back to every core."""
    return join(reduce_grid(machine, rows, column, words), broadcast_grid(machine, words), heads=True)
