"""Post-dominators, against their definition on every node of small graphs."""

from __future__ import annotations

import random

import pytest
import torch
from torch import fx

from passlab import random_graph
from passlab.fx.dominators import nodes_between, post_dominators


def random_dag(seed: int, size: int, near: int, dead: bool) -> fx.Graph:
    """Return a graph: nodes read up to three of the `near` before them; unless `dead`, the output reads unused ones."""
    rng, graph = random.Random(seed), fx.Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(size):
        operands = rng.choices(nodes[-near:], k=rng.randint(1, 3))
        nodes.append(graph.call_function(torch.add, tuple(operands)))
    ends = [n for n in nodes if not n.users]
    graph.output(ends[-1] if dead else tuple(ends))
    return graph


def ways(node: fx.Node) -> set[frozenset[fx.Node]]:
    """Return all paths from a node to a node without users, each as the set of its nodes."""
    if not node.users:
        return {frozenset([node])}
    return {way | {node} for reader in node.users for way in ways(reader)}


def by_definition(graph: fx.Graph) -> dict[fx.Node, fx.Node | None]:
    place = {node: at for at, node in enumerate(graph.nodes)}
    results = {}
    for node in graph.nodes:
        common = frozenset.intersection(*ways(node)) - {node}
        results[node] = min(common, key=place.__getitem__, default=None)
    return results


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("near", [1, 3, 20])
def test_they_are_what_the_definition_says(near, dead):
    for seed in range(60):
        graph = random_dag(seed, 9, near, dead)
        assert post_dominators(graph) == by_definition(graph), (seed, near, dead)


def test_they_are_what_the_definition_says_on_programs():
    for seed in range(20):
        graph = random_graph(seed, 14).graph
        assert post_dominators(graph) == by_definition(graph), seed


def test_long_steps_end_where_short_ones_do():
    """Chains of a thousand nodes with shortcuts, where most steps are long ones."""
    for seed in range(3):
        graph = random_dag(seed, 1000, 6, dead=False)
        behind = post_dominators(graph)

        def chain(node, behind=behind):
            while node is not None:
                yield node
                node = behind[node]

        for node in graph.nodes:
            if node.users:
                above = [set(chain(reader)) for reader in node.users]
                first = next((n for n in chain(next(iter(node.users))) if all(n in s for s in above)), None)
                assert behind[node] is first


def test_a_dead_reader_ends_the_ways_elsewhere():
    graph = fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    graph.call_function(torch.tanh, (relu,))
    out = graph.output(relu)
    behind = post_dominators(graph)
    assert behind[x] is relu and behind[relu] is None and behind[out] is None


def test_nodes_between():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.tanh, (a,))
    c = graph.call_function(torch.exp, (x,))
    d = graph.call_function(torch.add, (b, c))
    graph.output(d)
    assert set(nodes_between(x, d)) == {a, b, c}
    assert nodes_between(d, next(iter(d.users))) == []
    assert set(nodes_between(x, d, 3)) == {a, b, c} and nodes_between(x, d, 2) is None
