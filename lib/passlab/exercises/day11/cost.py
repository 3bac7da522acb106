"""Day 11, five numbers: visible cases and judge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import is_number, why_not_of_type
from passlab.wafer import TREES, Cost, Machine, Message, cost, program, reduce_messages

NUMBERS = ("contention", "energy", "links", "distance", "depth", "cycles")
#: verdict → the numbers that decide it
ASKED = {"did": NUMBERS[:3], "same": NUMBERS[3:5], "cost": NUMBERS[5:]}
GRID = Machine(16, 16)


def messages_case(name: str, messages: list[Message], ramp: int = 2) -> Case:
    """Return a case of messages on a grid of 16 × 16 cores."""
    return Case(name, lambda: (messages, ramp))


def along(*cores: tuple[int, int], words: int = 4, **options: Any) -> Message:
    """Return a message that goes by XY routes from one of these cores to the next."""
    route = cores[:1]
    for start, end in pairwise(cores):
        route += GRID.route(start, end)[1:]
    return Message(route, words, **options)


def cases() -> list[Case]:
    fork = [along((0, 0), (2, 3)), along((2, 3), (2, 0), waits=(0,)), along((2, 3), (5, 3), words=9)]
    row = tuple((1, column) for column in range(6))
    broadcast = [Message(row, 20, drops=row[1:]), along((1, 3), (4, 3), words=20, streams=(0,), adds=False)]
    return [
        messages_case("one message", [along((0, 0), (0, 5), words=10)]),
        messages_case("a chain of four", reduce_messages(TREES["chain"](4), 12)),
        messages_case("a star of four", reduce_messages(TREES["star"](4), 12)),
        messages_case("one waits, one does not", fork),
        messages_case("a broadcast along a row, and on from its middle", broadcast, 1),
    ]


def numbers(messages: list[Message], ramp: int) -> dict[str, float]:
    """Return the six numbers by name."""
    c: Cost = cost(program(GRID, messages))
    return {name: getattr(c, name) for name in NUMBERS[:5]} | {"cycles": c.cycles(ramp)}


def law(five: dict[str, float], ramp: int) -> float:
    """Return the cycles that follow from five numbers."""
    flow = five["energy"] / five["links"] + five["distance"]
    return max(five["contention"], flow) + (2 * ramp + 1) * five["depth"]


def _invalid(value: Any) -> str:
    if wrong := why_not_of_type(value, "a dictionary with the six numbers by name", dict):
        return wrong
    for name in NUMBERS:
        number = value.get(name)
        if not (is_number(number) and 0 <= number < 1e15):
            fault = f"it is {shown(number)}" if name in value else "it is missing"
            return f"{name} must be a number that is not negative; {fault}."
    return "" if value["links"] else "links is 0; every message uses at least one link."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Did: what is sent over what. Same: the longest way and chain. Cost: the cycles, from the answer's own numbers."""
    messages, ramp = case.build()
    broken = _invalid(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    right = numbers(messages, ramp)
    for verdict, names in ASKED.items():
        for name in names:
            expect = law(value, ramp) if name == "cycles" else right[name]
            same = math.isclose(value[name], expect, rel_tol=1e-6, abs_tol=1e-6)
            message = f"{name.capitalize()} is {expect:,.10g}; got {value[name]:,.10g}. {_why(messages, name)}"
            if name == "cycles":
                message = (
                    f"Your five numbers and T_R = {ramp} give {expect:,.10g} cycles by the law; "
                    f"got {value[name]:,.10g}."
                )
            yield Finding(verdict, same, "" if same else message)


def _why(messages: list[Message], name: str) -> str:
    """Return where a number comes from."""
    if name == "contention":
        words: dict[tuple, int] = {}
        for message in messages:
            words["sends", message.source] = words.get(("sends", message.source), 0) + message.words
            for core in message.targets:
                words["receives", core] = words.get(("receives", core), 0) + message.words
        does, core = max(words, key=words.__getitem__)
        return f"Core {core} {does} that many words."
    if name == "energy":
        return "It is words times links of each route, summed; a multicast's words cross each link once."
    if name == "links":
        return "Each link counts once, however many messages use it; the way back is another link."
    return "It is the longest along waits and streams, over all messages."
