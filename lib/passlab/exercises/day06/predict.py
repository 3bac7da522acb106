"""Day 6, predict run time: machines that do not exist, visible cases, and a judge that compares with their times.

The operators are real ones, of the zoo; their times come from a formula with constants of a machine that is drawn. So
no table of measured times holds the answer, and every seed asks about another machine.
"""

from __future__ import annotations

import math
import operator
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from passlab.dataflow.predict import SIZES, Row, load, score
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import is_number, why_not_a_list

FEATURES = ("kind", "flops", "nbytes", "outputs", "inner")
RANK, ERROR, BEYOND = 0.9, 0.15, 0.35
#: The least rank correlation of two measurements of the same operators on a machine of a case.
ALIKE = 0.985
#: The least number of measured operators of the same kind, limited by the same, for one that a case has predicted.
FEWEST = 16


@cache
def _operators() -> tuple[Row, ...]:
    return tuple(row for row in load() if row.model in SIZES)


def drawn_machine(rng: random.Random) -> dict[str, Any]:
    """Return a machine: three numbers that an answer sees, and hidden factors of each kind of operator."""
    kinds = sorted({row.kind for row in _operators()})
    return {
        "bandwidth": rng.uniform(5e9, 5e10),
        "flops": rng.uniform(3e10, 4e11),
        "launch": rng.uniform(1e-6, 1e-5),
        "share": {kind: rng.uniform(0.02, 0.9) for kind in kinds},  # of the peak that a kind of operator reaches
        "pace": {kind: rng.uniform(0.15, 0.9) for kind in kinds},  # of the bandwidth
        "start": {kind: rng.uniform(1, 4) for kind in kinds},  # launches
    }


def _work(row: Row, machine: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds that an operator's bytes and its operations take on a drawn machine."""
    moving = row.nbytes / (machine["bandwidth"] * machine["pace"][row.kind])
    computing = row.flops / (machine["flops"] * machine["share"][row.kind])
    return moving, computing


def seconds(row: Row, machine: dict[str, Any], rng: random.Random) -> float:
    """Return what an operator takes on a drawn machine, with noise of 3 %."""
    start = machine["start"][row.kind] * machine["launch"]
    return (start + max(_work(row, machine))) * math.exp(rng.gauss(0, 0.03))


def _tells_apart(machine: dict[str, Any], rows: Sequence[Row], rng: random.Random) -> bool:
    """Return whether measuring these operators twice on a machine gives nearly the same order."""
    once, twice = ([seconds(row, machine, rng) for row in rows] for _ in range(2))
    return score(once, twice).rank >= ALIKE


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FEATURES}


def _split(
    machine: dict[str, Any], unseen: Sequence[str], beyond: bool, rng: random.Random
) -> tuple[list[Row], list[Row]]:
    """Return the operators that are measured on a machine, and those to predict."""
    rows = list(_operators())
    new = [row for row in rows if row.model in unseen]
    old = [row for row in rows if row.model not in unseen]
    if beyond:
        work = [max(row.flops / machine["flops"], row.nbytes / machine["bandwidth"]) for row in rows]
        middle = sorted(work)[int(0.75 * len(rows))]
        old = [row for row, least in zip(rows, work, strict=True) if least <= middle]
        new = [row for row, least in zip(rows, work, strict=True) if least > 1.5 * middle]
    old = rng.sample(old, min(500, len(old)))

    def limit(row: Row) -> tuple[str, bool]:
        return row.kind, operator.lt(*_work(row, machine))

    count = Counter(map(limit, old))
    new = [row for row in new if count[limit(row)] >= FEWEST]
    return old, rng.sample(new, min(200, len(new)))


def predicted(name: str, seed: int, unseen: Sequence[str], beyond: bool = False) -> Case:
    """Return a case: operators of the networks `unseen` are to be predicted, those of the others are measured.

    beyond: measured are small operators only, and unseen are larger ones than all of them.
    """
    rng = random.Random(seed)
    while True:
        machine = drawn_machine(rng)
        old, new = _split(machine, unseen, beyond, rng)
        # Where launches are slow, all operators of a network take the same time, and only noise orders them.
        if beyond or _tells_apart(machine, new, rng):
            break
    measured = [_plain(row) | {"seconds": seconds(row, machine, rng)} for row in old]
    features, times = [_plain(row) for row in new], [seconds(row, machine, rng) for row in new]
    three = {key: machine[key] for key in ("bandwidth", "flops", "launch")}
    about = ("valid", "spared") if beyond else ("valid", "did", "cost")
    return Case(
        name, lambda: (dict(three), [dict(r) for r in measured], [dict(r) for r in features]), about, expect=times
    )


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Did: the order of the predictions is right. Cost: they are near. Spared: also beyond what was measured."""
    times = case.expect
    broken = why_not_a_list(value, f"a list of {len(times)} numbers of seconds", len(times))
    if not broken and (odd := [v for v in value if not (is_number(v) and 0 < v < 1e6)]):
        broken = f"A prediction is a Python number of seconds greater than 0; one of yours is {shown(odd[0])}."
    yield Finding("valid", not broken, broken)
    if broken:
        return
    result = score(value, times)
    if case.asks("spared"):
        far = f"Beyond the measured sizes your median error is {result.error:.0%}; it must be at most {BEYOND:.0%}."
        yield Finding("spared", result.error <= BEYOND, far)
        return
    order = f"Spearman's rank correlation with the times is {result.rank:.3f}; it must be at least {RANK}."
    yield Finding("did", result.rank >= RANK, order)
    near = f"Your median error is {result.error:.0%}; it must be at most {ERROR:.0%}."
    yield Finding("cost", result.error <= ERROR, near)


def cases() -> list[Case]:
    return [
        predicted("a network that was not measured", 1, ("resnet18", "resnet50", "residual")),
        predicted("a transformer that was not measured", 2, ("gpt", "attention")),
        predicted("larger operators than measured", 3, (), beyond=True),
    ]
