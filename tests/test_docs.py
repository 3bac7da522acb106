"""The pages for people: what they name exists, and the table of stable names is what lessons and exercises import."""

from __future__ import annotations

import html
import importlib
import re
import tomllib
from collections.abc import Iterable
from functools import cache

import jupytext
import nbformat
import pytest

from autograder.authoring.source import ROOT
from autograder.book import reference
from tests.support.flavours import each_flavour, python

PAGES = sorted(page for at in ("", "docs", "autograder", "autograder/hub") for page in (ROOT / at).glob("*.md"))
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())

# What a page names. Blocks of code are examples, whose files the reader makes.

BLOCK = re.compile(r"^```.*?^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
#: A file or folder of the project, from its top; and a module of the project.
PATH = re.compile(r"(?:autograder|course|docs|exercises|lib|solutions|tests)/[\w./*-]*|[\w.-]+\.(?:md|toml|yaml|yml)")
MODULE = re.compile(r"(?:passlab|autograder|tests)(?:\.\w+)+")
#: "`NAME` in `path.py`", also of several names.
NAMED = re.compile(r"((?:`\w+`(?:, | and )?)+) in `([\w/.-]+\.py)`")
CONSTANT = re.compile(r"_?[A-Z]+(?:_[A-Z]+)*")
#: What grading writes, the example of docs/exercises.md, and a name that stands for any.
MADE = re.compile(r"autograder/run\b|.*/day03/reverse\.py|.*/[A-Z]+/|.*/[A-Z]+\.py")


def text(page) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def missing_paths(page: str) -> list[str]:
    named = [path for path in CODE.findall(page) if PATH.fullmatch(path) and not MADE.match(path)]
    return [path for path in named if not any(ROOT.glob(path.rstrip("/")))]


def missing_modules(page: str) -> list[str]:
    """Return the dotted names that are neither a module nor something that a module says."""
    missing = []
    for name in CODE.findall(page):
        module, _, last = name.rpartition(".")
        if MODULE.fullmatch(name) and not _file(name) and not (_file(module) and last in _file(module).read_text()):
            missing.append(name)
    return missing


def _file(module: str):
    home = ROOT / "lib" if module.startswith("passlab") else ROOT
    path = home.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def missing_names(page: str) -> list[str]:
    """Return the names that the file beside them does not have, and constants that no file has."""
    found = [(name, path) for names, path in NAMED.findall(page) for name in CODE.findall(names)]
    lost = [f"{name} in {path}" for name, path in found if not re.search(rf"\b{name}\b", (ROOT / path).read_text())]
    return lost + [name for name in CODE.findall(page) if CONSTANT.fullmatch(name) and name not in words()]


@cache
def words() -> set[str]:
    paths = [ROOT / "Makefile", ROOT / "lib/setup.sh"]
    paths += [path for top in ("lib", "autograder", "tests") for path in (ROOT / top).rglob("*.py")]
    return {word for path in paths for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


@each_page
def test_what_a_page_names_is_there(page):
    said = text(page)
    assert missing_paths(said) == missing_modules(said) == missing_names(said) == []


@each_page
def test_every_link_leads_to_a_file(page):
    links = [link for link in LINK.findall(text(page)) if not link.startswith(("http:", "https:"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_is_not_there_is_found():
    assert missing_paths("`lib/passlab/fx/gone.py` and `lib/passlab/fx/`, `docs/*.md`") == ["lib/passlab/fx/gone.py"]
    assert missing_modules("`passlab.fx.gone`, `passlab.fx`, `passlab.fx.reader.trace`") == ["passlab.fx.gone"]
    said = "`TYPES` and `GONE` in `lib/passlab/graph/registry.py`"
    assert missing_names(said) == ["GONE in lib/passlab/graph/registry.py"]
    gone = "_GONE" + "_TOO"  # in two parts, so that this file does not have it
    assert missing_names(f"`{gone}`, `VERDICTS`") == [gone]


@pytest.mark.parametrize("drawn", sorted(ROOT.glob("docs/pictures/*.dot")), ids=lambda drawn: drawn.name)
def test_a_picture_shows_files_that_there_are_and_is_up_to_date(drawn):
    labels = re.findall(r'label="((?:[^"\\]|\\.)*)"', drawn.read_text(encoding="utf-8"))
    lines = [line.replace('\\"', '"').strip() for label in labels for line in re.split(r"\\[nl]", label)]
    named = [path for line in lines for path in re.findall(r"[\w/]+\.py", line)]
    homes = (ROOT / "lib/passlab", ROOT / "autograder")
    assert [path for path in named if not any((home / path).is_file() for home in homes)] == []
    shown = html.unescape(drawn.with_suffix(".svg").read_text(encoding="utf-8")).replace("\xa0", " ")
    assert [line for line in lines if line not in shown] == [], "run the command in its first line"


def test_the_architecture_page_has_the_layers_of_the_contracts():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    section = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8").split("## Who may import whom")[1]
    parts = section.split("\n## ")[0].split("In `autograder`")
    for contract, part in zip(contracts["contracts"], parts, strict=False):
        layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
        place = {name: number for number, layer in enumerate(layers) for name in layer}
        named = [place[name] for name in CODE.findall(part) if name in place]
        assert place.keys() - set(CODE.findall(part)) <= {"nbgrader_config", "gpu"}
        assert named == sorted(named)


# Stable names

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
    found = reference.imported(notebooks)
    return {f"{module}.{name}" for module, names in found.items() for name in names} | {
        module for module, names in found.items() if not names
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
