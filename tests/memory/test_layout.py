"""Layouts: trees and reductions against all choices, the cost of a conversion, sentences for broken problems."""

from __future__ import annotations

import random

import pytest

from passlab.measure.machine import Machine
from passlab.memory.layout import Edge, Layouts, choose, every, reduced, tree


def drawn(seed, pairs):
    rng = random.Random(seed)
    count = rng.randint(1, 7)
    times = {f"o{i}": {x: rng.uniform(0, 9) for x in rng.sample("abc", rng.randint(1, 3))} for i in range(count)}
    edges = tuple(Edge(f"o{i}", f"o{j}", rng.randint(0, 5)) for i, j in pairs(rng, count))
    return Layouts(times, edges, 2.0, rng.choice([0.0, 1.0]))


def forest(rng, count):
    pairs = [(rng.randrange(i), i) for i in range(1, count) if rng.random() < 0.9]
    return [pair if rng.random() < 0.5 else pair[::-1] for pair in pairs]


def few(rng, count):
    """A ring: no operation has more than two neighbours."""
    return [(i, (i + 1) % count) for i in range(count)] if count > 2 else []


def many(rng, count):
    return [(i, j) for i in range(count) for j in range(i + 1, count) if rng.random() < 0.7]


@pytest.mark.parametrize("seed", range(60))
def test_on_trees_both_ways_are_the_best(seed):
    problem = drawn(seed, forest)
    best = problem.seconds(every(problem))
    assert problem.seconds(tree(problem)) == pytest.approx(best)
    assert [problem.seconds(way(problem)) for way in (reduced, choose)] == pytest.approx([best] * 2)


@pytest.mark.parametrize("seed", range(40))
def test_with_two_neighbours_the_reductions_are_exact(seed):
    problem = drawn(seed, few)
    assert problem.seconds(reduced(problem)) == pytest.approx(problem.seconds(every(problem)))


@pytest.mark.parametrize("seed", range(40))
def test_on_graphs_the_choice_is_near_the_best(seed):
    problem = drawn(seed, many)
    best, chosen = problem.seconds(every(problem)), problem.seconds(choose(problem))
    assert chosen <= problem.seconds(reduced(problem)) * (1 + 1e-9)
    assert best * (1 - 1e-9) <= chosen <= 1.1 * best


def test_a_conversion_reads_and_writes_every_byte():
    operations = {"a": {"x": 1.0, "y": 2.0}, "b": {"y": 4.0}}
    problem = Layouts.on(Machine(bandwidth=100.0, flops=1.0, launch=0.5), operations, (Edge("a", "b", 50),))
    assert problem.convert(50) == 1.5
    assert problem.seconds({"a": "x", "b": "y"}) == 6.5 and problem.seconds({"a": "y", "b": "y"}) == 6.0
    assert tree(problem) == choose(problem) == {"a": "y", "b": "y"}


def test_two_edges_between_the_same_operations_both_count():
    operations = {"a": {"x": 0.0, "y": 3.0}, "b": {"y": 0.0}}
    problem = Layouts(operations, (Edge("a", "b", 1), Edge("a", "b", 1)), 1.0)
    assert problem.seconds({"a": "x", "b": "y"}) == 4.0
    assert choose(problem) == {"a": "y", "b": "y"} == every(problem)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (({"a": {}}, (), 1.0), "a has no layout"),
        (({"a": {"x": 1.0}}, (Edge("a", "b", 1),), 1.0), "The edge a → b names 'b', which is not an operation"),
        (({"a": {"x": 1.0}}, (Edge("a", "a", 1),), 1.0), "a reads its own result"),
    ],
)
def test_broken_problems_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Layouts(*arguments)


def test_a_cycle_is_not_a_tree_and_a_choice_must_fit():
    times = {key: {"x": 1.0} for key in "abc"}
    ring = Layouts(times, (Edge("a", "b", 1), Edge("b", "c", 1), Edge("c", "a", 1)), 1.0)
    with pytest.raises(ValueError, match="There are two paths to"):
        tree(ring)
    with pytest.raises(ValueError, match="b gets None; its layouts are x"):
        ring.seconds({"a": "x"})
