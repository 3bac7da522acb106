"""Edits of a program by its syntax: layout, comments, quotes and parentheses do not matter.

A fragment is an expression, or statements. In it, `...` stands for any expression or, as the body of a statement, for
any body, with decorators and `else`. The first `...` of the new fragment is what the first of the old one stood for.

>>> tree = ast.parse("for n in nodes:\\n    if n.users and n in memory:\\n        count(n, 'reads')")
>>> edit(tree, "n in memory", "n in written(gm)")
>>> edit(tree, "count(n, ...)", "print(...)")
>>> edit(tree, "for n in nodes: ...", "while nodes:\\n    n = nodes.pop()\\n    ...")
>>> print(ast.unparse(tree))
while nodes:
    n = nodes.pop()
    if n.users and n in written(gm):
        print('reads')

A fragment may also be some of the operands of a longer `and` or `or`, or, without parentheses, some of the elements of
a list or the arguments of a call:

>>> tree = ast.parse("call(a, b, c if p and q and r else d)")
>>> edit(tree, "... and r", "...")
>>> edit(tree, "a, b", "b")
>>> print(ast.unparse(tree))
call(b, c if p and q else d)
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from passlab.process.parsing import parse

#: The lists of a statement that its header leaves out.
_PARTS = ("decorator_list", "body", "handlers", "cases", "orelse", "finalbody")
#: The position of each `...` in a fragment → the expression that it stands for, or the statement whose body it is.
Holes = dict[tuple[int, int], ast.AST]


@dataclass
class Place:
    """Where a fragment occurs: neighbours in a list of `parent`, or a node that is a field of it.

    new: what is to be here. holes: what the fragment leaves open.
    """

    parent: ast.AST
    field: str
    start: int
    nodes: list[ast.AST]
    new: list[ast.AST]
    holes: Holes

    @property
    def is_all(self) -> bool:
        """Whether the fragment covers the whole list."""
        return getattr(self.parent, self.field) == self.nodes

    def exchange(self) -> None:
        """Put the new nodes here, as if they were written in the line of the old ones."""
        new = _filled(deepcopy(self.new), self.holes, self.nodes[0])
        value = getattr(self.parent, self.field)
        if isinstance(value, list):
            value[self.start : self.start + len(self.nodes)] = new
            if not value and self.field == "body":
                value.append(ast.copy_location(ast.Pass(), self.nodes[0]))
        else:
            setattr(self.parent, self.field, *new)


def edit(tree: ast.Module, old: str, new: str) -> None:
    """Exchange `old` for `new` in a program, in the one place where it occurs.

    Raises ValueError with a sentence for a fragment that cannot be parsed, or does not occur just once.
    """
    matches = places(tree, old, new)
    if not matches:
        raise ValueError(f"{old!r} does not occur. Copy an expression, statements, or a header such as 'if a: ...'.")
    if len(matches) > 1:
        lines = ", ".join(str(_position(place.nodes[0])[0]) for place in matches)
        raise ValueError(f"{old!r} occurs {len(matches)} times, in lines {lines}. Copy more of what is around it.")
    matches[0].exchange()


def variants(text: str, old: str, new: str) -> Iterator[ast.Module]:
    """Yield a program for each place where `old` occurs, with `new` there."""
    for number in range(len(places(parse(text), old, new))):
        tree = parse(text)
        places(tree, old, new)[number].exchange()
        yield tree


def places(tree: ast.Module, old: str, new: str) -> list[Place]:
    """Return where a fragment occurs in a program, in the order of the lines."""
    before, after = _expressions(old), _expressions(new)
    if before and after:
        matches = _expression_places(tree, before, after)
    else:
        matches = _places(tree, _statements(old), _statements(new))
    return sorted(matches, key=lambda place: _position(place.nodes[0]))


def _position(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _expressions(fragment: str) -> list[ast.expr]:
    """Return the expression of a fragment, or the several that commas separate; [] if it is statements."""
    try:
        [statement] = parse(f"_(\n{fragment}\n)").body
    except (SyntaxError, ValueError):
        return []
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call.args if isinstance(call, ast.Call) and not call.keywords else []


def _statements(fragment: str) -> list[ast.stmt]:
    try:
        return parse(textwrap.dedent(fragment)).body
    except SyntaxError as error:
        raise ValueError(
            f"{fragment!r} is not an expression, statements, or a header such as 'if a: ...' ({error.msg})."
        ) from None


def _expression_places(tree: ast.Module, old: list[ast.expr], new: list[ast.expr]) -> Iterator[Place]:
    one, other = (e[0] if len(e) == 1 else ast.Tuple(e, ast.Load()) for e in (old, new))
    yield from _places(tree, [one], [other])
    if isinstance(one, ast.BoolOp):
        rest = other.values if isinstance(other, ast.BoolOp) and _same_word(one, other) else [other]
        yield from (p for p in _places(tree, one.values, rest) if _same_word(one, p.parent) and not p.is_all)
    elif len(old) > 1:
        runs = (place for place in _places(tree, old, new) if place.field in ("args", "elts"))
        yield from (p for p in runs if not (isinstance(p.parent, ast.Tuple) and p.is_all))


def _same_word(one: ast.BoolOp, other: ast.AST) -> bool:
    """Return whether both expressions are chains of the same word, `and` or `or`."""
    return isinstance(other, ast.BoolOp) and type(one.op) is type(other.op)


def _places(tree: ast.Module, old: Sequence[ast.AST], new: Sequence[ast.AST]) -> Iterator[Place]:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            children = value if isinstance(value, list) else [value]
            for start in range(len(children) - len(old) + 1):
                nodes = children[start : start + len(old)]
                holes: Holes = {}
                if old and _fits(old, nodes, holes):
                    yield Place(parent, name, start, nodes, [*new], holes)


def _fits(old: Any, node: Any, holes: Holes) -> bool:
    """Return whether a part of a program is as a fragment says, and note what each `...` stands for."""
    if _is_hole(old) and isinstance(node, ast.expr):
        holes[_position(old)] = node
        return True
    if type(old) is not type(node):
        return False
    if isinstance(old, list):
        return len(old) == len(node) and all(_fits(a, b, holes) for a, b in zip(old, node, strict=True))
    if not isinstance(old, ast.AST):
        return old == node
    names = [name for name in old._fields if name not in ("kind", "type_comment")]
    if hole := _hole_as_body(old):
        holes[_position(hole)] = node
        names = [name for name in names if name not in _PARTS or (name != "body" and getattr(old, name))]
    return all(_fits(getattr(old, name, None), getattr(node, name, None), holes) for name in names)


def _is_hole(node: Any) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _hole_as_body(node: ast.AST) -> ast.Constant | None:
    """Return the `...` that is the body of a statement."""
    match getattr(node, "body", None):
        case [ast.Expr(value=ast.Constant(value=value) as hole)] if value is ...:
            return hole
    return None


def _filled(new: list[ast.AST], holes: Holes, where: ast.AST) -> list[ast.AST]:
    """Return new nodes, each `...` exchanged for what it stands for, with the line of a node in the program.

    The first of them is the first hole, and so on; the last hole serves all that follow.
    """
    parts = [part for node in new for part in ast.walk(node)]
    contents = [holes[position] for position in sorted(holes)]
    own = sorted(filter(_is_hole, parts), key=_position) if contents else []
    fill = _Fill({id(hole): contents[min(number, len(contents) - 1)] for number, hole in enumerate(own)})
    for part in parts:
        ast.copy_location(part, where)
    return fill.visit(ast.Module(cast(list[ast.stmt], new), [])).body


class _Fill(ast.NodeTransformer):
    """Put into nodes what is kept: by the id of each `...`, an expression, or the statement whose body it is."""

    def __init__(self, matches: dict[int, ast.AST]):
        self.kept = matches

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        match = self.kept.get(id(node), node)
        return match if isinstance(match, ast.expr) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        match = self.kept.get(id(node.value), node.value)
        body: list[ast.stmt] | None = getattr(match, "body", None)
        return self.generic_visit(node) if body is None or isinstance(match, ast.expr) else body

    def generic_visit(self, node: ast.AST) -> ast.AST:
        match = self.kept.get(id(_hole_as_body(node)))
        if match and not isinstance(match, ast.expr):
            for name in _PARTS:
                if name == "body" or getattr(node, name, None) == []:
                    setattr(node, name, getattr(match, name, []))
        return super().generic_visit(node)
