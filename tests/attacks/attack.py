"""What an attack is, and the few ways in which one is written.

Every attack hands in the released notebook of the small torch.fx course (`tiny_fx`) with changes. Most do honest work
on one question, `count-nodes`, so that it shows when an attack costs more than itself, and try for all other points.

In the text of a cell, `@COURSE@` stands for the folder of the course, `@CLASS@` for the folder with everybody's
submissions, `@PORT@` for a port on which the test listens, `@HOME@` for the home of who grades.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nbformat.notebooknode import NotebookNode

from autograder.toys.tiny_fx import QUESTIONS

#: Stands in the name of everything that an attack leaves somewhere: files, processes.
MARK = "plattack"

WORK = {"count-nodes": QUESTIONS["count-nodes"].good}
EARNED = QUESTIONS["count-nodes"].total
GOOD = {name: question.good for name, question in QUESTIONS.items()}
FULL = sum(question.total for question in QUESTIONS.values())


@dataclass(frozen=True)
class Place:
    """Where an attack on the folders strikes: the course, the class, and the learner's own folder."""

    course: Path
    submissions: Path
    own: Path

    @property
    def notebook(self) -> Path:
        return self.own / "day00" / "fx.ipynb"


@dataclass(frozen=True)
class Attack:
    """One submission. `honest`: the points that the work in it is worth, and the most it may get.

    `keeps`: it must get all of them too, for a crash costs its own question only. `cells`: answer cell → its text.
    `notebook`: what is done to the notebook then, or the bytes it becomes. `folder`: what is done to the folder.
    `renames`: what the learner's folder is called then.
    `forges_stock`: was it seen to get more than it earned from nbgrader's own way, checks in the learner's kernel?
    `harms`: would it harm a machine that holds nothing back, so that it is only ever run in the sandbox?
    """

    name: str
    tries: str
    cells: dict[str, str] = field(default_factory=lambda: dict(WORK))
    honest: float = EARNED
    keeps: bool = True
    notebook: Callable[[NotebookNode], NotebookNode | bytes] | None = None
    folder: Callable[[Place], None] | None = None
    renames: str = ""
    forges_stock: bool = False
    harms: bool = False


def folder(name: str, tries: str, change: Callable[[Place], None], honest: float = EARNED, **more) -> Attack:
    """An attack on the folders. One that is worth nothing keeps nothing."""
    return Attack(name, tries, folder=change, honest=honest, **({"keeps": honest > 0} | more))


def called(kind: str, names: Iterable[str]) -> Iterator[Attack]:
    """Attacks that consist of the name of the learner's folder, numbered from 1."""
    for number, name in enumerate(names, 1):

        def change(place: Place, name: str = name) -> None:
            place.own.rename(place.submissions / name)

        yield folder(f"{kind}-{number}", f"the folder is called {name[:40]!r}", change, renames=name)


def _cells(at: str, code: str) -> dict[str, str]:
    """The cells of an attack whose text stands in one of them. Other answers that it defines are not defined again."""
    bound = set()
    for statement in ast.parse(code).body:
        targets = getattr(statement, "targets", ())
        bound |= {getattr(statement, "name", "")}
        bound |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    others = {name: "# see above\n" for name in QUESTIONS if name != at and name.replace("-", "_") in bound}
    return WORK | others | {at: code.strip() + "\n"}


def cell(name: str, tries: str, code: str, binds: bool = False, **more) -> Attack:
    """An attack in the body of an answer cell, while the cells run. Its own answer is worth nothing.

    `binds`: it hopes to bind the names of all answers, so that no other cell defines them.
    """
    left = dict.fromkeys(set(QUESTIONS) - set(WORK), "# see above\n") if binds else {}
    code = code.strip() + ("\n" if binds else "\n\ndef identities(gm):\n    return None\n")
    return Attack(name, tries, {**_cells("identities", code), **left, "identities": code}, **more)


def answer(name: str, tries: str, code: str, at: str = "dce", works: bool = False, earns: float = 0, **more) -> Attack:
    """An attack in an answer, while cases are put to it. `works`: it does what it should, besides.

    `earns`: the points it gets for that answer as it is, because some verdicts hold.
    """
    honest = EARNED + earns + (QUESTIONS[at].total if works else 0)
    return Attack(name, tries, _cells(at, code), **({"honest": honest} | more))


def _option(word: str) -> tuple[str, bool | int | str]:
    """`harms` → True, `keeps=False` → False, `honest=0` → 0, `at=cse` → "cse"."""
    name, _, value = word.partition("=")
    return name, {"": True, "False": False}.get(value, int(value) if value.isdigit() else value)


def read(text: str, **kinds: Callable[..., Attack | tuple[Attack, ...]]) -> tuple[Attack, ...]:
    """Return the attacks of a text: above the code of each, `# %% KIND NAME OPTION…` and `# what it tries`.

    `kinds`: functions like `cell` and `answer`, for kinds besides these two.
    """
    kinds = {"cell": cell, "answer": answer} | kinds
    attacks = []
    for part in text.split("# %% ")[1:]:
        head, tries, code = part.split("\n", 2)
        kind, name, *options = head.split()
        value = kinds[kind](name, tries.removeprefix("# "), code, **dict(map(_option, options)))
        attacks += [value] if isinstance(value, Attack) else value
    return tuple(attacks)


#: The worst is done only in a process namespace of its own, whatever else the sandbox may be lacking.
_CONTAINED = """
import os

def contained():
    try:
        return os.readlink("/proc/self/ns/pid") != "@PIDNS@"
    except OSError:
        try:
            os.kill(int("@PID@"), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

if not contained():
    raise SystemExit("plattack: not contained, so nothing was done")
"""


def harmful(value: Attack) -> Attack:
    """The same attack, behind a look at whether it is contained. Nothing of it is run on a machine that is not."""
    cells = {name: text if text == WORK.get(name) else _CONTAINED + text for name, text in value.cells.items()}
    values = {**vars(value), "cells": cells, "harms": True}
    return Attack(**values)
