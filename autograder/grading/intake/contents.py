"""Tell what code cells say: which exercise a cell checks, and what it defines.

Learners' text is parsed aside: a cell of 260,000 short lines takes seconds and most of a gigabyte, and a notebook that
lost its ids has all of its cells looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from autograder.engine import bounded_call
from passlab.notebook.cells import check_call
from passlab.process.parsing import parse


class Content(NamedTuple):
    """The exercise that a cell checks, "" for none, and the functions, classes and variables that it defines."""

    exercise: str = ""
    defined: frozenset[str] = frozenset()


def contents(sources: Sequence[str]) -> list[Content]:
    """Return what each cell says: nothing, if it is not Python, or if all of them take too long to parse."""
    said = bounded_call.call(f"{__name__}:parsed", list(sources)) if sources else []
    if said is None:
        return [Content()] * len(sources)
    return [Content(exercise, frozenset(defined)) for exercise, defined in said]


def parsed(sources: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the exercise and the names of each cell. It runs aside."""
    return [(content.exercise, list(content.defined)) for content in map(content, sources)]


def content(source: str) -> Content:
    """Return what a cell of the course says."""
    try:
        body, check = parse(source).body, check_call(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Content()
    variables = (target for one in body if isinstance(one, ast.Assign) for target in one.targets)
    named = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    named |= {target.id for target in variables if isinstance(target, ast.Name)}
    return Content(check.exercise if check else "", frozenset(named))
