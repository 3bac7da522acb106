"""Day 17, generate: how a graph is written down with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from passlab.fx.cases import graph, read, store

__all__ = ["program", "read", "store"]


def program(body: Callable, *inputs: Any, training: bool = False, **parts: Any) -> tuple[fx.GraphModule, tuple]:
    """Return the graph of `body(m, *inputs)`, and its inputs.

    An input is a tensor, or a shape: then it has random numbers, the same ones each time. `parts` are the attributes of
    m: a tensor or shape becomes a parameter, a function (`lambda: nn.Linear(4, 4)`) is called for a layer.
    """
    gm = graph(body, *inputs, training=training, **parts)()
    values: tuple[Tensor, ...] = gm.meta["inputs"]
    return gm, values
