"""Draw one graph, or the difference of two."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from passlab.drawing import boxes as b
from passlab.drawing.boxes import CHANGES, LIMIT, LINES, Arcs, Box, Key
from passlab.drawing.matching import match, status
from passlab.drawing.picture import Picture, cut
from passlab.graph import Graph, Node, view
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
    text = "\n".join([*titled(title), b.heading(graph), *node_lines(graph, mark), *b.fit(members)])
    return Picture(text, dot, f"{name}. {b.heading(graph)}", note, tips)


def ids(mark: Any) -> set[str]:
    """Return the names of nodes given as one name, several names, or nodes."""
    nodes = [mark] if isinstance(mark, str) or not isinstance(mark, Iterable) else mark
    return {getattr(node, "id", getattr(node, "name", node)) for node in nodes}


def titled(title: str | None) -> list[str]:
    return [title] if title else []


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


def diff(before: Any, after: Any, *inputs: Any, title: str | None = None, limit: int = LIMIT) -> Picture:
    """Draw two graphs as one: nodes kept, added, removed, rewired (other operands) or altered (any other change).

    diff(before, after).text     # the same as lines, with the signs + - ~ ≠
    """
    module = part(after, "picture")
    if module is not None and module is part(before, "picture") and hasattr(module, "diff"):
        return module.diff(before, after, title=title or "")
    d = difference(view(before, *inputs), view(after, *inputs), title or "")
    dot, tips, note = b.to_dot(d.boxes, d.arcs, title or "", d.subtitle, d.legend, limit)
    return Picture(d.text, dot, d.name, note, tips)


class Difference(NamedTuple):
    """Two graphs as one. `key`: id of a node before → its box. `text`: the picture as lines; `name`: as a sentence."""

    boxes: dict[Key, Box]
    key: dict[str, Key]
    arcs: Arcs
    subtitle: str
    legend: str
    text: str
    name: str


def difference(old: Graph, new: Graph, title: str) -> Difference:
    """Return what of a difference is the same for every way to draw it."""
    pairs = match(old, new)
    boxes = merged(old, new, pairs)
    key = {node.id: ("after", pairs[node.id]) if node.id in pairs else ("before", node.id) for node in old}
    new_arcs = dict.fromkeys((("after", a), ("after", c)) for a, c in new.edges)
    old_arcs = dict.fromkeys((key.get(a), key[c]) for a, c in old.edges)
    arcs = {arc: CHANGES["kept" if arc in old_arcs else "added"].edge for arc in new_arcs}
    arcs |= {arc: CHANGES["removed"].edge for arc in old_arcs if arc not in new_arcs}
    count = {kind: sum(box.change == kind for box in boxes.values()) for kind in CHANGES}
    entries = [
        (style.line, style.sign or "□", f"{kind} {count[kind]}") for kind, style in CHANGES.items() if count[kind]
    ]
    subtitle = " → ".join([b.heading(old), b.heading(new).removeprefix(f"{old.ir}: ")])
    lines = [f"--- before  {b.heading(old)}", f"+++ after   {b.heading(new)}", *b.fit(diff_lines(boxes))]
    changes = ", ".join(f"{count[kind]} {kind}" for kind in CHANGES if count[kind])
    text, name = "\n".join(titled(title) + lines), f"{title or 'Difference'}. {changes}"
    return Difference(boxes, key, arcs, subtitle, b.legend(entries), text, name)


def merged(old: Graph, new: Graph, pairs: dict[str, str]) -> dict[Key, Box]:
    """Merge the nodes of both graphs in the order of `new`; a removed node follows its predecessor in `old`."""
    removed: dict[str | None, list[Node]] = {}
    anchor = None
    for node in old:
        if node.id in pairs:
            anchor = pairs[node.id]
        else:
            removed.setdefault(anchor, []).append(node)
    back = {new_id: old_id for old_id, new_id in pairs.items()}
    boxes: dict[Key, Box] = {("before", node.id): Box((node,), "removed") for node in removed.get(None, ())}
    for node in new:
        was = old.node(back[node.id]) if node.id in back else None
        boxes["after", node.id] = Box((node,), status(was, node, pairs) if was else "added", was)
        boxes |= {("before", twin.id): Box((twin,), "removed") for twin in removed.get(node.id, ())}
    return boxes


def diff_lines(boxes: dict[Key, Box], context: int = 3, all_below: int = 30) -> list[str]:
    """Return lines as in a unified diff: kept nodes far from any change are only counted, except in a small graph."""
    listed = list(boxes.values())
    near = {i + d for i, box in enumerate(listed) if box.change != "kept" for d in range(-context, context + 1)}
    lines, unchanged = [], 0
    for i, box in enumerate(listed):
        if i not in near and len(listed) > all_below:
            unchanged += 1
            continue
        lines += _unchanged(unchanged)
        unchanged = 0
        sign = CHANGES[box.change].sign.replace("−", "-") or " "
        changes = f"    {box.what_changed}" if box.what_changed else ""
        lines.append(f"{sign} {b.line(box.nodes[0])}{changes}")
    return lines + _unchanged(unchanged)


def _unchanged(count: int) -> list[str]:
    return [f"@@ {count:,} unchanged node{'s' * (count != 1)} @@"] if count else []
