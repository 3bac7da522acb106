"""Day 17, exercises 1 to 3: sentences for broken answers, right passes without alarms, and the fewest operations."""

from __future__ import annotations

import random

import pytest
import torch
from torch import fx, nn

from autograder.answers.day17.generate import POOLS, _passes
from autograder.answers.day17.shrink import from_below
from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises, random_graph
from passlab.exercises.day17._faulty import FAULTY, RIGHT
from passlab.exercises.day17.generate import Sample
from passlab.exercises.day17.shrink import size_of
from passlab.given.day17.generate import program
from passlab.given.day17.oracle import widened
from passlab.given.day17.shrink import Compiler
from tests.support.judged import lost

# ---------------------------------------------------------------------------------------------------- oracle


def test_the_word_that_is_right_is_named_with_its_reason():
    verdict, sentence = lost("day17.oracle", lambda *_: "same", "a write that is gone")
    assert verdict == "did" and sentence.endswith("it must be 'different': the input x is no longer written.")
    assert lost("day17.oracle", lambda *_: "different", "both write")[0] == "spared"
    assert lost("day17.oracle", lambda *_: "same", "random numbers")[0] == "same"
    assert lost("day17.oracle", lambda *_: "different", "another type") is None


def test_widened_copies_share_memory_as_before():
    memory = torch.arange(6.0)
    gm = fx.symbolic_trace(nn.Linear(2, 2))
    wide, (x, y, n) = widened(gm, (memory[1:4], memory.view(2, 3).t(), torch.arange(3)))
    assert {p.dtype for p in wide.parameters()} == {torch.float64} and n.dtype == torch.int64
    assert gm.weight.dtype == torch.float32
    assert torch.equal(y, memory.view(2, 3).t().double()) and y.stride() == (1, 3)
    x.add_(10)
    assert y.t().flatten().tolist() == [0, 11, 12, 13, 4, 5] and memory.tolist() == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------------------------------------------- generate


@pytest.mark.parametrize("name", POOLS)
def test_right_passes_raise_no_alarm(name):
    for seed in range(40):
        gm = random_graph(seed, 12, mutation=True)
        sample = Sample(gm, gm.meta["inputs"])
        assert sample.run.error is None
        assert not sample.shows(RIGHT[name]) and not sample.shows(_passes(name)[0]), seed


@pytest.mark.parametrize("name", FAULTY)
def test_each_faulty_pass_has_a_graph_of_its_own_day(name):
    samples = [Sample(*one) for one in reference("day17.generate")(name)]
    faulty = FAULTY[name] | _passes(name)[1]
    assert [note for note, one in faulty.items() if not any(s.exposes(one, RIGHT[name]) for s in samples)] == []


@pytest.mark.parametrize(
    ("graphs", "verdict", "sentence"),
    [
        ([program(lambda m, x: x + 1, (2,))] * 51, "valid", "There are 51 graphs; at most 50 are allowed."),
        ([(program(lambda m, x: x + 1, (2,))[0], ())], "valid", "Graph 0 has 1 input; you return 0 tensors"),
        ([program(lambda m, x: x + 1, (2000,))], "valid", "The inputs of graph 0 have more than 1,000 numbers."),
        ([program(lambda m, x: sum([x] * 30), (2,))], "valid", "Graph 0 has 30 operations; at most 20 are allowed."),
        ([(program(lambda m, x: x.view(3), (3,))[0], (torch.ones(2),))], "valid", "Graph 0 does not run on its inputs"),
        ([], "did", "0 of 6 faulty passes are exposed. One that is not: operands count in any order."),
    ],
)
def test_sentences_of_generate(graphs, verdict, sentence):
    failure = lost("day17.generate", lambda name: graphs, "cse")
    assert failure[0] == verdict and sentence in failure[1]


def test_a_body_may_have_defaults():
    for f in (torch.sin, torch.cos):
        gm, (x,) = program(lambda m, x, f=f: f(x), (2, 3))
        assert torch.equal(gm(x), f(x)) and len(gm.graph.find_nodes(op="placeholder")) == 1


def test_a_graph_on_which_the_right_pass_fails_exposes_nothing():
    sample = Sample(*program(lambda m, x: (x * 2, x * 3), (2,)))
    merge = FAULTY["cse"]["numbers are rounded"]
    other = Sample(*program(lambda m, x: (x * 1.5, x * 1.25), (2,)))
    assert not sample.exposes(merge, RIGHT["cse"]) and other.exposes(merge, RIGHT["cse"])
    assert not other.exposes(merge, merge)


# ---------------------------------------------------------------------------------------------------- shrink


def test_no_graph_with_fewer_operations_fails_for_the_same_reason():
    for seed in range(3):
        for case in [*exercises.find("day17.shrink").cases(), *hidden_cases("day17.shrink", seed)]:
            gm, inputs, faults = case.build()
            small, _ = from_below(gm, inputs, Compiler(faults).failure)  # it tries all parts, the smallest first
            assert sum(node.op == "call_function" for node in small.graph.nodes) == case.expect, (seed, case.name)


def test_size_of_a_term():
    assert size_of("?x") == 0 and size_of(("sub", ("mul", "?x", "?y"), ("neg", "?x"))) == 3


def test_the_compiler_names_the_first_stage_that_fails():
    swapped = ("fold", ("sub", "?x", "?y"), 1, ("sub", "?y", "?x"))
    raises = ("fuse", ("neg", "?x"), 1, "KeyError: 'neg'")
    gm, inputs = program(lambda m, x, y: torch.neg(x - y), (2,), (2,))
    assert Compiler([swapped, raises]).failure(gm, inputs) == "fold changes the results"
    assert Compiler([raises, swapped]).failure(gm, inputs) == "fuse raises an error: KeyError: 'neg'"
    assert Compiler([swapped]).failure(gm, (inputs[0], inputs[0])) == ""
    with pytest.raises(ValueError, match="does not run"):
        Compiler([swapped]).failure(gm, (torch.ones(2), torch.ones(3)))
    limited = Compiler([swapped], limit=1)
    limited.failure(gm, inputs)
    with pytest.raises(RuntimeError, match="1 times"):
        limited.failure(gm, inputs)


def test_a_fault_may_need_two_readers():
    gm, inputs = program(lambda m, x, y: torch.sin(x) - y, (2,), (2,))
    both, _ = program(lambda m, x, y: (torch.sin(x) - y, torch.sin(x)), (2,), (2,))
    fault = ("fuse", ("sub", ("sin", "?x"), "?y"), 2, "two readers")
    merged = RIGHT["cse"](both)
    assert Compiler([fault]).failure(gm, inputs) == ""
    assert Compiler([fault]).failure(merged, inputs) == "fuse raises an error: two readers"


def test_sentences_of_shrink():
    def other(gm, inputs, failure):
        return program(lambda m, x: torch.cos(torch.abs(x)), (2, 3))

    def well(gm, inputs, failure):
        return program(lambda m, x: torch.tanh(x), (2, 3))

    name = "an error, and another fault"
    verdict, sentence = lost("day17.shrink", other, name)
    assert (verdict, sentence) == (
        "same",
        "It fails for another reason: simplify changes the results. The whole graph: fuse raises an error: "
        "KeyError: 'neg'.",
    )
    assert lost("day17.shrink", well, name)[1].startswith("The compiler does not fail on it.")
    verdict, sentence = lost("day17.shrink", lambda gm, inputs, failure: (gm, inputs), name)
    assert verdict == "did" and sentence.endswith("operations; 2 are enough to fail for the same reason.")


def test_failing_graphs_are_the_same_each_time():
    cases = hidden_cases("day17.shrink", random.Random(0).randrange(1000))
    for case in cases[:3]:
        (one, values, _), (other, again, _) = case.build(), case.build()
        assert one.code == other.code and all(map(torch.equal, values, again))
