"""Mutants of the reference answers: small changes of their text, which the checks should notice.

    passlab prove --mutants 60 --exercise day03.cse

Each mutant exchanges one piece of the answer cell: a comparison, an operator, a constant, a condition, a statement (the
operators of Offutt et al., "An experimental determination of sufficient mutant operators", TOSEM 1996, and some for
Python). Annotations stay, and `strict` of `zip`, which is an assertion. One that keeps every verdict on the visible
cases and on the hidden cases of all seeds has *survived*: either a law that the text states has no case, or the change
makes no difference. The latter is said beside the hidden cases,

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
    """What became of an exercise's mutants. `unmatched`: edits listed as equivalent that make none of them."""

    exercise: str
    tried: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    listed: int = 0
    unmatched: list[tuple[str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.survivors and not self.unmatched


def mutants(exercise_id: str, most: int, seed: int = 0) -> list[Mutant]:
    """Return up to `most` mutants of an exercise's reference, drawn from all, in the order of the text."""
    place = source.find(exercise_id)
    by_line = {(m.before, m.after, m.line): m for m in _all(place.answer.text, place.answer.first)}
    drawn = random.Random(f"{exercise_id} {seed}").sample(sorted(by_line), min(most, len(by_line)))
    return sorted((by_line[key] for key in drawn), key=lambda m: (m.line, m.after))


def try_all(exercise_id: str, most: int, seeds: Iterable[int] = range(3)) -> Report:
    """Put an exercise's mutants through its checks. Never raises for anything that a mutant does."""
    exercise, report, seeds = exercises.find(exercise_id), Report(exercise_id), list(seeds)
    limited = replace(exercise, seconds=min(exercise.seconds, SECONDS))
    cases = [*exercise.cases(), *(case for seed in seeds for case in answers.hidden_cases(exercise_id, seed))]
    cell = source.find(exercise_id).answer
    known: set[str] = set()
    if edits := answers.equivalent_mutants(exercise_id):
        every = {ast.dump(parse(mutant.text)) for mutant in _all(cell.text, cell.first)}
        for edit in edits:
            trees = {ast.dump(tree) for tree in variants(cell.text, *edit)} & every
            known |= trees
            report.unmatched += [] if trees else [edit]
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
    cell = _Cell(data, starts)
    fixed = {part for node in ast.walk(tree) for whole in _fixed_parts(node) for part in ast.walk(whole)}
    for node in ast.walk(tree):
        if node in fixed:
            continue
        for at, to, new in _changes(node, cell):
            row = next(i for i, start in enumerate(starts) if start > at) - 1
            if row not in inside or data[at:to] == new.encode():
                continue
            changed = (data[:at] + new.encode() + data[to:]).decode()
            try:
                parse(changed)
            except SyntaxError:
                continue
            yield Mutant(first + row, lines[row].strip(), changed.split("\n")[row].strip(), changed)


def _fixed_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that no mutant changes: annotations, and `strict` of `zip`, which is an assertion."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return [node]
    return [part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None]


#: (start, end, new text), in bytes of the cell.
_Change = tuple[int, int, str]


@dataclass(frozen=True)
class _Cell:
    """The text of an answer cell, in bytes. `starts`: where each line starts."""

    data: bytes
    starts: list[int]

    def span(self, node: Any) -> tuple[int, int]:
        """Return the start and end of a node."""
        start, end = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def text(self, node: Any) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def operator(self, left: Any, right: Any, op: ast.AST, new: str) -> Iterator[_Change]:
        """Exchange the operator between two operands."""
        start, end, old = self.span(left)[1], self.span(right)[0], _symbol(op)
        gap = self.data[start:end].decode()
        if gap.count(old) == 1:
            yield start, end, gap.replace(old, new)

    def parts(self, node: Any, brackets: str, parts: Iterable[str]) -> Iterator[_Change]:
        """Drop each part of a display that separates its parts by commas."""
        for shorter in _without_each(list(parts)):
            comma = "," if brackets == "()" and len(shorter) == 1 else ""
            yield *self.span(node), f"{brackets[0]}{', '.join(shorter)}{comma}{brackets[1]}"


def _without_each(parts: list[str]) -> Iterator[list[str]]:
    """Yield the list without its first part, without its second, …"""
    for i in range(len(parts)):
        yield parts[:i] + parts[i + 1 :]


def _changes(node: ast.AST, cell: _Cell) -> Iterator[_Change]:
    """Yield each mutation of one node."""
    yield from _operator_changes(node, cell)
    yield from _value_changes(node, cell)
    yield from _control_changes(node, cell)
    if isinstance(node, ast.Call):
        yield from _call_changes(node, cell)
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.For) and not _says_nothing(node):
        yield *cell.span(node), "pass"


def _operator_changes(node: ast.AST, cell: _Cell) -> Iterator[_Change]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for first, op, second in zip([left, *others], ops, others, strict=False):
                yield from cell.operator(first, second, op, _COMPARISONS[type(op)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield from cell.operator(left, right, op, _OPERATORS[type(op)])
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield *cell.span(node), f"({cell.text(operand)})"
        case ast.BoolOp(op=op, values=values):
            word, opposite = (" and ", " or ") if isinstance(op, ast.And) else (" or ", " and ")
            operands = [f"({cell.text(value)})" for value in values]
            yield *cell.span(node), f"({opposite.join(operands)})"
            for fewer in _without_each(operands):
                yield *cell.span(node), f"({word.join(fewer)})"


def _value_changes(node: ast.AST, cell: _Cell) -> Iterator[_Change]:
    match node:
        case ast.Constant(value=bool() as value):
            yield *cell.span(node), str(not value)
        case ast.Constant(value=int() | float() as value):
            yield *cell.span(node), repr(value + 1)
        case ast.Tuple(elts=elts, ctx=ast.Load()) if len(elts) > 1 and cell.text(node).startswith("("):
            yield from cell.parts(node, "()", map(cell.text, elts))
        case ast.List(elts=elts, ctx=ast.Load()):
            yield from cell.parts(node, "[]", map(cell.text, elts))
        case ast.Set(elts=elts) if len(elts) > 1:
            yield from cell.parts(node, "{}", map(cell.text, elts))
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = zip(keys, values, strict=True)
            yield from cell.parts(node, "{}", [f"{cell.text(key)}: {cell.text(value)}" for key, value in pairs])


def _control_changes(node: ast.AST, cell: _Cell) -> Iterator[_Change]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test):
            yield *cell.span(test), "True"
            yield *cell.span(test), "False"
        case ast.comprehension(ifs=conditions):
            for condition in conditions:
                yield *cell.span(condition), "True"
        case ast.Continue():
            yield *cell.span(node), "break"
        case ast.Break():
            yield *cell.span(node), "continue"


def _call_changes(node: ast.Call, cell: _Cell) -> Iterator[_Change]:
    match node:
        case ast.Call(func=ast.Name(id=name) as function) if name in _SWAPPED:
            yield *cell.span(function), _SWAPPED[name]
        case ast.Call(func=ast.Name(id=name), args=[operand], keywords=[]) if name in _TRANSPARENT:
            if not isinstance(operand, ast.GeneratorExp | ast.Starred):
                yield *cell.span(node), f"({cell.text(operand)})"
    for keyword in node.keywords:
        if keyword.arg and keyword.arg != "strict":
            arguments = [*node.args, *(other for other in node.keywords if other is not keyword)]
            yield *cell.span(node), f"{cell.text(node.func)}({', '.join(map(cell.text, arguments))})"


def _says_nothing(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or the like."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _symbol(op: ast.AST) -> str:
    """Return an operator as it is written: "+" of ast.Add()."""
    a, b = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())
    if isinstance(op, ast.cmpop):
        return ast.unparse(ast.Compare(a, [op], [b]))[1:-1].strip()
    assert isinstance(op, ast.operator)
    return ast.unparse(ast.BinOp(a, op, b))[1:-1].strip()


def main(names: list[str], as_json: bool, jobs: int, most: int, seeds: Iterable[int]) -> int:
    """Print what became of the mutants of these exercises (all if none); return 1 if one survived that is not listed,
    or one that is listed does not exist."""
    chosen = [name for name in proving.choose(names) if not exercises.is_core(name)]  # a core has the same reference
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
        for old, new in report.unmatched:
            console.print(f"    listed as equivalent, and no mutant: {old}\n      as {new}", markup=False)
    tried, alive = sum(r.tried for r in reports), sum(len(r.survivors) for r in reports)
    console.print(f"{tried} mutants, {alive} survive.")
    return 1 if bad else 0
