"""docs/API.md: lessons and exercises import the names in it, all of them, and no others."""

from __future__ import annotations

import ast
import importlib
import re
import typing
from collections.abc import Iterable
from functools import cache

import jupytext
import nbformat

import passlab
from autograder.authoring.source import ROOT
from autograder.book import reference
from passlab.equivalence import Equivalence, Proof
from tests.support.flavours import each_flavour, python

API = ROOT / "docs" / "API.md"
ROW = re.compile(r"\| `([\w.]+)`( †)? \| \S.* \|")


@cache
def stable() -> dict[str, bool]:
    """Return stable name → whether no lesson has to use it."""
    rows: dict[str, bool] = {}
    package = ""
    for line in API.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            package = line.removeprefix("## ")
        elif line.startswith("| `"):
            row = ROW.fullmatch(line)
            assert row, f"not a row of the form | `name` | what it is |: {line}"
            name = f"{package}.{row[1]}"
            assert name not in rows, f"{name} has two rows"
            rows[name] = bool(row[2])
    return rows


def imported(notebooks: Iterable[nbformat.NotebookNode]) -> set[str]:
    """Return the names that notebooks import, in full; of a module that is only imported, its own."""
    result = reference.imported(notebooks)
    return {f"{module}.{name}" for module, names in result.items() for name in names} | {
        module for module, names in result.items() if not names
    }


@cache
def used() -> set[str]:
    paths = [*ROOT.glob("course/*.py"), *ROOT.glob("solutions/**/*.py")]
    return imported(jupytext.read(path) for path in paths)


def unstable(names: set[str]) -> set[str]:
    """Return the names without a row; a module is stable where a name in it is."""
    return {name for name in names - stable().keys() if not any(row.startswith(f"{name}.") for row in stable())}


def test_lessons_and_exercises_import_stable_names_only():
    assert unstable(used()) == set(), f"give these a row in {API.relative_to(ROOT)}, or import others"


def test_a_name_without_a_row_is_found():
    cell = "from passlab import draw, mlir\nfrom passlab.fx import shrink\nmlir.parse, mlir.gone, shrink"
    names = imported([nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])])
    assert names == {"passlab.draw", "passlab.mlir.parse", "passlab.mlir.gone", "passlab.fx.shrink"}
    assert unstable(names) == {"passlab.mlir.gone", "passlab.fx.shrink"}


def test_every_stable_name_is_used_or_marked():
    marked = {name for name, alone in stable().items() if alone}
    assert stable().keys() - marked - used() == set(), "no lesson or exercise uses them: mark them with † or leave out"
    assert marked & used() == set(), "marked with † as not used, and used"


#: Prints the names that cannot be imported.
TRY = """
import importlib, sys
for name in sys.argv[1:]:
    module, _, last = name.rpartition(".")
    try:
        getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError) as error:
        print(f"{name}: {error}")
"""


def of(*packages: str) -> list[str]:
    return [name for name in stable() if name.startswith(tuple(f"passlab.{package}." for package in packages))]


def test_every_stable_name_can_be_imported():
    for name in stable().keys() - set(of("tvm", "relay", "relax")):
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), f"{module} has no {last}"


@each_flavour
def test_every_stable_name_of_a_tvm_can_be_imported(flavour):
    names = of(flavour, "tvm")  # the compiler first: it decides which TVM is loaded
    assert len(names) > 10
    assert python(f"import sys; sys.argv[1:] = {names}\n{TRY}") == ""


def test_type_checkers_see_the_names_of_passlab():
    stub = ast.parse((ROOT / "lib/passlab/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname: node.module for node in imports for alias in node.names}
    assert typed == {name: f"passlab.{home}" for name, home in passlab.HOME.items()} | {"models": "passlab"}


def test_the_type_of_equivalent_says_whether_a_proof_was_asked_for():
    results = {}
    for overload in typing.get_overloads(passlab.equivalent):
        hints = typing.get_type_hints(overload)
        results[typing.get_args(hints["prove"])] = hints["return"]
    assert results == {(False,): Equivalence, (True,): Proof}
