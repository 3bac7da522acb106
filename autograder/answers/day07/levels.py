"""Hidden cases and answers of day07.levels."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.cases import program

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    off = (
        "FastMath",
        "AlterOpLayout",
        "EliminateCommonSubexpr",
        "SimplifyInference",
        "CanonicalizeOps",
        "InlineGlobals",
    )
    chosen = tuple(rng.sample(off, 3))

    def chain(x: relay.Var, y: relay.Var) -> relay.Expr:
        return relay.nn.dense(relay.exp(x), y)

    build = program(chain, (rng.randint(2, 5), 4), (3, 4))
    return [
        Case("a chain", lambda: (build(),)),
        Case(f"without {' and '.join(chosen)}", lambda: (build(), chosen)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@tvm.instrument.pass_instrument
class _Seen:
    """(name, declared level, depth) of each run of a pass."""

    def __init__(self):
        self.runs, self.depth = [], 0

    def run_before_pass(self, mod, info):
        self.runs.append((info.name, info.opt_level, self.depth))
        self.depth += 1

    def run_after_pass(self, mod, info):
        self.depth -= 1


def _at(mod, level, disabled=()):
    recorder = _Seen()
    with tvm.transform.PassContext(opt_level=level, disabled_pass=list(disabled), instruments=[recorder]):
        relay.optimize(mod, target="llvm")
    return recorder.runs


@right("asks for every pass at which levels it was seen")
def by_pass(mod, disabled=()):
    levels = [{name for name, *_ in _at(mod, level, disabled)} for level in range(5)]
    return {name: [level for level in range(5) if name in levels[level]] for name in set().union(*levels)}


@right("reads TVM's own timing instrument")
def from_timing(mod, disabled=()):
    table = {}
    for level in range(5):
        timing = tvm.ir.instrument.PassTimingInstrument()
        with tvm.transform.PassContext(opt_level=level, disabled_pass=list(disabled), instruments=[timing]):
            relay.optimize(mod, target="llvm")
            names = {line.strip().split(":")[0] for line in timing.render().split("\n") if ":" in line}
        for name in names:
            table[name] = [*table.get(name, []), level]
    return table


@wrong("did", "believes what a pass says of itself: who calls it directly does not ask for its level")
def declared(mod, disabled=()):
    return {name: list(range(level, 5)) for name, level, _ in _at(mod, 4, disabled)}


@wrong("did", "looks at the outermost runs only")
def outermost(mod, disabled=()):
    table = {}
    for level in range(5):
        for name in {name for name, _, depth in _at(mod, level, disabled) if depth <= 1}:
            table.setdefault(name, []).append(level)
    return table


nothing_off = edited(
    "did", "takes the names that `disabled` has, and switches nothing off, or hides them in the table alone"
)(("disabled", "[]"))


@wrong("did", "begins with a row for each pass of relay.transform: some run at no level")
def empty_rows(mod, disabled=()):
    return {name: [] for name in vars(relay.transform) if name[0].isupper()} | by_pass(mod, disabled)


up_to_three = edited("did", "levels go from 0 to 3, as in all compilers")(("range(5)", "range(4)"))


@wrong("did", "the lowest level only")
def lowest(mod, disabled=()):
    return {name: levels[:1] for name, levels in by_pass(mod, disabled).items()}


@wrong("did", "types the table that tutorials have: folding at 1, fusing at 2")
def from_a_tutorial(mod, disabled=()):
    says = {"FoldConstant": 1, "FuseOps": 2, "SimplifyInference": 0, "AlterOpLayout": 2, "EliminateCommonSubexpr": 3}
    return by_pass(mod, disabled) | {name: list(range(level, 5)) for name, level in says.items()}


@wrong("valid", "a list of (level, name), where a dict was asked")
def pairs(mod, disabled=()):
    return [(level, name) for level in range(5) for name, *_ in _at(mod, level, disabled)]
