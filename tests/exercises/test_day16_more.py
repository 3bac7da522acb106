"""Day 16, exercises 4 to 6: optima against all choices, chains against a plain search, and sentences."""

from __future__ import annotations

import itertools
import random

import pytest

from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises
from passlab.exercises.day16 import discover, extract, proof
from passlab.judge import judge
from tests.support.judged import lost


def check(exercise_id, change, case, verdict, sentence):
    result = lost(exercise_id, lambda *args: change(reference(exercise_id)(*args)), case)
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


# ------------------------------------------------------------------------------------------------------ extract


def _least(graph):
    """Return the least cost of all choices that make terms."""
    best = None
    for nodes in itertools.product(*graph.classes.values()):
        choice = dict(zip(graph.classes, nodes, strict=True))
        if not extract.why_not_a_choice(choice, graph):
            cost = extract.price(graph, choice)
            best = cost if best is None else min(best, cost)
    return best


def test_the_optimum_is_the_least_of_all_choices():
    for seed in range(25):
        rng = random.Random(seed)
        graph = extract.drawn(rng, rng.randint(4, 8), roots=rng.randint(1, 2))
        assert extract.price(graph, extract.cheapest(graph)[0]) == _least(graph), seed
        shared = graph._replace(shared=True)
        assert extract.price(shared, extract.cheapest_shared(shared)) == _least(shared), seed


def test_what_a_choice_costs():
    graph = extract.Graph({0: [("add", 1, 1)], 1: [("neg", 2)], 2: [("x",)]}, [0, 1], {"add": 1, "neg": 10, "x": 100})
    choice = {number: nodes[0] for number, nodes in graph.classes.items()}
    assert extract.price(graph, choice) == 1 + 2 * 110 + 110
    assert extract.price(graph._replace(shared=True), choice) == 111


@pytest.mark.parametrize(
    ("change", "case", "verdict", "sentence"),
    [
        (lambda c: c, "loops without a cost", None, ""),
        (lambda c: {k: list(n) for k, n in c.items()} | {"other": 1}, "x · 2 or x + x", None, ""),
        (lambda c: {}, "x · 2 or x + x", "valid", "Class 1 has no e-node, and it is a root."),
        (lambda c: {1: ("mul", 2, 3), 2: ("x",)}, "x · 2 or x + x", "valid", "Class 3 has no e-node, and it is an"),
        (lambda c: c | {1: ("neg", 2)}, "x · 2 or x + x", "valid", "('neg', 2) is not an e-node of class 1"),
        (lambda c: c | {2: ("2",)}, "x · 2 or x + x", "valid", "is not an e-node of class 2, and it is an operand of"),
        (lambda c: c | {1: ("mul", 1, 3), 3: ("1",)}, "loops without a cost", "valid", "leads back to class 1: 1 → 1."),
        (lambda c: c | {1: ("mul", 2, 3), 3: ("2",)}, "x · 2 or x + x", "did", "costs 6 as trees; 4 is possible, for"),
        (lambda c: c | {1: ("f", 3), 2: ("k", 4), 4: ("e", 3)}, "two parts, each dearer alone", "cost", "counted once"),
    ],
)  # fmt: skip
def test_sentences_of_extract(change, case, verdict, sentence):
    check("day16.extract", change, case, verdict, sentence)


# -------------------------------------------------------------------------------------------------------- proof


def _distance(laws, start, end, most):
    """Return how many steps one term is from another, searched from one end only; None beyond a bound."""
    known, edge = {start}, {start}
    for steps in range(most + 1):
        if end in known:
            return steps
        edge = {near for term in edge for near in proof.neighbours(laws, term)} - known
        known |= edge
    return None


def test_chains_are_as_short_as_is_claimed():
    for seed in range(8):
        rng = random.Random(seed)
        steps = rng.randint(1, 3)
        laws, start, end = proof.drawn(rng, steps, laws=3, size=2)
        assert _distance(laws, start, end, steps) == steps, seed
        assert proof.provable(laws, start, end, steps) and not proof.provable(laws, start, end, steps - 1)


def test_terms_are_as_small_as_the_text_says():
    for case in [*exercises.find("day16.proof").cases(), *hidden_cases("day16.proof", 3)]:
        _, start, end, most = case.build()
        assert max(len(list(proof.places(term))) for term in (start, end)) <= 15 and most <= 6, case.name


def test_laws_have_the_same_variables_on_both_sides():
    for _, left, right in proof.LAWS:
        assert discover.variables(left) == discover.variables(right)


@pytest.mark.parametrize(
    ("change", "case", "verdict", "sentence"),
    [
        (lambda steps: [[n, list(p), b] for n, p, b in steps], "inside", None, ""),
        (lambda steps: None, "inside", "did", "There is a chain from sub(a, add(add(a, b), c)) to"),
        (lambda steps: [("other", (), False)], "inside", "valid", "'other' is not the name of a law."),
        (lambda steps: [(n, p) for n, p, b in steps], "inside", "valid", "A step is (name of a law, place, back)"),
        (lambda steps: [(n, 0, b) for n, p, b in steps], "inside", "valid", "A place is a tuple of the numbers"),
        (lambda steps: [(n, p, 0) for n, p, b in steps], "inside", "valid", "The third part of a step is"),
        (lambda steps: [(n, (3,), b) for n, p, b in steps], "inside", "did", "Step 1: sub(a, add(add(a, b), c)) has"),
        (lambda steps: [(n, (), b) for n, p, b in steps], "inside", "did", "does not match sub(a, add(add(a, b), c))"),
        (lambda steps: steps[:-1], "inside", "did", "The chain ends with"),
        (lambda steps: [(proof.SWAP[0], (), False)] * 2, "nothing to do", "cost", "Your chain has 2 steps; at most 0"),
        (lambda steps: [], "not with these laws", "spared", "return None. You have 0 steps."),
    ],
)  # fmt: skip
def test_sentences_of_proof(change, case, verdict, sentence):
    check("day16.proof", change, case, verdict, sentence)


# ----------------------------------------------------------------------------------------------------- discover

X, Y = "?x", "?y"


def test_a_false_law_is_no_way_to_a_true_one():
    """From x · y = x follows much; what is false does not count."""
    product = ("mul", X, Y)
    case = exercises.find("day16.discover").cases()[0]
    judgement = judge(exercises.find("day16.discover"), lambda *_: [(product, X)], [case])
    assert not judgement.verdicts["same"] and not judgement.verdicts["did"]


def test_the_basis_does_not_depend_on_the_names_of_variables():
    names = [discover.basis(("add", "transpose"), (x, y), 3) for x, y in [(X, Y), ("?p", "?q")]]
    assert len(names[0]) == len(names[1]) > 1
    assert not discover.why_incomplete(names[1], ["add", "transpose"], ["?p", "?q"], 3)


def test_one_law_may_be_the_way_to_another():
    """x @ (y − y) = y − y needs the term (x − x) @ y, which is on neither side."""
    operations, names = ("sub", "matmul"), ("?x", "?y", "?z")
    zero = ("sub", X, X), ("sub", Y, Y)
    laws = [(("matmul", X, zero[1]), zero[0]), (("matmul", zero[0], Y), zero[0]), (("matmul", zero[1], X), zero[0])]
    wanted = (("matmul", X, zero[1]), zero[1])
    assert not discover.follows(*wanted, laws, discover.NODES, discover.ROUNDS)
    assert not discover._apart(laws, [wanted], discover.enumerate_terms(operations, names, 2).terms)


@pytest.mark.parametrize(
    ("change", "case", "verdict", "sentence"),
    [
        (lambda laws: [list(law) for law in laws], "signs", None, ""),
        (lambda laws: laws[:-1], "a product", "did", "is true, and does not follow from your 1 law."),
        (lambda laws: [*laws, laws[0]], "a product", "spared", " follows from your other laws."),
        (lambda laws: [*laws, (("mul", X, X), X)], "a product", "same", "x · x = x is not true."),
        (lambda laws: [*laws, (X, X)], "a product", "valid", "is a variable alone: it would match any term."),
        (lambda laws: [*laws, (("mul", X, X), Y)], "a product", "valid", "does not say what y is."),
        (lambda laws: [*laws, (("mul", X), X)], "a product", "valid", "mul has 2 operands; in ('mul', '?x') it has 1."),
        (lambda laws: [*laws, (("neg", X), X)], "a product", "valid", "'neg' is not one of the operations mul."),
        (lambda laws: [*laws, ("x", X)], "a product", "valid", "'x' is not one of the variables ?x, ?y, ?z."),
        (lambda laws: [*laws, (("mul", X, ("mul", X, ("mul", X, X))), X)], "a product", "valid", "has 3 operations"),
    ],
)  # fmt: skip
def test_sentences_of_discover(change, case, verdict, sentence):
    check("day16.discover", change, case, verdict, sentence)


def test_there_are_as_few_terms_as_the_text_says():
    for case in [*exercises.find("day16.discover").cases(), *hidden_cases("day16.discover", 5)]:
        assert len(discover.enumerate_terms(*case.build()).terms) <= 1200, case.name
