"""The code that is written for a rewrite finds what the definition says, in the same order."""

from __future__ import annotations

import random

import pytest

from passlab.egraph import EGraph
from passlab.egraph.laws import new_matches, variables
from passlab.egraph.search import DEEPEST, search

LEAVES = ("a", "b", 1, 2)
ARITY = {"f": 1, "g": 2, "h": 3}


def drawn_graph(rng):
    graph = EGraph()
    numbers = [graph.add(leaf) for leaf in LEAVES]
    for _ in range(40):
        label = rng.choice(list(ARITY))
        numbers.append(graph.add(label, *rng.choices(numbers, k=ARITY[label])))
    for _ in range(10):
        graph.union(*rng.choices(numbers, k=2))
    graph.rebuild()
    return graph


def drawn_pattern(rng, depth):
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(["?x", "?y", "?z", (rng.choice(LEAVES),)])
    label = rng.choice(list(ARITY))
    return (label, *(drawn_pattern(rng, depth - 1) for _ in range(ARITY[label])))


@pytest.mark.parametrize("seed", range(20))
def test_the_search_finds_what_the_definition_finds(seed):
    rng, count = random.Random(seed), 0
    graph = drawn_graph(rng)
    while count < 20:
        left, right = drawn_pattern(rng, 2), drawn_pattern(rng, 2)
        if isinstance(left, str) or variables(right) - variables(left):
            continue
        count += 1
        places = list(graph.nodes)
        assert list(search(left, right)(graph, places)) == list(new_matches(graph, left, right, places)), (left, right)


def test_a_deep_pattern_is_left_to_the_definition():
    pattern = "?x"
    for _ in range(DEEPEST):
        pattern = ("f", pattern)
    assert search(pattern, "?x") is not None
    assert search(("f", pattern), "?x") is None
