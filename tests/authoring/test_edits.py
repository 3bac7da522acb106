"""Edits by syntax: each form of a fragment, and each sentence about one that does not fit."""

from __future__ import annotations

import ast
import doctest

import pytest

from autograder.authoring import edits


def test_the_examples_hold():
    assert doctest.testmod(edits).failed == 0


def edited(program: str, *changes: tuple[str, str]) -> str:
    tree = ast.parse(program)
    for change in changes:
        edits.edit(tree, *change)
    compile(tree, "edited", "exec")
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("program", "old", "new", "after"),
    [
        ("a = f(b)", "f(b)", "g(c)", "a = g(c)"),
        ("a = f(\n    'b',  # why\n)", 'f("b")', "c", "a = c"),
        ("a = b * c", "b", "d + e", "a = (d + e) * c"),
        ("a = b", "a = b", "a = c\nd = a", "a = c\nd = a"),
        ("a()\nb()\nc()", "a()\nb()", "d()", "d()\nc()"),
        ("if a:\n    b()", "b()", "pass", "if a:\n    pass"),
        ("if a:\n    b()", "b()", "", "if a:\n    pass"),
        ("if a:\n    b()\n    c()", "b()", "", "if a:\n    c()"),
        ("if a:\n    b()\nelse:\n    c()", "if a: ...", "if d: ...", "if d:\n    b()\nelse:\n    c()"),
        ("if a:\n    b()\nelif c:\n    d()", "if c: ...", "if e: ...", "if a:\n    b()\nelif e:\n    d()"),
        ("if a:\n    b()\n    c()", "if a: ...", "...", "b()\nc()"),
        ("if a:\n    b()", "if a: ...", "c()\nif a:\n    d()\n    ...", "c()\nif a:\n    d()\n    b()"),
        ("for a in b:\n    c()", "for a in b: ...", "while b: ...", "while b:\n    c()"),
        ("@d\ndef f(a):\n    return a", "def f(a): ...", "def f(a, b): ...", "@d\ndef f(a, b):\n    return a"),
        (
            "try:\n    a()\nexcept B:\n    c()",
            "try: ...\nexcept B: ...",
            "try: ...\nexcept D:\n    raise\nexcept B: ...",
            "try:\n    a()\nexcept D:\n    raise\nexcept B:\n    c()",
        ),
        ("a = f(b, c=d)", "f(..., c=...)", "g(..., e=...)", "a = g(b, e=d)"),
        ("a = b if c else d", "... if c else ...", "...", "a = b"),
        ("a = b if c else d", "... if c else ...", "[..., ...]", "a = [b, d]"),
        ("a = b[..., 0]", "b[..., 0]", "b[..., 1]", "a = b[..., 1]"),
        ("a = b", "b", "c[..., 0]", "a = c[..., 0]"),
        ("a = b", "a = ...", "a = [..., ...]", "a = [b, b]"),
        ("a = b and c and d", "b and c", "c", "a = c and d"),
        ("a = b and c and d", "c and d", "d and e", "a = b and d and e"),
        ("a = b and c and d", "... and d", "... or d", "a = b and (c or d)"),
        ("a = f(b, c, d)", "b, c", "c, b", "a = f(c, b, d)"),
        ("a = [b, c, d]", "c, d", "c", "a = [b, c]"),
        ("a = b, c", "b, c", "b", "a = b"),
        ("a = (b, c), d", "(b, c)", "b", "a = (b, d)"),
        ("a = 1\nb = True", "1", "2", "a = 2\nb = True"),
    ],
)
def test_a_fragment_becomes_another(program, old, new, after):
    assert edited(program, (old, new)) == after


def test_one_edit_follows_the_other():
    assert edited("a = b", ("b", "c"), ("c", "d"), ("a = ...", "e = ...")) == "e = d"


def test_what_is_written_keeps_its_line():
    tree = ast.parse("a()\nif b:\n    c()\nd()")
    edits.edit(tree, "if b: ...", "while e:\n    f()\n    ...")
    assert [node.lineno for node in tree.body] == [1, 2, 4] and [node.lineno for node in tree.body[1].body] == [2, 3]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("c", "d", "'c' does not occur. Copy an expression, statements, or a header such as 'if a: ...'."),
        ("a", "d", "'a' does not occur."),  # it is assigned, not read
        ("b", "d", "'b' occurs 2 times, in lines 1, 3. Copy more of what is around it."),
        ("if b", "d", "'if b' is not an expression, statements, or a header such as 'if a: ...' (expected ':')."),
        ("f(b)", "g(", "'g(' is not an expression, statements, or a header such as 'if a: ...' ("),
        ("f(b)", "d", "'f(b)' does not occur."),
    ],
)
def test_a_fragment_that_does_not_fit_is_named(old, new, sentence):
    with pytest.raises(ValueError) as error:
        edited("a = b\n\na = b", (old, new))
    assert str(error.value).startswith(sentence)


def test_there_is_a_variant_for_each_place():
    assert [ast.unparse(tree) for tree in edits.variants("a = b + b", "b", "c")] == ["a = c + b", "a = b + c"]
