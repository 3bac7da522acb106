"""Migrate outliers from activations into weights, where a channel has a scale of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.nodes import attribute
from passlab.quantization.graphs import Node, argument, constant, copied, kind, nodes, prune
from passlab.quantization.insert import check_float
from passlab.quantization.semantics import QuantizationError

#: The least maximum of a channel, so that one that is always 0 has a factor.
LEAST = 1e-5


class _Channels(fx.Interpreter):
    """Run a graph and note the largest magnitude in each index of the last dimension of some nodes."""

    def __init__(self, gm: fx.GraphModule, nodes: Iterable[Node]):
        super().__init__(gm)
        self.wanted = set(nodes)
        self.most: dict[Node, Tensor] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            most = value.abs().flatten(0, -2).amax(0)
            self.most[n] = torch.maximum(self.most[n], most) if n in self.most else most
        return value


def migrate(gm: fx.GraphModule, batches: Iterable[tuple[Tensor, ...]], alpha: float = 0.5) -> fx.GraphModule:
    """Return the same function with the channels of each layer norm that only linear layers read brought closer.

        layer_norm(x) · wᵀ = (layer_norm(x) / s) · (w · s)ᵀ,    s = max|x|^α / max|w|^(1 - α) for each channel

    1 / s goes into weight and bias of the norm, s into the columns of all weights that read it: 0 moves nothing of the
    activations' range into the weights, 1 all of it. `gm`: a float graph of `functional`. Source: G. Xiao et al.,
    SmoothQuant, ICML 2023, equation 4. Raises QuantizationError for alpha outside 0 … 1, for no batch, and for a graph
    that is quantized already.
    """
    if not 0 <= alpha <= 1:
        raise QuantizationError(
            f"alpha is {alpha}: it is between 0 (all in the activations) and 1 (all in the weights)."
        )
    check_float(gm)
    gm = copied(gm)
    norms = {node: list(node.users) for node in nodes(gm) if _migrates(gm, node)}
    channels = _Channels(gm, norms)
    with torch.no_grad():
        for batch in batches:
            channels.run(*batch)
    if norms and not channels.most:
        raise QuantizationError("No batch to calibrate with: pass one tuple of inputs or more.")
    for norm, users in norms.items():
        weights = [attribute(gm, user.args[1].target).detach() for user in users]
        largest = torch.stack([w.abs().amax(0) for w in weights]).amax(0).clamp(min=LEAST)
        s = channels.most[norm].clamp(min=LEAST) ** alpha / largest ** (1 - alpha)
        for user, weight in zip(users, weights, strict=True):
            _replace(gm, user, 1, weight * s)
        for place in (2, 3):
            _replace(gm, norm, place, attribute(gm, norm.args[place].target).detach() / s)
    prune(gm)
    return gm


def _migrates(gm: fx.GraphModule, node: Node) -> bool:
    """Return whether a node is a layer norm over one dimension, with weight and bias, that only linear layers read."""
    if node.op != "call_function" or node.target is not torch.nn.functional.layer_norm or len(node.args) < 4:
        return False
    affine = all(isinstance(part, fx.Node) and part.op == "get_attr" for part in node.args[2:4])
    readers = all(kind(u) == "linear" and u.args[0] is node and u.args[1].op == "get_attr" for u in node.users)
    return affine and len(node.args[1]) == 1 and bool(node.users) and readers


def _replace(gm: fx.GraphModule, node: Node, place: int, value: Tensor) -> None:
    old = argument(node, place, "")
    with gm.graph.inserting_before(node):
        node.update_arg(place, constant(gm, f"{old.target}_migrated", value))
