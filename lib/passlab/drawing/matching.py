"""Match the nodes of two graphs, for `diff`.

A pass may change the operands of a node, its name, or both. No single rule handles all of these, so `match` tries
several orders of rules (names first, structure first, shifted names last) and returns the matching with the fewest
changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container
from typing import Any

from passlab.graph import Graph, Node


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


def attributes(node: Node) -> dict[str, str]:
    """Return the attributes in comparable form: tensors by type and shape, all else by `repr`."""
    return {name: _comparable(value) for name, value in node.attrs.items()}


def _comparable(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    try:
        return repr(value)
    except Exception:
        return type(value).__name__


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
