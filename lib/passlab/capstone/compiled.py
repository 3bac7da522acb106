"""What a compiler hands over: data, from which a program is built elsewhere.

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
from passlab.fx.judge import rebuild, validate
from passlab.fx.programs import to_device
from passlab.judge import record
from passlab.kernels import illegal
from passlab.kernels.schedule import KNOBS
from passlab.memory.plan import Plan

#: More than any graph of the course needs.
MOST_GROUPS, MOST_BYTES = 10_000, 2**34


@record
@dataclass
class Compiled:
    """A compiled model.

    `graph`: torch.fx nodes over torch's operators and `passlab.fx.ops`. `groups`: lists of node names, each of which
    becomes one kernel; every other node is a call of torch. `schedules`: name of the first node of a group → knobs of
    its loops (`passlab.kernels.schedule.KNOBS`). `plan`: the order of the steps and the places of what they make, for
    `grouped(graph, groups, inputs, layouts)`; without one, the order of the graph and first fit. `kernels`: name of the
    first node of a group → its kernel for a GPU (`passlab.capstone.triton`); on a CPU the group runs by default.
    `layouts`: name of a value, or path of a parameter → the order of its dimensions in memory, outermost first
    (`passlab.capstone.layouts`); what is not named lies as torch and the library put it.
    """

    graph: Any
    groups: list[list[str]] = field(default_factory=list)
    schedules: dict[str, dict] = field(default_factory=dict)
    plan: Plan | None = None
    kernels: dict[str, Triton] = field(default_factory=dict)
    layouts: dict[str, list[int]] = field(default_factory=dict)


def on(device: str, compiled: Compiled) -> Compiled:
    """Return what a compiler handed over with its graph on a device, in a copy."""
    return replace(compiled, graph=to_device(copy.deepcopy(compiled.graph), device))


class BadCompiled(ValueError):
    """No program can be built from this: the message says why, and at which node."""


def wrong(before: fx.GraphModule | None, compiled: object) -> str | None:
    """Return why this is not a Compiled of a model whose graph is `before`, in one sentence; None if it is one.

    Nothing is run. What needs shapes, such as legal groups and a plan that holds, or a look into a kernel's text, is
    for whoever builds it: `build` and `counts` raise BadCompiled.
    """
    if compiled is None:
        return "The compiler returned None. End it with `return Compiled(gm, …)`."
    if type(compiled) is not Compiled:
        what = type(compiled).__name__
        code = isinstance(compiled, torch.nn.Module) or callable(compiled)
        why = "which is code: hand over data, as Compiled(graph, …)" if code else "not a Compiled"
        return f"The compiler returned {what}, {why}."
    if why := validate(before, compiled.graph):
        return why.replace("The pass returned", "Compiled.graph is")
    return _malformed(compiled)


def _malformed(compiled: Compiled) -> str | None:
    """Return what is wrong with the form of groups, schedules, kernels, layouts and plan, or None."""
    names = {node.name for node in compiled.graph.graph.nodes}
    groups = compiled.groups
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        return f"Compiled.groups must be a list of lists of node names; got {str(groups)[:60]}."
    if len(groups) > MOST_GROUPS or sum(map(len, groups)) > len(names):
        return f"Compiled.groups names {sum(map(len, groups)):,} nodes; the graph has {len(names):,}."
    if not isinstance(compiled.schedules, dict):
        return f"Compiled.schedules must be a dict from a group's first node to its knobs; got {compiled.schedules!r}."
    heads = {group[0] for group in groups if group and isinstance(group[0], str)}
    for head, knobs in compiled.schedules.items():
        if head not in heads:
            return f"There is a schedule for {str(head)[:40]!r}, which is not the first node of a group."
        if why := unfit_knobs(head, knobs):
            return why
    if not isinstance(compiled.kernels, dict):
        return f"Compiled.kernels must be a dict from a group's first node to its kernel; got {compiled.kernels!r}."
    for head, kernel in compiled.kernels.items():
        if head not in heads:
            return f"There is a kernel for {str(head)[:40]!r}, which is not the first node of a group."
        if head in compiled.schedules:
            return f"The group of {head} has a schedule and a Triton kernel: a kernel has its own loops. Leave one out."
        if why := triton.malformed(head, kernel):
            return why
    if why := layouts.malformed(compiled.graph, compiled.layouts):
        return why
    if compiled.plan is not None and type(compiled.plan) is not Plan:
        return f"Compiled.plan must be a Plan (passlab.memory.plan); got {type(compiled.plan).__name__}."
    if compiled.plan is not None and not (type(compiled.plan.arena) is int and 0 <= compiled.plan.arena <= MOST_BYTES):
        return f"The plan's arena has {compiled.plan.arena} bytes: it must be from 0 to {MOST_BYTES:,}."
    return None


def unfit_knobs(head: str, knobs: object) -> str | None:
    """Return why these are no knobs for the group that begins with `head`, or None."""
    if not isinstance(knobs, dict):
        return f"The schedule of {head} must be a dict of knobs; got {str(knobs)[:40]!r}."
    for knob, value in knobs.items():
        if knob not in KNOBS:
            return f"The schedule of {head} has no knob {str(knob)[:40]!r}; the knobs are {', '.join(KNOBS)}."
        if value not in KNOBS[knob] or type(value) is not type(KNOBS[knob][0]):
            allowed = ", ".join(map(str, KNOBS[knob]))
            return f"The schedule of {head} has {knob} = {str(value)[:40]}; it may be {allowed}."
    return None


def with_shapes(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph with `meta["val"]`, a tensor without data, on every node. Raises BadCompiled."""
    made = rebuild(gm)
    for node in made.graph.nodes:
        node.meta.pop("val", None)
    tried = copy.deepcopy(made) if has_effects(made.graph) else made  # a module may write into its buffers
    try:
        with torch.no_grad():
            FakeTensorProp(tried, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*inputs)
    except Exception as error:
        failed = next((n.name for n in tried.graph.nodes if n.op != "output" and "val" not in n.meta), "the output")
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise BadCompiled(f"Node {failed} does not run: {said}") from error
    for node, found in zip(made.graph.nodes, tried.graph.nodes, strict=True):
        if "val" in found.meta:
            node.meta["val"] = found.meta["val"]
    return made


def check_groups(gm: fx.GraphModule, groups: Sequence[Sequence[str]]) -> None:
    """Raise BadCompiled for groups that cannot be kernels of a graph with shapes."""
    if why := illegal(gm, groups, accepts=lambda part: library.match(gm, part) is not None):
        raise BadCompiled(why)


def groupable(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[Sequence[Sequence[str]]], str | None]:
    """Return a function from groups of nodes of a graph to why they cannot be kernels, or None if they can.

    why_not = groupable(gm, inputs)
    why_not([["conv", "relu"], ["mul", "add"]])

    It finds the shapes once, and asks once for each group whether a kernel can be made of it.
    """
    gm = with_shapes(gm, inputs)
    known: dict[str, str | None] = {}

    def why_not(groups: Sequence[Sequence[str]]) -> str | None:
        for group in groups:
            key = repr(group)  # whatever is in it
            if key not in known:
                known[key] = illegal(gm, [group], lambda part: library.match(gm, part) is not None)
            if known[key]:
                return known[key]
        return illegal(gm, groups, lambda part: True)

    return why_not


def output_types(gm: fx.GraphModule, inputs: Sequence[Any]) -> list:
    """Return the shape and the dtype of each output of a graph, and None for what is no tensor. It does not run."""
    (output,) = with_shapes(gm, inputs).graph.find_nodes(op="output")
    values = (n.meta["val"] for n in tree_leaves(output.args[0]) if isinstance(n, fx.Node))
    return [
        [list(v.shape), str(v.dtype).removeprefix("torch.")] if isinstance(v, torch.Tensor) else None for v in values
    ]


def other_outputs(compiled: Compiled, inputs: Sequence[Any], types: list) -> str | None:
    """Return which output has another shape or dtype than `types` says (see `output_types`), or None."""
    for place, (old, new) in enumerate(zip(types, output_types(compiled.graph, inputs), strict=False)):
        if old and new and old != new:
            (shape, dtype), (shape_now, dtype_now) = old, new
            now = f"{dtype_now} of shape {tuple(shape_now)}"
            return f"Output {place} was {dtype} of shape {tuple(shape)}, and is now {now}."
    return None
