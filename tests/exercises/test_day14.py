"""Day 14, gradients: its judges against torch and the library, and sentences for broken answers."""

from __future__ import annotations

import re

import pytest
import torch

from autograder.authoring.answers import hidden_cases, reference
from autograder.proofs import wire
from passlab import equivalent, exercises
from passlab.autodiff import joint, jvp
from passlab.exercises.day14 import backward, forward_mode, vjp
from passlab.given.day14.backward import record, typed
from tests.support.judged import lost


def cases(exercise_id, seed):
    return [*exercises.find(exercise_id).cases(), *hidden_cases(exercise_id, seed)]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_library_makes_the_same_joint_graph(seed):
    for case in cases("day14.backward", seed):
        gm, _ = case.build()
        if case.expect is None and len(set(gm.graph.output_node().args[0])) == len(gm.graph.output_node().args[0]):
            right = backward.expected(gm, gm.meta["inputs"])
            result = joint(typed(gm))(*right.arguments)
            for tensor, want in zip(result, [*right.outputs, *right.gradients.values()], strict=True):
                assert not backward.why_unequal(tensor, want), case.name


def test_equivalent_finds_the_reference_equal_to_the_librarys_joint_graph():
    (case,) = [case for case in exercises.find("day14.backward").cases() if case.name == "attention"]
    gm = typed(case.build()[0])
    arguments = backward.expected(gm, gm.meta["inputs"]).arguments
    answer = reference("day14.backward")
    assert equivalent(joint(gm), answer(gm), arguments)
    sums = {"record": record, "shares": lambda *args: answer.__globals__["shares"](*args)[:1]}
    forgetful = type(answer)(answer.__code__, answer.__globals__ | sums)
    assert not equivalent(joint(gm), forgetful(gm), arguments)


def test_the_library_derives_in_the_same_way():
    for case in exercises.find("day14.forward-mode").cases():
        if case.asks("did") and case.name in ("products", "quotients and differences", "many inputs"):
            gm, _ = case.build()
            right = forward_mode.expected(gm, gm.meta["inputs"])
            result = jvp(typed(gm))(*right.arguments)
            for tensor, want in zip(result, [*right.outputs, *right.derivatives], strict=True):
                assert not backward.why_unequal(tensor, want), case.name


SENTENCES = {
    "a number, not a tuple": (lambda op, g, out, x, y: 1, "The rule of mul returned int"),
    "one gradient of two": (lambda op, g, out, x, y: (g * y,), "mul was called with 2 arguments besides keywords"),
    "text": (lambda op, g, out, x, y: ("g * y", g * x), "returned a tuple with str in it"),
    "no gradient": (lambda op, g, out, x, y: (None, g * x), "argument 0 is a tensor of floats, so it has a gradient"),
    "not summed": (lambda op, g, out, x, y: (g * y, g * x), "the gradient of argument 1 has the shape"),
    "a branch on numbers": (lambda op, g, out, x, y: (g if x.sum() > 0 else y, g), "asks for a number in a tensor"),
    "not a rule": (lambda op, g, out, x, y: (g, g.sum(0)), r"where argument 0\[0, 0\] is .* your gradient is"),
    "torch's own": (
        lambda op, g, out, x, y: torch.autograd.grad(out, (x, y), g),
        "_engine_run_backward does what this exercise asks",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_broken_rule_gets_a_sentence(name):
    answer, sentence = SENTENCES[name]
    _, message = lost("day14.vjp", answer, "mul, with a row")
    assert re.search(sentence, message)


def test_a_backward_function_cannot_leave():
    exercise = exercises.find("day14.vjp")
    (case,) = [case for case in exercise.cases() if case.name == "tanh"]

    def shortcut(op, g, out, x):
        return (torch.ops.aten.tanh_backward(g, out),)

    arguments = wire.wire.encode(tuple(case.build()))
    outcome, _ = wire.run_case(exercise, shortcut, case.about, arguments)
    assert outcome.status == "raised" and "tanh_backward" in outcome.error


def test_all_operations_have_cases_and_edges_are_torchs():
    seen = {case.build()[0] for case in cases("day14.vjp", 1)}
    assert seen == set(vjp.OPERATIONS)


def test_one_tensor_given_twice_is_two_inputs():
    x = torch.ones(3)
    graph = record(lambda a, b: [a - b], [x, x])
    torch.testing.assert_close(graph(torch.ones(3), torch.zeros(3))[0], torch.ones(3))
