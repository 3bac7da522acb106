"""Which files of the project a module needs: its imports, and theirs.

Imports inside functions count, and so do modules that a text names in full ("passlab.cli"), or something in them
("passlab.fx.rewrites.conv_bn_relu"): they may be imported by it. The table of IRs is the exception, see `closure`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import passlab
from autograder.authoring.source import COURSE, ROOT
from passlab.graph.registry import COMPILERS, PARTS, TYPES

#: Where modules lie, in the project and in a course outside it.
HOMES = tuple(dict.fromkeys((ROOT / "lib", ROOT, COURSE / "lib", COURSE)))
REGISTRY = "passlab.graph.registry"


class Source(NamedTuple):
    """A Python file as a proof sees it. `code`: without docstrings, blank lines and lines of comment. `imports`: the
    modules of the project that it may import."""

    code: str
    imports: frozenset[str]


@cache
def path_of(module: str) -> Path | None:
    """Return the file of a module of the project, or None for any other name."""
    if module.partition(".")[0] not in ("passlab", "autograder", "tests"):
        return None
    place = module.replace(".", "/")
    paths = (home / name for home in HOMES for name in (f"{place}.py", f"{place}/__init__.py"))
    return next((path for path in paths if path.is_file()), None)


@cache
def read(path: Path) -> Source:
    """Return what a file says to Python. Raise SyntaxError where it is not Python."""
    text = path.read_text(encoding="utf-8")
    lines, nodes = text.split("\n"), list(ast.walk(ast.parse(text)))
    prose, quoted = set(), set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                prose |= _own_lines(node.body[0], lines)
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            quoted |= set(range(node.lineno, node.end_lineno + 1)) if node.end_lineno > node.lineno else set()
    code = (
        line
        for number, line in enumerate(lines, 1)
        if number not in prose and (number in quoted or (line.strip() and not line.lstrip().startswith("#")))
    )
    return Source("\n".join(code), frozenset(_imports(nodes, path)))


def _own_lines(docstring: ast.stmt, lines: list[str]) -> set[int]:
    """Return the numbers of a docstring's lines; none where it shares a line with code."""
    shared = lines[docstring.lineno - 1][: docstring.col_offset].strip()
    return set() if shared else set(range(docstring.lineno, docstring.end_lineno + 1))


def _imports(nodes: list[ast.AST], path: Path) -> Iterator[str]:
    # What an answer may not call is named, and not imported.
    keywords = (node for node in nodes if isinstance(node, ast.keyword) and node.arg == "closed")
    closed = {part for keyword in keywords for part in ast.walk(keyword.value)}
    for node in nodes:
        if node in closed:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            if module == "passlab":  # whose names are imported when they are first used
                names += [f"passlab.{passlab.HOME.get(alias.name, '')}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path != path_of(REGISTRY):
            name = node.value.partition(":")[0]
            names = [name, name.rpartition(".")[0]]  # also "module:function" and "module.function"
        else:
            continue
        yield from (name for name in names if path_of(name) not in (None, path))


def dispatched(package: str) -> list[str]:
    """Return the modules of an IR's package that `passlab.graph.registry` imports by their fixed names."""
    readers = {row.reader for row in TYPES.values() if row.package == package and row.reader}
    names = [f"passlab.{package}.{part}" for part in (*PARTS, "valid")]  # the last one by the judge of TVM's modules
    names += [f"passlab.{reader}" for reader in sorted(readers)]
    return [name for name in names if path_of(name)]


def closure(modules: Iterable[str], files: Iterable[Path] = ()) -> set[Path]:
    """Return the files of these modules and these files, with all they import, and the data beside them.

    What the registry finds by name belongs to them; of the packages with a compiler, and of their common parts, only
    what something imports does.
    """
    names: set[str] = set()
    todo = [*modules, *(name for path in files for name in read(path).imports)]
    while todo:
        name = todo.pop()
        path = path_of(name)
        if path is None or name in names:
            continue
        names.add(name)
        todo += read(path).imports
        if parent := name.rpartition(".")[0]:
            todo.append(parent)
        if name == REGISTRY:
            todo += [m for p in {row.package for row in TYPES.values()} - {*COMPILERS, "tvm"} for m in dispatched(p)]
        elif name in (f"passlab.{package}" for package in (*COMPILERS, "tvm")):
            todo += dispatched(name.removeprefix("passlab."))
    paths = {path_of(name) for name in names}
    data = {file for path in paths if path.name == "__init__.py" for file in _data(path.parent)}
    return paths | data | set(files)


@cache
def _data(package: Path) -> tuple[Path, ...]:
    """Return the data of a package: its files that are neither Python nor Markdown, and those of its folders that hold
    no modules. The two packages at the top have none."""
    if package.parent in HOMES:
        return ()
    folders = [folder for folder in package.iterdir() if folder.is_dir() and not any(folder.rglob("*.py"))]
    paths = [path for folder in (package, *folders) for path in folder.glob("**/*" if folder != package else "*")]
    return tuple(p for p in paths if p.is_file() and p.suffix not in (".py", ".pyc", ".md"))
