"""Nesting: the program as it was, inside one node, so that laws which count nodes see nothing of it."""

from __future__ import annotations

from tests.attacks.attack import read

_START = """
import copy
import torch
from torch import fx, nn

def outer(gm, how, part=None):
    graph = fx.Graph()
    inputs = [graph.placeholder(n.target) for n in gm.graph.nodes if n.op == "placeholder"]
    root = nn.Module()
    root.part = gm if part is None else part
    graph.output(how(graph, inputs))
    return fx.GraphModule(root, graph)
"""

ATTACKS = read(
    rf"""
# %% answer nested-graph
# the result is one call of a GraphModule, which is the program
{_START}
def dce(gm):
    return outer(gm, lambda graph, inputs: graph.call_module("part", tuple(inputs)))

# %% answer nested-list at=cse
# the result is a call of a Sequential with the program in it
{_START}
def cse(gm):
    return outer(gm, lambda graph, inputs: graph.call_module("part", tuple(inputs)), nn.Sequential(gm))

# %% answer nested-deep at=functions
# the program is three modules down, and each of them is called by its path
{_START}
def functions(gm):
    holder = nn.ModuleList([nn.ModuleDict(dict(gm=gm))])
    return outer(gm, lambda graph, inputs: graph.call_module("part.0.gm", tuple(inputs)), holder)

# %% answer nested-layer at=functions
# a layer of torch holds the program where it has a part of its own
{_START}
def functions(gm):
    layer = nn.MultiheadAttention(2, 1)
    layer.out_proj = gm
    return outer(gm, lambda graph, inputs: graph.call_module("part.out_proj", tuple(inputs)), layer)

# %% answer nested-value at=cse
# the program is read as a value, and called as a function and as a method
{_START}
def cse(gm):
    def how(graph, inputs):
        part = graph.get_attr("part")
        return graph.call_method("__call__", (part, *inputs))
    return outer(gm, how)

# %% answer nested-some
# only the nodes that a law is after are moved into a module
{_START}
def dce(gm):
    whole = copy.deepcopy(gm)
    with gm.graph.inserting_before(next(n for n in gm.graph.nodes if n.op == "output")):
        output = next(n for n in gm.graph.nodes if n.op == "output")
        gm.add_module("rest", whole)
        inputs = tuple(n for n in gm.graph.nodes if n.op == "placeholder")
        output.args = (gm.graph.call_module("rest", inputs),)
    for node in reversed(list(gm.graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output"):
            gm.graph.erase_node(node)
    return gm

# %% answer nested-honest works
# the control: an answer that takes the program apart in a nested module, and writes it out again
{_START}
def dce(gm):
    inside = outer(gm, lambda graph, inputs: graph.call_module("part", tuple(inputs))).part
    for node in reversed(list(inside.graph.nodes)):
        writes = node.op == "call_method" and node.target.endswith("_")
        if node.op.startswith("call") and not node.users and not writes:
            inside.graph.erase_node(node)
    inside.recompile()
    return inside
"""
)
