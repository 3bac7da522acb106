"""The view of a record of torch.compile: the graphs in their order, with the breaks between them as nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from passlab.capture.recorder import Break, Capture, Compilation
from passlab.fx.reader import from_nodes
from passlab.graph import Graph, Node


def read(captured: Capture, *inputs: Any) -> Graph:
    """Return all graphs of a record as one; `inputs` are not needed.

    A node's id is the number of its compilation and its name there: `0.relu`. A break is a node of kind "control"
    between the results of the graph that it ends, which are all that lives on, and the inputs of the next. Where a
    called function breaks its caller, what it returns is an input of the caller's rest, which Dynamo names "stack".
    """
    nodes: list[Node] = []
    outputs: list[str] = []
    for _, records in groupby(enumerate(captured.compilations), lambda pair: pair[1].call):
        outputs += _read_call(records, nodes)
    lines = [node.text for node in nodes]
    return Graph(captured.name, "torch.compile", tuple(nodes), tuple(outputs), "\n".join(lines))


def _read_call(records: Iterable[tuple[int, Compilation]], nodes: list[Node]) -> list[str]:
    """Add the nodes of one call, whose compilations have these numbers; return its results."""
    outputs: list[str] = []
    breaks: dict[str, Node] = {}  # function → the break behind which its rest begins
    before: Node | None = None
    returned: list[str] = []
    for number, record in records:
        own = breaks.pop(record.function, None)
        start = before or own
        results = [start.id] if start else []
        if record.graph is not None:
            part = from_nodes(list(record.graph.graph.nodes), "torch.compile", record.function)
            nodes += [_numbered(node, number, start, returned) for node in part if node.op != "output"]
            results = [f"{number}.{id}" for id in part.outputs]
        if own is not None and before is None:  # the rest of a caller
            returned = []
        if record.ends is not None:
            before = breaks[record.function] = _break(record.ends, number, results)
            nodes.append(before)
        else:
            before = None
            outputs += returned
            returned = results
    return outputs + returned


def _numbered(node: Node, number: int, start: Node | None, returned: list[str]) -> Node:
    """Return a node with the number of its compilation in its ids.

    An input of a rest comes from the break `start`, or is what a called function has `returned`.
    """
    inputs = tuple(f"{number}.{id}" for id in node.inputs)
    if start is not None and node.op == "placeholder":
        inputs = tuple(returned) if returned and "stack" in node.id else (start.id,)
    return replace(node, id=f"{number}.{node.id}", inputs=inputs, text=f"{number}: {node.text}")


def _break(at: Break, number: int, results: list[str]) -> Node:
    text = f"-- line {at.line}: {at.source} -- {at.meaning}"
    attrs = {"reason": at.reason, "source": at.source}
    return Node(f"{number}.break", "break", "control", tuple(results), text=text, attrs=attrs, label=f"line {at.line}")
