"""Find pairs of learners whose answers are the same except for names, comments and layout.

An answer cell is parsed into a tree. Names that the cell itself binds become v0, v1, … in order of appearance;
docstrings, annotations, comments and imports are dropped; constants and the names of library functions stay. Two
answers with the same digest are the same program with other names.

A shared answer is evidence about two learners only if it is not the stub or the reference, not short (under `SHORT`
nodes, about six lines, which leave few ways to write it), and not common: if more than `COMMON` learners have it, it is
the obvious answer or it is being passed around, and the report shows their number instead of every pair.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from autograder.engine import bounded_call
from passlab.process.parsing import parse

SHORT = 60
COMMON = 8

#: Longer cells (in characters) are compared as text.
LONGEST = 50_000


@dataclass(frozen=True)
class Pair:
    """Two learners and the questions to which they gave the same answer."""

    first: str
    second: str
    questions: tuple[str, ...]


@dataclass
class Similar:
    """`pairs`: most shared exercises first. `common`: (exercise, the learners who share one long answer)."""

    pairs: list[Pair] = field(default_factory=list)
    common: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


#: Keywords: their order does not change when names, comments, strings, annotations and imports are rewritten.
_WORDS = re.compile(
    r"""#[^\n]*|(\"{3}|'{3})(?:\\.|[^\\])*?(?:\1|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?"""
    r"|\b(for|while|def|class|return|yield|lambda|raise|with|try|del|in|is|not|and|or)\b",
    re.S,
)

_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_SKIP = {"ctx", "returns", "annotation", "type_comment", "lineno", "col_offset", "end_lineno", "end_col_offset", "kind"}


class _Bindings(NamedTuple):
    """The names that a cell binds itself. `imported`: local name → full name."""

    names: set[str]
    attributes: set[str]
    functions: set[str]
    imported: dict[str, str]


def _bindings(tree: ast.AST) -> _Bindings:
    names, attributes, functions, imported = set(), set(), set(), {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.arg(arg=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                attributes.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                functions.add(node.name)
                if isinstance(node, ast.ClassDef):
                    attributes |= {each.name for each in node.body if isinstance(each, _SCOPES)}
            case ast.Import() | ast.ImportFrom():
                home = f"{node.module or '.'}." if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    imported[alias.asname or alias.name.split(".")[0]] = home + (
                        alias.name if alias.asname or home else alias.name.split(".")[0]
                    )
    return _Bindings(names, attributes, functions, imported)


class _Flattener:
    """Writes a tree as a flat list of node types and field values, with bound names numbered."""

    def __init__(self, bound: _Bindings):
        self.bound = bound
        self.numbers: dict[str, str] = {}
        self.tokens: list[str] = []

    def name(self, text: str) -> None:
        if text in self.bound.names:
            self.tokens.append(self.numbers.setdefault(text, f"v{len(self.numbers)}"))
        else:
            self.tokens.append(self.bound.imported.get(text, text))

    def attribute(self, text: str) -> None:
        bound = text in self.bound.attributes
        self.tokens.append(self.numbers.setdefault(f".{text}", f"a{len(self.numbers)}") if bound else text)

    def value(self, value: object) -> None:
        match value:
            case list():
                self.list(value)
            case ast.Name(id=name):
                self.name(name)
            case ast.AnnAssign(target=target, value=assigned):
                if assigned is not None:
                    self.value(ast.Assign([target], assigned))
            case ast.AST():
                self.node(value)
            case _:
                self.tokens.append(repr(value))

    def list(self, values: list) -> None:
        self.tokens.append("[")
        for value in values:
            match value:
                case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                    continue  # an import, a docstring, or a constant that does nothing
            self.value(value)
        self.tokens.append("]")

    def node(self, node: ast.AST) -> None:
        self.tokens.append(type(node).__name__)
        for field_name in node._fields:
            if field_name not in _SKIP:
                self.field(node, field_name, getattr(node, field_name, None))

    def field(self, node: ast.AST, name: str, value: Any) -> None:
        match node:
            case ast.Global() | ast.Nonlocal():
                for variable in value:
                    self.name(variable)
            case ast.Call(func=ast.Name(id=called)) if name == "keywords" and called in self.bound.functions:
                for keyword in value:  # parameters of a function of this cell
                    self.name(keyword.arg or "**")
                    self.value(keyword.value)
            case ast.Attribute(attr=str(text)) if name == "attr":
                self.attribute(text)
            case ast.keyword(arg=str(text)) if name == "arg":
                self.tokens.append(text)
            case _ if isinstance(value, str) and not isinstance(node, ast.Constant):
                self.name(value)
            case _:
                self.value(value)


def _tokens(tree: ast.Module) -> list[str]:
    """Return the tree as a flat list of node types and field values, with bound names numbered."""
    flattener = _Flattener(_bindings(tree))
    flattener.value(tree.body)
    return flattener.tokens


def _words(source: str) -> tuple[str, ...]:
    """Return the keywords of an answer, a cheap filter: answers with equal digests have equal keywords."""
    return tuple(match[2] for match in _WORDS.finditer(source) if match[2]) if len(source) < 10_000 else ()


def digest(source: str) -> tuple[str, int]:
    """Return a fingerprint of an answer cell that ignores names and layout, and the number of nodes of its tree.

    Text that is not Python, is too long or too deeply nested, or takes too long to parse is compared without white
    space.
    """
    reply = bounded_call.call(f"{__name__}:digest_of_tree", source) if len(source) <= LONGEST else None
    if reply:
        return tuple(reply)
    text = "".join(source.split()).encode("utf-8", "replace")
    # As text, a node is about five characters.
    return hashlib.sha256(text).hexdigest(), len(text.decode()) // 5


def digest_of_tree(source: str) -> tuple[str, int]:
    """Return the digest and size of the tree of Python code. It runs aside: parsing takes time, memory and stack."""
    tokens = _tokens(parse(source))
    size = sum(token != "[" and token != "]" for token in tokens)
    return hashlib.sha256("\0".join(tokens).encode("utf-8", "replace")).hexdigest(), size


def similar(
    answers: Iterable[tuple[str, str, str]], known: Mapping[str, Iterable[str]] | None = None, limit: int = 500
) -> Similar:
    """Compare the answers of a class and return at most `limit` pairs.

    answers: (learner, exercise, source of the answer cell). known: exercise → sources that prove nothing (the stub,
    the reference).
    """
    ignored = {(question, digest(text)[0]) for question, texts in (known or {}).items() for text in texts}
    alike: dict[tuple, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for learner, question, source in answers:
        alike[question, _words(source)][source].append(learner)
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (question, _), sources in alike.items():
        if sum(map(len, sources.values())) > 1:
            for source, learners in sources.items():
                code, size = digest(source)
                if size >= SHORT and (question, code) not in ignored:
                    groups[question, code].update(learners)
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    result = Similar()
    for (question, _), group in groups.items():
        if len(group) > COMMON:
            result.common.append((question, tuple(sorted(group))))
        else:
            for first, second in combinations(sorted(group), 2):
                shared[first, second].append(question)
    pairs = [Pair(first, second, tuple(sorted(questions))) for (first, second), questions in shared.items()]
    result.pairs = sorted(pairs, key=lambda p: (-len(p.questions), p.first, p.second))[:limit]
    result.common.sort(key=lambda item: (-len(item[1]), item[0]))
    return result
