"""Element-wise fusion removes what MLIR's own pass removes, and the program computes the same."""

import numpy as np
import pytest

from passlab.mlir import parse, pipeline, text, verify
from passlab.mlir.fusing import fuse
from passlab.mlir.run import run
from tests.support.linalg import SIZES, random_module


def generics(module):
    return sum(op.name == "linalg.generic" for op in module.walk())


@pytest.mark.parametrize("block", range(4))
def test_as_many_generics_stay_as_mlir_leaves(block):
    for seed in range(block * 50, block * 50 + 50):
        module = parse(random_module(seed))
        before = text(module)
        ours, theirs = fuse(module), pipeline(module, "linalg-fuse-elementwise-ops")
        verify(ours)
        assert generics(ours) == generics(theirs), seed
        assert text(module) == before


@pytest.mark.parametrize("seed", range(6))
def test_the_fused_module_computes_the_same(seed):
    module, random = parse(random_module(seed)), np.random.default_rng(seed)
    types = next(op for op in module.ops).function_type.inputs
    inputs = [random.normal(size=type_.get_shape()).astype("f") for type_ in types]
    for one, other in zip(run(module, *inputs), run(fuse(module), *inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def program(*generics, returns):
    """A module of generics, each (maps, iterators, inputs, result, body) on tensors of SIZES, to one result."""
    lines = []
    for at, (maps, kinds, inputs, out, body) in enumerate(generics):
        names, types = ", ".join(name for name, _ in inputs), ", ".join(kind(axes) for _, axes in inputs)
        iterators = ", ".join(f'"{"parallel" if k == "p" else "reduction"}"' for k in kinds)
        args = ", ".join([*(f"%x{k}: f32" for k in range(len(inputs))), "%o: f32"])
        lines += [
            f"%e{at} = tensor.empty() : {kind(out)}",
            f"%v{at} = linalg.generic {{indexing_maps = [{', '.join(f'affine_map<{m}>' for m in maps)}], "
            f"iterator_types = [{iterators}]}} ins({names} : {types}) outs(%e{at} : {kind(out)}) {{",
            f"^bb0({args}):\n{body}\nlinalg.yield %y : f32 }} -> {kind(out)}",
        ]
    results = ", ".join(kind(axes) for _, axes in returns)
    names = ", ".join(name for name, _ in returns)
    return parse(
        f"func.func @main(%a: {kind('ab')}, %b: {kind('b')}) -> ({results}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {names} : {results} }}"
    )


def kind(axes):
    return f"tensor<{''.join(f'{SIZES[axis]}x' for axis in axes)}f32>"


SAME = "(d0, d1) -> (d0, d1)"
NEG = ((SAME, SAME), "pp", [("%a", "ab")], "ab", "%y = arith.negf %x0 : f32")
ABS = ((SAME, SAME), "pp", [("%v0", "ab")], "ab", "%y = math.absf %x0 : f32")
SUM = ((SAME, "(d0, d1) -> (d0)"), "pr", [("%a", "ab")], "a", "%y = arith.addf %x0, %o : f32")


def test_a_value_that_two_read_stays():
    two = program(NEG, ABS, returns=[("%v0", "ab"), ("%v1", "ab")])
    assert generics(fuse(two)) == 2
    assert generics(fuse(program(NEG, ABS, returns=[("%v1", "ab")]))) == 1


def test_a_reduction_takes_producers_and_is_none():
    after = (("(d0) -> (d0)", "(d0) -> (d0)"), "p", [("%v0", "a")], "a", "%y = math.absf %x0 : f32")
    assert generics(fuse(program(SUM, after, returns=[("%v1", "a")]))) == 2
    total = ((SAME, "(d0, d1) -> (d0)"), "pr", [("%v0", "ab")], "a", "%y = arith.addf %x0, %o : f32")
    assert generics(fuse(program(NEG, total, returns=[("%v1", "a")]))) == 1


def test_a_reduction_keeps_the_operand_that_says_how_long_it_runs():
    """A broadcast's result is what gives d1 a size: without it nothing would."""
    wide = (("(d0, d1) -> (d1)", SAME), "pp", [("%b", "b")], "ab", "%y = arith.negf %x0 : f32")
    total = ((SAME, "(d0, d1) -> (d1)"), "rp", [("%v0", "ab")], "b", "%y = arith.addf %x0, %o : f32")
    module = program(wide, total, returns=[("%v1", "b")])
    assert generics(fuse(module)) == generics(pipeline(module, "linalg-fuse-elementwise-ops")) == 2


def test_an_index_of_the_producer_counts_in_the_loops_of_the_consumer():
    row = "%i = linalg.index 0 : index\n%k = arith.index_cast %i : index to i32\n%y = arith.sitofp %k : i32 to f32"
    first = ((SAME, SAME), "pp", [("%a", "ab")], "ab", row)
    turned = (("(d0, d1) -> (d1, d0)", SAME), "pp", [("%v0", "ab")], "ba", "%y = arith.negf %x0 : f32")
    module = program(first, turned, returns=[("%v1", "ba")])
    fused = fuse(module)
    assert generics(fused) == 1
    inputs = np.zeros((3, 4), "f"), np.zeros(4, "f")
    np.testing.assert_array_equal(run(fused, *inputs)[0], run(module, *inputs)[0])
    assert run(fused, *inputs)[0][2, 1] == -1.0


def test_what_is_not_linalg_stays():
    module = parse("func.func @main(%x: f32) -> f32 { %y = arith.addf %x, %x : f32\n return %y : f32 }")
    assert text(fuse(module)) == text(module)
