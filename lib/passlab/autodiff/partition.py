"""Split a joint graph in a forward and a backward graph with few bytes between them: a minimum cut.

The backward graph needs values of the forward graph. Each is saved, or computed once more from others that are. With a
vertex for each value, as wide as the bytes of its memory, the cheapest set to save is a minimum cut between the values
that cannot be computed once more and the backward graph (Chen et al., Training Deep Nets with Sublinear Memory Cost,
2016, for the question; torch's `min_cut_rematerialization_partition` for the cut).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.capture import OVERWRITTEN
from passlab.fx.effects import root, viewed
from passlab.fx.nodes import size_hint

aten = torch.ops.aten

#: Operations that are not computed twice: what costs much more than reading its result, and what draws numbers.
EXPENSIVE = {
    *(aten.mm.default, aten.bmm.default, aten.addmm.default, aten.convolution.default),
    *(aten.convolution_backward.default, aten.native_layer_norm.default, aten._softmax.default),
    *(aten.max_pool2d_with_indices.default, aten._native_batch_norm_legit_no_training.default),
    *(aten._native_batch_norm_legit_functional.default, aten.cumsum.default, aten.embedding.default),
}
#: The bytes of a number that is saved.
NUMBER = 8
#: Key of `node.meta`: the node is computed once more on purpose, and a pass must not merge it with the first.
RECOMPUTED = "recomputed"


def partition(
    joint: fx.GraphModule,
    inputs: Sequence[Any] = (),
    *,
    num_fwd_outputs: int,
    expensive: Collection[Any] = frozenset(EXPENSIVE),
    budget: int | None = None,
    **known: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph, saving as few bytes as can be when operations in `expensive` are not computed twice.

    budget: instead, save at most this number of bytes, and compute anything twice if need be, with the least work.
    num_fwd_outputs: how many of the joint graph's outputs are the forward graph's. Inputs whose names begin with
    "tangent" belong to the backward graph; those with `meta["overwritten"]` hold other numbers when it runs, so neither
    they nor their views are saved. The forward graph returns its outputs and then what it saves; the backward graph
    takes that, then the tangents. Nodes that are computed once more carry `meta["recomputed"]`.

    The arguments and the results are those of a `partition_fn` of AOTAutograd, so this can stand behind torch.compile:
    `backend(partition=partition)`. Raises ValueError for an output that is not there, for a graph that writes into a
    value, and for a budget that is less than the inputs that the backward graph cannot do without.
    """
    outputs = pytree.tree_leaves(joint.graph.find_nodes(op="output")[0].args[0])
    if not 0 <= num_fwd_outputs <= len(outputs):
        raise ValueError(f"num_fwd_outputs is {num_fwd_outputs}; the joint graph has {len(outputs)} outputs.")
    if write := next((node for node in joint.graph.nodes if _writes(node)), None):
        raise ValueError(
            f"{write.name} writes into {', '.join(n.name for n in write.all_input_nodes[:1])}, which may be saved for "
            "the backward graph: make the graph functional first, with the new value as an output."
        )
    if budget is None:
        saved = saved_values(joint, num_fwd_outputs, expensive)
    else:
        saved = saved_under_budget(joint, num_fwd_outputs, budget)
    sizes = [node for node in saved if not isinstance(node.meta["val"], Tensor)]
    tensors = [node for node in saved if isinstance(node.meta["val"], Tensor)]
    tangents = [node for node in joint.graph.find_nodes(op="placeholder") if _is_tangent(node)]
    primals = [node for node in joint.graph.find_nodes(op="placeholder") if not _is_tangent(node)]
    forward = _extract(joint, primals, [*outputs[:num_fwd_outputs], *tensors, *sizes])
    backward = _extract(joint, [*sizes, *tensors, *tangents], outputs[num_fwd_outputs:], again=_forward_nodes(joint))
    return forward, backward


def rejoin(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int) -> fx.GraphModule:
    """Return a training step as one graph: the forward graph, then the backward graph, with what is saved between.

    Its inputs and outputs are those of the joint graph, so the two can be compared; and its live ranges are those of
    the step: a saved value lives until the backward graph has read it for the last time.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in forward.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = pytree.tree_leaves(forward.graph.find_nodes(op="output")[0].args[0])
    saved = {node.name: node for node in outputs[num_fwd_outputs:]}
    last = graph.find_nodes(op="placeholder")[-1]
    for node in backward.graph.nodes:
        if node.op == "placeholder" and node.name in saved:
            copies[node] = copies[saved[node.name]]
        elif node.op == "placeholder":
            with graph.inserting_after(last):
                last = copies[node] = graph.node_copy(node, copies.__getitem__)
        elif node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    gradients = pytree.tree_leaves(backward.graph.find_nodes(op="output")[0].args[0])
    results = [*outputs[:num_fwd_outputs], *gradients]
    graph.output([copies[node] if isinstance(node, fx.Node) else node for node in results])
    return fx.GraphModule(forward, graph)


def saved_values(
    joint: fx.GraphModule, num_fwd_outputs: int, expensive: Collection[Any] = frozenset(EXPENSIVE)
) -> list[fx.Node]:
    """Return the values to save, in the order of the graph: a minimum cut, the one nearest to the backward graph.

    The maximum flow is Goldberg and Tarjan's push-relabel in OR-Tools, whose capacities have 64 bits.
    """
    from ortools.graph.python import max_flow

    forward = _forward_nodes(joint)
    needed = _needed_by_backward(joint, num_fwd_outputs, forward)
    reached = _ancestors(needed, forward)
    nodes = [node for node in joint.graph.nodes if node in reached]
    number = {node: i for i, node in enumerate(nodes)}
    infinite = sum(bytes_of(node) or 0 for node in nodes) + 1
    source, sink = 2 * len(nodes), 2 * len(nodes) + 1
    flow = max_flow.SimpleMaxFlow()
    for node, i in number.items():
        size = _savable_bytes(node)
        flow.add_arc_with_capacity(2 * i, 2 * i + 1, infinite if size is None else size)
        if not _can_be_computed_again(node, expensive):
            flow.add_arc_with_capacity(source, 2 * i, infinite)
        else:
            for operand in node.all_input_nodes:
                flow.add_arc_with_capacity(2 * number[operand] + 1, 2 * i, infinite)
        if node in needed:
            flow.add_arc_with_capacity(2 * i + 1, sink, infinite)
    if not nodes or flow.solve(source, sink) != flow.OPTIMAL:
        return []
    sink_side = set(flow.get_sink_side_min_cut())
    return [node for node, i in number.items() if 2 * i not in sink_side and 2 * i + 1 in sink_side]


def saved_under_budget(joint: fx.GraphModule, num_fwd_outputs: int, budget: int) -> list[fx.Node]:
    """Return the values to save, of at most `budget` bytes, so that computing the others once more is least work.

    An integer program (that of Checkmate, Jain et al., 2020, where each value is computed once more at most), solved by
    CP-SAT: exact, or the best that is found in ten seconds of its deterministic time.
    """
    from ortools.sat.python import cp_model

    forward = _forward_nodes(joint)
    needed = _needed_by_backward(joint, num_fwd_outputs, forward)
    reached = _ancestors(needed, forward)
    nodes = [node for node in joint.graph.nodes if node in reached]
    model = cp_model.CpModel()
    saved = {node: model.new_bool_var(f"save {node.name}") for node in nodes}
    repeats = {node: model.new_bool_var(f"compute {node.name} again") for node in nodes}
    for node in nodes:
        if _savable_bytes(node) is None:
            model.add(saved[node] == 0)
        if not _can_be_computed_again(node, ()):
            model.add(repeats[node] == 0)
        if node in needed:
            model.add(saved[node] + repeats[node] >= 1)
        for operand in node.all_input_nodes:
            model.add(repeats[node] <= saved[operand] + repeats[operand])
    size = sum(saved[node] * (bytes_of(node) or 0) for node in nodes)
    model.add(size <= budget)
    model.minimize(sum(repeats[node] * work_of(node) for node in nodes))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = 10
    solver.parameters.num_workers = 1
    if nodes and solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        least = sum(bytes_of(node) or 0 for node in saved_values(joint, num_fwd_outputs, ()))
        raise ValueError(
            f"The backward graph cannot do with {budget:,} saved bytes; with everything computed twice it "
            f"saves {least:,}."
        )
    return [node for node in nodes if solver.boolean_value(saved[node])]


def work_of(node: fx.Node) -> int:
    """Return the arithmetic operations of a node: those of a product as torch counts them, else one per element."""
    from torch.utils.flop_counter import flop_registry

    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, (Tensor, list, tuple)):
        return 0
    if count := flop_registry.get(getattr(node.target, "overloadpacket", None)):
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        return int(count(*args, **kwargs, out_val=value))
    parts = [value] if isinstance(value, Tensor) else [part for part in value if isinstance(part, Tensor)]
    return 0 if viewed(node) is not None else sum(int(size_hint(part.numel())) for part in parts)


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def memory(node: fx.Node) -> tuple[str, int] | None:
    """Return the name of the node whose memory holds a node's value, and the bytes of that memory; None for a tuple.

    For a view it is the node that it looks into, in the end; for any other node the node itself. A number is like a
    value of `NUMBER` bytes.
    """
    node = root(node)
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        return node.name, int(size_hint(value.numel())) * value.element_size()
    return (node.name, NUMBER) if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) else None


def bytes_of(node: fx.Node) -> int | None:
    """Return the bytes that saving a node's value keeps: those of its memory, all of what a view looks into."""
    extent = memory(node)
    return None if extent is None else extent[1]


def _savable_bytes(node: fx.Node) -> int | None:
    """Return the bytes that saving a value keeps; None for a tuple and for what is overwritten."""
    return None if root(node).meta.get(OVERWRITTEN) else bytes_of(node)


def _is_tangent(node: fx.Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith("tangent")


def _forward_nodes(joint: fx.GraphModule) -> set[fx.Node]:
    """Return the nodes that no tangent reaches."""
    forward: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if node.op != "output" and not _is_tangent(node) and forward.issuperset(node.all_input_nodes):
            forward.add(node)
    return forward


def _needed_by_backward(joint: fx.GraphModule, num_fwd_outputs: int, forward: set[fx.Node]) -> set[fx.Node]:
    """Return the forward values that the gradients use, themselves or through nodes that a tangent reaches."""
    gradients = pytree.tree_leaves(joint.graph.find_nodes(op="output")[0].args[0])[num_fwd_outputs:]
    live = {node for node in gradients if isinstance(node, fx.Node)}
    for node in reversed(joint.graph.nodes):
        if node in live and node not in forward:
            live.update(node.all_input_nodes)
    return live & forward


def _ancestors(nodes: Iterable[fx.Node], within: set[fx.Node]) -> set[fx.Node]:
    visited: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node in within and node not in visited:
            visited.add(node)
            todo += node.all_input_nodes
    return visited


def _can_be_computed_again(node: fx.Node, expensive: Collection[Any]) -> bool:
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.target is operator.getitem:
        return True
    tags = getattr(node.target, "tags", ())
    return node.target not in expensive and torch.Tag.nondeterministic_seeded not in tags


def _extract(
    joint: fx.GraphModule, inputs: Sequence[fx.Node], outputs: Sequence[Any], again: Collection[fx.Node] = ()
) -> fx.GraphModule:
    """Return the graph that computes `outputs` from `inputs`, which become placeholders, and tag nodes of `again`."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    nodes = [node for node in outputs if isinstance(node, fx.Node)]
    needed = set(nodes)
    for node in reversed(joint.graph.nodes):
        if node in needed and node not in copies:
            needed.update(node.all_input_nodes)
    for node in _late(joint.graph, needed - copies.keys(), again):
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node in again and node.op == "call_function":
            copies[node].meta[RECOMPUTED] = True
    graph.output([copies[node] if isinstance(node, fx.Node) else node for node in outputs])
    return fx.GraphModule(joint, graph)


def _late(graph: fx.Graph, nodes: Collection[fx.Node], repeats: Collection[fx.Node]) -> list[fx.Node]:
    """Return nodes in the order of the graph, those of `repeats` as late as can be: just before their first reader."""
    order: dict[fx.Node, None] = {}
    for last in graph.nodes:
        if last not in nodes or (last in repeats and not set(last.users).isdisjoint(nodes)):
            continue  # a reader will ask for it
        todo = [last]
        while todo:
            node = todo[-1]
            if missing := [n for n in reversed(node.all_input_nodes) if n in nodes and n not in order]:
                todo += missing
            else:
                order.setdefault(todo.pop())
    return list(order)
