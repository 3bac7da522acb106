"""The counting of `bench world`, and the part of it that is fast: the node tests of ONNX."""

from __future__ import annotations

import pytest
import torch

from autograder.bench import world
from passlab import equivalent, view
from passlab.graph.assemble import cut


def refused() -> None:
    view(3)


def failed_in_torch() -> None:
    torch.ones(2) @ torch.ones(3)


def failed_in_the_library() -> None:
    cut(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "is_refusal"),
    [(refused, True), (failed_in_torch, False), (failed_in_the_library, False), (lambda: equivalent(3, 3), True)],
)
def test_a_refusal_is_a_sentence_of_the_library(function, is_refusal):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        function()
    assert world.is_refusal(caught.value) is is_refusal


def test_what_passes_what_is_refused_and_what_fails_is_counted_by_step():
    values = {"good": lambda: 4, "odd": lambda: 3, "bad": failed_in_torch, "refused": refused}
    steps = {"positive": lambda n: n > 0, "even": lambda n: n % 2 == 0, "seen": view}
    *rows, faults = (f for f in world.tried(world.Source("numbers", values, steps)) if not isinstance(f, str))
    assert {row.what: row.value for row in rows} == {
        "numbers: made": 2,
        "numbers: positive": 2,
        "numbers: even": 1,
        "numbers: seen": 0,
    }
    assert "1 refused" in rows[0].baseline and "2 refused, 1 kinds" in rows[-1].baseline
    assert faults.value == 2 and not faults.held and "even, odd" in faults.baseline and "made, bad" in faults.baseline


def test_sentences_that_differ_in_names_and_numbers_are_of_one_kind():
    one, other = "Node 'add_1' has the shape [2, 3]; 12 are left.", "Node 'mul' has the shape [4]; 1.5 are left."
    assert world.kind_of(one) == world.kind_of(other) != world.kind_of("Node 'mul' has no shape.")


def test_no_node_test_of_onnx_raises_what_is_no_sentence():
    figures = {figure.what: figure for figure in world.onnx_models() if not isinstance(figure, str)}
    made, seen, drawn, _, faults = figures.values()
    assert made.value == seen.value == drawn.value > 1000
    assert faults.value == 0, faults.baseline
