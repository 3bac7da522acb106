"""Laws as data: preconditions, the table in docs/laws.md, and terms that cannot be laws."""

from __future__ import annotations

import random

import pytest
import torch

from autograder.authoring.source import ROOT
from passlab.proving import laws
from passlab.proving.laws import CONDITIONS, LAWS, decide, inputs_of, program, prove_terms, row, weakest_first

ROWS = [line for line in (ROOT / "docs/laws.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
BY_TEXT = {law.text: law for law in LAWS}


def test_the_table_has_a_row_for_each_law():
    assert len(ROWS) == len(LAWS) == len(BY_TEXT)
    assert {day for law in LAWS for day in law.days} == {3, 4, 7, 9}


@pytest.mark.parametrize("at", random.Random(16).sample(range(len(LAWS)), 6))
def test_the_table_is_what_is_computed(at):
    assert ROWS[at] == row(LAWS[at])


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("x + 0.0 = x", "x is not −0"),
        ("x − x = 0", "x is finite"),
        ("x / x = 1", "x is finite and not 0"),
        ("x · 0 = 0", "x is finite and its sign is +"),
        ("relu x = min(max(x, 0), largest)", "x is neither ∞ nor −0"),
        ("x · 1.0 = x", ""),
    ],
)
def test_the_weakest_precondition(text, condition):
    decision = decide(BY_TEXT[text], torch.float16)
    assert decision.condition == condition
    assert (decision.proof.verdict == "proved") == (condition == "")
    for weaker in weakest_first(BY_TEXT[text].ifs):
        if f"x {weaker}" == condition:
            break
        proof = prove_terms_under(BY_TEXT[text], weaker)
        # of relu, only another machine may show one: which zero is the larger is not fixed
        assert proof.verdict != "proved" and (proof.counterexample or "on this machine" in repr(proof)), weaker


def prove_terms_under(law, condition):
    holds = CONDITIONS[condition]
    x = (torch.ones(1, dtype=torch.float16),)
    return laws.prove(law.left, law.right, x, tests=False, when=lambda x: [holds(x)])


def test_preconditions_by_how_many_numbers_satisfy_them():
    # of 2**16 patterns: one is -0, two are zeros, 2 * 1023 are NaN, two are infinite
    assert weakest_first(["is finite", "is not −0", "is not NaN", "is not 0", "> 0"]) == [
        "is not −0",
        "is not 0",
        "is not NaN",
        "is finite",
        "> 0",
    ]


def test_laws_as_terms():
    commute = ("add", "?x", "?y"), ("add", "?y", "?x")
    assert prove_terms(*commute).verdict == "proved"
    assert prove_terms(("mul", "?x", 2.0), ("add", "?x", "?x"), torch.float16).verdict == "proved"
    wrong = prove_terms(("sub", "?x", "?y"), ("sub", "?y", "?x"), torch.int32, tests=False)
    assert wrong.verdict == "refuted" and set(wrong.counterexample) == {"x", "y"}
    transposed = ("transpose", ("matmul", "?a", "?b"))
    swapped = ("matmul", ("transpose", "?b"), ("transpose", "?a"))
    assert prove_terms(transposed, swapped, shape=(3, 3), tests=False).reals is True
    assert inputs_of(transposed) == ["?a", "?b"]


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (("add", "?x", "?x"), ("mul", "?x", "?y"), "The variable .?y is unbound: the inputs are .?x"),
        (("add", "?x", "?x"), ("twice", "?x"), "A term applies 'twice', which is none of add, "),
    ],
)
def test_terms_that_are_no_law(left, right, words):
    with pytest.raises(ValueError, match=words):
        prove_terms(left, right)
    with pytest.raises(ValueError, match="unbound"):
        program("?z", ["?x"])
