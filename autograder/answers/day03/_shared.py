"""What the exercises of day 3 share."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import fx

from autograder.authoring.answers import reference, something_to_do
from passlab import models, random_graph, trace
from passlab.fx.cases import case, live, nodes
from passlab.judge import Case

Build = Callable[[], fx.GraphModule]


def zoo(name: str) -> Build:
    """Return a model of the zoo as a graph with shapes."""
    return lambda: trace(models.ZOO[name].build(), *models.ZOO[name].inputs())


def generated(name: str, rng: random.Random, number: int, size: int, why: str, dead: bool = False, **features: Any):
    """Return random graphs that must get as small as the reference makes them, and others that are written into."""
    answer = reference(f"day03.{name}")

    def draw(title: str) -> Case:
        build = _drawn(rng, size, **features)
        after = answer(build())
        limit = len(after.graph.nodes) if dead else len(live(after))
        return case(title, build, did=[nodes(limit, why, dead=dead)])

    for i in range(number):
        yield something_to_do(f"day03.{name}", partial(draw, f"generated, number {i + 1}"))
    # A dropout draws in the order of memory, which a right rewrite of what it reads may change.
    draws = name in ("dce", "cse")
    for i in range(2):
        build = _drawn(rng, size, mutation=True, random=draws)
        yield case(f"generated, with writes, number {i + 1}", build)


def _drawn(rng: random.Random, size: int, **features: Any) -> Build:
    """Draw a random graph that returns no view of a weight: whether a pass may return a copy instead is not asked."""
    seed = rng.randrange(10**6)
    while _returns_a_view_of_a_weight(random_graph(seed, size, **features)):
        seed = rng.randrange(10**6)
    return lambda: random_graph(seed, size, **features)


def _returns_a_view_of_a_weight(gm: fx.GraphModule) -> bool:
    """Return whether an output is computed, and from weights alone."""
    constant: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr" or (node.all_input_nodes and constant.issuperset(node.all_input_nodes)):
            constant.add(node)
    returned = gm.graph.output_node().all_input_nodes
    return any(node in constant and node.op != "get_attr" for node in returned)
