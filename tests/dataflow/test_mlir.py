"""The control-flow graph of an MLIR function in blocks."""

import pytest

from passlab.dataflow.mlir import blocks
from passlab.mlir import parse, pipeline

LOOP = """func.func @count(%n: index) -> index {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%t = %c0) -> (index) {
    %u = arith.addi %t, %i : index
    scf.yield %u : index
  }
  return %s : index
}"""


def test_a_loop_is_four_blocks():
    program = blocks(pipeline(parse(LOOP), "convert-scf-to-cf"))
    assert str(program) == "\n".join([
        "program count()",
        "bb0:", "  arith.constant", "  arith.constant", "  jump bb1",
        "bb1:", "  arith.cmpi", "  branch bb2 bb3",
        "bb2:", "  arith.addi", "  arith.addi", "  jump bb1",
        "bb3:", "  return",
    ])  # fmt: skip


def test_a_switch_has_too_many_ways():
    text = """func.func @main(%x: i32) -> i32 {
      "cf.switch"(%x) [^a, ^b, ^c] <{case_values = dense<[1, 2]> : tensor<2xi32>,
        case_operand_segments = array<i32: 0, 0>, operandSegmentSizes = array<i32: 1, 0, 0>}> : (i32) -> ()
    ^a:
      return %x : i32
    ^b:
      return %x : i32
    ^c:
      return %x : i32
    }"""
    with pytest.raises(ValueError, match="bb0 has 3 successors"):
        blocks(parse(text))
