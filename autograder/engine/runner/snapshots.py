"""Find the check cells that need a snapshot, because a cell below changes what their answer uses.

An answer is called after all cells have run. That makes a difference only if the top level of a later cell rebinds a
name that functions above look up, or changes an object behind such a name. Decided from the source alone.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator

from autograder.engine.data import Cell
from passlab.process.parsing import parse

INSIDE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Ways in which a cell can change names without naming them.
_UNSEEN = {"globals", "locals", "vars", "exec", "eval", "setattr", "delattr", "get_ipython", "__import__"}


def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the tables of the functions and classes in a cell, however deep."""
    for child in table.get_children():
        yield child
        yield from tables(child)


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a cell that run with it: everything but the bodies of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, INSIDE):
            yield from _top(child)


def root(node: ast.AST) -> str:
    """Return the name that `name.a[0].b(…)` begins with, or ""."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _looked_up(source: str) -> set[str]:
    """Return the global names that the functions of a cell look up when they are called."""
    top = symtable.symtable(source, "cell", "exec")
    return {symbol.get_name() for table in tables(top) for symbol in table.get_symbols() if symbol.is_global()}


def _changed_names(source: str) -> set[str] | None:
    """Return the global names that a cell binds, or whose objects it may change; None if that is unknown."""
    top = symtable.symtable(source, "cell", "exec")
    changed = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    changed |= {s.get_name() for table in tables(top) for s in table.get_symbols() if s.is_declared_global()}
    for node in _top(parse(source)):
        match node:
            case ast.Name(id=name) if name in _UNSEEN:
                return None
            case ast.ImportFrom(names=names) if any(alias.name == "*" for alias in names):
                return None
            case ast.Call(func=ast.Attribute(attr=attr)) if attr.startswith("set_"):
                return None  # a process-wide setting: torch.set_default_dtype, …
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                changed.add(root(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                changed.add(root(method))  # table.append(x) changes the table; f(table) counts as a use
    return changed - {""}


def checks_to_keep(cells: Iterable[Cell]) -> set[int]:
    """Return the check cells (by index) whose answers must be kept as they are at the check."""
    checks: set[int] = set()
    uses: dict[int, set[str]] = {}  # check cell → names that its answer may look up
    above: set[str] = set()
    for cell in cells:
        if cell.exercise:
            uses[cell.index] = above | {n.id for n in ast.walk(parse(cell.answer)) if isinstance(n, ast.Name)}
            continue
        try:
            changed = _changed_names(cell.source)
            above = above | _looked_up(cell.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # a magic, or not Python
            changed = None
        checks |= {at for at, names in uses.items() if changed is None or changed & names}
    return checks


def needed_of(cells: list[dict]) -> list[int]:
    """Return the same from and as JSON."""
    return sorted(checks_to_keep(Cell(**cell) for cell in cells))
