"""Find the cells that need not run for a grade: they only show something, and nothing graded depends on them.

    skippable_cells({0: "import torch", 3: "print(cse)", 5: "cse"}, {3})     # {3}: cell 5, a check, does not need it

Decided from the source alone, in favour of running. A cell is left out where all of this holds:

- it can be analysed: no magics, no `globals()`, no `exec`, no import, no assignment to an attribute or an item;
- it calls only functions of the notebook, harmless ones of Python and those of a package in `_QUIET`, and none named
  like something that changes a state (`set_…`, `seed`, `register…`);
- no name that it binds, and no object that it reaches by name, is used by a cell that is run.

The cells that run are the answers, everything else that is graded or written by the learner, and, name by name, what
these use. Where one of these can reach names without naming them, all cells run. So no learner's code makes a cell stay
out; it can only make more of them run.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from autograder.engine.runner.snapshots import INSIDE, root, tables
from passlab.process.parsing import parse

#: Packages whose functions return a value and have no side effects, unless their name suggests one.
_QUIET = (
    *("passlab", "torch", "tvm", "islpy", "numpy", "onnx", "networkx", "IPython.display"),
    *("ast", "collections", "contextlib", "copy", "dataclasses", "functools", "inspect", "itertools", "math"),
    *("operator", "random", "re", "statistics", "string", "textwrap", "time", "typing"),
)
#: Built-in functions that reach names, files or attributes.
_LOUD = set("__import__ breakpoint compile delattr eval exec exit globals input locals open quit setattr".split())  # noqa: SIM905
#: Names like these change the state of a process or of a library …
_SETS = re.compile(
    r"((manual_)?seed|(un)?register|override|install|enable|disable|use|set|reset|load|init|patch|configure|config"
    r"|setstate|filterwarnings|simplefilter|rcParams|environ)(_|$)|set[A-Z]"
)
#: … and these change an object: allowed only for objects that the cell itself has made.
_CHANGES = set("add append clear discard extend insert push remove reverse sort update".split())  # noqa: SIM905
_TAKES = {"pop", "popitem", "setdefault"}
#: Ways in which a cell reads names of the notebook without naming them.
_READS_ALL = set("eval exec get_ipython globals locals __import__".split())  # noqa: SIM905
_FRAMES = set("__globals__ __main__ _getframe currentframe f_back f_globals f_locals user_ns".split())  # noqa: SIM905
#: IPython's variables with the results of cells.
_HISTORY = re.compile(r"_+|_i*\d*|_[io]h|In|Out")
_MAKES = (ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


@dataclass
class _Cell:
    """Global names of one cell: `uses`, `binds`, and of these `imported` (name → "package.thing"), `data` (neither
    imported nor a function or class) and `defines` (bound anew whenever the cell runs). `unseen`: it may read other
    names; `tree`: None for a cell that is not Python."""

    tree: ast.Module | None = None
    uses: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)
    unseen: bool = False


def skippable_cells(sources: Mapping[int, str], candidates: Collection[int], checks: Collection[int] = ()) -> set[int]:
    """Return the keys of the candidates on which no cell that runs depends.

    sources: key → text of a cell, in the order of the notebook. checks: keys of the check cells, whose text is the
    expression passed to `check`; using an answer counts as calling it, not as changing it.
    """
    answers = set().union(*(_read(sources[key]).uses for key in checks))
    cells = {key: _read(source) for key, source in sources.items()}
    runs = cells.keys() - candidates
    while True:
        used = set().union(*(cells[key].uses for key in runs))
        if any(cells[key].unseen for key in runs) or any(_HISTORY.fullmatch(name) for name in used):
            return set()
        required = {
            key
            for key in cells.keys() - runs
            if _is_needed(key, cells, runs) or not _only_shows(key, cells, used - answers)
        }
        if not required:
            return cells.keys() - runs
        runs |= required


def plan(
    sources: list[tuple[int, str]], course: list[int], free: list[int], checks: list[int]
) -> tuple[list[int], list[tuple[int, list[int]]]]:
    """Return the cells of the course that need not run, and for others the answers without which they need not.

    sources: (index, text) of the cells, of a check the answer. free: cells that are neither answers nor checks.
    """
    texts = {index: text for index, text in sources}
    never = skippable_cells(texts, set(course), checks)
    rest = {index: source for index, source in texts.items() if index not in never}
    spare = skippable_cells(rest, rest.keys() & {*free}, checks)
    calls: dict[int, list[int]] = {}
    for at in checks:
        for index in spare & dependent_cells(rest, names(texts[at])):
            if index > at:
                calls.setdefault(index, []).append(at)
    return sorted(never), list(calls.items())


def _is_needed(key: int, cells: Mapping[int, _Cell], runs: Collection[int]) -> bool:
    """Return whether a cell that is run uses a name as this cell binds it."""
    below = [cells[at] for at in list(cells)[list(cells).index(key) + 1 :] if at in runs]
    above = set().union(*(cells[at].uses for at in runs))  # functions from above look names up when they are called
    for name in cells[key].binds & above:
        for cell in below:
            if name in cell.defines:
                break
            if name in cell.uses:
                return True
        else:
            return True
    return False


def dependent_cells(sources: Mapping[int, str], names: Collection[str]) -> set[int]:
    """Return the keys of the cells that use one of the names, or a name that another such cell binds."""
    cells = {key: _read(source) for key, source in sources.items()}
    names, keys = set(names), set[int]()
    while dependents := {key for key in cells.keys() - keys if cells[key].uses & names or cells[key].unseen}:
        keys |= dependents
        names = names.union(*(cells[key].binds for key in dependents))
    return keys


def names(expression: str) -> set[str]:
    """Return the names that an expression uses."""
    return _read(expression).uses


@lru_cache(2_000)
def _read(source: str) -> _Cell:
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _unread(source)
    try:
        top = symtable.symtable(source, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # `await` at the top, for one
        return _Cell(tree, unseen=True)
    inner = list(tables(top))
    cell = _Cell(tree)
    cell.uses = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    cell.uses |= {s.get_name() for table in inner for s in table.get_symbols() if s.is_global()}
    cell.binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    cell.binds |= {s.get_name() for table in inner for s in table.get_symbols() if s.is_declared_global()}
    for node in ast.walk(tree):
        cell.unseen |= _reads_unseen(node)
        match node:
            case ast.AugAssign(target=ast.Name(id=name)) if name in cell.binds:
                cell.uses.add(name)
            case ast.Import(names=names):
                cell.imported |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in names}
            case ast.ImportFrom(module=module, names=names):
                cell.imported |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    cell.data = cell.binds - {node.name for node in ast.walk(tree) if isinstance(node, named)} - cell.imported.keys()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                cell.defines.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                cell.defines.add(name)
    reads = {node.id for node in _top(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    cell.defines -= reads
    return cell


def _reads_unseen(node: ast.AST) -> bool:
    """Return whether this may read any name of the notebook without saying which."""
    match node:
        case ast.Import(names=names):
            return any(alias.name == "__main__" for alias in names)
        case ast.ImportFrom(module=module, names=names):
            return module == "__main__" or any(alias.name == "*" for alias in names)
        case ast.Name(id=name):
            return name in _READS_ALL | _FRAMES
        case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
            return True
        case ast.Attribute(attr=name):
            return name in _FRAMES
        case ast.Call(func=ast.Name(id="vars" | "dir"), args=[]):
            return True
    return False


def _unread(source: str) -> _Cell:
    """Handle a cell that is not plain Python: with magics it may do anything, otherwise IPython rejects it."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return _Cell()
    except Exception:
        return _Cell(unseen=True)
    return _Cell(unseen=True)


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a cell that run with it: everything except the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, child.args):
                yield from ast.walk(part)
        else:
            yield from _top(child)


def _only_shows(key: int, cells: Mapping[int, _Cell], used: set[str]) -> bool:
    """Return whether a cell changes nothing but its own names. `used`: names that the cells that run use."""
    cell = cells[key]
    if cell.tree is None or cell.unseen:
        return cell.tree is None and not cell.unseen
    others = [other for at, other in cells.items() if at != key]
    shared = set().union(*(other.data for other in others)) & used
    if cell.uses & shared:
        return False
    everywhere, own = set().union(*(one.binds for one in cells.values())), _own(cell.tree)
    inside = {
        id(inner)
        for node in ast.walk(cell.tree)
        if isinstance(node, INSIDE)
        for body in (node.body if isinstance(node.body, list) else [node.body])
        for inner in ast.walk(body)
    }
    calls = {id(node): node.func for node in ast.walk(cell.tree) if isinstance(node, ast.Call)}
    thrown_away = {id(node.value) for node in ast.walk(cell.tree) if isinstance(node, ast.Expr)}
    valued = {id(function) for call, function in calls.items() if call not in thrown_away}
    for node in ast.walk(cell.tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
                return False
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if id(node) not in inside or root(node) in everywhere | {""}:
                    return False
            case ast.Attribute(attr=name) if _SETS.match(name):
                return False
            case ast.Attribute(attr=name) if name in _TAKES or (name in _CHANGES and id(node) not in valued):
                if root(node) not in own and root(node) in everywhere:
                    return False
            case ast.Name(id=name, ctx=ast.Load()) if not _quiet(name, cells):
                return False
    return True


def _own(tree: ast.Module) -> set[str]:
    """Return the names of objects that a cell itself made: a list, or a call's result, but not an alias."""
    own: set[str] = set()
    borrowed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    is_new = isinstance(value, _MAKES) and isinstance(name, ast.Name)
                    (own if is_new else borrowed).update(n.id for n in ast.walk(name) if isinstance(n, ast.Name))
        elif isinstance(node, ast.For | ast.comprehension | ast.NamedExpr):
            borrowed |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    return own - borrowed


def _quiet(name: str, cells: Mapping[int, _Cell]) -> bool:
    """Return whether this name may be called or read without side effects."""
    for home in (cell.imported[name] for cell in cells.values() if name in cell.imported):
        package = any(home == one or home.startswith(f"{one}.") for one in _QUIET)
        if not package or _SETS.match(home.rpartition(".")[2]):
            return False
    return name not in _LOUD
