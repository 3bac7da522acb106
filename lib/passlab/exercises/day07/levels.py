"""Day 7, what runs at which level: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from passlab.exercises.day07._shared import Witness
from passlab.judge import Case, Finding, is_or_are, listed, plural
from passlab.relay import relay, tvm
from passlab.relay.cases import program, weight


def table(module: tvm.IRModule, disabled: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return the name of a pass → the levels at which relay.optimize runs it."""
    rows: dict[str, list[int]] = {}
    for level in range(5):
        witness = Witness()
        with tvm.transform.PassContext(opt_level=level, disabled_pass=list(disabled), instruments=[witness]):
            relay.optimize(module, target="llvm")
        for name in dict.fromkeys(name for name, _ in witness.events if name):
            rows.setdefault(name, []).append(level)
    return rows


def at_levels(levels: Sequence[int]) -> str:
    return f"at {'level' if len(levels) == 1 else 'levels'} {listed(levels)}" if levels else "at no level"


def judge(case: Case, value: Any) -> Iterator[Finding]:
    levels = value.values() if isinstance(value, dict) else [None]
    if not all(isinstance(each, list | tuple) and all(type(n) is int for n in each) for each in levels):
        yield Finding("valid", False, "Return a dict from the name of each pass to the list of its levels.")
        return
    yield Finding("valid", True)
    right = table(*case.build())
    off = [name for name in (*right, *value) if name not in value or list(value[name]) != right.get(name)]
    if not off:
        yield Finding("did", True)
        return
    name = min(off, key=lambda name: (name not in right, name))
    difference = f"it runs {at_levels(right.get(name, []))}; your table says {at_levels(value.get(name, []))}"
    if name not in right and not value[name]:
        difference = "it runs at no level, so it is not in the table"
    others = f" {plural(len(off) - 1, 'other pass', 'other passes')} {is_or_are(len(off) - 1)} wrong, too."
    others = others if len(off) > 1 else ""
    yield Finding("did", False, f"{name}: {difference}.{others}")


def cases() -> list[Case]:
    def dense(x: relay.Var) -> relay.Expr:
        return relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, weight(5, 4)) + weight(5)))

    return [
        Case("a layer", lambda: (program(dense, (2, 4))(),)),
        Case("some switched off", lambda: (program(dense, (2, 4))(), ("FoldScaleAxis", "FuseOps", "Legalize"))),
    ]
