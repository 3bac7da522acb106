"""The cells of an authored notebook (`solutions/day03/optimizations.py`), and the questions in it.

A question is two cells without metadata: the answer stands between `### BEGIN SOLUTION` and `### END SOLUTION`, and the
next cell that calls `check("day03.cse", cse)` names its exercise.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from passlab.process.parsing import parse

_HEADER = re.compile(r"^# %%(?P<rest>.*)$")
#: The lines around an answer.
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


class CheckCall(NamedTuple):
    """The call in a check cell: "day03.cse", and the expression of the answer."""

    exercise: str
    answer: ast.expr


def check_call(text: str) -> CheckCall | None:
    """Return the `check("day03.cse", cse)` of a cell, or None for a cell without one."""
    try:
        body = parse(text).body
    except SyntaxError:  # a cell with magics
        return None
    for call in (s.value for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id == "check" and len(call.args) == 2:
            name, answer = call.args
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return CheckCall(name.value, answer)
    return None


@dataclass(frozen=True)
class Cell:
    """One cell of a percent-format file. `first`, `last`: its lines, counted from 1, header excluded."""

    first: int
    last: int
    markdown: bool
    text: str

    @property
    def is_answer(self) -> bool:
        return not self.markdown and BEGIN in self.text

    @cached_property
    def check_call(self) -> CheckCall | None:
        return None if self.markdown else check_call(self.text)


def cells(text: str) -> list[Cell]:
    """Return the cells of a percent-format notebook."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if _HEADER.match(line)]
    return [
        Cell(start + 2, end, "[markdown]" in lines[start], "\n".join(lines[start + 1 : end]))
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


class Question(NamedTuple):
    """The two cells of one exercise, and the expression of its answer."""

    answer: Cell
    check: Cell
    answer_expr: ast.expr


def questions(text: str) -> dict[str, Question]:
    """Return exercise id → its two cells, in the order of the notebook."""
    by_exercise: dict[str, Question] = {}
    answer = None
    for cell in cells(text):
        if cell.is_answer:
            answer = cell
        elif cell.check_call and answer:
            by_exercise[cell.check_call.exercise] = Question(answer, cell, cell.check_call.answer)
    return by_exercise


def unmarked(text: str) -> str:
    """Return the text of an answer cell without the marks around the answer."""
    lines = text.rstrip().split("\n")
    return "\n".join(line for line in lines if line.strip() not in (BEGIN, END))
