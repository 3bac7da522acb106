"""The result of a learner's compiler: data, from which another process builds a program.

Compiled(gm)                                            # a graph alone: no groups, everything else by default
Compiled(gm, groups=[["mul", "add"]], schedules={"mul": {"vector": 16}}, plan=planned(grouped(gm, groups, (x,)), x))
Compiled(gm, groups=[["mul", "add"]], kernels={"mul": Triton(…)}, layouts={"x": [0, 2, 3, 1]})
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import tree_leaves

from passlab.capstone import layouts, library, triton
from passlab.capstone.triton import Triton
from passlab.fx.effects import has_effects
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import to_device
from passlab.judge import record
from passlab.kernels import illegal, kernel_check
from passlab.kernels.schedule import KNOBS
from passlab.memory.plan import Plan

#: Limits beyond the needs of the course's graphs.
MOST_GROUPS, MOST_BYTES = 10_000, 2**34


@record
@dataclass
class Compiled:
    """A compiled model.

    `graph`: torch.fx nodes over torch's operators and `passlab.fx.ops`. `groups`: lists of node names, each of which
    becomes one kernel; every other node is a call of torch. `schedules`: name of the first node of a group → knobs of
    its loops (`passlab.kernels.schedule.KNOBS`). `plan`: the order of the steps and the places of their results, for
    `grouped(graph, groups, inputs, layouts)`; without one, the order of the graph and first fit. `kernels`: name of the
    first node of a group → its kernel for a GPU (`passlab.capstone.triton`); on a CPU the group runs by default.
    `layouts`: name of a value, or path of a parameter → the order of its dimensions in memory, outermost first
    (`passlab.capstone.layouts`); values without an entry keep the layout of torch or the library.
    """

    graph: Any
    groups: list[list[str]] = field(default_factory=list)
    schedules: dict[str, dict] = field(default_factory=dict)
    plan: Plan | None = None
    kernels: dict[str, Triton] = field(default_factory=dict)
    layouts: dict[str, list[int]] = field(default_factory=dict)


def on(device: str, compiled: Compiled) -> Compiled:
    """Return a copy with its graph on a device."""
    return replace(compiled, graph=to_device(copy.deepcopy(compiled.graph), device))


class BadCompiled(ValueError):
    """No program can be built from this; the message names the reason and the node."""


def why_not_compiled(before: fx.GraphModule | None, compiled: object) -> str:
    """Return why this is not a Compiled of a model whose graph is `before`, in one sentence, or "".

    Nothing is run. Checks that need shapes (legal groups, a valid plan) or a kernel's text are left to `build` and
    `counts`, which raise BadCompiled.
    """
    if compiled is None:
        return "The compiler returned None. End it with `return Compiled(gm, …)`."
    if type(compiled) is not Compiled:
        code = isinstance(compiled, torch.nn.Module) or callable(compiled)
        reason = "which is code: hand over data, as Compiled(graph, …)" if code else "not a Compiled"
        return f"The compiler returned {type(compiled).__name__}, {reason}."
    if reason := why_not_valid(before, compiled.graph):
        return reason.replace("The pass returned", "Compiled.graph is")
    return (
        _why_not_groups(compiled)
        or _why_not_schedules(compiled)
        or _why_not_kernels(compiled)
        or layouts.why_not_layouts(compiled.graph, compiled.layouts)
        or _why_not_a_plan(compiled.plan)
    )


def _why_not_groups(compiled: Compiled) -> str:
    names = {node.name for node in compiled.graph.graph.nodes}
    groups = compiled.groups
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        return f"Compiled.groups must be a list of lists of node names; got {str(groups)[:60]}."
    if len(groups) > MOST_GROUPS or sum(map(len, groups)) > len(names):
        return f"Compiled.groups names {sum(map(len, groups)):,} nodes; the graph has {len(names):,}."
    return ""


def _heads(compiled: Compiled) -> set[str]:
    """Return the names of the groups' first nodes."""
    return {group[0] for group in compiled.groups if group and isinstance(group[0], str)}


def _why_not_schedules(compiled: Compiled) -> str:
    if not isinstance(compiled.schedules, dict):
        return f"Compiled.schedules must be a dict from a group's first node to its knobs; got {compiled.schedules!r}."
    heads = _heads(compiled)
    for head, knobs in compiled.schedules.items():
        if head not in heads:
            return f"There is a schedule for {str(head)[:40]!r}, which is not the first node of a group."
        if reason := why_not_knobs(head, knobs):
            return reason
    return ""


def _why_not_kernels(compiled: Compiled) -> str:
    if not isinstance(compiled.kernels, dict):
        return f"Compiled.kernels must be a dict from a group's first node to its kernel; got {compiled.kernels!r}."
    heads = _heads(compiled)
    for head, kernel in compiled.kernels.items():
        if head not in heads:
            return f"There is a kernel for {str(head)[:40]!r}, which is not the first node of a group."
        if head in compiled.schedules:
            return f"The group of {head} has a schedule and a Triton kernel: a kernel has its own loops. Leave one out."
        if reason := triton.why_not_a_kernel(head, kernel):
            return reason
    return ""


def _why_not_a_plan(plan: object) -> str:
    if plan is None:
        return ""
    if type(plan) is not Plan:
        return f"Compiled.plan must be a Plan (passlab.memory.plan); got {type(plan).__name__}."
    if not (type(plan.arena) is int and 0 <= plan.arena <= MOST_BYTES):
        return f"The plan's arena has {plan.arena} bytes: it must be from 0 to {MOST_BYTES:,}."
    return ""


def why_not_knobs(head: str, knobs: object) -> str:
    """Return why these are not knobs for the group that begins with `head`, or ""."""
    if not isinstance(knobs, dict):
        return f"The schedule of {head} must be a dict of knobs; got {str(knobs)[:40]!r}."
    for knob, value in knobs.items():
        if knob not in KNOBS:
            return f"The schedule of {head} has no knob {str(knob)[:40]!r}; the knobs are {', '.join(KNOBS)}."
        if value not in KNOBS[knob] or type(value) is not type(KNOBS[knob][0]):
            allowed = ", ".join(map(str, KNOBS[knob]))
            return f"The schedule of {head} has {knob} = {str(value)[:40]}; it may be {allowed}."
    return ""


def with_shapes(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph with `meta["val"]`, a tensor without data, on every node. Raises BadCompiled."""
    result = rebuild(gm)
    for node in result.graph.nodes:
        node.meta.pop("val", None)
    traced = copy.deepcopy(result) if has_effects(result.graph) else result  # a module may write into its buffers
    try:
        with torch.no_grad():
            FakeTensorProp(traced, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*inputs)
    except Exception as error:
        failed = next((n.name for n in traced.graph.nodes if n.op != "output" and "val" not in n.meta), "the output")
        message = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise BadCompiled(f"Node {failed} does not run: {message}") from error
    for node, source in zip(result.graph.nodes, traced.graph.nodes, strict=True):
        if "val" in source.meta:
            node.meta["val"] = source.meta["val"]
    return result


def check_groups(gm: fx.GraphModule, groups: Sequence[Sequence[str]]) -> None:
    """Raise BadCompiled for groups that cannot be kernels of a graph with shapes."""
    if reason := illegal(gm, groups, accepts=lambda part: library.match(gm, part) is not None):
        raise BadCompiled(reason)


def groupable(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[Sequence[Sequence[str]]], str | None]:
    """Return a function from groups of a graph's nodes to the reason why they cannot be kernels, or None.

    why_not = groupable(gm, inputs)
    why_not([["conv", "relu"], ["mul", "add"]])

    It computes the shapes once, and checks once for each group whether a kernel can be made of it.
    """
    gm = with_shapes(gm, inputs)
    why_no_kernel = kernel_check(gm, list(gm.graph.nodes))
    reasons: dict[str, str | None] = {}

    def why_not(groups: Sequence[Sequence[str]]) -> str | None:
        for group in groups:
            key = repr(group)  # it may hold values that are not hashable
            if key not in reasons:
                reasons[key] = illegal(gm, [group], lambda part: library.match(gm, part) is not None, why_no_kernel)
            if reasons[key]:
                return reasons[key]
        return illegal(gm, groups, lambda part: True)

    return why_not


def output_types(gm: fx.GraphModule, inputs: Sequence[Any]) -> list:
    """Return the shape and the dtype of each output of a graph, or None if it is not a tensor, without running it."""
    (output,) = with_shapes(gm, inputs).graph.find_nodes(op="output")
    values = (n.meta["val"] for n in tree_leaves(output.args[0]) if isinstance(n, fx.Node))
    return [
        [list(v.shape), str(v.dtype).removeprefix("torch.")] if isinstance(v, torch.Tensor) else None for v in values
    ]


def other_outputs(compiled: Compiled, inputs: Sequence[Any], types: list) -> str | None:
    """Return which output differs in shape or dtype from `types` (see `output_types`), or None."""
    for place, (old, new) in enumerate(zip(types, output_types(compiled.graph, inputs), strict=False)):
        if old and new and old != new:
            (shape, dtype), (shape_now, dtype_now) = old, new
            actual = f"{dtype_now} of shape {tuple(shape_now)}"
            return f"Output {place} was {dtype} of shape {tuple(shape)}, and is now {actual}."
    return None
