"""Forward mode out of reverse mode: how a small change of the inputs changes the outputs.

A vector-Jacobian product g ↦ gᵀJ is linear in g, and the gradient of (gᵀJ)·v by g is J v: two passes of reverse mode
make one of forward mode (Townsend, A new trick for calculating Jacobian vector products, 2017).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from passlab.autodiff.joint import differentiable, ends_of, joint, name_inputs, outputs_of


def jvp(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph of the outputs of a functional ATen graph, and then of their derivatives along a direction.

    It takes the inputs of `gm` and then a change of each input that is a tensor of floats, and returns the derivative
    of each output that is one. Raises DifferentiationError as `joint` does, also for an operation that only the first
    pass of reverse mode brings in (`convolution_backward` has no rule).
    """
    inputs = gm.graph.find_nodes(op="placeholder")
    floats = [node for node in inputs if differentiable(node)]
    ends, number = ends_of(gm), len(outputs_of(gm))
    once = joint(gm)
    tangents = [node.name for node in once.graph.find_nodes(op="placeholder")[len(inputs) :]]
    twice = joint(_gradients_alone(once, number), tangents)

    def run(*args: Any) -> list[Any]:
        values, changes = args[: len(inputs)], args[len(inputs) :]
        outputs = gm(*values)
        by_node = dict(zip(outputs_of(gm), outputs, strict=True))
        any_gradient = [torch.zeros_like(by_node[node]) for node in ends]  # the derivatives do not depend on it
        return [*outputs, *twice(*values, *any_gradient, *changes)[len(floats) :]]

    changes = [torch.empty_like(node.meta["val"]) for node in floats]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        result = make_fx(run, tracing_mode="fake")(*(node.meta["val"] for node in inputs), *changes)
    name_inputs(result, [*(node.name for node in inputs), *(f"change_{node.name}" for node in floats)])
    return result


def _gradients_alone(whole: fx.GraphModule, number: int) -> fx.GraphModule:
    """Return a joint graph without its first outputs, and with a node of its own for each gradient."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in whole.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    gradients = []
    for node in outputs_of(whole)[number:]:
        gradients.append(graph.call_function(torch.ops.aten.clone.default, (copies[node],)))
        gradients[-1].meta["val"] = node.meta["val"]
    graph.output(gradients)
    return fx.GraphModule(whole, graph)
