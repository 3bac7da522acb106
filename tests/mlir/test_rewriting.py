"""The greedy driver: order, benefit, dead operations, the patterns that do not end, and what patterns raise."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, TensorType, bf16, f16, f32, f64, i8, i32, i64
from xdsl.pattern_rewriter import RewritePattern

from passlab.mlir import parse, text, verify
from passlab.mlir.rewriting import Endless, again, constant, flags, number, rewrite

TWICE = """
func.func @main(%x: i32) -> i32 {
  %two = arith.constant 2 : i32
  %a = arith.muli %x, %two : i32
  %b = arith.muli %a, %two : i32
  return %b : i32
}
"""


class Double(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli" and number(op.rhs) == 2:
            rewriter.replace(op, arith.AddiOp(op.lhs, op.lhs))


class Shift(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli" and number(op.rhs) == 2:
            one = constant(1, op.rhs.type)
            rewriter.replace(op, [one, arith.ShLIOp(op.lhs, one.result)])


class Halve(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.addi" and op.lhs is op.rhs:
            two = constant(2, op.rhs.type)
            rewriter.replace(op, [two, arith.MuliOp(op.lhs, two.result)])


class Swap(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli":
            rewriter.replace(op, again(op, op.rhs, op.lhs))


class Broken(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        op.lhs_of_what  # noqa: B018


def names(module):
    return [op.name for op in module.walk() if op.name.startswith("arith.")]


def test_all_that_matches_is_rewritten_and_what_is_dead_goes():
    module = parse(TWICE)
    assert rewrite(module, [Double()]) == Counter({"Double": 2})
    assert names(module) == ["arith.addi", "arith.addi"]
    verify(module)


@pytest.mark.parametrize(("benefits", "winner"), [((2, 1), "Double"), ((1, 2), "Shift"), ((0, 1), "Shift")])
def test_the_larger_benefit_wins(benefits, winner):
    patterns = [Double(), Shift()]
    for pattern, benefit in zip(patterns, benefits, strict=True):
        pattern.benefit = benefit
    assert rewrite(parse(TWICE), patterns) == Counter({winner: 2})


def test_patterns_without_an_end_are_named():
    with pytest.raises(Endless, match=r"driver stopped: Swap matches what it has made itself, .* of `%b = arith.muli"):
        rewrite(parse(TWICE), [Swap()])
    with pytest.raises(Endless, match="Double and Halve take turns, without end"):
        rewrite(parse(TWICE), [Double(), Halve()])


def test_what_a_pattern_raises_comes_out_as_it_is():
    with pytest.raises(AttributeError, match="lhs_of_what"):
        rewrite(parse(TWICE), [Broken()])


@pytest.mark.parametrize(("pattern", "said"), [(Double, "Double'>? is not one; write Double"), (7, "7 is not one")])
def test_what_is_not_a_pattern(pattern, said):
    with pytest.raises(TypeError, match=said):
        rewrite(parse(TWICE), [pattern])


def test_constants_wrap_and_flags_are_kept():
    module = parse("""
        func.func @main(%x: i8, %y: f32) -> (i8, f32) {
          %a = arith.addi %x, %x overflow<nsw> : i8
          %b = arith.mulf %y, %y fastmath<nnan,reassoc> : f32
          return %a, %b : i8, f32
        }""")
    a, b = (op for op in module.walk() if op.name.startswith("arith."))
    assert (flags(a), flags(b)) == ({"nsw"}, {"nnan", "reassoc"})
    assert flags(again(b, b.lhs, b.rhs, flags(b))) == flags(b)
    assert flags(again(b, b.lhs, b.rhs)) == flags(again(a, a.lhs, a.rhs)) == set()
    assert number(constant(300, a.result.type).result) == 44
    assert number(constant(-1.5, b.result.type).result) == -1.5
    assert number(constant(0, b.result.type).result) == 0  # a whole number will do for a float, too
    assert number(a.lhs) is None and number(b.result) is None
    assert "overflow<nsw>" in text(module)


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (2**63, IndexType(), -(2**63)),
        (-(2**63) - 1, IndexType(), 2**63 - 1),
        (2**64 + 5, IndexType(), 5),
        (np.int64(300), i8, 44),
        (2**70 + 3, i64, 3),
        (1e300, f32, math.inf),
        (-1e39, f32, -math.inf),
        (65519.0, f16, 65504.0),  # rounds down to the largest
        (65520.0, f16, math.inf),
        (10**400, f64, math.inf),
        (-(10**400), bf16, -math.inf),
    ],
)
def test_a_constant_beyond_its_type_wraps_or_is_infinite(value, type, expected):
    op = constant(value, type)
    op.verify()
    assert number(op.result) == expected and op.result.type == type


@pytest.mark.parametrize(
    ("value", "type", "message"),
    [
        (1.5, i32, "1.5 is not an integer, but i32 takes integers"),
        (0.0, IndexType(), "0.0 is not an integer, but index takes integers"),
        (1, TensorType(f32, [4]), "not of tensor<4xf32>"),
    ],
)
def test_a_constant_that_its_type_cannot_hold_is_refused_in_a_sentence(value, type, message):
    with pytest.raises(TypeError, match=message):
        constant(value, type)
