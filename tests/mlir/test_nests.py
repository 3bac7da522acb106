"""The language of loop nests: what it reads, what it refuses and where, and what a run tells."""

from __future__ import annotations

import numpy as np
import pytest

from passlab.mlir import parse as module
from passlab.mlir.nests import NestError, expression, parse, run

PRODUCT = """\
for d0 in prange(2):
    for d1 in range(3):
        v0 = in0[d0, d1] * in1[d1]
        out0[d0] = out0[d0] + v0
"""


def arrays():
    return {"in0": np.arange(6.0).reshape(2, 3), "in1": np.array([1.0, 10.0, 100.0]), "out0": np.zeros(2)}


def test_a_nest_is_read_and_run():
    nest, arguments = parse(PRODUCT), arrays()
    assert [(loop.name, loop.size, loop.parallel) for loop in nest.loops] == [("d0", 2, True), ("d1", 3, False)]
    assert nest.operations() == 2
    iterations = list(run(nest, arguments))
    assert arguments["out0"].tolist() == [210.0, 543.0]
    assert str(iterations[4]) == "d0 = 1, d1 = 1"
    assert [str(access) for access in iterations[4].reads] == ["in0[1, 1]", "in1[1]", "out0[1]"]
    assert [str(access) for access in iterations[4].writes] == ["out0[1]"]


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (PRODUCT, ("", 0)),
        ("out0[()] = (in0[()] * in0[()] + in0[()] * in0[()]) * (in0[()] * in0[()])", ("in0[()] * in0[()]", 3)),
        ("v0 = -in0[()]\nout0[()] = exp(v0) - exp(v0) + -in0[()]", ("-in0[()]", 2)),
        ("out0[()] = in0[d0 + 1] + in1[d0 + 1] * (-1) + (-1) * in0[d0]", ("", 0)),
        ("out0[()] = (in0[()] + 1) * (in0[()] + 1.0)", ("", 0)),
    ],
)
def test_an_expression_that_occurs_more_than_once_is_named(text, most):
    assert parse(text).repeated() == most


def test_without_loops_there_is_one_iteration():
    arguments = {"in0": np.array(3.0), "out0": np.array(0.0)}
    (only,) = run(parse("out0[()] = -in0[()] // 2"), arguments)
    assert (str(only), arguments["out0"]) == ("the only iteration", -2.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("for d0 in range(3:", "Line 1, `for d0 in range(3:`, cannot be read:"),
        ("for d0 in range(n):\n    x = 1", "Line 1, `for d0 in range(n):`: a loop is `for d0 in range(4):`"),
        (
            "for d0 in range(2):\n    for d0 in range(2):\n        x = 1",
            "Line 2, `for d0 in range(2):`: d0 is the variable",
        ),
        ("x = 1\nfor d0 in range(2):\n    y = 1", "Line 2, `for d0 in range(2):`: a loop beside something else"),
        ("out0[0] += 1", "Line 1, `out0[0] += 1`: a statement is `v0 = …` or `out0[…] = …`."),
        ("x = __import__('os')", "Line 1, `x = __import__('os')`: `__import__('os')` is not part of the language"),
        ("x = a.b", "Line 1, `x = a.b`: `a.b` is not part"),
        ("x = 2 ** 9", "Line 1, `x = 2 ** 9`: `2 ** 9` is not part"),
        ("x = True", "Line 1, `x = True`: `True` is not part"),
        ("x = " + "-" * 60 + "9" * 5000, "Line 1, `x = ---"),
        ("x = " + "+".join(["1"] * 20_000), "An expression of the text is nested too deeply"),
        ("x = " + "(" * 500 + "1" + ")" * 500, "Line 1, `x = (((("),
        ("x = 1\n" * 40_000, "The text has 240,000 characters; 200,000 are the most"),
        ("\0", "The text cannot be read: source code string cannot contain null bytes."),
    ],
    ids=range(14),
)
def test_what_is_not_read(text, sentence):
    with pytest.raises(NestError) as error:
        parse(text)
    assert str(error.value)[: len(sentence)] == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "for i in range(3):\n    in0[i, 0] = 1",
            "At i = 2, `in0[i, 0]` is in0[2, 0], outside in0, whose shape is (2, 3).",
        ),
        ("in0[0 - 1, 0] = 1", "At the only iteration, `in0[0 - 1, 0]` is in0[-1, 0], outside in0"),
        ("in0[0] = 1", "Line 1, `in0[0] = 1`: in0 has 2 dimensions, not 1."),
        ("in0[0, 1 / 1] = 1", "Line 1, `in0[0, 1 / 1] = 1`: an index is a whole number; divide with //."),
        ("in2[0] = 1", "Line 1, `in2[0] = 1`: in2 is not one of the arrays in0, in1, out0."),
        ("x = y", "Line 1, `x = y`: nothing gives y a value before it is read."),
        ("for i in range(9999999):\n    x = i", "The loops take 49,999,995 steps; 500,000 are the most"),
    ],
    ids=range(7),
)
def test_what_is_not_run(text, sentence):
    with pytest.raises(NestError) as error:
        list(run(parse(text), arrays()))
    assert str(error.value)[: len(sentence)] == sentence


def test_numbers_do_not_grow_without_bound():
    arguments = arrays()
    list(run(parse("v = 3\n" + "v = v * v\n" * 60 + "out0[0] = v"), arguments))
    assert np.isfinite(arguments["out0"][0])
    list(run(parse("out0[0] = 1 / 0\nout0[1] = exp(9999)"), arguments))
    assert arguments["out0"].tolist() == [np.inf, np.inf]


def test_expressions_of_a_body():
    (function,) = module("""
        func.func @main(%a: f32, %b: f32, %i: index) -> f32 {
          %c = arith.constant 2.5 : f32
          %s = arith.subf %a, %b : f32
          %t = arith.cmpf oge, %s, %c : f32
          %u = arith.select %t, %s, %c : f32
          %v = math.exp %u : f32
          %w = math.log %v : f32
          return %w : f32
        }""").ops
    message = [expression(op, "p", "q", "r") for op in list(function.body.block.ops)[:5]]
    assert message == ["2.5", "p - q", "p >= q", "select(p, q, r)", "exp(p)"]
    with pytest.raises(NestError, match=r"no word for math\.log"):
        expression(list(function.body.block.ops)[5], "p")
