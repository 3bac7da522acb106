"""Reshapes move out of the way of fusion as in MLIR's own pass, and the program computes the same."""

import numpy as np
import pytest

from passlab import models
from passlab.mlir import parse, pipeline, text, verify
from passlab.mlir.fusing import fuse
from passlab.mlir.imports import from_torch
from passlab.mlir.run import run
from tests.support.reshapes import random_reshapes

FUSE = "linalg-fuse-elementwise-ops"
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


def count(module, *names):
    return sum(op.name in (names or ("linalg.generic",)) for op in module.walk())


@pytest.mark.parametrize("block", range(3))
def test_as_many_generics_stay_as_mlir_leaves(block):
    for seed in range(block * 25, block * 25 + 25):
        module = parse(random_reshapes(seed))
        before = text(module)
        ours = fuse(module)
        verify(ours)
        assert count(ours) == count(pipeline(module, FUSE)), seed
        assert text(module) == before


@pytest.mark.parametrize("seed", [1, 2])
def test_the_fused_module_computes_the_same(seed):
    module, random = parse(random_reshapes(seed, 12)), np.random.default_rng(seed)
    types = next(op for op in module.ops).function_type.inputs
    inputs = [random.normal(size=type_.get_shape()).astype("f") for type_ in types]
    for one, other in zip(run(module, *inputs), run(fuse(module), *inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["tiny", "mlp", "convnet", "skip", "attention", "unet", "gpt"])
def test_models_keep_as_many_generics_as_mlir_leaves(name):
    model = models.ZOO[name]
    arrived = from_torch(model.build(), *model.inputs(1))
    module = pipeline(arrived.module, "linalg-generalize-named-ops, canonicalize, cse")
    ours = fuse(module)
    verify(ours)
    assert count(ours) == count(pipeline(module, FUSE)) <= count(module)
    if name == "attention":
        for one, other in zip(run(module, *arrived.arrays), run(ours, *arrived.arrays), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def generic(name, maps, kinds, given, out, body, start="%e"):
    """One linalg.generic. given: (name, sizes) of each input; out: sizes of the result."""
    iterators = ", ".join('"parallel"' if kind == "p" else '"reduction"' for kind in kinds)
    args = ", ".join([*(f"%x{at}: f32" for at in range(len(given))), "%o: f32"])
    names, types = ", ".join(value for value, _ in given), ", ".join(f"tensor<{sizes}xf32>" for _, sizes in given)
    init = f"%e{name[1:]} = tensor.empty() : tensor<{out}xf32>\n" if start == "%e" else ""
    return (
        f"{init}{name} = linalg.generic {{indexing_maps = [{', '.join(f'affine_map<{m}>' for m in maps)}], "
        f"iterator_types = [{iterators}]}} ins({names} : {types}) "
        f"outs({f'%e{name[1:]}' if start == '%e' else start} : tensor<{out}xf32>) {{\n"
        f"^bb0({args}):\n{body}\nlinalg.yield %y : f32 }} -> tensor<{out}xf32>"
    )


def program(*lines, results, argument="8x3"):
    types = ", ".join(f"tensor<{sizes}xf32>" for _, sizes in results)
    names = ", ".join(name for name, _ in results)
    body = "\n".join(lines)
    return parse(f"func.func @main(%a: tensor<{argument}xf32>) -> ({types}) {{\n{body}\nreturn {names} : {types} }}")


def same(module, *shape):
    """Fuse, compare with MLIR's count and with the values before, and return the fused module."""
    fused = fuse(module)
    verify(fused)
    assert count(fused) == count(pipeline(module, FUSE))
    inputs = np.arange(np.prod(shape), dtype="f").reshape(shape) / 7
    for one, other in zip(run(module, inputs), run(fused, inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return fused


TWO, THREE = "(i, j) -> (i, j)", "(i, j, k) -> (i, j, k)"
TANH = generic("%b", [TWO, TWO], "pp", [("%a", "8x3")], "8x3", "%y = math.tanh %x0 : f32")
SPLIT = "%c = tensor.expand_shape %b [[0, 1], [2]] output_shape [2, 4, 3] : tensor<8x3xf32> into tensor<2x4x3xf32>"
SIN = generic("%d", [THREE, THREE], "ppp", [("%c", "2x4x3")], "2x4x3", "%y = math.sin %x0 : f32")
JOIN = "%f = tensor.collapse_shape %d [[0], [1, 2]] : tensor<2x4x3xf32> into tensor<2x12xf32>"
COS = generic("%g", [TWO, TWO], "pp", [("%f", "2x12")], "2x12", "%y = math.cos %x0 : f32")


def test_reshapes_between_generics_go():
    fused = same(program(TANH, SPLIT, SIN, JOIN, COS, results=[("%g", "2x12")]), 8, 3)
    assert count(fused) == 1
    made = next(op for op in fused.walk() if op.name == "linalg.generic")
    assert len(made.iterator_types.data) == 3
    assert [op.name for op in fused.walk() if op.name in RESHAPES] == [*RESHAPES]  # of %a, and of the result


def test_a_reshape_that_two_read_stays():
    other = generic("%h", [TWO, TWO], "pp", [("%f", "2x12")], "2x12", "%y = math.exp %x0 : f32")
    fused = same(program(TANH, SPLIT, SIN, JOIN, COS, other, results=[("%g", "2x12"), ("%h", "2x12")]), 8, 3)
    assert count(fused) == 3


def test_a_loop_that_a_map_does_not_only_pick_is_not_split():
    fixed = generic("%b", ["(i, j) -> (i, 0)", TWO], "pp", [("%a", "8x1")], "8x3", "%y = math.tanh %x0 : f32")
    fused = same(program(fixed, SPLIT, SIN, results=[("%d", "2x4x3")], argument="8x1"), 8, 1)
    assert count(fused) == 2


def test_a_sum_is_split_where_its_operand_was():
    zero = "%z = arith.constant 0.0 : f32\n%s = tensor.empty() : tensor<2xf32>\n"
    zero += "%t = linalg.fill ins(%z : f32) outs(%s : tensor<2xf32>) -> tensor<2xf32>"
    body = "%y = arith.addf %x0, %o : f32"
    total = generic("%g", [TWO, "(i, j) -> (i)"], "pr", [("%f", "2x12")], "2", body, start="%t")
    fused = same(program(TANH, SPLIT, SIN, JOIN, zero, total, results=[("%g", "2")]), 8, 3)
    assert count(fused) == 1


def test_an_index_counts_in_the_loops_that_were():
    at = "%i = linalg.index 0 : index\n%k = arith.index_cast %i : index to i32\n%y = arith.sitofp %k : i32 to f32"
    rows = generic("%b", [TWO, TWO], "pp", [("%a", "8x3")], "8x3", at)
    fused = same(program(rows, SPLIT, SIN, results=[("%d", "2x4x3")]), 8, 3)
    assert count(fused) == 1
    np.testing.assert_allclose(run(fused, np.zeros((8, 3), "f"))[0][1, 2], np.sin([6, 6, 6]), rtol=1e-5)


def test_a_result_that_nobody_reads_goes_with_what_made_its_init():
    maps = ", ".join(f"affine_map<{m}>" for m in (TWO, TWO, TWO))
    two = f"""%e = tensor.empty() : tensor<8x3xf32>
    %p, %q = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}}
        ins(%a : tensor<8x3xf32>) outs(%e, %b : tensor<8x3xf32>, tensor<8x3xf32>) {{
    ^bb0(%x: f32, %o: f32, %r: f32):
      %m = math.sin %x : f32
      %n = arith.addf %x, %r : f32
      linalg.yield %m, %n : f32, f32 }} -> (tensor<8x3xf32>, tensor<8x3xf32>)"""
    assert count(same(program(TANH, two, results=[("%p", "8x3")]), 8, 3)) == 1
    assert count(same(program(TANH, two, results=[("%p", "8x3"), ("%q", "8x3")]), 8, 3)) == 2
    second = same(program(TANH, two, results=[("%q", "8x3")]), 8, 3)
    assert [len(op.results) for op in second.walk() if op.name == "linalg.generic"] == [1, 1]


def test_an_init_that_nobody_reads_is_empty():
    over = generic("%d", [TWO, TWO], "pp", [("%a", "8x3")], "8x3", "%y = math.sin %x0 : f32", start="%b")
    assert count(same(program(TANH, over, results=[("%d", "8x3")]), 8, 3)) == 1


WIDE = "%c = tensor.expand_shape %a [[0, 1], [2]] output_shape [2, 4, 3] : tensor<8x3xf32> into tensor<2x4x3xf32>\n"
WIDER = "%d = tensor.expand_shape %c [[0], [1, 2], [3]] output_shape [2, 2, 2, 3] : "
WIDER += "tensor<2x4x3xf32> into tensor<2x2x2x3xf32>"
BACK = "%d = tensor.collapse_shape %c [[0, 1], [2]] : tensor<2x4x3xf32> into tensor<8x3xf32>"
FLAT = "%d = tensor.collapse_shape %c [[0, 1, 2]] : tensor<2x4x3xf32> into tensor<24xf32>"
CROSS = "%d = tensor.collapse_shape %c [[0], [1, 2]] : tensor<2x4x3xf32> into tensor<2x12xf32>"


@pytest.mark.parametrize(
    "second, sizes, left",
    [(WIDER, "2x2x2x3", 1), (BACK, "8x3", 0), (FLAT, "24", 1), (CROSS, "2x12", 2)],
    ids=["split again", "joined again", "joined further", "joined otherwise"],
)
def test_two_reshapes_in_a_row_become_one_where_one_will_do(second, sizes, left):
    module = program(WIDE, second, results=[("%d", sizes)])
    assert count(same(module, 8, 3), *RESHAPES) == left == count(pipeline(module, FUSE), *RESHAPES)


def test_an_expansion_passes_a_collapse_of_other_axes():
    ends = "%c = tensor.collapse_shape %a [[0], [1, 2]] : tensor<6x2x2xf32> into tensor<6x4xf32>\n"
    ends += "%d = tensor.expand_shape %c [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xf32> into tensor<2x3x4xf32>"
    fused = same(program(ends, results=[("%d", "2x3x4")], argument="6x2x2"), 6, 2, 2)
    assert [op.name for op in fused.walk() if op.name in RESHAPES] == [*RESHAPES]


def test_a_tensor_without_axes_stays():
    ends = "%c = tensor.collapse_shape %a [] : tensor<1x1xf32> into tensor<f32>\n%e = tensor.empty() : tensor<f32>\n"
    ends += """%d = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
    ins(%c : tensor<f32>) outs(%e : tensor<f32>) {
    ^bb0(%x: f32, %o: f32):
      %y = math.tanh %x : f32
      linalg.yield %y : f32 } -> tensor<f32>"""
    module = parse(f"func.func @main(%a: tensor<1x1xf32>) -> tensor<f32> {{\n{ends}\nreturn %d : tensor<f32> }}")
    assert count(same(module, 1, 1), *RESHAPES) == 1


def test_unknown_sizes_stay():
    module = parse(
        "func.func @main(%a: tensor<?x4xf32>) -> tensor<?xf32> {\n"
        "%c = tensor.collapse_shape %a [[0, 1]] : tensor<?x4xf32> into tensor<?xf32>\nreturn %c : tensor<?xf32> }"
    )
    assert text(fuse(module)) == text(module)
