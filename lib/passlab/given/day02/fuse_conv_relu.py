"""Day 2, fuse conv2d and relu: how an answer runs on a case, and the look-alike in its graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from passlab.judge import Case, module_travels


@module_travels
class Clipped(nn.ReLU):
    """A look-alike: a subclass of ReLU that computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).clamp(max=0.75)


def _sources(node: fx.Node) -> list[str]:
    """Return the names in a node's "from_node", a list of names, of nodes or of torch's NodeSource; [] without one."""
    sources = node.meta.get("from_node")
    return [str(getattr(source, "name", source)) for source in sources] if isinstance(sources, list | tuple) else []


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Run the pass. Return its graph, and which nodes its nodes say they stand for."""
    after = answer(*case.build())
    nodes = after.graph.nodes if isinstance(after, fx.GraphModule) else ()
    return {"graph": after, "sources": {node.name: _sources(node) for node in nodes}}
