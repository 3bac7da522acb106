"""Day 11, a product on a mesh: visible cases, and a judge that moves real blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from passlab.judge import Case, Finding
from passlab.wafer import Deadlock, Machine
from passlab.wafer.machine import shown
from passlab.wafer.matmul import Move, blocks_used, cycles, run, shift

#: No block goes over more links, after the first step.
LINKS = 2
#: the words of a block for which cycles are told
WORDS = 4


def mesh(n: int) -> Case:
    return Case(f"{n} × {n} cores", lambda: (n,))


def cases() -> list[Case]:
    return [mesh(2), mesh(3), mesh(4), mesh(7)]


def _moves(n: int, value: Any) -> tuple[list[list[Move]], str]:
    """Return the steps as moves, and a sentence if they are not."""
    if not isinstance(value, list | tuple):
        return [], f"Return a list of steps; got {shown(value)}."
    if len(value) > 4 * n + 8:
        return [], f"There are {len(value)} steps; {n} products for each core take {n}."
    machine, steps = Machine(n, n), []
    for number, step in enumerate(value):
        if not isinstance(step, list | tuple):
            return [], f"Step {number} is {shown(step)}; it must be a list of (matrix, source, target)."
        taken: set = set()
        steps.append([])
        for move in step:
            where = f"Step {number}: {shown(move)}"
            if not isinstance(move, list | tuple) or len(move) != 3 or move[0] not in ("A", "B"):
                return [], f'{where} must be (matrix, source, target), with matrix "A" or "B".'
            matrix, source, target = move
            if off := machine.off(source) or machine.off(target):
                return [], f"{where}: {off}"
            source, target = tuple(source), tuple(target)
            if source == target:
                return [], f"{where} goes from a core to itself; a block that stays needs no message."
            for what in (("from", matrix, source), ("to", matrix, target)):
                if what in taken:
                    return [], f"{where}: a second block of {matrix} goes {what[0]} core {what[2]} in this step."
                taken.add(what)
            steps[-1].append(Move(matrix, source, (target,)))
    return steps, ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: moves of blocks. Did: every core multiplies all its pairs, once. Cost: short ways."""
    (n,) = case.build()
    steps, broken = _moves(n, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    machine = Machine(n, n)
    try:
        blocks_used(machine, steps)
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-9, 9, (2 * n, 2 * n)) for _ in range(2))
        equal = bool((run(machine, steps, a, b).c == a @ b).all())
        told = "" if equal else "The product of the blocks is not A @ B."
    except (ValueError, Deadlock) as error:
        equal, told = False, str(error)
    yield Finding("did", equal, told)
    if not equal:
        return
    far = [(machine.distance(m.source, m.targets[0]), i, m) for i, step in enumerate(steps) if i for m in step]
    links, number, move = max(far, key=lambda found: found[0], default=(0, 0, None))
    if links <= LINKS:
        yield Finding("cost", True)
        return
    mine, least = (sum(cycles(machine, step, WORDS) for step in found) for found in (steps, shift(n)))
    told = (
        f"In step {number}, a block of {move.matrix} goes from {move.source} to {move.targets[0]}, over {links} links; "
        f"{LINKS} are allowed. With blocks of {WORDS} words, your messages take {mine} cycles; {least} are enough."
    )
    yield Finding("cost", False, told)
