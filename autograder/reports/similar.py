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
from typing import NamedTuple

from autograder.engine import aside
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
    """`pairs`: most shared questions first. `common`: (question, number of learners who share one long answer)."""

    pairs: list[Pair] = field(default_factory=list)
    common: list[tuple[str, int]] = field(default_factory=list)


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


def _tokens(tree: ast.AST) -> list[str]:
    """Return the tree as a flat list of node types and field values, with bound names numbered."""
    names, attributes, functions, imported = _bindings(tree)
    numbers: dict[str, str] = {}
    out: list[str] = []
    add = out.append

    def name(text: str) -> None:
        if text in names:
            add(numbers.setdefault(text, f"v{len(numbers)}"))
        else:
            add(imported.get(text, text))

    def value(node: object) -> None:
        if isinstance(node, list):
            add("[")
            for each in node:
                if type(each) in (ast.Import, ast.ImportFrom):
                    continue
                if type(each) is ast.Expr and type(each.value) is ast.Constant:
                    continue  # a docstring, or a constant that does nothing
                value(each)
            add("]")
        elif not isinstance(node, ast.AST):
            add(repr(node))
        elif type(node) is ast.Name:
            name(node.id)
        elif type(node) is ast.AnnAssign:
            if node.value is not None:
                value(ast.Assign([node.target], node.value))
        else:
            kind = type(node).__name__
            add(kind)
            own_keywords = kind == "Call" and isinstance(node.func, ast.Name) and node.func.id in functions
            for part in node._fields:
                if part in _SKIP:
                    continue
                child = getattr(node, part, None)
                if part == "names":  # of global and nonlocal
                    for each in child:
                        name(each)
                elif isinstance(child, str) and kind != "Constant":
                    if kind == "Attribute":
                        add(numbers.setdefault(f".{child}", f"a{len(numbers)}") if child in attributes else child)
                    elif kind == "keyword":
                        add(child)
                    else:
                        name(child)
                elif own_keywords and part == "keywords":
                    for keyword in child:
                        name(keyword.arg or "**")
                        value(keyword.value)
                else:
                    value(child)

    value(tree.body)
    return out


def _words(source: str) -> tuple[str, ...]:
    """Return the keywords of an answer, a cheap filter: answers with equal digests have equal keywords."""
    return tuple(found[2] for found in _WORDS.finditer(source) if found[2]) if len(source) < 10_000 else ()


def digest(source: str) -> tuple[str, int]:
    """Return a fingerprint of an answer cell that ignores names and layout, and the number of nodes of its tree.

    Text that is not Python, is too long or too deeply nested, or takes too long to parse is compared without white
    space.
    """
    made = aside.call(f"{__name__}:digest_of_tree", source) if len(source) <= LONGEST else None
    if made:
        return tuple(made)
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

    answers: (learner, question, source of the answer cell). known: question → sources that prove nothing (the stub,
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
    found = Similar()
    for (question, _), learners in groups.items():
        if len(learners) > COMMON:
            found.common.append((question, len(learners)))
        else:
            for pair in combinations(sorted(learners), 2):
                shared[pair].append(question)
    pairs = [Pair(first, second, tuple(sorted(questions))) for (first, second), questions in shared.items()]
    found.pairs = sorted(pairs, key=lambda p: (-len(p.questions), p.first, p.second))[:limit]
    found.common.sort(key=lambda item: (-item[1], item[0]))
    return found
