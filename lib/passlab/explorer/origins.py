"""Which nodes of the first graph a node stands for, found from the difference of two graphs: any IR, any pass."""

from __future__ import annotations

from collections.abc import Mapping

from passlab.graph import Graph

Origins = Mapping[str, tuple[str, ...]]

#: At most so many removed nodes are told for one that replaces them.
MOST = 50


def origins(old: Graph, new: Graph, pairs: Mapping[str, str], before: Origins) -> dict[str, tuple[str, ...]]:
    """Return node of `new` → the nodes of the first graph that it stands for. pairs: node of `old` → node of `new`.

    A node that is in both graphs stands for what it stood for. Where a user reads another operand than before, that
    operand stands for the removed one too, with the removed nodes behind it: in `relu(bn(conv(x)))`, if the batch norm
    goes, relu reads the convolution. An added node that no such user reads stands for what its users stand for.
    """
    back = {to: id for id, to in pairs.items()}
    stands: dict[str, list[str]] = {node.id: [back[node.id]] if node.id in back else [] for node in new}
    for user in new:
        if user.id not in back:
            continue
        was = old.node(back[user.id]).inputs
        if len(was) == len(user.inputs):
            replaced = [(a, b) for a, b in zip(was, user.inputs, strict=True) if pairs.get(a) != b]
        else:
            replaced = [(a, b) for a in was for b in user.inputs if back.get(b) not in was]
        for gone, instead in replaced:
            if gone not in pairs:
                stands[instead] += _removed(old, gone, pairs)
    result: dict[str, tuple[str, ...]] = {}
    for node in reversed(new.nodes):
        ids = (origin for id in stands[node.id] for origin in before.get(id, ()))
        result[node.id] = tuple(dict.fromkeys(ids))
        if not result[node.id] and node.id not in back:
            users = (origin for id in new.consumers(node.id) for origin in result.get(id, ()))
            result[node.id] = tuple(dict.fromkeys(users))
    return result


def _removed(old: Graph, gone: str, pairs: Mapping[str, str]) -> list[str]:
    """Return a removed node and the removed ones that it is computed from through removed ones only."""
    result = {gone: None}
    waiting = [gone]
    while waiting and len(result) < MOST:
        for id in old.node(waiting.pop()).inputs:
            if id not in pairs and id not in result:
                result[id] = None
                waiting.append(id)
    return list(result)
