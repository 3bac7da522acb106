"""Day 12, the plan: visible cases and judge."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache

from torch import fx

from passlab.capstone import BadCompiled, Compiled, grouped, why_not_compiled
from passlab.capstone.building import plan_of
from passlab.capstone.counting import peak_sentence
from passlab.capstone.families import Drawn, drawn
from passlab.capstone.reference import STAGES, compile
from passlab.capstone.reference import plan as reference_plan
from passlab.exercises.day12.compiler import noisy, repeated, written
from passlab.fx.cases import graph, seeded
from passlab.judge import Case, Finding
from passlab.memory.plan import Plan

#: A plan's arena may exceed the reference's by this much.
ALLOWED = 1.05


def plan_case(model: Drawn, about: tuple[str, ...] = ("valid", "did")) -> Case:
    """A case of a drawn model with the groups of the course's compiler.

    It expects the bytes of the arena that the course's planner needs; they are found with the case, once for all who
    are judged.
    """

    @cache
    def compiled() -> Compiled:
        return compile(model.graph(), model.inputs, STAGES[:-1])

    @cache
    def best() -> int:
        return reference_plan(compiled(), model.inputs).plan.arena

    def build() -> tuple:
        origin, _ = compiled(), best()
        return copy.deepcopy(origin.graph), [list(group) for group in origin.groups], model.inputs

    return Case(model.name, build, about, expect=best)


def bare_case(name: str, make, about: tuple[str, ...]) -> Case:
    """A case of a graph as it is."""

    def build() -> tuple:
        gm = make()
        return gm, [], tuple(gm.meta["inputs"])

    @cache
    def best() -> int:
        gm, groups, inputs = build()
        return reference_plan(Compiled(gm, groups), inputs).plan.arena

    return Case(name, build, about, expect=best)


def cases() -> list[Case]:
    from torch import nn

    def traced(body, training=False):
        return seeded(graph(body, (16, 24), lin=lambda: nn.Linear(24, 24), training=training))

    return [
        plan_case(drawn("convnet", 1)),
        plan_case(drawn("vit", 2)),
        plan_case(drawn("unet", 3)),
        bare_case("a value is written", traced(written), ("valid", "spared")),
        bare_case("dropout in training", traced(noisy, True), ("valid", "spared")),
        bare_case("a value that nothing uses", traced(repeated), ("valid", "did")),
    ]


@cache
def _steps(case: Case) -> fx.GraphModule:
    """Return the graph with one node for each group, for which plans are made, once for all who are judged."""
    return grouped(*case.build())


def judge(case: Case, value: object) -> Iterator[Finding]:
    gm, groups, inputs = case.build()
    broken = "" if type(value) is Plan else f"Return a Plan (passlab.memory.plan); got {type(value).__name__}."
    compiled = Compiled(gm, groups, plan=value)
    broken = broken or why_not_compiled(gm, compiled) or ""
    if not broken:
        try:
            plan_of(compiled, inputs, _steps(case))
        except BadCompiled as error:
            broken = str(error)
    yield Finding("valid", not broken, broken)
    if case.asks("spared"):
        yield Finding("spared", not broken, broken)
    if not broken and case.asks("did"):
        best = case.expect()
        fits = value.arena <= best * ALLOWED
        where = "" if fits else peak_sentence(_steps(case), value, inputs)
        yield Finding("did", fits, where and f"The arena has {value.arena:,} bytes; {best:,} are enough. {where}")
