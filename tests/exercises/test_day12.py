"""Day 12: sentences for broken answers, and demands that are known to be within reach."""

from __future__ import annotations

import pytest
import torch

from autograder.authoring.answers import hidden_cases
from autograder.proofs import wire
from passlab import exercises
from passlab.capstone import Compiled, grouped
from passlab.capstone.counting import ROOM
from passlab.capstone.reference import compile, fold_batchnorm
from passlab.exercises.day12._shared import broken_in, limit, why_larger
from passlab.fx.judge import rebuild
from passlab.judge import Case, judge
from passlab.memory.plan import Plan, planned

PLAIN = "the same value twice"


def other_shape(gm, inputs):
    return appended(gm, torch.cat, lambda out: ([out, out],))


def other_type(gm, inputs):
    return appended(gm, torch.Tensor.half, lambda out: (out,))


def other_numbers(gm, inputs):
    return appended(gm, torch.add, lambda out: (out, 1))


def appended(gm, function, operands):
    gm = rebuild(gm)
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(function, operands(output.args[0])),)
    return Compiled(gm)


def other_plan(extra):
    """A compiler whose arena has `extra` bytes more than it uses."""

    def answer(gm, inputs):
        plan = planned(grouped(gm, [], inputs), *inputs)
        return Compiled(gm, plan=Plan(plan.order, plan.offsets, plan.arena + extra))

    return answer


@pytest.mark.parametrize(
    ("answer", "verdict", "sentence"),
    [
        (lambda gm, inputs: Compiled(gm), "did", "launches"),
        (lambda gm, inputs: gm, "valid", "which is code"),
        (lambda gm, inputs: Compiled(gm, [["nowhere"]]), "valid", "There is no node 'nowhere'"),
        (lambda gm, inputs: Compiled(gm, [["tanh"], ["tanh"]]), "valid", "in two groups"),
        (lambda gm, inputs: Compiled(gm, [["tanh"]], {"tanh": {"cores": 2}}), "valid", "no knob 'cores'"),
        (lambda gm, inputs: Compiled(gm, plan=Plan((), {}, 0)), "valid", "missing in the order"),
        (other_plan(extra=2**33), "valid", "4,608 in step tanh_1, of which tanh has 1,536"),
        (other_shape, "valid", "is now float32 of shape (32, 24)"),
        (other_type, "valid", "is now float16"),
        (other_numbers, "same", "differ"),
    ],
)
def test_a_broken_compiler_is_told_what_is_wrong(answer, verdict, sentence):
    verdicts = wire.first_failure("day12.compiler", answer, PLAIN)
    assert verdicts[0] == verdict and sentence in verdicts[1]


def test_nothing_counts_on_a_model_that_is_not_equivalent():
    exercise = exercises.find("day12.compiler")
    case = next(case for case in exercise.cases() if case.name == PLAIN)
    verdicts = judge(exercise, other_numbers, [case]).verdicts
    assert verdicts["valid"] and not verdicts["same"] and not verdicts["did"] and not verdicts["cost"]


def test_a_plan_in_an_arena_of_its_own_size_is_too_large():
    def default(graph, groups, inputs):
        plan = planned(graph, *inputs)
        return Plan(plan.order, {name: at + plan.arena for name, at in plan.offsets.items()}, 2 * plan.arena)

    verdict, message = wire.first_failure("day12.plan", default, "a value that nothing uses")
    assert verdict == "did" and "are enough. The most bytes that live at once are" in message


@pytest.mark.parametrize("exercise_id", ["day12.compiler", "day12.faster"])
def test_memory_is_limited_by_the_models_own(exercise_id):
    """An arena of 8 GiB is never made: faster would fail there."""
    exercise = exercises.find(exercise_id)
    (case, *_) = exercise.cases()
    failure = judge(exercise, other_plan(2**33), [case]).failure
    assert failure.verdict == "valid" and "are allowed. The most bytes that live at once are" in failure.message
    assert judge(exercise, other_plan(ROOM), [case]).verdicts["valid"]


def test_weights_that_grow_are_named():
    case = next(c for c in exercises.find("day12.compiler").cases() if c.name == "a large product of small constants")
    before, _ = case.build()
    after = rebuild(before)
    after.register_buffer("product", before.column * before.row)
    mul = next(node for node in after.graph.nodes if node.name == "mul")
    with after.graph.inserting_before(mul):
        mul.replace_all_uses_with(after.graph.get_attr("product"))
    after.graph.eliminate_dead_code()
    assert why_larger(before, after).startswith("The weights grew from 512 to 16,384 bytes, 16,384 of them in product:")


@pytest.mark.parametrize(("name", "least"), [("gpt", 13), ("a random graph", 16)])
def test_a_model_of_the_zoo_has_to_save_more_than_any_other_graph(name, least):
    case = Case(name, tuple)
    assert limit(case, 22, 11) == least and limit(case, 10, 10) == 10 and limit(case, 10, 12) == 10


def test_to_equal_the_course_is_not_to_go_beyond_it():
    exercise = exercises.find("day12.beyond")
    attention, gpt = exercise.cases()[:2]
    compiled = compile(*attention.build())
    equal = judge(exercise, lambda gm, inputs: compiled, [attention])
    assert equal.verdicts["cost"] and "less is possible here" in equal.failure.message
    more = judge(exercise, lambda gm, inputs: Compiled(gm), [gpt])
    assert not more.verdicts["cost"] and "Neither may be more" in more.failure.message


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"broken": 3},
        {"broken": "", "differs": None, "launches": 1, "bytes": 1, "peak": 1},
        {"broken": "", "differs": "", "launches": -1},
        {"broken": "", "differs": "", "launches": 1, "bytes": 1, "peak": 0.5},
    ],
)
def test_what_the_other_process_claims_is_checked(claim):
    assert broken_in(claim, ())


def test_a_slower_program_is_told_its_ratio(monkeypatch):
    times = {"broken": "", "differs": "", "launches": 1, "bytes": 1, "peak": 1, "mine": [2.0] * 3, "eager": [1.0] * 3}
    monkeypatch.setattr("passlab.exercises.day12._shared.examined", lambda *_: times)
    verdicts = wire.first_failure("day12.faster", lambda gm, inputs: Compiled(gm), "residual")
    assert verdicts == (
        "cost",
        "It is slower than the model as it is: it takes 2.00 of eager's time; the limit is 0.95.",
    )


def test_the_courses_compiler_keeps_a_convolution_that_is_called_twice():
    (case,) = (c for c in hidden_cases("day12.compiler", 1) if c.name == "one convolution, two batch norms")
    before, _ = case.build()
    after = fold_batchnorm(rebuild(before))
    assert why_larger(before, after) == "" and len(after.graph.nodes) == len(before.graph.nodes)
