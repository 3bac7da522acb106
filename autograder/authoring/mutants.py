"""Mutants of the reference answers: small changes of their text, which the checks should notice.

    passlab prove --mutants 60 --exercise day03.cse

Each mutant exchanges one piece of the answer cell: a comparison, an operator, a constant, a condition, a statement (the
operators of Offutt et al., "An experimental determination of sufficient mutant operators", TOSEM 1996, and some for
Python). One that keeps every verdict on the visible cases and on the hidden cases of all seeds has *survived*: either a
law that the text states has no case, or the change makes no difference. The latter is said beside the hidden cases,

    EQUIVALENT = {("len(group) > 1", "len(group) >= 1"): "a group of one may be left out"}

where the key is an edit of the reference's syntax, see `autograder.authoring.edits`; it is listed wherever the old
fragment occurs.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from rich.console import Console

from autograder.authoring import answers, source
from autograder.authoring import prove as proving
from autograder.authoring.edits import variants
from passlab import exercises
from passlab.judge import judge
from passlab.process.parsing import parse

#: Seconds that a mutant has for a case, if the exercise gives more.
SECONDS = 3.0

_COMPARISONS = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min"}
#: Calls of these with one argument become the argument.
_TRANSPARENT = {"reversed", "list", "sorted", "set", "tuple", "abs", "dict"}


@dataclass(frozen=True)
class Mutant:
    """The text of an answer cell with one change. `line`: in the notebook's `.py`; `before`, `after`: that line."""

    line: int
    before: str
    after: str
    text: str


@dataclass
class Report:
    """What became of an exercise's mutants."""

    exercise: str
    tried: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    listed: int = 0

    @property
    def ok(self) -> bool:
        return not self.survivors


def mutants(exercise_id: str, most: int, seed: int = 0) -> list[Mutant]:
    """Return up to `most` mutants of an exercise's reference, drawn from all, in the order of the text."""
    place = source.find(exercise_id)
    found = {(m.before, m.after, m.line): m for m in _all(place.answer.text, place.answer.first)}
    drawn = random.Random(f"{exercise_id} {seed}").sample(sorted(found), min(most, len(found)))
    return sorted((found[key] for key in drawn), key=lambda m: (m.line, m.after))


def try_all(exercise_id: str, most: int, seeds: Iterable[int] = range(3)) -> Report:
    """Put an exercise's mutants through its checks. Never raises for anything that a mutant does."""
    exercise, report, seeds = exercises.find(exercise_id), Report(exercise_id), list(seeds)
    limited = replace(exercise, seconds=min(exercise.seconds, SECONDS))
    cases = [*exercise.cases(), *(case for seed in seeds for case in answers.hidden_cases(exercise_id, seed))]
    own = source.find(exercise_id).answer.text
    known = {ast.dump(tree) for edit in answers.equivalent_mutants(exercise_id) for tree in variants(own, *edit)}
    for mutant in mutants(exercise_id, most):
        report.tried += 1
        if ast.dump(parse(mutant.text)) in known:
            report.listed += 1
        elif _survives(limited, exercise_id, mutant, cases):
            report.survivors.append(mutant)
    return report


def _survives(exercise: Any, exercise_id: str, mutant: Mutant, cases: list) -> bool:
    try:
        answer = source.answer_of(exercise_id, mutant.text)
    except Exception:  # it does not even load
        return False
    # A case may ask only some of the verdicts, so points say nothing here.
    return all(finding.ok for case in cases for finding in judge(exercise, answer, [case]).findings)


def _all(text: str, first: int) -> Iterator[Mutant]:
    """Yield every mutant of a cell whose first line has this number."""
    lines = text.split("\n")
    begins = [i for i, line in enumerate(lines) if source.SOLUTION.begin in line]
    ends = [i for i, line in enumerate(lines) if source.SOLUTION.end in line]
    inside = range(begins[0] + 1, ends[-1]) if begins and ends else range(len(lines))
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    data, tree = text.encode(), parse(text)
    types = {part for node in ast.walk(tree) for kind in _annotations(node) for part in ast.walk(kind)}
    for node in ast.walk(tree):
        if node in types:
            continue
        for at, to, new in _changes(node, data, starts):
            row = next(i for i, start in enumerate(starts) if start > at) - 1
            if row not in inside or data[at:to] == new.encode():
                continue
            changed = (data[:at] + new.encode() + data[to:]).decode()
            try:
                parse(changed)
            except SyntaxError:
                continue
            yield Mutant(first + row, lines[row].strip(), changed.split("\n")[row].strip(), changed)


def _annotations(node: ast.AST) -> list[ast.expr]:
    return [kind for name in ("annotation", "returns") if (kind := getattr(node, name, None)) is not None]


def _changes(node: ast.AST, data: bytes, starts: list[int]) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, new text) for each mutation of one node; bytes of the cell."""

    def span(n: Any) -> tuple[int, int]:
        return starts[n.lineno - 1] + n.col_offset, starts[n.end_lineno - 1] + n.end_col_offset

    def text(n: Any) -> str:
        at, to = span(n)
        return data[at:to].decode()

    def between(left: Any, right: Any, old: str, new: str) -> Iterator[tuple[int, int, str]]:
        """Exchange an operator that stands between two operands."""
        at, to = span(left)[1], span(right)[0]
        gap = data[at:to].decode()
        if gap.count(old) == 1:
            yield at, to, gap.replace(old, new)

    def without(parts: list[Any], open_: str, close: str) -> Iterator[tuple[int, int, str]]:
        """Drop each of several parts that are separated by commas."""
        for gone in parts:
            rest = ", ".join(text(part) for part in parts if part is not gone)
            yield *span(node), f"{open_}{rest}{',' if open_ == '(' and len(parts) == 2 else ''}{close}"

    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for one, op, other in zip([left, *others], ops, others, strict=False):
                yield from between(one, other, _symbol(op), _COMPARISONS[type(op)])
        case ast.BoolOp(op=op, values=values):
            word, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield *span(node), f"({f' {other} '.join(f'({text(v)})' for v in values)})"
            for gone in values:
                rest = f" {word} ".join(f"({text(v)})" for v in values if v is not gone)
                yield *span(node), f"({rest})"
        case ast.UnaryOp(op=ast.Not(), operand=operand) | ast.UnaryOp(op=ast.USub(), operand=operand):
            yield *span(node), f"({text(operand)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield from between(left, right, _symbol(op), _OPERATORS[type(op)])
        case ast.Constant(value=bool() as value):
            yield *span(node), str(not value)
        case ast.Constant(value=int() | float() as value):
            yield *span(node), repr(value + 1)
        case ast.Tuple(elts=parts, ctx=ast.Load()) if len(parts) > 1 and data[span(node)[0] :][:1] == b"(":
            yield from without(parts, "(", ")")
        case ast.List(elts=parts, ctx=ast.Load()) if parts:
            yield from without(parts, "[", "]")
        case ast.Set(elts=parts) if len(parts) > 1:
            yield from without(parts, "{", "}")
        case ast.Dict(keys=keys, values=values) if all(keys):
            for gone in keys:
                pairs = [f"{text(k)}: {text(v)}" for k, v in zip(keys, values, strict=True) if k is not gone]
                yield *span(node), f"{{{', '.join(pairs)}}}"
        case ast.Call(func=ast.Name(id=name) as called) if name in _SWAPPED:
            yield *span(called), _SWAPPED[name]
        case ast.Call(func=ast.Name(id=name), args=[operand], keywords=[]) if name in _TRANSPARENT:
            if not isinstance(operand, ast.GeneratorExp | ast.Starred):
                yield *span(node), f"({text(operand)})"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield *span(test), "True"
            yield *span(test), "False"
        case ast.comprehension(ifs=ifs):
            for condition in ifs:
                yield *span(condition), "True"
        case ast.Continue():
            yield *span(node), "break"
        case ast.Break():
            yield *span(node), "continue"
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg and ast.unparse(keyword) != "strict=False":
                parts = [text(a) for a in node.args] + [text(k) for k in node.keywords if k is not keyword]
                yield *span(node), f"{text(node.func)}({', '.join(parts)})"
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.For) and not _says_nothing(node):
        yield *span(node), "pass"


def _says_nothing(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or the like."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _symbol(op: ast.AST) -> str:
    """Return an operator as it is written: "+" of ast.Add()."""
    one, two = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())
    made = ast.Compare(one, [op], [two]) if isinstance(op, ast.cmpop) else ast.BinOp(one, op, two)
    return ast.unparse(made)[1:-1].strip()


def main(names: list[str], as_json: bool, jobs: int, most: int, seeds: Iterable[int]) -> int:
    """Print what became of the mutants of these exercises (all if none); return 1 if an unlisted one survived."""
    chosen = proving.choose(names)
    if not chosen:
        return 1
    task = partial(try_all, most=most, seeds=list(seeds))
    reports = proving.for_each(chosen, task, jobs, Console(stderr=True))
    bad = [report.exercise for report in reports if not report.ok]
    if as_json:
        print(json.dumps([asdict(report) | {"ok": report.ok} for report in reports], indent=1))
        return 1 if bad else 0
    console = Console(width=None if sys.stdout.isatty() else 120)
    for report in reports:
        killed = report.tried - report.listed - len(report.survivors)
        sign = "[green]✓[/]" if report.ok else "[red]✗[/]"
        console.print(
            f"{sign} {report.exercise}: {killed} of {report.tried} fall, {report.listed} listed as equivalent"
        )
        for mutant in report.survivors:
            console.print(f"    line {mutant.line}: {mutant.before}\n      survives as {mutant.after}", markup=False)
    tried, alive = sum(r.tried for r in reports), sum(len(r.survivors) for r in reports)
    console.print(f"{tried} mutants, {alive} survive.")
    return 1 if bad else 0
