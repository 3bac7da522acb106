"""What the exercises of day 2 share."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from passlab import models
from passlab.exercises.day02._shared import Rewrite, program, rewrite_case
from passlab.fx.cases import seeded
from passlab.judge import Case

KEPT = ("valid", "same", "spared")


def free_name(gm: fx.GraphModule, name: str) -> str:
    return name if not hasattr(gm, name) else free_name(gm, f"{name}_")


def random_conv(rng: random.Random, channels: int) -> nn.Conv2d:
    kernel, dilation = rng.choice(((1, 1), (3, 3), (3, 1))), rng.choice((1, 1, 2))
    groups, mode = rng.choice((1, 2, channels)), rng.choice(("zeros", "zeros", "reflect", "circular", "replicate"))
    padding = rng.choice((0, tuple(dilation * (k - 1) // 2 for k in kernel), "same"))
    stride = 1 if padding == "same" else rng.choice((1, 1, 2, (1, 2)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    return nn.Conv2d(channels, channels, kernel, bias=rng.random() < 0.6, **options)


def _random_net(rng: random.Random, layer: Callable, size: int) -> fx.GraphModule:
    """Return a net on four channels: `layer(rng, m, x)` after `layer`, with branches, joins and repeated modules."""
    parts: dict[str, Any] = {"act": nn.ReLU()}
    channels = 4

    def fresh(kind: str, module: nn.Module) -> str:
        name = f"{kind}{len(parts)}"
        parts[name] = module
        return name

    graph = fx.Graph()
    image = graph.placeholder("x")
    open_, values = [image], {image: torch.randn(2, channels, 13, 11)}

    def add(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        real = [values[a] if isinstance(a, fx.Node) else a for a in args]
        if isinstance(target, str) and target in parts:
            node, value = graph.call_module(target, args, kwargs), parts[target](*real)
        elif isinstance(target, str):
            node, value = graph.call_method(target, args, kwargs), getattr(real[0], target)(*real[1:], **kwargs)
        else:
            node, value = graph.call_function(target, args, kwargs), target(*real, **kwargs)
        values[node] = value
        return node

    for _ in range(size):
        x = rng.choice(open_[-3:])
        if min(values[x].shape[2:]) < 6:
            x = image
        y = layer(rng, add, fresh, parts, x)
        mate = [v for v in open_ if v is not y and values[v].shape == values[y].shape]
        if mate and rng.random() < 0.4:
            y = add(operator.add, y, rng.choice(mate))
        open_.append(y)
    graph.output(tuple(v for v in open_ if not v.users) or (open_[-1],))
    root = nn.Module()
    for name, part in parts.items():
        root.add_module(name, part)
    gm = fx.GraphModule(root, graph).eval()
    gm.meta["inputs"] = (values[image],)
    return gm


def names_of_weights(body: Callable, names: tuple[str, ...], **parts: nn.Module) -> fx.GraphModule:
    """Return a program of an image: `body`, multiplied by weights that have these names."""

    def product(m: Any, x: Any) -> Any:
        x = body(m, x)
        for name in names:
            x = x * getattr(m, name)
        return x

    weights = {name: nn.Parameter(torch.randn(5)) for name in names}
    return program(product, torch.randn(2, 3, 5, 5), **parts, **weights)


def net_case(name: str, seed: str, layer: Callable, pairs: Callable, size: int) -> Case:
    def make() -> fx.GraphModule:
        return _random_net(random.Random(seed), layer, size)

    graphs = pairs(seeded(make)())
    case = rewrite_case(name, make, Rewrite(graphs, "all others are shared, in use elsewhere, or something else"))
    return case if graphs else rewrite_case(name, make, case.expect, *KEPT)


def zoo_case(name: str, pairs: Callable) -> Case:
    def make() -> fx.GraphModule:
        return program_of(name)

    expect = Rewrite(pairs(make()), "nothing else in this model is such a pair")
    return rewrite_case(f"the model {name}", make, expect, *(() if expect.matches else KEPT))


def program_of(name: str) -> fx.GraphModule:
    """Return a zoo model, traced, with its inputs."""
    model = models.ZOO[name]
    gm = fx.symbolic_trace(model.build()).eval()
    gm.meta["inputs"] = tuple(model.inputs())
    return gm
