"""Day 9, a pipeline and what its steps did: visible cases, and a judge that runs the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from passlab.judge import Case, Finding, plural, shown
from passlab.judge.forms import why_not_of_type
from passlab.mlir import MLIRError, parse, passes
from passlab.mlir.cases import counts

FUSE, GENERALIZE = "linalg-fuse-elementwise-ops", "linalg-generalize-named-ops"
BUFFERIZE = "one-shot-bufferize{bufferize-function-boundaries}"
INSIDE = "one-shot-bufferize"
LOOPS, AFFINE = "convert-linalg-to-loops", "convert-linalg-to-affine-loops"
MERGE, FORWARD, LOWER = "affine-loop-fusion", "affine-scalrep", "lower-affine"
BLOCKS, CLEAN, CSE = "convert-scf-to-cf", "canonicalize", "cse"

#: Longer pipelines are not run.
MOST = 10


_GENERIC = """\
  {new} = linalg.generic {{indexing_maps = [{here}, {there}], iterator_types = [{kinds}]}} ins({last} : {was}) \
outs({out} : {now}) {{
  ^bb0(%a: f32, %b: f32):
    %v = {body} : f32
    linalg.yield %v : f32
  }} -> {now}
"""
_NAMED = "  {new} = linalg.transpose ins({last} : {was}) outs({out} : {now}) permutation = [1, 0]\n"


def chain(side: int, *ops: str) -> str:
    """Return a module that applies operations one after the other to a square: a linalg.generic for exp, tanh, …, of
    math, and for sum (of rows); and the operation linalg.transpose."""
    rows, square = f"tensor<{side}xf32>", f"tensor<{side}x{side}xf32>"
    body, last, was = f"  %e = tensor.empty() : {square}\n", "%x", square
    for at, op in enumerate(ops):
        current = rows if op == "sum" else was
        maps = {rows: "affine_map<(d0) -> (d0)>", square: "affine_map<(d0, d1) -> (d0, d1)>"}
        part = {
            "here": maps[was],
            "there": "affine_map<(d0, d1) -> (d0)>" if op == "sum" else maps[current],
            "kinds": '"parallel"' + (', "reduction"' if op == "sum" else ', "parallel"' if was == square else ""),
            "out": "%y" if current == rows else "%e",
            "body": "arith.addf %a, %b" if op == "sum" else f"math.{op} %a",
        }
        body += (_NAMED if op == "transpose" else _GENERIC).format(
            new=f"%r{at}", last=last, was=was, now=current, **part
        )
        last, was = f"%r{at}", current
    return f"func.func @main(%x: {square}, %y: {rows}) -> {was} {{\n{body}  return {last} : {was}\n}}\n"


def pipeline_case(name: str, text: str, names: Sequence[str], goal: Mapping[str, int], best: int | None) -> Case:
    """Return a case. best: how many steps the shortest pipeline has; None where none reaches the goal.

    Where there is no step to find, the case is not about `did`: always [], or always None, would be right there.
    """
    about = ("valid", "did", "same", "cost") if best else ("valid",)
    return Case(name, lambda: (parse(text, verified=False), list(names), dict(goal)), about, expect=best)


def cases() -> list[Case]:
    lowering = (LOOPS, BUFFERIZE, FUSE)
    return [
        pipeline_case("one pass", chain(8, "exp", "tanh"), [FUSE], {"linalg.generic": 1}, 1),
        pipeline_case("to loops", chain(8, "exp", "tanh"), lowering, {"linalg": 0, "tensor": 0}, 2),
        pipeline_case("to one loop nest", chain(8, "exp", "tanh"), lowering, {"linalg": 0, "scf.for": 2}, 3),
        pipeline_case("a sum, then its root", chain(8, "sum", "sqrt"), [FUSE, CSE], {"linalg.generic": 1}, None),
        pipeline_case("there already", chain(8, "exp"), [FUSE, LOOPS], {"linalg.generic": 1}, 0),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge an answer.

    `valid`: None, or steps. `did`: the goal is reached. `same`: each step changed what it says. `cost`: no shorter way.
    """
    module, names, goal = case.build()
    wrong = _not_steps(value, names)
    yield Finding("valid", not wrong, wrong, before=module)
    if wrong:
        return
    if value is None:
        yield Finding(
            "did", case.expect is None, "There is an order of the passes that reaches the goal.", before=module
        )
        return
    steps = [name for name, _ in value]
    try:
        after = passes(module, steps) if steps else []
    except MLIRError as error:
        yield Finding("did", False, str(error), before=module)
        return
    stages = [module, *after]
    wrong = _not_reached(stages[-1], goal)
    if wrong and case.expect is None:
        wrong += " No order of these passes reaches the goal; return None for that."
    yield Finding("did", not wrong, wrong, before=module, after=stages[-1])
    for number, (name, change) in enumerate(value):
        if sentence := _other_change(f"Step {number + 1}, {name},", change, *stages[number : number + 2]):
            yield Finding("same", False, sentence, before=stages[number], after=stages[number + 1])
            break
    else:
        yield Finding("same", True)
    if not wrong:
        best = case.expect
        minimum = f"{best} would do" if best else "it is reached without any"
        message = f"The pipeline reaches the goal in {plural(len(steps), 'step')}; {minimum}."
        yield Finding("cost", len(steps) <= best, message, before=module, after=stages[-1])


def amount(module: Any, kind: str) -> int:
    """Return how many operations of a name, or of a dialect, a module has."""
    return sum(n for name, n in counts(module).items() if kind in (name, name.split(".")[0]))


def _not_reached(module: Any, goal: Mapping[str, int]) -> str:
    for kind, most in goal.items():
        if (number := amount(module, kind)) > most:
            return f"At the end there are {number} operations of {kind}; the goal allows {most or 'none'}."
    return ""


def _other_change(step: str, change: Mapping[str, int], before: Any, after: Any) -> str:
    old, new = counts(before), counts(after)
    for op in sorted({*old, *new, *change}):
        if change.get(op, 0) != new[op] - old[op]:
            return f"{step} changes the number of {op} by {new[op] - old[op]:+d}; you say {change.get(op, 0):+d}."
    if none := next((op for op, n in change.items() if n == 0), ""):
        return f"{step} does not change the number of {none}; leave it out."
    return ""


def _not_steps(value: Any, names: Sequence[str]) -> str:
    if value is None:
        return ""
    if wrong := why_not_of_type(value, "a list of steps, or None", list):
        return wrong
    if len(value) > MOST:
        return f"The pipeline has {len(value)} steps; {MOST} are the most that are run."
    for step in value:
        if not (isinstance(step, tuple | list) and len(step) == 2):
            return f"A step is (pass, changes); the list holds {shown(step)}."
        name, change = step
        if name not in names:
            return f"{shown(name)} is not one of the passes to choose from."
        if not isinstance(change, dict) or not all(type(k) is str and type(n) is int for k, n in change.items()):
            return f"The changes of {name} are a dictionary from names of operations to whole numbers."
    return ""
