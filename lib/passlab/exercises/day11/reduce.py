"""Day 11, reduce: visible cases, and a judge that simulates the messages of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_list
from passlab.judge.words import plural
from passlab.wafer import Machine, bound, program, reduce_messages, simulate

#: The simulated cycles may exceed the bound by this much.
ALLOWED = 1.1
bound = cache(bound)


def table(cores: int, words: int) -> Case:
    """Return a case: a line of cores, and the words of each."""
    name = f"{cores} cores, {plural(words, 'word')} each"
    return Case(name, lambda: (cores, words), ("valid", "did" if words < cores else "cost"))


def cases() -> list[Case]:
    few = [table(4, 1), table(16, 1), table(16, 4), table(17, 4)]
    return [*few, table(8, 8), table(16, 16), table(26, 48), table(32, 32), table(24, 512)]


def _invalid(cores: int, value: Any) -> str:
    if wrong := why_not_a_list(value, f"a list with one entry for each of the {cores} cores", cores):
        return wrong
    for core, parent in enumerate(value):
        if type(parent) is not int:
            return f"The entry of core {core} is {shown(parent)}; it must be the number of a core."
        if core == 0 and parent != -1:
            return f"Core 0 has the sum in the end and sends to no core: its entry is -1, not {shown(parent)}."
        if core and not 0 <= parent < core:
            return f"Core {core} sends to {shown(parent)}; it must send to a core between it and core 0."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: a tree. Did and cost: its cycles, for few and for many words."""
    cores, words = case.build()
    broken = _invalid(cores, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    cycles = simulate(program(Machine(1, cores), reduce_messages(value, words))).cycles
    least = bound(cores, words)
    near = cycles <= ALLOWED * least
    children = [value.count(core) for core in range(cores)]
    busy = children.index(max(children))
    queue = ", one after the other" * (children[busy] > 1)
    slow = (
        f"{case.name}: your tree takes {cycles} cycles, the bound is {least:.1f}, and {ALLOWED * least:.1f} are "
        f"allowed. Core {busy} receives {plural(children[busy], 'message')}{queue}; the longest chain has "
        f"{_depth(value)}."
    )
    yield Finding("did" if words < cores else "cost", near, "" if near else slow)


def _depth(parents: list[int]) -> int:
    depth = [0] * len(parents)
    for core in range(1, len(parents)):
        depth[core] = depth[parents[core]] + 1
    return max(depth)
