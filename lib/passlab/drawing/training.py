"""Draw a training step: the joint graph with the cut through it.

joint_graph(forward, backward)       # the forward graph above, what is saved on the line, the backward graph below

The two graphs are those of any partitioner: what is saved, or computed once more, has the same name in both.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from passlab.drawing import boxes as b
from passlab.drawing.picture import Picture, escape, size, small
from passlab.graph import Graph, Node, view

#: Maximum number of nodes; larger graphs are shown as text.
LIMIT = 120

_LINE, _AGAIN = b.RED, b.COLOURS["control"][0]


@dataclass(frozen=True)
class _Lined(b.Box):
    """A box with a border of its own: `line` is attributes of DOT."""

    line: str = ""

    def dot(self, name: str) -> str:
        return f"{super().dot(name)[:-1]} {self.line}]"


def joint_graph(forward: Any, backward: Any, title: str = "The joint graph and its cut") -> Picture:
    """Draw a forward and a backward graph as one, with the saved values on the line between them.

    A value that the backward graph computes once more has a dashed border there. Raises ValueError for graphs without
    a value in common.
    """
    first, second = view(forward), view(backward)
    names = {node.id for node in first if node.op != "output"}
    saved = {node.id: node for node in second if node.op == "placeholder" and node.id in names}
    if not saved:
        raise ValueError("The backward graph takes no value of the forward graph, so there is no cut to draw.")
    repeats = {node.id for node in second if node.op != "placeholder" and node.id in names}
    total = size(sum(node.bytes or 0 for node in saved.values()))
    heading = f"{len(saved)} saved, {total}" + (f"; {len(repeats)} computed once more" if repeats else "")
    text = "\n".join([title, heading, *b.fit(_lines(first, second, saved, repeats))])
    if len(first) + len(second) > LIMIT:
        note = f"{len(first) + len(second)} nodes are too many to draw (at most {LIMIT})."
        return Picture(text, "digraph { }", f"{title}. {heading}", note)
    boxes = _boxes(first, second, saved, repeats)
    entries = [(_LINE, "▬", "saved for the backward graph")]
    entries += [(_AGAIN, "┅", "computed once more")] if repeats else []
    dot, tips, note = b.to_dot(boxes, _arcs(first, second, saved, boxes), title, heading, b.legend(entries), len(boxes))
    on_the_line = re.findall(r'^(n\d+) \[.*class="cut"', dot, re.MULTILINE)
    label = f"<{small(escape(f'the cut: {total}'), _LINE)}>"
    line = f'graph [label={label} labeljust=l style="rounded,dashed" color="{_LINE}" penwidth=2 margin=8]'
    dot = f"{dot[:-1]}subgraph cluster_cut {{ {line}; {{ rank=same; {'; '.join(on_the_line)} }} }}\n}}"
    return Picture(text, dot, f"{title}. {heading}", note, tips)


def _lines(first: Graph, second: Graph, saved: Collection[str], repeats: Collection[str]) -> list[str]:
    """Return the nodes of both graphs as lines: ▸ before what is saved, ↻ before what is computed once more."""
    lines = [("▸ " if n.id in saved else "  ") + b.line(n) for n in first if n.op != "output"]
    rest = [n for n in second if n.id not in saved and n.op != "output"]
    return [*lines, "  " + "┄" * 40, *(("↻ " if n.id in repeats else "  ") + b.line(n) for n in rest)]


def _boxes(first: Graph, second: Graph, saved: dict[str, Node], repeats: Collection[str]) -> dict[b.Key, b.Box]:
    """Return (side, id) → box; the sides are "forward", "saved" and "backward"."""
    boxes: dict[b.Key, b.Box] = {("forward", n.id): b.Box((n,)) for n in first if n.op != "output"}
    for n in saved.values():
        on_the_line = Node(n.id, n.id, "memory", (n.id,), n.shape, n.dtype, n.bytes)
        boxes["saved", n.id] = _Lined((on_the_line,), css="cut", line=f'color="{_LINE}" fillcolor="#FFFFFF"')
    dashed = f'style="rounded,filled,dashed" penwidth=1.8 color="{_AGAIN}"'
    for n in second:
        if n.id not in saved and n.op != "output":
            boxes["backward", n.id] = _Lined((n,), line=dashed) if n.id in repeats else b.Box((n,))
    return boxes


def _arcs(first: Graph, second: Graph, saved: Collection[str], boxes: Collection[b.Key]) -> b.Arcs:
    """Return the edges, those across the line in its colour, and invisible ones that keep each graph on its side."""
    across = f'color="{_LINE}" penwidth=2'
    outputs = {node.id for node in first if node.op == "output"}
    arcs: b.Arcs = {(("forward", start), ("forward", end)): "" for start, end in first.edges if end not in outputs}
    arcs |= {(("forward", name), ("saved", name)): across for name in saved}
    for start, end in second.edges:
        side = "saved" if start in saved else "backward"
        arcs[(side, start), ("backward", end)] = across if side == "saved" else ""
    middle = ("saved", list(saved)[len(saved) // 2])
    starts, ends = {start for start, _ in arcs}, {end for _, end in arcs}
    for key in boxes:
        if key[0] == "forward" and key not in starts:
            arcs[key, middle] = "style=invis"
        if key[0] == "backward" and key not in ends:
            arcs[middle, key] = "style=invis"
    return arcs
