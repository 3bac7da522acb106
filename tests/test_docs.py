"""The pages for people: the files, links, modules and names in them exist."""

from __future__ import annotations

import html
import re
import tomllib
from functools import cache

import pytest

from autograder.authoring.source import ROOT

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
    for name in [code.removeprefix("python -m ").split()[0] for code in CODE.findall(page) if code.strip()]:
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
    matches = [(name, path) for names, path in NAMED.findall(page) for name in CODE.findall(names)]
    verdicts = [
        f"{name} in {path}" for name, path in matches if not re.search(rf"\b{name}\b", (ROOT / path).read_text())
    ]
    return verdicts + [name for name in CODE.findall(page) if CONSTANT.fullmatch(name) and name not in words()]


@cache
def words() -> set[str]:
    paths = [ROOT / "Makefile", ROOT / "lib/setup.sh"]
    paths += [path for top in ("lib", "autograder", "tests") for path in (ROOT / top).rglob("*.py")]
    return {word for path in paths for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


@each_page
def test_what_a_page_names_is_there(page):
    message = text(page)
    assert missing_paths(message) == missing_modules(message) == missing_names(message) == []


@each_page
def test_every_link_leads_to_a_file(page):
    links = [link for link in LINK.findall(text(page)) if not link.startswith(("http:", "https:"))]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_is_not_there_is_found():
    assert missing_paths("`lib/passlab/fx/gone.py` and `lib/passlab/fx/`, `docs/*.md`") == ["lib/passlab/fx/gone.py"]
    assert missing_modules("`passlab.fx.gone`, `passlab.fx`, `passlab.fx.reader.trace`") == ["passlab.fx.gone"]
    assert missing_modules("`python -m tests.gone FILE`, `python -m tests.attacks`") == ["tests.gone"]
    message = "`TYPES` and `GONE` in `lib/passlab/graph/registry.py`"
    assert missing_names(message) == ["GONE in lib/passlab/graph/registry.py"]
    names = "_GONE" + "_TOO"  # in two parts, so that this file does not have it
    assert missing_names(f"`{names}`, `VERDICTS`") == [names]


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
