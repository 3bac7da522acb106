"""Groups of nodes in an FX graph that are to be kernels: which are legal, in which order they run, cutting one out."""

from __future__ import annotations

import collections
import heapq
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from passlab.fx.effects import EFFECTS, effects, has_effects, may_alias, memory_order, written
from passlab.fx.nodes import attribute
from passlab.graph.names import did_you_mean
from passlab.judge import shown
from passlab.kernels.primitives import Unsupported, primitives, state, unsupported

Groups = Sequence[Sequence[str]]


def illegal(
    gm: fx.GraphModule,
    groups: Groups,
    accepts: Callable[[list[fx.Node]], bool] = lambda chosen: False,
    why_no_kernel: Callable[[list[fx.Node]], str] | None = None,
) -> str | None:
    """Return why these groups cannot be kernels, in one sentence that names a node; None if they can.

    The graph's nodes carry their shapes (`passlab.trace(model, x)`). accepts: whether the nodes of a group, in graph
    order, have a kernel from elsewhere, so that none needs to be made here. why_no_kernel: a `kernel_check` of the
    graph, for a caller that asks for many groups.
    """
    why_no_kernel = why_no_kernel or partial(_why_no_kernel, gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    if not isinstance(groups, list | tuple):
        return f"Groups must be a list of lists of node names; got {type(groups).__name__}."
    where: dict[fx.Node, int] = {}  # node → its group
    for number, group in enumerate(groups):
        if not isinstance(group, list | tuple) or not group or not all(isinstance(name, str) for name in group):
            return f"A group must be a non-empty list of node names; got {shown(group)}."
        for name in group:
            if name not in nodes:
                return f"There is no node {name!r} in this graph.{did_you_mean(name, nodes)}"
            if nodes[name] in where:
                both = "in two groups" if where[nodes[name]] != number else "in its group twice"
                return f"Node {name!r} is {both}: only one kernel can take its place."
            where[nodes[name]] = number
    devices = _devices(gm)
    reasons = (_why_not_in_a_kernel(node, devices) for node in where)
    reason = (
        next(filter(None, reasons), "")
        or _why_torn(where)
        or _why_not_apart(gm.graph, where)
        or _why_no_order(gm.graph, groups, where)
    )
    reasons = (why_no_kernel(nodes) for nodes in _select_nodes(gm, where) if not accepts(nodes))
    return reason or next(filter(None, reasons), None)


def _select_nodes(gm: fx.GraphModule, where: dict[fx.Node, int]) -> list[list[fx.Node]]:
    """Return the nodes of each group, in graph order."""
    members: dict[int, list[fx.Node]] = {number: [] for number in sorted(set(where.values()))}
    for node in gm.graph.nodes:
        if node in where:
            members[where[node]].append(node)
    return list(members.values())


def _why_not_in_a_kernel(node: fx.Node, devices: dict[fx.Node, str]) -> str:
    if node.op in ("placeholder", "output", "get_attr"):
        kind = {"placeholder": "an input", "output": "the output", "get_attr": "a constant"}[node.op]
        return f"Node {node.name!r} is {kind} of the graph: a kernel can hold only calls."
    if kinds := effects(node):
        effect = min(kinds, key=list(EFFECTS).index)
        return f"Node {node.name!r} has a side effect, which a kernel cannot have: {EFFECTS[effect]}."
    if isinstance(value_of(node), int | float | torch.Size):
        return f"Node {node.name!r} makes {value_of(node)!r}, which is not a tensor: a kernel writes tensors only."
    for operand in node.all_input_nodes:
        if not tensors_of(operand):
            return f"Node {operand.name!r} has no shape: make the graph with passlab.trace(model, x)."
    return _why_not_on_one_device(node, devices) or _why_not_of_one_dtype(node)


def _why_not_on_one_device(node: fx.Node, devices: dict[fx.Node, str]) -> str:
    operands = (a for a in node.all_input_nodes if a in devices)
    names = {devices[a]: a.name for a in operands if any(len(tensor.shape) for tensor in tensors_of(a))}
    if len(names) > 1:
        text = " and ".join(f"{name!r} on {device}" for device, name in names.items())
        return f"Node {node.name!r} reads {text}: a kernel runs on one device."
    if names and devices.get(node) not in (None, *names):
        return f"Node {node.name!r} moves a tensor from {next(iter(names))} to {devices[node]}: a kernel runs on one."
    return ""


def _why_not_of_one_dtype(node: fx.Node) -> str:
    names: dict[torch.dtype, str] = {}
    if node.target is torch.ops.aten._unsafe_index.Tensor:
        return ""  # positions are integers
    for operand in node.all_input_nodes:
        for value in tensors_of(operand):
            if len(value.shape) and value.dtype != torch.bool:
                names.setdefault(value.dtype, operand.name)
    if len(names) < 2:
        return ""
    text = " and ".join(f"{name!r} ({str(dtype).removeprefix('torch.')})" for dtype, name in names.items())
    return f"Node {node.name!r} mixes {text}: put a cast before it."


def _why_torn(where: dict[fx.Node, int]) -> str:
    """Return why a tuple of tensors, such as `chunk` makes, cannot be passed on from kernel to kernel, or ""."""
    for node in where:
        for operand in node.all_input_nodes:
            if makes_tuple(operand) and where.get(operand) != where[node]:
                return f"Node {node.name!r} reads {operand.name!r}, a tuple: a kernel reads and writes tensors only."
        outside = [user.name for user in node.users if where.get(user) != where[node]]
        if makes_tuple(node) and (outside or not node.users):
            reader = f"{outside[0]!r}, which reads it, is not in the group" if outside else "nothing reads it"
            return f"Node {node.name!r} makes a tuple, and {reader}: a kernel reads and writes tensors only."
    return ""


def _why_not_apart(graph: fx.Graph, where: dict[fx.Node, int]) -> str:
    """Return why the memory of a group cannot be apart from the program's: the program writes it."""
    if not has_effects(graph):
        return ""
    changed = written(graph)
    for node in where:
        leaves = any(where.get(user) != where[node] for user in node.users)
        if node in changed and may_alias(node) and leaves:
            return (
                f"Node {node.name!r} is a view of memory that the program writes: what a kernel makes is a tensor of "
                "its own, which would not change with it."
            )
    return ""


def value_of(node: fx.Node) -> Any:
    """Return the metadata of a node's value: at least shape and dtype."""
    value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
    if value is None and node.op == "get_attr":
        return attribute(node.graph.owning_module, node.target)
    return value


def makes_tuple(node: fx.Node) -> bool:
    """Return whether a node makes a tuple, such as `chunk` does, even of one tensor."""
    value = value_of(node)
    return isinstance(value, tuple | list) and not hasattr(value, "dtype")  # TensorMetadata is a tuple, too


def tensors_of(node: fx.Node) -> list[Any]:
    """Return `value_of` a node as a list, of several where it makes a tuple; empty if it is not known, or a number."""
    value = value_of(node)
    tensors = list(value) if makes_tuple(node) else [value]
    return tensors if all(hasattr(tensor, "dtype") for tensor in tensors) else []


def _devices(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """Return the device of each node, as far as the graph tells, from inputs and constants on through moves."""
    devices: dict[fx.Node, str] = {}
    inputs = iter(gm.meta.get("inputs") or ())
    for node in gm.graph.nodes:
        value = None
        if node.op == "get_attr":
            value = attribute(gm, node.target)
        elif node.op == "placeholder":
            value = next(inputs, None)
        device = getattr(value_of(node), "device", None) or getattr(value, "device", None) or _named_device(node)
        if device is None:
            device = next((devices[a] for a in node.all_input_nodes if a in devices), None)
        if device is not None:
            devices[node] = str(device)
    return devices


def _named_device(node: fx.Node) -> Any:
    """Return the device to which a call moves its operand, None for other calls."""
    for argument in (*node.args, *node.kwargs.values()):
        if isinstance(argument, str | torch.device) and re.fullmatch(r"(cpu|cuda|meta|mps|xpu)(:\d+)?", str(argument)):
            return argument
    return {"cpu": "cpu", "cuda": "cuda"}.get(str(node.target))


def execution_order(graph: fx.Graph, where: dict[fx.Node, int]) -> list[list[fx.Node]]:
    """Return the steps of a graph in the order they run, each group as one step. `where`: node → group.

    A step waits for its operands, and keeps the order of writes and random draws (`memory_order`). Steps on a cycle,
    which wait for themselves, are left out. The order follows the graph where it can.
    """
    later = _later(graph)
    step = {node: where.get(node, node) for node in graph.nodes}
    members: dict[Any, list[fx.Node]] = {}
    for node, at in step.items():
        members.setdefault(at, []).append(node)
    waiting = dict.fromkeys(members, 0)
    for node, at in step.items():
        for user in later[node]:
            waiting[step[user]] += step[user] is not at
    place = {at: number for number, at in enumerate(members)}
    ready, order, keys = [place[at] for at, count in waiting.items() if not count], [], list(members)
    heapq.heapify(ready)
    while ready:
        at = keys[heapq.heappop(ready)]
        order.append(members[at])
        for user in (user for node in members[at] for user in later[node] if step[user] is not at):
            waiting[step[user]] -= 1
            if not waiting[step[user]]:
                heapq.heappush(ready, place[step[user]])
    return order


def _later(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return, for each node, those that have to run after it: its users, and what `memory_order` puts behind it."""
    later = {node: list(node.users) for node in graph.nodes}
    for node, before in (memory_order(graph) if has_effects(graph) else {}).items():
        for earlier in before:
            later[earlier].append(node)
    return later


def _why_no_order(graph: fx.Graph, groups: Groups, where: dict[fx.Node, int]) -> str:
    """Return why the kernels cannot run one after the other: the groups form a cycle.

    A kernel starts when all its inputs are ready and delivers its values at its end, so no path may leave a group and
    re-enter it, directly or through other groups.
    """
    ordered = {node for nodes in execution_order(graph, where) for node in nodes}
    stuck = dict.fromkeys(where[node] for node in where if node not in ordered)
    later = _later(graph) if stuck else {}
    for number in stuck:
        if (way := _way_back(where, number, later)) is not None:
            out, *through, back = (node.name for node in way)
            group = f"The group ({', '.join(groups[number])})"
            return (
                f"{group} has a cycle: {out!r} leaves it, and the path through {', '.join(map(repr, through))} "
                f"re-enters it at {back!r}."
            )
    return ""


def _way_back(where: dict[fx.Node, int], number: int, later: dict[fx.Node, list[fx.Node]]) -> list[fx.Node] | None:
    """Return a path that leaves a group and re-enters it; its two ends are in the group."""
    members: dict[int, list[fx.Node]] = {}
    for node, at in where.items():
        members.setdefault(at, []).append(node)
    before: dict[fx.Node, fx.Node] = {}  # node outside → the one before it on a path out of the group
    queue = collections.deque(members[number])
    while queue:
        node = queue.popleft()
        for user in later[node]:
            if where.get(user) == number:
                if where.get(node) != number:  # re-entered
                    way = [user, node]
                    while where.get(way[-1]) != number:
                        way.append(before[way[-1]])
                    return way[::-1]
            elif user not in before:
                before[user] = node
                queue.append(user)
                for other in members.get(where.get(user), ()):  # entering a group leads to all of its results
                    if other not in before:
                        before[other] = user
                        queue.append(other)
    return None


def _why_no_kernel(gm: fx.GraphModule, nodes: list[fx.Node]) -> str:
    try:
        part = extract_group(gm, nodes)
        primitives(part, example_inputs(part))
    except Unsupported as error:
        return str(error)
    return ""


def kernel_check(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> Callable[[list[fx.Node]], str]:
    """Return a function from a group of a graph's nodes to the reason why no kernel can be made of it, or "".

    nodes: what groups may hold. They are traced once, each by itself: one that has no kernel has none in a group, and
    nodes that have one each have one together. A group is traced only where it depends on more than its nodes.
    """
    devices = _devices(gm)
    nodes = [node for node in nodes if not _why_not_in_a_kernel(node, devices)]
    nodes = [node for node in nodes if not any(map(makes_tuple, (node, *node.all_input_nodes)))]
    graph, copies = fx.Graph(), {}
    for operand in dict.fromkeys(a for node in nodes for a in node.all_input_nodes):
        copies[operand] = _operand(graph, operand)
    single = {node: graph.node_copy(node, copies.__getitem__) for node in nodes}
    graph.output(tuple(single.values()))
    part = fx.GraphModule(gm, graph)
    errors = unsupported(part, example_inputs(part))
    known = {node: errors.get(copy.name) for node, copy in single.items()}  # a copy may have another name

    def why_not(group: list[fx.Node]) -> str:
        wrong = [(node, error) for node in group if (error := known.get(node))]
        if not known.keys() >= set(group) or any(error.depends for _, error in wrong):
            return _why_no_kernel(gm, group)
        return next((str(Unsupported(node.name, error.reason)) for node, error in wrong), "")

    return why_not


def _operand(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Add a constant that nodes of a group read, or a placeholder for another value, to the group's graph."""
    if node.op == "get_attr":
        return graph.node_copy(node)
    placeholder = graph.create_node("placeholder", node.name, name=node.name)
    placeholder.meta = dict(node.meta)
    return placeholder


# ------------------------------------------------------------------------------------------------ cutting a group out


def subgraph(gm: fx.GraphModule, group: Sequence[str]) -> fx.GraphModule:
    """Cut a group out as a separate graph: its operands become placeholders, the values used outside its outputs.

    Parameters and modules are shared with `gm`. `meta["inputs_of"]` and `meta["outputs_of"]` name the nodes of `gm`
    that the placeholders and outputs stand for.
    """
    names = set(group)
    return extract_group(gm, [node for node in gm.graph.nodes if node.name in names])


def extract_group(gm: fx.GraphModule, nodes: list[fx.Node]) -> fx.GraphModule:
    """`subgraph` of nodes in graph order."""
    inside, graph, copies = set(nodes), fx.Graph(), {}
    reads = list(dict.fromkeys(a for node in nodes for a in node.all_input_nodes if a not in inside))
    for node in reads:
        copies[node] = _operand(graph, node)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [node for node in nodes if any(user not in inside for user in node.users) or not node.users]
    outputs = tuple(copies[node] for node in results)
    graph.output(outputs[0] if len(outputs) == 1 else outputs)
    part = fx.GraphModule(gm, graph)
    part.meta["inputs_of"] = [node.name for node in reads if node.op != "get_attr"]
    part.meta["outputs_of"] = [node.name for node in results]
    part.training = gm.training  # train() would change the modules, which gm shares
    return part


def example_inputs(gm: fx.GraphModule, device: Any = None, strides: Sequence[Sequence[int]] | None = None) -> tuple:
    """Return inputs without data, as the placeholders describe them."""
    inputs = []
    for at, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = value_of(node)
        if not hasattr(value, "dtype"):
            raise ValueError(f"Input {node.name!r} has no shape: make the graph with passlab.trace(model, x).")
        steps = strides[at] if strides is not None else _strides(value)
        place = device or getattr(value, "device", None) or next((p.device for p in state(gm).values()), "cpu")
        with FakeTensorMode():
            inputs.append(torch.empty_strided(value.shape, steps, dtype=value.dtype, device=place))
    return tuple(inputs)


def _strides(value: Any) -> Sequence[int]:
    return value.stride() if isinstance(value, torch.Tensor) else value.stride
