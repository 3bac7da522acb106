"""torch.export: an ExportedProgram is a torch.fx graph over ATen; its values carry shapes, its weights are inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import fx

from passlab.fx.reader import from_nodes
from passlab.graph import Graph, Node


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of an exported program; a weight's label is its module path, `role` the kind of an input."""
    signature = {spec.arg.name: spec for spec in obj.graph_signature.input_specs}
    graph = from_nodes(list(obj.graph.nodes), "torch.export", "exported program", obj.graph_module)
    nodes = []
    for node in _with_branches(graph.nodes, obj.graph_module):
        spec = signature.get(node.id) if node.op == "placeholder" else None
        if spec is not None:
            role = spec.kind.name.lower().replace("_", " ")
            node = replace(node, attrs={**node.attrs, "role": role}, label=spec.target or "")
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), text=str(obj.graph))


def _with_branches(nodes: tuple[Node, ...], module: fx.GraphModule) -> list[Node]:
    """Return the nodes, with the graphs of `cond`, `while_loop` and the like put in place as blocks.

    Such a graph is an attribute of the module, read by a get_attr node; its inputs are the other operands.
    """
    graphs = {n.name: getattr(module, str(n.target), None) for n in module.graph.nodes if n.op == "get_attr"}
    graphs = {name: graph for name, graph in graphs.items() if isinstance(graph, fx.GraphModule)}
    if not graphs:
        return list(nodes)
    by_name = {node.name: node for node in module.graph.nodes}
    result: list[Node] = []
    for node in nodes:
        if node.id in graphs:
            continue
        inputs = [id for id in node.inputs if id not in graphs]
        for name in node.inputs:
            if name in graphs:
                inputs += _block(f"{node.id}:{name}", graphs[name], _operands(by_name[node.id]), result)
        result.append(replace(node, inputs=tuple(dict.fromkeys(inputs))))
    return result


def _operands(node: fx.Node) -> list[str]:
    """Return the node's operands for its graphs: those in tuples and lists. (The condition is separate.)"""
    operands: list[str] = []
    nested = [arg for arg in node.args if isinstance(arg, (tuple, list))]
    fx.node.map_arg(nested, lambda operand: operands.append(operand.name))
    return operands


def _block(name: str, module: fx.GraphModule, operands: list[str], result: list[Node]) -> list[str]:
    """Append the nodes of a graph to `found` under new names; return the ids of its results."""
    inner = from_nodes(list(module.graph.nodes), "torch.export", name, module)
    starts = iter(operands)
    for node in _with_branches(inner.nodes, module):
        if node.op == "output":
            continue
        inputs = [f"{name}/{id}" for id in node.inputs]
        if node.op == "placeholder" and "block" not in node.attrs:
            inputs = [start for start in [next(starts, None)] if start]
        attrs = {"block": name, **node.attrs}
        if "block" in node.attrs:
            attrs["block"] = f"{name}/{node.attrs['block']}"
        result.append(replace(node, id=f"{name}/{node.id}", inputs=tuple(inputs), attrs=attrs))
    return [f"{name}/{id}" for id in inner.outputs]
