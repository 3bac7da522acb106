"""Day 12, beyond the course: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.capstone.families import Drawn, drawn
from passlab.exercises.day12._shared import counted_steps, model_case
from passlab.exercises.day12.compiler import counted, noisy, traced
from passlab.judge import Case, Finding

#: Families on which a compiler can save more launches than the course's does.
ROOM = ("attention", "skip", "vit", "lstm")


def beyond_case(model: Drawn) -> Case:
    """A case of a drawn model; where there is room, it also decides whether the answer is complete."""
    about = ("valid", "same", "cost") + ("did",) * (model.name in ROOM)
    return counted(model_case(model, about))


def cases() -> list[Case]:
    return [
        beyond_case(drawn("attention", 1)),
        beyond_case(drawn("gpt", 3)),
        traced("dropout in training", noisy, ("valid", "same"), training=True),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    reply = yield from counted_steps(case, value)
    if reply is None:
        return
    _, course = case.expect()
    launches = f"It takes {reply['launches']:,} launches, and what the course's compiler makes {course.launches:,}"
    if case.asks("did"):
        fewer = reply["launches"] < course.launches
        message = "" if fewer else f"{launches}: less is possible here."
        yield Finding("did", fewer, message, before=reply["before"], after=value.graph)
    if case.asks("cost"):
        within = reply["launches"] <= course.launches and reply["bytes"] <= course.bytes
        message = f"{launches}; it moves {reply['bytes']:,} bytes, and that {course.bytes:,}. Neither may be more."
        yield Finding("cost", within, "" if within else message, before=reply["before"], after=value.graph)
