"""Draw one graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from passlab.drawing import boxes as b
from passlab.drawing.boxes import LIMIT, LINES, Arcs, Box
from passlab.drawing.picture import Picture, cut
from passlab.graph import Graph, view
from passlab.graph.registry import part


def draw(
    obj: Any,
    *inputs: Any,
    title: str | None = None,
    mark: str | Collection[str] = (),
    groups: Sequence[Collection[str]] = (),
    limit: int = LIMIT,
) -> Picture:
    """Draw any IR object that `passlab.view` reads; `inputs` give shapes to a torch.fx graph that has none.

        draw(gm, mark=["relu", "add"])
        draw(gm, groups=[["mul", "add"], ["relu"]])      # a frame around each group

    `mark`: names of nodes to highlight. `groups`: names of nodes that share a kernel. More than `limit` nodes are drawn
    in few boxes, without frames, and the picture notes it. A control-flow graph is drawn by blocks, as `flow` does.
    """
    if module := part(obj, "picture"):
        return module.draw(obj, title=title or "")
    graph = view(obj, *inputs)
    mark, groups = ids(mark), [ids(group) for group in groups]
    boxes = {node.id: Box((node,), marked=node.id in mark) for node in graph}
    unknown = sorted(map(str, mark.union(*groups) - set(boxes)))
    note = f"Marked, but not in this graph: {cut(', '.join(unknown), 200)}." if unknown else ""
    name = graph.name if title is None else title
    key = b.kinds_legend(graph.counts())
    framed = {f"group {i}": group for i, group in enumerate(groups, 1)}
    dot, tips, note = b.to_dot(boxes, numbered(graph), name, b.heading(graph), key, limit, note, framed)
    members = [f"{of}: {', '.join(n.id for n in graph if n.id in group)}" for of, group in framed.items()]
    text = "\n".join([*b.title_lines(title), b.heading(graph), *node_lines(graph, mark), *b.fit(members)])
    return Picture(text, dot, f"{name}. {b.heading(graph)}", note, tips)


def ids(mark: Any) -> set[str]:
    """Return the names of nodes given as one name, several names, or nodes."""
    nodes = [mark] if isinstance(mark, str) or not isinstance(mark, Iterable) else mark
    return {getattr(node, "id", getattr(node, "name", node)) for node in nodes}


def node_lines(graph: Graph, mark: set[str]) -> list[str]:
    """Return the nodes as lines, up to the maximum, with ▸ before the marked ones."""
    rest = [f"… {len(graph) - LINES:,} more nodes"] if len(graph) > LINES else []
    return [("▸ " if n.id in mark else "  ") + b.line(n) for n in islice(graph, LINES)] + rest


def numbered(graph: Graph) -> Arcs:
    """Return the edges. Those into a non-commutative op carry the operand's number."""
    computed = {node.id for node in graph if node.inputs}
    arcs: Arcs = {}
    for node in graph:
        ordered = node.kind != "data" and b.COMMUTATIVE.isdisjoint(re.split(r"\W+", node.op.lower()))
        numbered = ordered and 2 <= sum(id in computed for id in node.inputs) <= 4
        for number, id in enumerate(node.inputs, 1):
            arcs[id, node.id] = f'headlabel="{number}"' if numbered else ""
    return arcs
