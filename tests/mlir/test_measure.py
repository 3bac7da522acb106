"""Launches, bytes and operations of MLIR modules, against sums done by hand."""

from __future__ import annotations

import pytest

from passlab import bytes_moved, cost, launches
from passlab.mlir import MLIRError, parse, pipeline
from passlab.mlir.measure import extents, flops, kernels
from tests.mlir.programs import CHAIN, LOOPS

MATMUL = """
func.func @main(%a: tensor<3x5xf32>, %b: tensor<5x7xf32>) -> tensor<3x7xf32> {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x7xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<3x7xf32>) -> tensor<3x7xf32>
  %r = linalg.matmul ins(%a, %b : tensor<3x5xf32>, tensor<5x7xf32>) outs(%f : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %r : tensor<3x7xf32>
}
"""


def test_element_wise_operations_read_once_and_write_once():
    module = parse(CHAIN)
    assert launches(module) == 2 and launches(module).detail == {"linalg.generic": 2}
    assert bytes_moved(module).detail == {"%sum": 3 * 128, "%relu": 2 * 128}
    assert flops(module) == 2 * 32 and cost(module).nodes == 10


def test_fusion_saves_the_value_in_between():
    module = pipeline(parse(CHAIN), "linalg-fuse-elementwise-ops, canonicalize")
    assert launches(module) == 1 and bytes_moved(module) == 3 * 128 and flops(module) == 2 * 32


def test_a_matmul_reads_its_destination_and_a_fill_does_not():
    module = parse(MATMUL)
    assert bytes_moved(module).detail == {"%f": 4 * 21, "%r": 4 * (15 + 35 + 2 * 21)}
    assert flops(module) == 2 * 3 * 5 * 7


@pytest.mark.parametrize("form", ["convert-linalg-to-loops", "convert-linalg-to-affine-loops"])
def test_loops_move_what_their_loads_and_stores_say(form):
    steps = f"one-shot-bufferize{{bufferize-function-boundaries=1}}, {form}"
    module = pipeline(parse(MATMUL), steps)
    assert launches(module) == 2 and flops(module) == 2 * 3 * 5 * 7
    assert bytes_moved(module) == 4 * 21 + 4 * 4 * 3 * 5 * 7  # the fill; two loads, a load of the sum and its store


def test_a_nest_of_loops_is_one_launch():
    module = parse(LOOPS)
    assert launches(module).detail == {"scf.for": 1}
    assert bytes_moved(module) == 4 * 32 and flops(module) == 2 * 32


def test_arithmetic_on_tensors_is_a_launch():
    module = parse("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = arith.addf %a, %a : tensor<4xf32>\n"
                   "  return %0 : tensor<4xf32>\n}")  # fmt: skip
    assert launches(module) == 1 and flops(module) == 4 and bytes_moved(module) == 3 * 16


def test_unknown_sizes_are_refused():
    module = parse(CHAIN.replace("tensor.empty()", "tensor.empty(%n, %n)").replace("4x8", "?x?").replace(
        "%b: tensor<?x?xf32>)", "%b: tensor<?x?xf32>, %n: index)"))  # fmt: skip
    assert launches(module) == 2
    with pytest.raises(MLIRError, match="unknown size"):
        bytes_moved(module)
    with pytest.raises(MLIRError, match="length of a loop"):
        extents(next(iter(kernels(module))))
    with pytest.raises(MLIRError, match="number of its iterations"):
        flops(
            parse(
                LOOPS.replace("%c8 step", "%n step").replace("%a: memref<4x8xf32>)", "%a: memref<4x8xf32>, %n: index)")
            )
        )
