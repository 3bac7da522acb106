"""Day 3, a program that shrinks at every stage: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from passlab.equivalence import equivalent
from passlab.exercises.day03.pipeline import SWEEP
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import Program
from passlab.fx.stages import STAGES
from passlab.judge import Case, Finding, enough, plural


def budget(rounds: int) -> int:
    """Return how many nodes a program for `rounds` sweeps may have."""
    return 12 + 12 * rounds


def judge(case: Case, value: object) -> Iterator[Finding]:
    (rounds,) = case.build()
    broken = why_not_valid(None, value)
    if not broken and len([n for n in value.graph.nodes if n.op == "placeholder"]) != 1:
        broken = "The program must take exactly one input, x."
    if broken:
        yield Finding("valid", False, broken)
        return
    before = rebuild(value)
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    if error := Program(before).run((x,)).error:
        yield Finding("valid", False, f"The program does not run on a (3, 4) tensor: {error}", before=before)
        return
    yield Finding("valid", True)
    after, stuck, rebuilt = rebuild(value), "", None
    for i in range(rounds * len(SWEEP)):
        name, count = SWEEP[i % len(SWEEP)], len(after.graph.nodes)
        try:
            after = STAGES[name](after)
        except Exception as error:
            yield Finding(
                "did", False, f"{name} cannot read the program: {type(error).__name__}: {error}", before=before
            )
            return
        if len(after.graph.nodes) >= count and not stuck:
            stuck = f"Sweep {i // len(SWEEP) + 1}: {name} finds {plural(count, 'node')} and removes none."
            rebuilt = rebuild(after)
    after = rebuild(after)
    result = equivalent(before, after, (x,))
    yield Finding("same", result.ok, result.reason, before=before, after=after)
    sentence = f"{stuck} Every stage has to find something to remove in every sweep." if stuck else ""
    yield Finding("did", not stuck, sentence, before=before, after=rebuilt)
    size, limit = len(before.graph.nodes), budget(rounds)
    sentence = "" if size <= limit else f"The program has {size} nodes; {enough(limit)} for {plural(rounds, 'sweep')}."
    yield Finding("cost", not sentence, sentence, before=before)


def cases() -> list[Case]:
    return [Case(plural(rounds, "sweep"), lambda rounds=rounds: (rounds,)) for rounds in (1, 2, 3)]
