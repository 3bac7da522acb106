"""What the exercises of day 4 share."""

from __future__ import annotations

import random
from collections.abc import Callable

from torch import fx

from autograder.authoring.answers import reference
from passlab import random_graph
from passlab.fx.cases import case
from passlab.judge import Case

Build = Callable[[], fx.GraphModule]


def few_calls(name: str, build: Build) -> int:
    """Return how many calls the reference answer leaves."""
    return sum(node.op.startswith("call") for node in reference(name)(build()).graph.nodes)


def written_graphs(rng: random.Random) -> list[Case]:
    """Return random graphs with writes, which must keep their meaning."""
    seeds = [rng.randrange(10**6) for _ in range(2)]
    return [
        case(f"generated, with writes, number {i + 1}", lambda seed=seed: random_graph(seed, 40, mutation=True))
        for i, seed in enumerate(seeds)
    ]
