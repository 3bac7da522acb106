"""Other right answers than the one in `solutions/`: read from the text of the course's answers, which is not run.

They lie in `autograder/answers`, or with the solutions that a class gets in `solutions/day03/others.json`. No process
that runs answers for a grade can read either.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from passlab import exercises
from passlab.notebook.project import root
from passlab.process.parsing import parse

#: The file, beside a day's solutions, with the other right answers that a class gets: exercise → [[note, code], …].
RELEASED = "others.json"


class Other(NamedTuple):
    """A right answer: what it does unlike the one in `solutions/`, in one sentence, and its code with what it needs."""

    note: str
    code: str


def others(exercise_id: str) -> list[Other]:
    """Return the other right answers to "day03.cse" that this copy of the course has."""
    home = root()
    if home is None:
        return []
    released = home / "solutions" / exercises.whole(exercise_id).split(".")[0] / RELEASED
    if released.is_file():
        rows = json.loads(released.read_text(encoding="utf-8"))
        return [Other(*row) for row in rows.get(exercises.whole(exercise_id), [])]
    return in_bank(home / "autograder/answers", exercise_id)


def in_bank(folder: Path, exercise_id: str) -> list[Other]:
    """Return the other right answers to "day03.cse" in a folder of answers, in day03/cse.py; [] without that file."""
    path = folder / f"{exercises.whole(exercise_id).replace('-', '_').replace('.', '/')}.py"
    return right_answers(path.read_text(encoding="utf-8")) if path.is_file() else []


def right_answers(text: str) -> list[Other]:
    """Return the functions and classes marked `@right("…")` in a module's text that need nothing of the grader's."""
    module = _Module(text)
    answers = []
    for node in module.tree.body:
        if (note := _note(node)) and (code := module.code(node)):
            answers.append(Other(note, code))
    return answers


def _note(node: ast.stmt) -> str:
    """Return the note of a definition that is marked `@right("…")`, else ""."""
    for mark in getattr(node, "decorator_list", []):
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "right":
            return str(ast.literal_eval(mark.args[0]))
    return ""


class _Module:
    """The text of a module, and where each of its names is defined."""

    def __init__(self, text: str):
        self.lines = text.splitlines()
        self.tree = parse(text)
        self.home = {name: node for node in self.tree.body for name in _defined(node)}

    def code(self, answer: ast.stmt) -> str:
        """Return an answer after the imports and definitions that it needs; "" if one of them is the grader's."""
        needed, names = {answer}, set(_read(answer))
        while names:
            node = self.home.get(names.pop())
            if node is not None and node not in needed:
                needed.add(node)
                names |= set(_read(node))
        imports, rest = [], []
        used = {name for node in needed for name in _read(node)}
        for node in (node for node in self.tree.body if node in needed):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.append(_import(node, used))
            else:
                rest.append("\n".join(self.lines[node.lineno - 1 : node.end_lineno]))
        code = "\n\n\n".join(filter(None, ["\n".join(imports), *rest]))
        return "" if "autograder" in code else code


def _import(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    """Return an import with the names that are used."""
    names = [alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) in used]
    module = ast.ImportFrom(node.module, names, node.level) if isinstance(node, ast.ImportFrom) else ast.Import(names)
    return ast.unparse(module)


def _defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _read(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a definition reads; its decorators `right` and the like do not count."""
    marks = {id(part) for mark in getattr(node, "decorator_list", []) if _is_mark(mark) for part in ast.walk(mark)}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and id(part) not in marks:
            yield part.id


def _is_mark(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "right"
