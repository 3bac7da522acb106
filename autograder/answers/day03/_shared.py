"""What the exercises of day 3 share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from torch import fx

from autograder.authoring.answers import reference
from passlab import models, random_graph, trace
from passlab.fx.cases import case, live, nodes

Build = Callable[[], fx.GraphModule]


def zoo(name: str) -> Build:
    """A model of the zoo as a graph with shapes."""
    return lambda: trace(models.ZOO[name].build(), *models.ZOO[name].inputs())


def generated(name: str, rng: random.Random, number: int, size: int, why: str, dead: bool = False, **features: Any):
    """Random graphs that must get as small as the reference answer makes them, and others that are written into."""
    answer = reference(f"day03.{name}")
    for i in range(number):
        seed = rng.randrange(10**6)

        def build(seed: int = seed) -> fx.GraphModule:
            return random_graph(seed, size, **features)

        after = answer(build())
        limit = len(after.graph.nodes) if dead else len(live(after))
        yield case(f"generated, number {i + 1}", build, did=[nodes(limit, why, dead=dead)])
    # A dropout draws in the order of memory, which a right rewrite of what it reads may change.
    draws = name in ("dce", "cse")
    for i in range(2):
        seed = rng.randrange(10**6)

        def build(seed: int = seed) -> fx.GraphModule:
            return random_graph(seed, size, mutation=True, random=draws)

        yield case(f"generated, with writes, number {i + 1}", build)
