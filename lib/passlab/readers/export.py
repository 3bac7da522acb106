"""torch.export: an ExportedProgram is a torch.fx graph over ATen; its values carry shapes, its weights are inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from passlab.graph import Graph
from passlab.readers import fx


def read(obj: Any, *inputs: Any) -> Graph:
    """The view of an exported program; a weight has its name in the module as label, `role` says what an input is."""
    signature = {spec.arg.name: spec for spec in obj.graph_signature.input_specs}
    graph = fx.from_nodes(list(obj.graph.nodes), "torch.export", "exported program", obj.graph_module)
    nodes = []
    for node in graph.nodes:
        spec = signature.get(node.id) if node.op == "placeholder" else None
        if spec is not None:
            role = spec.kind.name.lower().replace("_", " ")
            node = replace(node, attrs={**node.attrs, "role": role}, label=spec.target or "")
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
