"""The reference: what notebooks use of the library, with its docstrings, read without importing it.

Importing would not do: a process can hold one TVM only, and some modules need packages that a machine may lack.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from nbformat.notebooknode import NotebookNode

import passlab
from autograder.authoring import source

_LIB = source.ROOT / "lib"
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.M)


def imported(notebooks: Iterable[NotebookNode]) -> dict[str, set[str]]:
    """Return module → names that code cells import from it or reach through it: none, where they import it alone."""
    uses: dict[str, set[str]] = defaultdict(set)
    for nb in notebooks:
        text = "\n".join(_MAGIC.sub(r"\1pass", cell.source) for cell in nb.cells if cell.cell_type == "code")
        nodes, modules = list(ast.walk(ast.parse(text))), {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("passlab."):
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    if _file(module) and not (node.module != "passlab" and _entry(node.module, alias.name)):
                        modules[alias.asname or alias.name] = module
                        uses[module]
                    else:
                        uses[node.module].add(alias.name)
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                uses[modules[node.value.id]].add(node.attr)
    return uses


def uses(notebooks: Iterable[NotebookNode]) -> dict[str, set[str]]:
    """Return module → names that notebooks use; all public ones for passlab itself."""
    modules = {module: names for module, names in imported(notebooks).items() if names}
    return modules | {"passlab": modules.get("passlab", set()) | set(passlab.__all__)}


def page(notebooks: Iterable[NotebookNode]) -> str:
    """Return the reference of what notebooks use as Markdown, module by module."""
    parts = ["# The library for learners", "What the lessons and exercises import: `from passlab import draw, check`."]
    for module, names in sorted(uses(notebooks).items()):
        entries = [entry for name in sorted(names, key=str.lower) if (entry := _entry(module, name))]
        if entries:
            about = ast.get_docstring(_tree(_file(module)))
            parts += [f"## {module}", _doc(about), *entries]
    return "\n\n".join(parts) + "\n"


def _file(module: str) -> Path | None:
    path = _LIB.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _entry(module: str, name: str) -> str:
    """Return what is said of a name of a module; "" for one that it does not define, or has from elsewhere."""
    if module == "passlab" and name in passlab._MODULES:
        about = ast.get_docstring(_tree(_file(f"passlab.{name}")))
        return f"### {name}\n\n{_doc(about)}"
    if module == "passlab":
        module = f"passlab.{passlab.HOME.get(name, name)}"
    for node in _tree(_file(module)).body:
        match node:
            case ast.FunctionDef(name=defined) | ast.ClassDef(name=defined) if defined == name and not _overload(node):
                return f"### {name}\n\n```python\n{_signature(node)}\n```\n\n{_doc(ast.get_docstring(node))}"
            case ast.ImportFrom(module=home, names=names) if f"{home}.".startswith("passlab."):
                for alias in names:
                    if (alias.asname or alias.name) == name:
                        return _entry(home, alias.name)
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                if name in ast.unparse(target).strip("()").split(", "):
                    code = ast.unparse(node)
                    code = code if len(code) < 100 else f"{name} = ..."
                    return f"### {name}\n\n```python\n{code}\n```\n\n{_doc(_comment(_file(module), node.lineno))}"
    return ""


def _overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Return whether a definition only tells the types of some calls."""
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return how a function or class is called: a class without `__init__` by its fields."""
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{node.name}({ast.unparse(node.args)}){returns}"
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            return f"{node.name}({ast.unparse(inner.args).removeprefix('self').removeprefix(', ')})"
    fields = [ast.unparse(inner) for inner in node.body if isinstance(inner, ast.AnnAssign)]
    return f"{node.name}({', '.join(fields)})"


def _comment(file: Path, line: int) -> str:
    """Return the `#:` lines above a line of a program."""
    above = []
    for comment in reversed(file.read_text(encoding="utf-8").splitlines()[: line - 1]):
        if not comment.startswith("#:"):
            break
        above.insert(0, comment[2:].strip())
    return "\n".join(above)


def _doc(text: str | None) -> str:
    """Return a docstring as Markdown: indented lines are code, the rest is text."""
    out, code = [], False
    for line in inspect.cleandoc(text or "").splitlines():
        inside = line.startswith("    ") or (code and not line.strip())
        if inside != code:
            out += ["```", ""] if code else ["", "```"]
            code = inside
        out.append(line[4:] if inside else line.replace("<", "&lt;"))
    return "\n".join([*out, "```"] if code else out)
