"""Day 16's core: judges against brute force and the solver, and sentences for broken answers."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from autograder.answers.day16 import egraph as graphs
from autograder.answers.day16.laws import LAWS
from autograder.authoring.answers import hidden_cases
from passlab.exercises.day16 import egraph, laws, saturate
from passlab.given.day16.laws import every, value
from passlab.proving import prove
from tests.support.judged import lost_with


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (([False, True], {0: [("a",), ("b",)], 2: [("f", 0)], 4: [("g", 2)]}), None, ""),
        (([False], {0: [("a",)]}), "valid", "There are 2 commands `same`, and you have 1 answers."),
        (([False, True], {0: [("a",), ("b",)], 2: [("f", 1)]}), "valid", "1 is not the name of a class"),
        (([False, True], {0: [("a",), ("b",)], 2: [("f", 0)], 3: [("f", 0)]}), "did", "is in the classes 2 and 3"),
        (([False, True], {0: [("a",), ("b",)], 2: [("f", 0)]}), "did", "Term 4 is the e-node ('g', 2)"),
        (([True, True], {0: [("a",), ("b",)], 2: [("f", 0)], 4: [("g", 2)]}), "same", "the terms 4 and 5"),
        (([False, True], {0: [("a",), ("b",), ("c",)], 2: [("f", 0)], 4: [("g", 2)]}), "spared", "no command added"),
    ],
)  # fmt: skip
def test_sentences_of_egraph(value, verdict, sentence):
    result = lost_with("day16.egraph", value, "congruence")
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (("saturated", 2, 5, [0, 1, 0]), None, ""),
        (("done", 2, 5, [0, 1, 0]), "valid", '"saturated", "nodes" or "rounds"'),
        (("saturated", 2, 5, [0, 1]), "valid", "a list of 3 classes"),
        (("saturated", 2, 5, [0, 1, 2]), "did", "sub(a, a) and 0 are equal after 2 rounds"),
        (("saturated", 2, 5, [0, 0, 0]), "same", "sub(a, a) and sub(a, b) are in one class"),
        (("saturated", 1, 5, [0, 1, 0]), "spared", "after round 2; yours after round 1"),
        (("saturated", 2, 9, [0, 1, 0]), "cost", "you have 9"),
    ],
)  # fmt: skip
def test_sentences_of_saturate(value, verdict, sentence):
    result = lost_with("day16.saturate", value, "one variable, twice")
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


@pytest.mark.parametrize(
    ("value", "name", "verdict", "sentence"),
    [
        ((True, ["the sign of x is +", "x is finite"]), "x · 0 = 0", None, ""),
        (
            (True, ["x is finite", "x > 0"]),
            "x · 0 = 0",
            "did",
            "only 31,743 inputs. Another one is enough",
        ),
        ((True, ["x is finite"]), "x · 0 = 0", "same", "x is finite is not enough: for x = "),
        ((True, []), "x · 0 = 0", "same", "It does not hold for all inputs"),
        ((True, ["x"]), "x · 0 = 0", "valid", "'x' is not the name of a condition"),
        ((False, {"?x": -1.0}), "x · 0 = 0", "did", "you have an input instead"),
        ((False, {"?x": math.inf}), "x / x = 1", None, ""),
        ((False, {"?x": 1.0}), "x / x = 1", "spared", "For x = 1.0 both sides are 1.0"),
        ((False, {"?x": -math.inf}), "x / x = 1", "spared", "x = -inf does not satisfy “x > 0”"),
        ((False, {"?x": 0.1}), "x / x = 1", "valid", "must be a number of type float16"),
    ],
)
def test_sentences_of_laws(value, name, verdict, sentence):
    result = lost_with("day16.laws", value, name)
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


def _closed(commands):
    """Return which terms are equal at the end, by trying all pairs until nothing changes."""
    added = [command[1:] for command in commands if command[0] == "add"]
    equal = {frozenset(command[1:]) for command in commands if command[0] == "union"}
    home = list(range(len(added)))
    changes = True
    while changes:
        changes = False
        for i, j in itertools.combinations(range(len(added)), 2):
            (label, *a), (other, *b) = added[i], added[j]
            same = label == other and len(a) == len(b) and all(home[x] == home[y] for x, y in zip(a, b, strict=True))
            if home[i] != home[j] and (same or frozenset((i, j)) in equal):
                home = [home[i] if name == home[j] else name for name in home]
                changes = True
    return home


def test_the_classes_are_those_of_all_pairs():
    joined = 0
    for seed in range(20):
        commands = graphs.drawn_commands(random.Random(seed), 24, 4, 2)
        _, graph, numbers = egraph.expected(commands)
        right = _closed(commands)
        for i, j in itertools.combinations(range(len(right)), 2):
            assert (graph.find(numbers[i]) == graph.find(numbers[j])) == (right[i] == right[j]), (seed, i, j)
        joined += len(right) - len(set(right))
    assert joined > 60


def test_no_hidden_case_of_saturate_is_too_large():
    for seed in range(5):
        for case in hidden_cases("day16.saturate", seed):
            assert saturate.expected(*case.build())[2] < 2_000


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_prover_agrees(law):
    """Of laws that were tried on all numbers, the solver proves none that is false, and refutes none that is true."""
    numbers = every(law.dtype, *([laws.X, laws.Y] if law.table is laws.PAIR else [laws.X]))
    example = tuple(torch.ones(1, dtype=law.dtype) for _ in numbers)

    def program(term):
        return lambda *inputs: value(term, dict(zip(numbers, inputs, strict=True)))

    always = laws.weakest(law.left, law.right, {}, numbers) is not None
    proof = prove(program(law.left), program(law.right), example, tests=False)
    assert always or proof.verdict != "proved"
    assert not always or proof.counterexample is None, repr(proof)
