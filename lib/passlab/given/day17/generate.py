"""Day 17, generate: how a graph is written down with its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from passlab.fx.cases import graph, read, store

__all__ = ["program", "read", "store"]


def program(body: Callable, *inputs: Any, training: bool = False, **parts: Any) -> tuple[fx.GraphModule, tuple]:
    """Return the graph of `body(m, *inputs)`, and its inputs.

    An input is a tensor, or a shape: then it has random numbers, the same ones each time. `parts` are the attributes of
    m: a tensor or shape becomes a parameter, a function (`lambda: nn.Linear(4, 4)`) is called for a layer. More
    parameters of the body keep their defaults, as in `lambda m, x, f=f: f(x)`.
    """
    gm = graph(_with_inputs(body, len(inputs)), *inputs, training=training, **parts)()
    values: tuple[Tensor, ...] = gm.meta["inputs"]
    return gm, values


def _with_inputs(body: Callable, count: int) -> Callable:
    """Return a body that has `count` inputs and no defaults: torch.fx takes each parameter for an input."""
    names = list(inspect.signature(body).parameters)
    if len(names) <= count + 1:
        return body
    return eval(f"lambda {', '.join(names[: count + 1])}: body({', '.join(names[: count + 1])})", {"body": body})
