"""What the exercises of day 1 share."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import torch
from torch import fx, nn

from passlab import models, random_graph, trace


def zoo_case(name: str, **arguments) -> Callable[[], tuple]:
    """Return a model of the zoo as a graph with shapes."""

    def build() -> tuple:
        make = getattr(models, name) if arguments else models.ZOO[name].build
        return (trace(make(**arguments), *models.ZOO[name].inputs()),)

    return build


def random_case(seed: int, size: int, **features) -> Callable[[], tuple]:
    """Return a random graph, traced again so that numbers and tuples have their tensor_meta too."""

    def build() -> tuple:
        gm = random_graph(seed, size, **features)
        return (trace(gm, *gm.meta["inputs"]),)

    return build


def tangled(seed: int, size: int = 14) -> Callable[[], tuple]:
    """Return additions of every form over a few values that are read again and again, with look-alikes between them."""

    def build() -> tuple:
        rng = random.Random(seed)
        graph = fx.Graph()
        pool = [graph.placeholder("x"), graph.placeholder("y")]
        # A block that is there for every seed.
        pool.append(graph.call_function(torch.add, (pool[0], graph.call_function(torch.tanh, (pool[0],)))))
        for _ in range(size):
            a, b = rng.choice(pool[-4:]), rng.choice(pool)
            number = [graph.call_method("size", (a, 0))] if rng.random() < 0.3 else []
            value = rng.choice(
                [
                    lambda a=a, b=b: graph.call_function(torch.add, (a,), {"other": b}),
                    lambda a=a, b=b: graph.call_function(operator.add, (b, a)),
                    lambda a=a, b=b: graph.call_method("add", (a, b), {"alpha": 2}),
                    lambda a=a, n=number: graph.call_function(operator.add, (a, *(n or [1]))),
                    lambda a=a, b=b, n=number: graph.call_method("expand", (b, *(n or [2]), -1)),
                    lambda a=a, b=b: graph.call_function(operator.sub, (a, b)),
                    lambda a=a, b=b: graph.call_function(torch.maximum, (a, b)),
                    lambda a=a, b=b: graph.call_function(torch.sum, (graph.call_function(torch.stack, ([a, b],)), 0)),
                    lambda a=a: graph.call_function(torch.sigmoid, (a,)),
                    lambda a=a: graph.call_method("cos", (a,)),
                ]
            )()
            pool.append(value)
        graph.output((pool[-1], pool[-2]))
        return (trace(fx.GraphModule(nn.Module(), graph), torch.randn(2, 4), torch.randn(2, 4)),)

    return build
