"""Which nodes of the first graph a node stands for, found from the difference of two graphs: any IR, any pass.

After a conversion there is no difference to look at: there it is found from the values that both programs compute.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.explorer.programs import Program
from passlab.fx.values import values_of
from passlab.graph import Graph, Node
from passlab.graph.registry import part

Origins = Mapping[str, tuple[str, ...]]

#: The most removed nodes that are named for one that replaces them.
MOST = 50
#: Programs of more operations are not run to compare the values of their nodes.
VALUES = 500


def origins(old: Graph, new: Graph, pairs: Mapping[str, str], before: Origins) -> dict[str, tuple[str, ...]]:
    """Return node of `new` → the nodes of the first graph that it stands for. pairs: node of `old` → node of `new`.

    A node that is in both graphs stands for what it stood for. Where a user reads another operand than before, that
    operand stands for the removed one too: in `relu(bn(conv(x)))`, if the batch norm goes, relu reads the convolution.
    So do, in turn, the operands of the two, if they can be paired; otherwise it stands for all those that were removed.
    An added node that no such user reads stands for what its users stand for.
    """
    back = {to: id for id, to in pairs.items()}
    stands: dict[str, list[str]] = {node.id: [back[node.id]] if node.id in back else [] for node in new}
    results = zip(old.outputs, new.outputs, strict=False)  # what reads them is not a node in every IR
    waiting = [(a, b) for a, b in results if a not in pairs]
    waiting += [pair for user in new if user.id in back for pair in _replaced(old, user, back, pairs)]
    visited = set(waiting)
    while waiting:
        old_id, new_id = waiting.pop()
        stands[new_id].append(old_id)
        inner = _inner(old.node(old_id), new.node(new_id), back, pairs)
        if inner is None:
            stands[new_id] += _removed(old, old.node(old_id).inputs, pairs)
        else:
            waiting += [pair for pair in inner if pair not in visited]
            visited.update(inner)
    return _through(new, stands, before, back)


def _through(
    new: Graph, stands: Mapping[str, Sequence[str]], before: Origins, own: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return node of `new` → origins, from the nodes that it stands for; if there are none, from its users.

    own: the nodes that have no others.
    """
    result: dict[str, tuple[str, ...]] = {}
    for node in reversed(new.nodes):
        ids = (origin for id in stands.get(node.id, ()) for origin in before.get(id, ()))
        result[node.id] = tuple(dict.fromkeys(ids))
        if not result[node.id] and node.id not in own:
            users = (origin for id in new.consumers(node.id) for origin in result.get(id, ()))
            result[node.id] = tuple(dict.fromkeys(users))
    return result


def converted(old: Program, new: Program, inputs: tuple, before: Origins) -> dict[str, tuple[str, ...]]:
    """Return the same for a program that was converted from torch.fx to another IR.

    A node stands for the one that computes the same value on the inputs; where several do, for the first, second, … as
    it is the first, second, … with this value. One whose value no other has stands for what its users stand for. Empty
    where the values of the new program cannot be had: it has too many, or does not run.
    """
    run: Any = part(new.value, "equivalent")
    try:
        values = run.values(new.value, (*inputs, *new.weights), VALUES) or ()
        known = _values(old.value, inputs) if values else {}
    except Exception:
        return {}
    stands, count = {}, Counter[str]()
    for value in values:
        equal = [id for id, x in known.items() if _equal(x, value.tensor)]
        if equal:
            stands[value.id] = [equal[min(count[equal[0]], len(equal) - 1)]]
            count[equal[0]] += 1
    return _through(new.graph, stands, before, {})


def _values(gm: fx.GraphModule, inputs: tuple) -> dict[str, Tensor]:
    """Return node → its value, of the calls that return a tensor."""
    with torch.random.fork_rng(devices=[]):
        values = values_of(copy.deepcopy(gm), inputs, as_computed=True)
    return {n.name: x.detach() for n, x in values.items() if n.op.startswith("call_") and isinstance(x, Tensor)}


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4, equal_nan=True)


def _replaced(old: Graph, user: Node, back: Mapping[str, str], pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the removed operands of a node that is in both graphs, each with the operand that it now reads instead.

    An operand that is read twice is listed once: where one is missing, it is an equal one that it reads twice.
    """
    was = old.node(back[user.id]).inputs
    if len(was) == len(user.inputs):
        changes = [(a, b) for a, b in zip(was, user.inputs, strict=True) if pairs.get(a) != b]
    else:
        fresh = [b for b in user.inputs if back.get(b) not in was]
        changes = [(a, b) for a in was for b in fresh or user.inputs if fresh or old.node(back[b]).op == old.node(a).op]
    return [(old_id, new_id) for old_id, new_id in changes if old_id not in pairs]


def _inner(
    source: Node, target: Node, back: Mapping[str, str], pairs: Mapping[str, str]
) -> list[tuple[str, str]] | None:
    """Return the removed operands of a removed node, each with its counterpart; None if they cannot be told apart."""
    if source.op == target.op and len(source.inputs) == len(target.inputs):
        return [(a, b) for a, b in zip(source.inputs, target.inputs, strict=True) if a not in pairs]
    old_ids = [id for id in source.inputs if id not in pairs]
    new_ids = [id for id in target.inputs if id not in back and target.id not in back]
    return list(zip(old_ids, new_ids, strict=True)) if len(old_ids) == len(new_ids) else None


def _removed(old: Graph, ids: Sequence[str], pairs: Mapping[str, str]) -> list[str]:
    """Return the removed ones of some nodes, and those that they are computed from through removed ones only."""
    waiting = [id for id in ids if id not in pairs]
    result = dict.fromkeys(waiting)
    while waiting and len(result) < MOST:
        for id in old.node(waiting.pop()).inputs:
            if id not in pairs and id not in result:
                result[id] = None
                waiting.append(id)
    return list(result)
