"""The view of a record of torch.compile: the graphs in their order, with the breaks between them as nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from passlab.capture.recorder import Break, Capture
from passlab.fx.reader import from_nodes
from passlab.graph import Graph, Node


def read(captured: Capture, *inputs: Any) -> Graph:
    """Return all graphs of a record as one; `inputs` are not needed.

    A node's id is the number of its compilation and its name there: `0.relu`. A break is a node of kind "control"
    between the results of the graph that it ends, which are all that lives on, and the inputs of the next.
    """
    nodes: list[Node] = []
    outputs: list[str] = []
    before: Node | None = None
    for number, record in enumerate(captured.compilations):
        results = [before.id] if before else []
        if record.graph is not None:
            part = from_nodes(list(record.graph.graph.nodes), "torch.compile", record.function)
            nodes += [_numbered(node, number, before) for node in part if node.op != "output"]
            results = [f"{number}.{id}" for id in part.outputs]
        if record.ends is None:
            before = None
            outputs += results
        else:
            before = _break(record.ends, number, results)
            nodes.append(before)
    lines = [node.text for node in nodes]
    return Graph(captured.name, "torch.compile", tuple(nodes), tuple(outputs), "\n".join(lines))


def _numbered(node: Node, number: int, before: Node | None) -> Node:
    """Return a node with the number of its compilation in its ids; an input of a rest comes from the break `before`."""
    inputs = tuple(f"{number}.{id}" for id in node.inputs)
    if before is not None and node.op == "placeholder":
        inputs = (before.id,)
    return replace(node, id=f"{number}.{node.id}", inputs=inputs, text=f"{number}: {node.text}")


def _break(at: Break, number: int, results: list[str]) -> Node:
    text = f"-- line {at.line}: {at.source} -- {at.meaning}"
    attrs = {"reason": at.reason, "source": at.source}
    return Node(f"{number}.break", "break", "control", tuple(results), text=text, attrs=attrs, label=f"line {at.line}")
