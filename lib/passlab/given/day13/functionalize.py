"""Day 13, functionalisation: the operations of its graphs, and how a part is put back into a whole."""

from __future__ import annotations

import torch
from torch import fx

#: ATen's operations: aten.add_.Tensor, aten.select.int.
aten = torch.ops.aten

#: Operations that return a view of their first operand.
VIEWS = frozenset(
    {
        aten.select.int,
        aten.slice.Tensor,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)
#: Operation that writes into its first operand, and returns it → the operation that only computes the new value.
#: The new value may have another dtype than what it is written into: `copy` makes it fit.
COMPUTES = {
    aten.add_.Tensor: aten.add.Tensor,
    aten.copy_.default: aten.copy.default,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.neg_.default: aten.neg.default,
    aten.relu_.default: aten.relu.default,
    aten.sub_.Tensor: aten.sub.Tensor,
}


def put_back(graph: fx.Graph, view: fx.Node, whole: fx.Node, part: fx.Node) -> fx.Node:
    """Append a node: the value `whole`, but where `view` looks into it, it has the values of `part`.

    `view` is a node that calls one of `VIEWS`, in this graph or in another; its shapes are in its notes.
    """
    base, options = view.all_input_nodes[0], view.args[1:]
    call = graph.call_function
    if view.target is aten.select.int:
        return call(aten.select_scatter.default, (whole, part, *options))
    if view.target is aten.slice.Tensor:
        return call(aten.slice_scatter.default, (whole, part, *options))
    if view.target is aten.transpose.int:
        return call(aten.transpose.int, (part, *options))
    if view.target is aten.unsqueeze.default:
        return call(aten.select.int, (part, *options, 0))
    return call(aten.reshape.default, (part, list(base.meta["tensor_meta"].shape)))
