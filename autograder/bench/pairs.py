"""Pairs of random graphs that differ in one operand, constant or axis: no proof may call those equal that are not."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import random
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from passlab import random_graph


def changed(gm: fx.GraphModule, rng: random.Random) -> fx.GraphModule | None:
    """Return a copy of a graph with one operand, constant or axis changed; None if it has none to change."""
    twin = copy.deepcopy(gm)
    calls = [node for node in twin.graph.nodes if node.op in ("call_function", "call_method")]
    places = [(node, place) for node in calls for place in range(len(node.args))]
    rng.shuffle(places)
    for node, place in places:
        if others := _others(node, node.args[place]):
            node.update_arg(place, rng.choice(others))
            twin.recompile()
            return twin
    return None


def _others(node: fx.Node, old: Any) -> list[Any]:
    """Return what may stand in the place of an operand of a node: a number one off, or another value of its type."""
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        return [old + 1, old - 1]
    if not isinstance(old, fx.Node) or _type(old) is None:
        return []
    earlier = itertools.takewhile(lambda other: other is not node, node.graph.nodes)
    return [other for other in earlier if other is not old and _type(other) == _type(old)]


def _type(node: fx.Node) -> Any:
    meta: Any = node.meta.get("tensor_meta")
    return (meta.shape, meta.dtype) if hasattr(meta, "dtype") else None


def drawn_pair(seed: int) -> tuple[fx.GraphModule, fx.GraphModule, tuple] | None:
    """Return a random graph, a copy with one change, and inputs; None where the copy does not run."""
    rng = random.Random(seed)
    gm = random_graph(seed, rng.choice((3, 5, 8, 12)), mutation=False, random=False)
    twin = changed(gm, rng)
    if twin is None:
        return None
    inputs = gm.meta["inputs"]
    try:
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):  # torch.fx prints where a graph fails
            gm(*inputs), twin(*inputs)
    except Exception:
        return None
    return gm, twin, inputs


def differ(gm: fx.GraphModule, twin: fx.GraphModule, inputs: tuple) -> bool:
    """Return whether some ordinary inputs tell two programs apart, by more than rounding."""
    gen = torch.Generator().manual_seed(5)
    for _ in range(4):
        args = [torch.randn(x.shape, generator=gen).to(x.dtype) if x.is_floating_point() else x for x in inputs]
        with torch.no_grad():
            old, new = gm(*args), twin(*args)
        for a, b in zip(*map(pytree.tree_leaves, (old, new)), strict=True):
            if not isinstance(a, torch.Tensor):
                continue
            if (a.shape, a.dtype) != (b.shape, b.dtype) or not torch.allclose(a, b, 1e-3, 1e-3, True):
                return True
    return False
