"""Day 9, exercises 1 to 4: sentences for broken answers, and cases that hold what they promise."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autograder.answers.day09.fusion import drawn
from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises
from passlab.exercises.day09._numpy import Unknown, evaluate
from passlab.exercises.day09._passes import difference, inputs_for, unsound
from passlab.exercises.day09.fusion import Node, program
from passlab.exercises.day09.patterns import scalars
from passlab.exercises.day09.pipeline import BUFFERIZE, FUSE, LOOPS
from passlab.judge import judge
from passlab.mlir import MLIRError, parse, pipeline, verify
from passlab.mlir.run import run
from tests.support.judged import lost_with

IDS = ("day09.nest", "day09.patterns", "day09.fusion", "day09.pipeline")


RELU = """\
for d0 in {loop}({size}):
    v0 = in0[d0]
    v1 = 0.0
    v2 = v0 > v1
    out0[d0] = {value}
"""


THREE = "An iteration of the nest does 3 operations; the body has 2."


def relu(loop="prange", size=5, value="select(v2, v0, v1)"):
    return RELU.format(loop=loop, size=size, value=value)


@pytest.mark.parametrize(
    ("text", "verdict", "sentence"),
    [
        (relu(), None, ""),
        ("out0 = in0", "did", "There are 0 loops; the maps have 1 dimension, each a loop."),
        ("", "valid", "The nest has no statement."),
        (relu(size=4), "did", "Loop number 0, over d0, runs 4 times; d0 takes 5 values."),
        (relu(value="v9"), "same", "Line 5, `out0[d0] = v9`: nothing gives v9 a value before it is read."),
        (relu(value="in0[d0 + 1]"), "same", "At d0 = 4, `in0[d0 + 1]` is in0[5], outside in0, whose shape is (5,)."),
        (
            relu(value="v0"),
            "same",
            "Each iteration reads and writes the right elements. Afterwards, out0[3] is -4; expected 0.",
        ),
        (
            relu(value="in0[4 - d0]"),
            "same",
            "At d0 = 0, the nest reads in0[0], in0[4], the operation in0[0]. Afterwards,",
        ),
        (
            relu(value="select(v2, v0, v1)\n    v5 = out0[d0]"),
            "spared",
            "At d0 = 0, out0[0] is read, and the body makes no",
        ),
        (relu(loop="range"), "spared", "The iterator of d0 is 'parallel'; the loop over d0 should be a prange."),
        (
            relu(value="select(v2, v0, v1) + 0"),
            "cost",
            f"{THREE} Leave out each operation that the body does not have,",
        ),
        (
            relu(value="select(v0 > v1, v0, v1)"),
            "cost",
            f"{THREE} `v0 > v1` is computed 2 times: give its value a name.",
        ),
    ],
    ids=range(12),
)
def test_what_is_told_of_a_nest(text, verdict, sentence):
    message = lost_with("day09.nest", text, "relu")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


@pytest.mark.parametrize(
    ("found", "case", "verdict", "sentence"),
    [
        (
            [],
            "nothing to add",
            "did",
            "A law of the table applies. The result has 2 operations, among them `%b = arith.muli %a, %c2 : i32`; none",
        ),
        ([7], "nothing to add", "valid", "rewrite takes instances of RewritePattern; 7 is not one."),
        (["swap"], "nothing to add", "valid", "rewrite takes instances of RewritePattern; 'swap' is not one."),
        ({}, "nothing to add", "valid", "Return a list of patterns; the result is of type dict."),
    ],
    ids=range(4),
)
def test_what_is_told_of_patterns(found, case, verdict, sentence):
    message = lost_with("day09.patterns", found, case)
    assert (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def test_patterns_without_an_end_are_named():
    exercise = exercises.find("day09.patterns")
    from autograder.authoring.answers import load

    by_name = {answer.__name__: answer for answer in load("day09.patterns")}
    message = judge(exercise, by_name["swaps_for_ever"]).failure
    assert (message.verdict, message.case) == ("valid", "two constants")
    assert "the driver stopped: ConstantRight matches what it has made itself" in message.message
    message = judge(exercise, by_name["back_and_forth"]).failure
    assert "_Halve and _One take turns" in message.message


def test_what_is_told_of_the_sign_of_zero():
    before = parse(scalars("a = addf x 0.0", kind="f32"))
    after = parse("func.func @main(%x: f32) -> f32 { return %x : f32 }")
    assert difference(before, after, inputs_for(before)) == "With x = -0, the result was 0; now it is -0."
    wide = parse(scalars("a = addi x 100; b = addi a 100", kind="i8"))
    narrow = parse(scalars("a = addi x 99; b = addi a 99", kind="i8"))
    assert difference(wide, narrow, inputs_for(wide)) == "With x = 0, the result was -56; now it is -58."


FUSED = ("linalg-fuse-elementwise-ops", {"linalg.generic": -1, "linalg.yield": -1})


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ([FUSED], None, ""),
        (
            [("linalg-fuse-elementwise-ops", {**FUSED[1], "math.exp": 0})],
            "same",
            "Step 1, linalg-fuse-elementwise-ops, does not change the number of math.exp",
        ),
        (
            [("linalg-fuse-elementwise-ops", {})],
            "same",
            "Step 1, linalg-fuse-elementwise-ops, changes the number of linalg.g",
        ),
        ([FUSED, ("linalg-fuse-elementwise-ops", {})], "cost", "The pipeline reaches the goal in 2 steps; 1 would do."),
        ([], "did", "At the end there are 2 operations of linalg.generic; the goal allows 1."),
        (None, "did", "There is an order of the passes that reaches the goal."),
        ([("cse", {})], "valid", "'cse' is not one of the passes to choose from."),
        (["cse"], "valid", "A step is (pass, changes); the list holds 'cse'."),
        (
            [(FUSED[0], {"linalg.generic": -1.0})],
            "valid",
            "The changes of linalg-fuse-elementwise-ops are a dictionary",
        ),
        ([FUSED] * 11, "valid", "The pipeline has 11 steps; 10 are the most that are run."),
        ([([], {})], "valid", "[] is not one of the passes"),
    ],
    ids=range(11),
)
def test_what_is_told_of_a_pipeline(value, verdict, sentence):
    message = lost_with("day09.pipeline", value, "one pass")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def test_a_shortest_pipeline_has_the_length_that_a_case_states():
    find = reference("day09.pipeline")
    for case in [*exercises.find("day09.pipeline").cases(), *hidden_cases("day09.pipeline", 1)]:
        result = find(*case.build())
        assert (None if result is None else len(result)) == case.expect, case.name


def test_hidden_modules_are_well_formed():
    for exercise_id in IDS:
        for case in hidden_cases(exercise_id, 0):
            verify(case.build()[0])


@pytest.mark.parametrize("seed", range(25))
def test_fusion_leaves_what_mlir_leaves(seed):
    answer, text = reference("day09.fusion"), drawn(random.Random(seed), 8)
    before, after, theirs = parse(text), answer(parse(text)), pipeline(parse(text), FUSE)
    left = {sum(op.name == "linalg.generic" for op in module.walk()) for module in (after, theirs)}
    assert len(left) == 1
    assert not difference(before, after, inputs_for(before)) and not difference(before, theirs, inputs_for(before))


def test_why_a_producer_that_reads_its_outs_stays():
    update = Node("a", (3,), (("v", "d0"),), (0,), init="w")
    spread = Node("b", (3, 4), (("a", "d0"), ("x", "d0, d1")), (0, 1))
    before = parse(program({"v": (3,), "w": (3,), "x": (3, 4)}, [update, spread], ["b"]))
    one, none = np.ones(3, np.float32), np.zeros((3, 4), np.float32)
    rows = {}
    for name, steps in (("plain", f"{BUFFERIZE}, {LOOPS}"), ("fused", f"{FUSE}, {BUFFERIZE}, {LOOPS}")):
        (result,) = run(pipeline(before, steps), one, one, none, by="interpreter")
        rows[name] = result[0].tolist()
    # MLIR keeps what the producer updates as a second result, and updates it again for each column.
    assert rows == {"plain": [2, 2, 2, 2], "fused": [2, 3, 4, 5]}


@pytest.mark.parametrize("exercise_id", ["day09.nest", "day09.fusion"])
def test_numpy_computes_what_iree_computes(exercise_id):
    for case in exercises.find(exercise_id).cases()[:6]:
        (module,) = case.build()
        inputs = inputs_for(module)
        for ours, theirs in zip(evaluate(module, *inputs), run(module, *inputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=case.name)


def test_numpy_refuses_what_it_does_not_know():
    with pytest.raises(Unknown, match=r"math.erf does not occur in this exercise"):
        evaluate(parse("func.func @main(%x: f32) -> f32 { %y = math.erf %x : f32 return %y : f32 }"), 1.0)


def test_numpy_sees_values_from_around_a_body_and_no_giants():
    (result,) = evaluate(
        parse("""
        func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %two = arith.constant 2.0 : f32
          %e = tensor.empty() : tensor<3xf32>
          %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                               iterator_types = ["parallel"]} ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) {
          ^bb0(%a: f32, %b: f32):
            %v = arith.mulf %a, %two : f32
            linalg.yield %v : f32
          } -> tensor<3xf32>
          return %y : tensor<3xf32>
        }"""),
        [1.0, 2.0, 3.0],
    )
    assert result.tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(Unknown, match="more than 2,000,000 elements"):
        evaluate(parse("func.func @main() { %e = tensor.empty() : tensor<2000x2000xf32> return }"))


@pytest.mark.parametrize("exercise_id", IDS)
def test_hidden_cases_are_drawn_from_the_seed(exercise_id):
    one, again, other = (
        [list(map(str, case.build())) for case in hidden_cases(exercise_id, seed)] for seed in (3, 3, 4)
    )
    assert one == again
    assert one != other


GENERIC = """
func.func @main(%x: tensor<{x}xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {{
  %z = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({to})>, affine_map<({dims}) -> (d0)>],
                       iterator_types = [{kinds}]}} ins(%x : tensor<{x}xf32>) outs(%y : tensor<3xf32>) {{
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  }} -> tensor<3xf32>
  return %z : tensor<3xf32>
}}"""
ONE, TWO = {"dims": "d0", "kinds": '"parallel"'}, {"dims": "d0, d1", "kinds": '"parallel", "reduction"'}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({**ONE, "x": 3, "to": "d0"}, ""),
        ({**ONE, "x": 6, "to": "d0 * 2"}, ""),
        (
            {**ONE, "x": 4, "to": "d0"},
            "inferred input/output operand #1 has shape's dimension #0 to be 4, but found 3.",
        ),
        ({**ONE, "x": 4, "to": "d0 * 2"}, "greater than or equal to 5, but found 4."),
        (
            {**ONE, "x": 3, "to": "d0, d0"},
            "expected operand #0 of rank 1 to match the result count of indexing_map #0, 2.",
        ),
        ({**TWO, "x": 5, "to": "d0 + d1"}, "invalid indexing maps are non-invertible"),
    ],
    ids=range(6),
)
def test_sizes_that_do_not_fit_are_found_without_mlir(how, sentence):
    module = parse(GENERIC.format(**how), verified=False)
    message = unsound(module)
    assert (sentence in message) if sentence else not message
    if sentence:
        with pytest.raises(MLIRError):
            verify(module)
    else:
        verify(module)
