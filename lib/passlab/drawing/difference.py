"""Draw the difference of two graphs: match their nodes, and draw both graphs as one.

A pass may change the operands of a node, its name, or both. No single rule handles all of these, so `match` tries
several orders of rules (names first, structure first, shifted names last) and returns the matching with the fewest
changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from typing import Any, NamedTuple

from passlab.drawing import boxes as b
from passlab.drawing.boxes import CHANGES, LIMIT, Arcs, Box, Key, attributes
from passlab.drawing.picture import Picture
from passlab.graph import Graph, Node, view
from passlab.graph.registry import part


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
    text, name = "\n".join(b.title_lines(title) + lines), f"{title or 'Difference'}. {changes}"
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


def match(before: Graph, after: Graph) -> dict[str, str]:
    """Return id in `before` → id in `after` for the nodes that are in both. Only nodes of the same op are matched."""
    keys = {"before": _keys(before), "after": _keys(after)}
    matchings = []
    for rules in (
        (_names, _structure, _neighbours),
        (_structure, _names, _neighbours),
        (_structure, _steady_names, _neighbours, _names),
    ):
        pairs: dict[str, str] = {}
        for rule in rules:
            rule(before, after, keys, pairs)
        matchings.append(pairs)
    return min(matchings, key=lambda pairs: _changes(before, after, pairs))


def status(old: Node, new: Node, pairs: dict[str, str]) -> str:
    """Return the status of a matched node: "kept", "rewired" (other operands) or "altered" (other attributes, type)."""
    if tuple(pairs.get(id) for id in old.inputs) != new.inputs:
        return "rewired"
    same_names = old.id == new.id and old.inputs == new.inputs
    types = {(node.dtype, node.shape) for node in (old, new)} - {(None, None)}
    if (old.attrs or new.attrs) and attributes(old) != attributes(new):
        return "altered"
    if len(types) == 2 or (same_names and old.text != new.text):
        return "altered"
    return "kept"


def _keys(graph: Graph) -> dict[str, tuple]:
    """Return id → (op, attributes)."""
    return {node.id: (node.op, tuple(sorted(attributes(node).items()))) for node in graph}


def _names(before: Graph, after: Graph, keys: dict, pairs: dict[str, str], ops: Container[str] | None = None) -> None:
    """Match by the same name and op (one of `ops`, if given)."""
    used = set(pairs.values())
    op_of = {node.id: node.op for node in after if ops is None or node.op in ops}
    for node in before:
        if node.id not in pairs and node.id not in used and op_of.get(node.id) == node.op:
            pairs[node.id] = node.id


def _steady_names(before: Graph, after: Graph, keys: dict, pairs: dict[str, str]) -> None:
    """Match by name if both graphs have equally many nodes of the op: only then names do not shift."""
    counts = [Counter(node.op for node in graph) for graph in (before, after)]
    _names(before, after, keys, pairs, {op for op in counts[0] if counts[0][op] == counts[1][op]})


def _structure(before: Graph, after: Graph, keys: dict, pairs: dict[str, str]) -> None:
    """Match by op, attributes and operands, all the way up; break ties by name, then by order."""
    values, used, same = _values(before, keys["before"]), set(pairs.values()), defaultdict(dict)
    for id, value in _values(after, keys["after"]).items():
        if id not in used:
            same[value][id] = None
    rest = [node.id for node in before if node.id not in pairs]
    for id in rest:
        if id in same[values[id]]:
            del same[values[id]][id]
            pairs[id] = id
    for id in rest:
        if id not in pairs and same[values[id]]:
            other = next(iter(same[values[id]]))
            del same[values[id]][other]
            pairs[id] = other


def _values(graph: Graph, keys: dict[str, tuple]) -> dict[str, int]:
    """Return id → a hash of the whole expression above it. Leaves that look alike differ by their order."""
    values: dict[str, int] = {}
    alike: dict[tuple, int] = defaultdict(int)
    for node in graph:
        key = keys[node.id]
        if node.inputs:
            values[node.id] = hash((key, tuple(values.get(id, id) for id in node.inputs)))
        else:
            values[node.id] = hash((key, alike[key]))
            alike[key] += 1
    return values


def _neighbours(before: Graph, after: Graph, keys: dict, pairs: dict[str, str]) -> None:
    """Match by op, attributes and a common producer (going down) or consumer (going up)."""
    back = {new: old for old, new in pairs.items()}

    def pair(new: str, candidates: Any) -> None:
        for old in candidates:
            if old not in pairs and keys["before"].get(old) == keys["after"][new]:
                pairs[old], back[new] = new, old
                return

    for node in after:
        if node.id not in back:
            pair(node.id, (c for id in node.inputs if id in back for c in before.consumers(back[id])[:50]))
    inputs = {node.id: node.inputs for node in before}
    for node in reversed(after.nodes):
        if node.id not in back:
            users = after.consumers(node.id)[:50]
            pair(node.id, (p for id in users if id in back for p in inputs[back[id]][:50]))


def _changes(before: Graph, after: Graph, pairs: dict[str, str]) -> int:
    """Count the changes from `before` to `after` under a matching: an added or removed node counts twice."""
    nodes = [(before.node(old), after.node(new)) for old, new in pairs.items()]
    differences = sum((old.id != new.id) + (status(old, new, pairs) != "kept") for old, new in nodes)
    return 2 * (len(before) + len(after) - 2 * len(pairs)) + differences
