"""A program as a graph of ATen calls, for given examples of its inputs: what both proofs read.

Functions, methods, modules and Python operators, keywords and defaults all become calls of one set of operators, with
shapes and dtypes on the nodes; writes into values of the program's own become new values.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


class Unknown(Exception):
    """A program, or a part of one, that a proof cannot treat. Its text is a sentence."""


def capture(program: Callable, inputs: Sequence[Any], decompositions: Mapping | None = None) -> fx.GraphModule:
    """Return a program as ATen calls, each with `meta["val"]`; it returns a flat list of values.

    decompositions: operator → function that writes it with others. Raise Unknown for a program that depends on values
    of its inputs other than by computing with them, that writes into its inputs, or that draws random numbers.
    """
    if isinstance(program, nn.Module):
        program = copy.deepcopy(program)  # capturing runs what it writes into its buffers
    # one tensor given twice would be one input
    args = pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), tuple(inputs))

    def flat(*args: Any) -> list[Any]:
        return pytree.tree_leaves(program(*args))

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.no_grad())
        try:
            table = dict(decompositions or {})
            gm = make_fx(functionalize(flat), table, tracing_mode="fake", _allow_non_fake_inputs=True)(*args)
        except Exception as error:
            if "DataDependent" in type(error).__name__:
                raise Unknown("What it computes depends on values of its inputs, and not only on shapes.") from error
            first = str(error).strip().split("\n")[0][:120]
            raise Unknown(f"It cannot be captured as a graph: {first or type(error).__name__}.") from error
    for node in gm.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _refuse_effects(node)
    gm.graph.eliminate_dead_code()
    return gm


def _refuse_effects(node: fx.Node) -> None:
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        raise Unknown(f"It draws random numbers ({name(node)}).")
    if node.target._schema.is_mutable:  # type: ignore[union-attr]
        raise Unknown("It writes into an input, a parameter or a buffer.")
    if name(node) == "native_batch_norm" and node.args[5]:
        raise Unknown("It has a batch norm in training mode, which writes into its statistics.")


def name(node: fx.Node) -> str:
    """Return the name of an ATen operator without its overload: "add" for aten.add.Tensor."""
    return node.target._schema.name.split("::")[1]  # type: ignore[union-attr]


_MOVES = (
    "view _unsafe_view reshape permute transpose t unsqueeze squeeze expand slice select cat stack split alias "
    "split_with_sizes unbind unsafe_split flip roll index_select gather embedding index repeat diagonal clone detach "
    "lift_fresh_copy movedim swapaxes unfold narrow chunk contiguous expand_copy view_copy lift_fresh "
    "broadcast_in_dim take_along_dim tile broadcast_to expand_as view_as"
)
#: What moves elements and computes none: its result is the same whatever the elements are.
MOVES = frozenset(_MOVES.split())
#: Name → the position of its argument that says which elements, if it is a tensor.
INDICES = {"index_select": 2, "gather": 2, "embedding": 1, "index": 1, "take_along_dim": 1}


def moves(node: fx.Node) -> bool:
    """Return whether a call only moves elements, and converts none."""
    values = [node.meta.get("val"), *(n.meta["val"] for n in node.all_input_nodes)]
    if name(node) not in MOVES:
        return False
    result, first, *rest = [v[0] if isinstance(v, (list, tuple)) else v for v in values]
    return all(v.dtype == result.dtype for v in ([first, *rest] if name(node) in ("cat", "stack") else [first]))


def move(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a call that only moves elements makes of their stand-ins.

    These may lie in another order than the tensor's elements, so a view of them can be a copy.
    """
    op = name(node)
    if op == "clone":
        return args[0].clone()
    if op in ("view", "_unsafe_view"):
        return args[0].reshape(args[1])
    return node.target(*args, **kwargs)  # type: ignore[operator]


def indices(gm: fx.GraphModule) -> set[fx.Node]:
    """Return the nodes that some call uses to say which elements it takes, and those that they depend on."""
    nodes: set[fx.Node] = set()
    for node in reversed(gm.graph.nodes):
        if node in nodes:
            nodes.update(node.all_input_nodes)
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and name(node) in INDICES:
            place = INDICES[name(node)]
            chosen = node.args[place] if len(node.args) > place else node.kwargs.get("index")
            nodes.update(n for n in pytree.tree_leaves(chosen) if isinstance(n, fx.Node))
    return nodes
