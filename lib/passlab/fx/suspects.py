"""Six passes that look right but are wrong. Day 2 asks for a graph that breaks each; `SUSPECTS` lists them by name.

Each docstring states the law as the pass's author believed it. All of them match, rewrite and clean up as a pass
should; each lacks a precondition.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.fx.nodes import calls
from passlab.judge import function_travels


@function_travels
def add_relu(a: Tensor, b: Tensor, *, alpha: float = 1) -> Tensor:
    """`relu(a + alpha * b)` as one op."""
    return torch.relu(torch.add(torch.as_tensor(a), b, alpha=alpha))


def _replace(gm: fx.GraphModule, node: fx.Node, by: fx.Node) -> None:
    """Replace `node` by `by`, and erase `node` and, if it is now unused, its operand."""
    operand = node.args[0]
    node.replace_all_uses_with(by)
    gm.graph.erase_node(node)
    if not operand.users:
        gm.graph.erase_node(operand)


def fuse_add_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(a + b)` = `add_relu(a, b)`."""
    for node in list(gm.graph.nodes):
        if calls(node, (torch.relu, F.relu)) and calls(node.args[0], (operator.add, torch.add)):
            add = node.args[0]
            add.target = add_relu
            node.replace_all_uses_with(add)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def cancel_transposes(gm: fx.GraphModule) -> fx.GraphModule:
    """`x.transpose(a, b).transpose(c, d)` = `x`: the second undoes the first."""
    for node in list(gm.graph.nodes):
        if calls(node, ("transpose", torch.transpose)) and calls(node.args[0], ("transpose", torch.transpose)):
            _replace(gm, node, node.args[0].args[0])
    gm.recompile()
    return gm


def drop_round_trips(gm: fx.GraphModule) -> fx.GraphModule:
    """`x.half().float()` = `x`: the second cast undoes the first."""
    casts = ("half", "bfloat16", "float", "double", "int", "long")
    for node in list(gm.graph.nodes):
        if calls(node, casts) and calls(node.args[0], casts):
            _replace(gm, node, node.args[0].args[0])
    gm.recompile()
    return gm


def relu_in_place(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(x)` = `relu_(x)`, if nothing else uses `x` and `x` is not an input of the program."""
    for node in gm.graph.nodes:
        if calls(node, (torch.relu, F.relu)):
            x = node.args[0]
            if len(x.users) == 1 and x.op not in ("placeholder", "get_attr"):
                node.target, node.kwargs = torch.relu_, {}
    gm.recompile()
    return gm


def relu_before_pool(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(pool(x))` = `pool(relu(x))`, if nothing else uses the pooled value: now ReLU can join the convolution."""
    pools = (F.max_pool2d, F.avg_pool2d)
    for node in list(gm.graph.nodes):
        if calls(node, (torch.relu, F.relu)) and calls(node.args[0], pools) and len(node.args[0].users) == 1:
            pool = node.args[0]
            with gm.graph.inserting_before(pool):
                first = gm.graph.call_function(torch.relu, (pool.args[0],))
            pool.args = (first, *pool.args[1:])
            _replace(gm, node, pool)
    gm.recompile()
    return gm


def merge_relus(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(relu(x))` = `relu(x)`, for every activation of the ReLU family."""
    relus = (torch.relu, F.relu, F.relu6, F.leaky_relu)
    for node in list(gm.graph.nodes):
        if calls(node, relus) and calls(node.args[0], relus):
            _replace(gm, node, node.args[0])
    gm.recompile()
    return gm


#: Name → wrong pass.
SUSPECTS = {
    suspect.__name__: suspect
    for suspect in (fuse_add_relu, cancel_transposes, drop_round_trips, relu_in_place, relu_before_pool, merge_relus)
}
