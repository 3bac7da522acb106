"""Day 11, a product on a mesh: visible cases, and a judge that moves real blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from passlab.judge import Case, Finding, enough, shown
from passlab.judge.forms import why_not_a_list
from passlab.wafer import Deadlock, Machine
from passlab.wafer.matmul import Move, blocks_used, cycles, run, shift

#: No block goes over more links, after the first step, where cores have no room for a second one.
LINKS = 2
#: the words of a block for which cycles are told
WORDS = 4


def mesh(n: int, room: bool = False) -> Case:
    return Case(f"{n} × {n} cores{', with room' if room else ''}", lambda: (n, room))


def cases() -> list[Case]:
    return [mesh(2), mesh(3), mesh(4), mesh(7), mesh(2, True), mesh(5, True)]


def _moves(n: int, room: bool, value: Any) -> tuple[list[list[Move]], str]:
    """Return the steps as moves, and a sentence if they are not."""
    if wrong := why_not_a_list(value, "a list of steps"):
        return [], wrong
    if len(value) > 4 * n + 8:
        return [], f"There are {len(value)} steps; {n} products for each core take {n}."
    machine, steps = Machine(n, n), []
    for number, step in enumerate(value):
        if not isinstance(step, list | tuple):
            return [], f"Step {number} is {shown(step)}; it must be a list of (matrix, source, target)."
        receivers: set = set()
        steps.append([])
        for move in step:
            where = f"Step {number}: {shown(move)}"
            if reason := _why_not_a_move(machine, room, move):
                return [], where + reason
            matrix, source, to = move
            source, targets = tuple(source), tuple(map(tuple, to if room else [to]))
            ends = [("to", matrix, target) for target in targets] + [("from", matrix, source)] * (not room)
            for end in ends:
                if end in receivers:
                    return [], f"{where}: a second block of {matrix} goes {end[0]} core {end[2]} in this step."
                receivers.add(end)
            steps[-1].append(Move(matrix, source, targets, keep=room))
    return steps, ""


def _why_not_a_move(machine: Machine, room: bool, move: Any) -> str:
    """Return the end of a sentence on why a value is not (matrix, source, target), or ""."""
    if not isinstance(move, list | tuple) or len(move) != 3 or move[0] not in ("A", "B"):
        return f' must be (matrix, source, {"targets" if room else "target"}), with matrix "A" or "B".'
    _, source, to = move
    if room and (not isinstance(to, list | tuple) or not to):
        return ": with room, it goes to a list of cores, the nearest first."
    targets = to if room else [to]
    if off := next(filter(None, map(machine.why_not_a_core, (source, *targets))), None):
        return f": {off}"
    source, targets = tuple(source), tuple(map(tuple, targets))
    if source in targets:
        return " goes from a core to itself; a block that stays needs no message."
    reason = _off_the_way(machine, source, targets) if room else ""
    return reason and f": {reason}"


def _off_the_way(machine: Machine, source: tuple, targets: tuple) -> str:
    """Return why cores do not lie one after the other on the way to the last of them, or ""."""
    if source[0] != targets[-1][0] and source[1] != targets[-1][1]:
        return f"core {targets[-1]} is neither in the row nor in the column of {source}."
    way = machine.route(source, targets[-1])
    places = [way.index(target) if target in way else -1 for target in targets]
    if places == sorted(set(places)) and places[0] > 0:
        return ""
    return f"its cores must lie one after the other on the way to {targets[-1]}."


def _longest(machine: Machine, steps: list[list[Move]]) -> tuple[int, tuple]:
    """Return the links that a block crosses in all steps together, at most, and that block: (matrix, core)."""
    crossed: Counter = Counter()
    for move in (move for step in steps for move in step):
        crossed[move.matrix, move.source] += machine.distance(move.source, move.targets[-1])
    (block, links), *_ = crossed.most_common(1) or [(("A", (0, 0)), 0)]
    return links, block


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: moves of blocks. Did: every core multiplies all its pairs, once. Cost: short ways."""
    n, room = case.build()
    steps, broken = _moves(n, room, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    machine = Machine(n, n)
    try:
        blocks_used(machine, steps)
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-9, 9, (2 * n, 2 * n)) for _ in range(2))
        equal = bool((run(machine, steps, a, b).c == a @ b).all())
        fault = "" if equal else "The product of the blocks is not A @ B."
    except (ValueError, Deadlock) as error:
        equal, fault = False, str(error)
    yield Finding("did", equal, fault)
    if not equal:
        return
    if room:
        links, (matrix, (row, column)) = _longest(machine, steps)
        fault = (
            f"In all steps together, {matrix}[{row}, {column}] goes over {links} links; {n - 1} reach all its cores."
        )
        yield Finding("cost", links < n, "" if links < n else fault)
        return
    far = [(machine.distance(m.source, m.targets[0]), i, m) for i, step in enumerate(steps) if i for m in step]
    links, number, move = max(far, key=lambda entry: entry[0], default=(0, 0, None))
    if links <= LINKS:
        yield Finding("cost", True)
        return
    own, least = (sum(cycles(machine, step, WORDS) for step in entry) for entry in (steps, shift(n)))
    fault = (
        f"In step {number}, a block of {move.matrix} goes from {move.source} to {move.targets[0]}, over {links} links; "
        f"{LINKS} are allowed. With blocks of {WORDS} words, your messages take {own} cycles; {enough(least)}."
    )
    yield Finding("cost", False, fault)
