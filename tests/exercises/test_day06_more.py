"""Day 6, second part: what the judges say to garbage."""

from __future__ import annotations

import math

import pytest

from passlab.exercises.day06 import precision, predict, ranges, shapes


def test_predictions_are_positive_numbers():
    case = predict.cases()[0]
    many = [1.0] * len(case.expect)
    for odd in (0.0, -1.0, math.inf, math.nan, True, 10**400, "1"):
        assert not next(predict.judge(case, [odd, *many[1:]])).ok
    assert [f.ok for f in predict.judge(case, case.expect)] == [True] * 3


def test_a_range_that_is_too_narrow_is_left():
    case = ranges.cases()[2]
    gm, inputs = case.build()
    value = ranges.bounds(gm, inputs)
    value["first"] = (value["first"][0] / 2, value["first"][1] / 2)
    same = next(f for f in ranges.judge(case, value) if f.verdict == "same")
    assert not same.ok and "first reaches" in same.message


@pytest.mark.parametrize("value", [None, "mul", {"mul": 1}, ["x"], [None], [["mul"]], [1.0], object()], ids=range(8))
def test_a_float16_plan_is_a_set_of_calls(value):
    (finding,) = precision.judge(precision.cases()[1], value)
    assert finding.verdict == "valid" and not finding.ok and finding.message.endswith(".")


@pytest.mark.parametrize(
    ("name", "value", "verdict", "sentence"),
    [
        ("a product", {"mul", "mul_1"}, "same", "mul_1 overflows on inputs in their ranges: where it is 270000, your"),
        ("a product", {"mul"}, "did", "tanh is safe in float16: nothing there exceeds 270."),
        ("a product", {"mul", "mul_2", "tanh", "add"}, "spared", "mul_2 is not proved safe in float16: its operand"),
        ("terms that cancel", {"first", "relu"}, "spared", "first is not proved safe in float16: the sum on the way"),
        ("an operation of which nothing is known", {"sin", "neg"}, "spared", "sin is not proved safe in float16: noth"),
    ],
)
def test_sentences_about_a_float16_plan(name, value, verdict, sentence):
    case = next(case for case in precision.cases() if case.name == name)
    verdicts = {f.verdict: f.message for f in precision.judge(case, value) if not f.ok}
    assert verdicts[verdict].startswith(sentence)


@pytest.mark.parametrize("law", ["n ** k", "q == 2", "n", "n == k == 2", "__import__('os')", "(" * 500, "n == 1.5", 3])
def test_laws_are_read_and_not_run(law):
    case = shapes.cases()[0]
    gm, _ = case.build()
    value = {"shapes": {n.name: ["n", "k"] for n in gm.graph.nodes}, "constraints": [law]}
    (finding,) = shapes.judge(case, value)
    assert finding.verdict == "valid" and not finding.ok


def test_a_law_that_divides_by_zero_is_not_valid():
    case = shapes.cases()[0]
    gm, _ = case.build()
    value = {"shapes": {n.name: ["n", "k"] for n in gm.graph.nodes}, "constraints": ["n % (k - k) == 0"]}
    assert [(f.verdict, f.ok) for f in shapes.judge(case, value)][-1] == ("valid", False)
