"""The course's compiler: the days' passes, one stage after the other.

    compiled = compile(gm, inputs)
    for stage in STAGES:
        compiled = stage.run(compiled, inputs)       # what a waterfall switches on, one by one

A stage takes a Compiled and returns another one; it edits neither the graph nor the lists that it gets.

Reading order: the stages of the graph (days 2 and 3), the groups (day 4), the plan (day 5), the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._pytree import tree_leaves

from passlab.autodiff import RECOMPUTED
from passlab.capstone import library
from passlab.capstone.building import steps_of
from passlab.capstone.compiled import Compiled, with_shapes
from passlab.fx.effects import effects, has_effects, written
from passlab.fx.judge import rebuild
from passlab.fx.nodes import attribute
from passlab.fx.patterns import Pattern, canonical, pattern
from passlab.kernels import illegal
from passlab.kernels.groups import makes_tuple
from passlab.memory.allocate import ORDERS, first_fit
from passlab.memory.buffers import height
from passlab.memory.liveness import liveness
from passlab.memory.order import best_order
from passlab.memory.plan import ALIGNMENT, Plan
from passlab.memory.storages import CannotPlan
from passlab.memory.tasks import nodes_of, tasks_of

# ---------------------------------------------------------------------------------------- days 2 and 3: the graph


def fold_batchnorm(gm: fx.GraphModule) -> fx.GraphModule:
    """`bn(conv(x))` = `conv'(x)` with other weights, in eval mode, if nothing else reads or calls the convolution."""
    calls = Counter(attribute(gm, node.target) for node in gm.graph.find_nodes(op="call_module"))
    for bn in list(gm.graph.find_nodes(op="call_module")):
        norm, conv = attribute(gm, bn.target), bn.args[0] if bn.args else None
        if type(norm) is not nn.BatchNorm2d or norm.training or not norm.track_running_stats:
            continue
        layer = attribute(gm, conv.target) if conv.op == "call_module" else None
        if type(layer) is not nn.Conv2d or layer.training or len(conv.users) != 1 or calls[layer] > 1:
            continue
        name = f"{conv.name}_folded"
        while hasattr(gm, name):
            name += "_"
        gm.add_submodule(name, fuse_conv_bn_eval(layer, norm).requires_grad_(False))
        with gm.graph.inserting_before(conv):
            folded = gm.graph.call_module(name, conv.args, conv.kwargs)
        bn.replace_all_uses_with(folded)
        gm.graph.erase_node(bn)
        gm.graph.erase_node(conv)
    return gm


def fold_constants(gm: fx.GraphModule) -> fx.GraphModule:
    """Compute nodes that depend on constants alone, unless the result is larger than its operands."""
    memory, values = written(gm.graph), {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(constant := attribute(gm, node.target), torch.Tensor):
            if node not in memory:
                values[node] = constant
        elif (
            node.op in ("call_function", "call_method")
            and node.all_input_nodes
            and all(a in values for a in node.all_input_nodes)
            and not effects(node)
            and node not in memory
        ):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            result = getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" else None
            result = node.target(*args, **kwargs) if result is None else result
            size = sum(values[a].numel() for a in node.all_input_nodes)
            if isinstance(result, torch.Tensor) and result.numel() <= size:
                values[node] = result.detach()
    for node in reversed([n for n in values if n.op != "get_attr"]):
        if any(user not in values for user in node.users):
            name = f"folded_{node.name}"
            gm.register_buffer(name, values[node].clone())
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(gm.graph.get_attr(name))
    return gm


def cse(gm: fx.GraphModule) -> fx.GraphModule:
    """Merge calls of one function on the same operands, if they have no effects and nothing writes to their memory.

    What is computed once more on purpose, to save memory, stays.
    """
    memory, first = written(gm.graph), {}
    for node in list(gm.graph.nodes):
        if node.op in ("placeholder", "output") or effects(node) or node in memory or node.meta.get(RECOMPUTED):
            continue
        if any(a in memory for a in node.all_input_nodes):
            continue
        key = (node.op, node.target, _key(node.args), _key(node.kwargs))
        leader = first.setdefault(key, node)
        if leader is not node:
            node.replace_all_uses_with(leader)
            gm.graph.erase_node(node)
    return gm


def _key(value: Any) -> Any:
    """Return operands as something to compare: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple | list):
        return (type(value), *map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(value[name])) for name in sorted(value))
    return value if isinstance(value, fx.Node) else (type(value), repr(value))


def dce(gm: fx.GraphModule) -> fx.GraphModule:
    """Remove nodes that nothing uses and that have no effect, last ones first, and identities on the way."""
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_module" and node.users and not effects(node) and len(node.args) == 1:
            layer = attribute(gm, node.target)
            if type(layer) is nn.Identity or (type(layer) in (nn.Dropout, nn.Dropout2d) and not layer.training):
                node.replace_all_uses_with(node.args[0])
        if not node.users and node.op not in ("placeholder", "output") and not effects(node):
            gm.graph.erase_node(node)
    return gm


def _graph_stage(*passes: Callable[[fx.GraphModule], fx.GraphModule]) -> Callable:
    def run(compiled: Compiled, inputs: Sequence[Any]) -> Compiled:
        gm = rebuild(compiled.graph)
        for pass_ in passes:
            gm = pass_(gm)
        gm.graph.lint()
        gm.recompile()
        return replace(compiled, graph=gm)

    return run


# ------------------------------------------------------------------------------------------------ day 4: groups


#: Operations that move no element, or only choose some; a group may hold them between others, not at its end.
_VIEWS = frozenset(
    """transpose permute t reshape view flatten unflatten squeeze unsqueeze chunk split getitem select narrow""".split()  # noqa: SIM905
)
#: Reductions along a row, and operators that contain them.
_ROWS = frozenset(["softmax", "layer_norm", "rms_norm", "layernorm", "add_layer_norm", "mean", "sum", "amax"])


def library_groups(compiled: Compiled, inputs: Sequence[Any]) -> Compiled:
    """Group a convolution or linear layer with the sum and the activation after it: one call of a library."""
    gm = with_shapes(compiled.graph, inputs)
    memory, grouped_names, groups = written(gm.graph), {n for group in compiled.groups for n in group}, []
    for node in gm.graph.nodes:
        if node.name in grouped_names or effects(node) or node in memory or library.match(gm, [node]) is None:
            continue
        group = [node]
        while len(group[-1].users) == 1:
            (user,) = group[-1].users
            longer = [*group, user]
            if user.name in grouped_names or user in memory or effects(user) or library.match(gm, longer) is None:
                break
            if illegal(gm, [_names(longer)], lambda g: True):
                break
            group = longer
        if len(group) > 1 and not _cyclic(gm, [*compiled.groups, *groups, _names(group)]):
            groups.append(_names(group))
            grouped_names |= set(groups[-1])
    return replace(compiled, groups=[*compiled.groups, *groups])


def _names(nodes: Sequence[fx.Node]) -> list[str]:
    return [node.name for node in nodes]


def _cyclic(gm: fx.GraphModule, groups: list[list[str]]) -> bool:
    return illegal(gm, groups, lambda chosen: True) is not None


def kernel_groups(compiled: Compiled, inputs: Sequence[Any], tuples: bool = False) -> Compiled:
    """Group element-wise operations and reductions along rows with what they read: one kernel each, made by TVM.

    tuples: whether a kernel may take a tuple apart, as that of `chunk`, which the gates of an LSTM are parts of.
    A node joins the group that made its latest operand, as long as the group stays convex and can be a kernel. Then
    groups merge, first where that saves most bytes: what two kernels pass on stays in the registers of one.
    """
    gm = with_shapes(compiled.graph, inputs)
    memory, grouped_names = written(gm.graph), {n for group in compiled.groups for n in group}
    candidates: list[list[fx.Node]] = []
    home: dict[fx.Node, list[fx.Node]] = {}
    place = {node: at for at, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        if node.name in grouped_names or node in memory or not _fusable(gm, node):
            continue
        producers = [a for a in node.all_input_nodes if a in home]
        for operand in sorted(producers, key=place.__getitem__, reverse=True):
            group = home[operand]
            if _joins(gm, group, node) and not _reenters(group, node):
                group.append(node)
                home[node] = group
                break
        else:
            home[node] = group = [node]
            candidates.append(group)
    _merge(gm, candidates, place)
    groups = list(compiled.groups)
    for group in map(_trim, candidates):
        if not tuples and any(map(makes_tuple, group)):
            continue
        names = _names(group)
        work = [name for node in group if (name := canonical(node, gm)) not in _VIEWS]
        if len(work) < 2 and work != ["add_layer_norm"]:
            continue
        if "softmax" in work and len(work) < 3:  # torch's own softmax is faster than one more step saves
            continue
        if illegal(gm, [names]) is None and not _cyclic(gm, [*groups, names]):
            groups.append(names)
    return replace(compiled, groups=groups)


def _merge(gm: fx.GraphModule, groups: list[list[fx.Node]], place: dict[fx.Node, int]) -> None:
    """Merge pairs of groups, one of which reads the other's values, if a kernel can do both: the largest value first.

    A group that has become part of another is left empty. place: node → its number in the graph.
    """
    home = {node: group for group in groups for node in group}
    edges = [(node, user) for node in home for user in node.users if home.get(user, home[node]) is not home[node]]
    for node, user in sorted(edges, key=lambda edge: -_nbytes(edge[0])):
        one, other = home[node], home[user]
        if one is other or not any(_joins(gm, one, member) for member in other):
            continue
        union = sorted([*one, *other], key=place.__getitem__)
        if any(_reenters(union, member) for member in union) or illegal(gm, [_names(_trim(union))]) is not None:
            continue
        one[:] = union
        other.clear()
        home.update(dict.fromkeys(union, one))


def _nbytes(node: fx.Node) -> int:
    values = tree_leaves(node.meta["val"])
    return sum(value.numel() * value.element_size() for value in values)


def _fusable(gm: fx.GraphModule, node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method", "call_module") or effects(node):
        return False
    value = node.meta.get("val")
    first = value[0] if isinstance(value, tuple | list) and value else value
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return False
    name = canonical(node, gm)
    if name in ("dropout", "to", "clone", "contiguous", "detach", "repeat", "tile"):
        return False
    return name in _VIEWS or name in _ROWS or pattern(node, gm) in (Pattern.ELEMWISE, Pattern.BROADCAST)


def _joins(gm: fx.GraphModule, group: list[fx.Node], node: fx.Node) -> bool:
    """Return whether a group and a node share their loops: over one shape, or row by row."""
    name = canonical(node, gm)
    if name in _VIEWS:
        return True
    shapes = {_shape(n) for n in group if canonical(n, gm) not in _VIEWS}
    return not shapes or _shape(node) in shapes or any(s[:-1] == _shape(node)[:-1] for s in shapes)


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta["val"]
    return tuple((value[0] if isinstance(value, tuple | list) else value).shape)


def _reenters(group: list[fx.Node], node: fx.Node) -> bool:
    """Return whether a path leaves the group and re-enters it at `node`."""
    members, visited = set(group), set()
    todo = [a for a in node.all_input_nodes if a not in members]
    while todo:
        at = todo.pop()
        if at in members:
            return True
        if at not in visited:
            visited.add(at)
            todo += at.all_input_nodes
    return False


def _trim(group: list[fx.Node]) -> list[fx.Node]:
    """Leave out views at the end, whose elements a kernel would copy, and views at the front that others read, too."""
    members = set(group)

    def loose() -> Iterator[fx.Node]:
        for node in group:
            if node in members and canonical(node) in _VIEWS and any(user not in members for user in node.users):
                yield node

    while dropped := set(loose()):
        members -= dropped
    return [node for node in group if node in members]


# ------------------------------------------------------------------------------------------------ day 5: order and plan


def plan(compiled: Compiled, inputs: Sequence[Any]) -> Compiled:
    """Order the steps for few live bytes, and place what they make by the best of several first fits."""
    gm = steps_of(compiled, inputs)
    orders, plans = [[node.name for node in gm.graph.nodes]], []
    if not written(gm.graph) and not has_effects(gm.graph):
        orders.append(nodes_of(gm, best_order(tasks_of(gm, *inputs), states=2_000, width=8).order))
    with suppress(CannotPlan):
        for order in orders:
            buffers = liveness(gm, *inputs, order=order)
            for key in ORDERS.values():
                offsets = first_fit(buffers, key, ALIGNMENT)
                plans.append(Plan(tuple(order), dict(offsets), height(buffers, offsets)))
    return replace(compiled, plan=min(plans, key=lambda plan: plan.arena, default=None))


# ------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True)
class Stage:
    """`run(compiled, inputs)` returns the next Compiled; `day`: where the course teaches it."""

    name: str
    day: str
    run: Callable[[Compiled, Sequence[Any]], Compiled]


#: The stages of the course's compiler, in the order in which they run.
STAGES = (
    Stage("fold batch norm", "day02", _graph_stage(fold_batchnorm)),
    Stage("fold constants, CSE, DCE", "day03", _graph_stage(fold_constants, cse, dce)),
    Stage("fused library calls", "day04", library_groups),
    Stage("fused kernels", "day04", kernel_groups),
    Stage("kernels with tuples", "day12", partial(kernel_groups, tuples=True)),
    Stage("order and offsets", "day05", plan),
)


def compile(gm: fx.GraphModule, inputs: Sequence[Any], stages: Sequence[Stage] = STAGES) -> Compiled:
    """Return a model compiled by some stages, by default all."""
    compiled = Compiled(rebuild(gm))
    for stage in stages:
        compiled = stage.run(compiled, tuple(inputs))
    return compiled
