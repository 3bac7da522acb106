"""Values and parameters that are stored in another order of their dimensions.

    Compiled(gm, layouts={"x": [0, 2, 3, 1], "conv.weight": [0, 2, 3, 1]})      # channels last

A value is converted by a step of its own, after the one that makes it, for all that read it later. The step is one
launch, reads the value and writes it, and costs nothing if the value has that layout already. A parameter is
converted when the program is built. Outputs keep the layout that they have in the model.

On a CPU it seldom pays, and the course's own compiler names no layout: oneDNN keeps weights and images as it likes, and
the one conversion that helps it, of images that a convolution reads first, `build` makes by rule, where nothing else is
said. Kernels that read down a column, and a GPU's convolutions, are other cases.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from passlab.fx.effects import effects, written
from passlab.fx.nodes import attribute
from passlab.graph.names import did_you_mean

Layouts = Mapping[str, Sequence[int]]


def with_strides(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor with these strides: the same one if it has them, dimensions of size 1 left aside."""
    if all(size == 1 or has == wants for size, has, wants in zip(value.shape, value.stride(), strides, strict=True)):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def strides_of(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose dimensions are in memory in this order, the last one contiguous."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim], step = step, step * max(shape[dim], 1)
    return tuple(strides)


def why_not_layouts(gm: fx.GraphModule, layouts: object) -> str:
    """Return why these are not layouts, as far as a graph without shapes tells, or ""."""
    if not isinstance(layouts, dict):
        return f"Compiled.layouts must be a dict from names to orders of dimensions; got {str(layouts)[:60]}."
    names = {node.name for node in gm.graph.nodes if node.op != "output"} | _parameters(gm)
    for name, order in layouts.items():
        if name not in names:
            hint = did_you_mean(str(name), names)
            reason = f"which is neither a value nor a parameter of the graph.{hint}"
            return f"There is a layout for {str(name)[:60]!r}, {reason}"
        fits = isinstance(order, list) and all(type(dim) is int for dim in order)
        if not fits or sorted(order) != list(range(len(order))):
            wants = "list each of its dimensions once, the outermost first"
            return f"The layout of {name} is {str(order)[:60]}; it must {wants}, such as [0, 2, 3, 1]."
    return ""


def _parameters(gm: fx.GraphModule) -> set[str]:
    """Return the paths of the parameters and buffers of the modules that a graph calls."""
    called = {node.target: gm.get_submodule(node.target) for node in gm.graph.find_nodes(op="call_module")}
    return {f"{path}.{name}" for path, module in called.items() for name in (*module._parameters, *module._buffers)}


def why_not_stored(gm: fx.GraphModule, groups: Sequence[Sequence[str]], layouts: Layouts) -> str:
    """Return why values cannot be stored like this, or "". gm: with shapes; layouts: well-formed."""
    nodes = {node.name: node for node in gm.graph.nodes}
    home = {name: group for group in groups for name in group}
    draws = next((node.name for node in gm.graph.nodes if "draws" in effects(node)), None)
    if layouts and draws:
        return f"Node {draws} draws random numbers in the order of memory, which layouts change. Leave them out."
    busy = written(gm.graph) if layouts else ()
    for name, order in layouts.items():
        node = nodes.get(name)
        value = node.meta.get("val") if node is not None else attribute(gm, name)
        if not isinstance(value, torch.Tensor):
            return f"There is a layout for {name}, which is not a tensor."
        if len(order) != value.ndim:
            return f"The layout of {name} is {list(order)}, and its value has {value.ndim} dimensions."
        if node is not None and node in busy:
            return f"Node {name} is written: a copy in another layout would not change with it. Leave its layout out."
        if node is not None and name in home and node.users and all(u.name in home[name] for u in node.users):
            return f"Node {name} is only read inside its group, whose kernel never stores it. Leave its layout out."
    return ""


def apply(gm: fx.GraphModule, groups: Sequence[Sequence[str]], layouts: Layouts) -> None:
    """Store values of a graph with shapes, and parameters, by `layouts`. Modules with such parameters are replaced."""
    nodes = {node.name: node for node in gm.graph.nodes}
    home = {name: group for group in groups for name in group}
    for name, order in layouts.items():
        node = nodes.get(name)
        if node is None or node.op == "get_attr":
            _hold(gm, name if node is None else node.target, order)
            continue
        not_for = {nodes[member] for member in home.get(name, ())}
        readers = [user for user in node.users if user not in not_for and user.op != "output"]
        _insert(node, strides_of(node.meta["val"].shape, order), readers)


def returned_as(gm: fx.GraphModule, before: fx.GraphModule) -> bool:
    """Give the outputs of a graph their strides in the graph before. Return whether that needed a node."""
    (output,), (old,) = (g.graph.find_nodes(op="output") for g in (gm, before))
    pairs = zip(tree_leaves(output.args[0]), tree_leaves(old.args[0]), strict=True)
    strides_of_node = {}
    for node, like in pairs:
        value, expected = (getattr(n, "meta", {}).get("val") for n in (node, like))
        if isinstance(value, torch.Tensor) and value.stride() != expected.stride():
            strides_of_node[node] = expected.stride()
    for node, strides in strides_of_node.items():
        _insert(node, strides, [output])
    return bool(strides_of_node)


def _insert(node: fx.Node, strides: tuple[int, ...], readers: Sequence[fx.Node]) -> None:
    """Have these users of a node read its value with other strides."""
    graph = node.graph
    with graph.inserting_after(graph.find_nodes(op="placeholder")[-1] if node.op == "placeholder" else node):
        new = graph.create_node("call_function", with_strides, (node, strides), name=f"{node.name}_stored")
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user in readers)


def _hold(gm: fx.GraphModule, path: str, order: Sequence[int]) -> None:
    """Store a parameter of a graph in this order, in a copy of the module that holds it."""
    owner_path, _, name = path.rpartition(".")
    owner = gm
    if owner_path:
        owner, (parent, _, leaf) = copy.copy(gm.get_submodule(owner_path)), owner_path.rpartition(".")
        owner._parameters, owner._buffers = dict(owner._parameters), dict(owner._buffers)
        gm.get_submodule(parent)._modules[leaf] = owner
    tensors = owner._parameters if name in owner._parameters else owner._buffers
    value = tensors[name].detach()
    tensors[name] = with_strides(value, strides_of(value.shape, order))
