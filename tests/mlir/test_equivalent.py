"""Which MLIR modules are the same function, and where they part."""

from __future__ import annotations

import re

import pytest
import torch

from passlab import equivalent, shrink, view
from passlab.mlir import MLIRError, parse, pipeline, text, verify
from passlab.mlir.cases import case, counts, expecting, least, most, program, why_not_valid
from passlab.mlir.equivalent import equivalent_modules, random_inputs
from passlab.mlir.measure import launches
from passlab.mlir.run import run
from tests.mlir.generate import FEATURES, random_module, random_text
from tests.mlir.programs import CHAIN

BUFFERS = "one-shot-bufferize{bufferize-function-boundaries=1}"


@pytest.fixture(scope="module")
def chain():
    return parse(CHAIN)


@pytest.mark.parametrize("steps", ["linalg-fuse-elementwise-ops, canonicalize", f"{BUFFERS}, convert-linalg-to-loops"])
def test_passes_of_mlir_keep_the_function(chain, steps):
    result = equivalent(chain, pipeline(chain, steps))
    assert result and {"ordinary", "structured", "extreme", "nonfinite"} <= set(result.trials)


@pytest.mark.parametrize(
    ("old", "new", "kind", "place"),
    [
        ("arith.addf", "arith.subf", "random inputs", "%sum"),
        ("arith.maximumf", "arith.maxnumf", "inf and NaN", "%relu"),
        ("%c = arith.constant 0.0", "%c = arith.constant 1.0e-3", "random inputs", "%relu"),
    ],
)
def test_a_difference_names_the_trial_and_the_operation(chain, old, new, kind, place):
    result = equivalent(chain, parse(CHAIN.replace(old, new)))
    assert not result and kind in result.reason and result.first_diverging == place
    assert f"Look at {place} of after, linalg.generic" in result.reason
    assert set(result.counterexample) == {"a", "b"} and result.counterexample["a"].shape == (4, 8)


def test_no_huge_element_excuses_another_one(chain):
    """A branch for large numbers is wrong by 1, where the edge values' largest move by more than 1000."""
    branch = """    %m = arith.maximumf %x, %c : f32
    %fifty = arith.constant 50.0 : f32
    %one = arith.constant 1.0 : f32
    %large = arith.cmpf ogt, %m, %fifty : f32
    %less = arith.subf %m, %one : f32
    %r = arith.select %large, %less, %m : f32
    linalg.yield %r : f32"""
    wrong = CHAIN.replace("    %m = arith.maximumf %x, %c : f32\n    linalg.yield %m : f32", branch)
    result = equivalent(chain, parse(wrong))
    assert not result and result.reason.startswith("On edge values")


def test_a_missing_result_and_a_missing_return_are_told(chain):
    two = CHAIN.replace("-> tensor<4x8xf32> {\n  %e", "-> (tensor<4x8xf32>, tensor<4x8xf32>) {\n  %e")
    two = two.replace("return %relu : tensor<4x8xf32>", "return %relu, %sum : tensor<4x8xf32>, tensor<4x8xf32>")
    assert "1 output before and 2 after" in equivalent(chain, parse(two)).reason
    with pytest.raises(ValueError, match="does the pass end with a return"):
        equivalent(chain, None)


def test_a_torch_model_is_compared_with_a_module(chain):
    assert equivalent(lambda a, b: torch.relu(a + b), chain)
    assert not equivalent(lambda a, b: torch.relu(a - b), chain)


def test_unknown_dimensions_get_two_odd_sizes():
    source = """func.func @main(%a: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = arith.addf %a, %a : tensor<?x?xf32>
      return %0 : tensor<?x?xf32> }"""
    result = equivalent(parse(source), parse(source.replace("addf %a, %a", "addf %a, %a")))
    assert result and "sizes" in result.trials
    assert not equivalent(parse(source), parse(source.replace("addf", "mulf")))


def test_a_sum_in_another_order_is_the_same():
    source = """func.func @main(%m: memref<64xf32>) -> f32 {
      %z = arith.constant 0.0 : f32
      %s = affine.for %i = 0 to 64 iter_args(%acc = %z) -> (f32) {
        %x = affine.load %m[%i] : memref<64xf32>
        %n = arith.addf %acc, %x : f32
        affine.yield %n : f32
      }
      return %s : f32 }"""
    assert equivalent(parse(source), parse(source.replace("%m[%i]", "%m[63 - %i]")))
    assert not equivalent(parse(source), parse(source.replace("%m[%i]", "%m[0]")))


def test_large_numbers_take_branches_that_small_and_huge_ones_do_not():
    source = """func.func @main(%m: memref<4x64xf32>, %out: memref<4xf32>) {
      %z = arith.constant 0.0 : f32
      affine.for %j = 0 to 4 {
        %s = affine.for %i = 0 to 64 iter_args(%acc = %z) -> (f32) {
          %x = affine.load %m[%j, %i] : memref<4x64xf32>
          %n = arith.addf %acc, %x : f32
          affine.yield %n : f32
        }
        %low = arith.constant 50.0 : f32
        %high = arith.constant 5000.0 : f32
        %above = arith.cmpf ogt, %s, %low : f32
        %below = arith.cmpf olt, %s, %high : f32
        %both = arith.andi %above, %below : i1
        %r = arith.select %both, %low, %s : f32
        affine.store %r, %out[%j] : memref<4xf32>
      }
      return }"""
    result = equivalent(parse(source), parse(source.replace("%both, %low", "%both, %s")))
    assert not result and result.reason.startswith("On large random inputs")


def test_what_does_not_run_is_an_error_before_and_a_result_after(chain):
    broken = parse("func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> { return %a : tensor<4x8xf32> }")
    assert "takes 1 argument;" in equivalent_modules(chain, broken).reason
    with pytest.raises(ValueError, match="`before` itself does not run"):
        equivalent_modules(broken, chain, random_inputs(chain)[0])


# ---------------------------------------------------------------------------------------------------- generated


@pytest.mark.parametrize("seed", range(24))
def test_random_modules_verify_and_are_the_same_every_time(seed):
    module = random_module(seed, 4 + seed % 9)
    verify(module)
    assert random_text(seed, 4 + seed % 9) == random_text(seed, 4 + seed % 9) and launches(module) > 0
    fused = pipeline(module, "linalg-fuse-elementwise-ops, canonicalize")
    assert launches(fused) <= launches(module)


@pytest.mark.parametrize("seed", range(3))
def test_random_modules_run_and_mlirs_fusion_keeps_them(seed):
    module = random_module(seed, 8)
    assert equivalent(module, pipeline(module, "linalg-fuse-elementwise-ops, canonicalize"), trials=("ordinary",))
    (arguments,) = random_inputs(module)
    assert all(abs(array).max() < 1e4 for array in run(module, *arguments) if array.dtype.kind == "f")


@pytest.mark.parametrize("feature", [name for name in FEATURES if name not in ("dead", "outputs")])
def test_each_feature_makes_modules(feature):
    message = [random_text(seed, 6, [feature, "pointwise"]) for seed in range(6)]
    signs = {
        "broadcast": "-> (d0)>, affine_map<(d0, d1) -> (d0, d1)>]",
        "transpose": "(d1, d0)",
        "reduce": '"reduction"',
        "matmul": "linalg.matmul",
        "tensors": " : tensor<",
        "index": "linalg.index",
        "integers": "xi32>) outs",
        "loops": "scf.for",
        "branches": "scf.if",
        "calls": "func.call @part0",
        "buffers": "outs(%v0 : memref<",
        "affine": "affine.store",
    }
    result = signs.get(feature, "linalg.generic")
    assert any(result in text or (feature == "broadcast" and "linalg.broadcast" in text) for text in message)


@pytest.mark.parametrize(
    ("level", "seed", "op"),
    [
        ("calls", 3, "func.call"),
        ("buffers", 3, "func.call"),
        ("buffers", 5, "memref.copy"),
        ("affine", 3, "func.call"),
        ("affine", 5, "affine.store"),
    ],
)
def test_calls_buffers_and_affine_loops_are_viewed_compared_and_shrunk(level, seed, op):
    features = ["pointwise", "broadcast", "reduce", "identity", "loops", "branches", "index", "calls", level]
    module = random_module(seed, 9, features)
    verify(module)
    assert op in {node.op for node in view(module)}
    assert equivalent(module, module, trials=("ordinary",))
    other = parse(re.sub(r"(?<=arith.constant )-?\d\.\d+e[+-]\d+(?= : f32)", "0.75", text(module), count=1))
    assert "On random inputs" in equivalent(module, other, trials=("ordinary",)).reason
    small = shrink(module, lambda it: op in counts(it), 80)
    verify(small)
    assert op in counts(small) and len(list(small.walk())) < len(list(module.walk())) / 3, text(small)


def test_results_of_buffers_are_returned_or_written_into_arguments():
    heads = [random_text(seed, 3, ["pointwise", "buffers"]).splitlines()[1] for seed in range(6)]
    assert len({"->" in head for head in heads}) == 2 and all("tensor" not in head for head in heads)


def test_shrinking_drops_functions_that_are_not_called():
    module = random_module(3, 9, ["pointwise", "calls"])
    small = shrink(module, lambda it: "linalg.generic" in counts(it), 80)
    assert "@part0" in text(module) and "@part0" not in text(small)


def test_unknown_features_are_refused():
    with pytest.raises(ValueError, match="No feature 'speed'"):
        random_module(0, 3, ["speed"])


def test_shrinking_keeps_what_fails():
    module = random_module(9, 14)
    assert counts(module)["arith.minimumf"]
    small = shrink(module, lambda it: counts(it)["arith.minimumf"] > 0, 150)
    verify(small)
    assert counts(small)["linalg.generic"] == counts(small)["arith.minimumf"] == 1 and len(list(small.walk())) <= 12
    assert text(module) == text(random_module(9, 14))
    with pytest.raises(ValueError, match="`fails` is false"):
        shrink(module, lambda it: False)


# ---------------------------------------------------------------------------------------------------- cases

_FUSES = case("a chain", program(CHAIN), did=[most("linalg.generic", 1, "Neighbours fuse.")], spared=[])


def _findings(value, one=_FUSES):
    return {it.verdict: it for it in expecting(kinds=("ordinary",))(one, value)}


def test_a_right_pass_meets_the_expectations(chain):
    result = _findings(pipeline(chain, "linalg-fuse-elementwise-ops, canonicalize"))
    assert all(it.ok for it in result.values()) and {"valid", "same", "did"} <= set(result)


def test_a_pass_that_does_nothing_and_a_wrong_one_are_told_apart(chain):
    assert not _findings(chain)["did"].ok and "2 linalg.generic operations" in _findings(chain)["did"].message
    wrong = parse(CHAIN.replace("arith.addf", "arith.mulf"))
    assert not _findings(wrong)["same"].ok and "%sum" in _findings(wrong)["same"].message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "End it with `return module`"),
        (5, "an int, not a module"),
        ("module {}", "a str, not a module"),
    ],
)
def test_what_is_no_module_is_invalid(chain, value, words):
    assert words in why_not_valid(chain, value) and not _findings(value)["valid"].ok


def test_a_changed_or_lost_function_is_invalid(chain):
    assert "is gone" in why_not_valid(chain, parse(CHAIN.replace("@main", "@other")))
    assert "keeps what a function takes" in why_not_valid(chain, pipeline(chain, BUFFERS))
    broken = parse(CHAIN)
    next(op for op in broken.walk() if op.name == "linalg.generic").operands = []
    with pytest.raises(MLIRError):
        verify(broken)
    assert "line" in why_not_valid(chain, broken)


def test_expectations_count(chain):
    assert least("linalg.generic", 2, "Both stay.")(chain, chain) is None
    assert "Of 3 linalg.generic operations, 2 are left" in least("linalg.generic", 3, "All stay.")(chain, chain)


def test_modules_whose_only_function_is_not_main():
    once = parse("func.func @f(%x: f32) -> f32 { %y = arith.addf %x, %x : f32 return %y : f32 }")
    other = parse("func.func @g(%x: f32) -> f32 { %y = arith.mulf %x, %x : f32 return %y : f32 }")
    assert equivalent(once, once)
    assert not equivalent(once, other)
