"""A plan: in which order the nodes of a graph run, and where the storages that they make lie in one arena.

plan = planned(gm, *inputs, allocate=first_fit, alignment=64)
plan.arena, plan.offsets["relu"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from passlab.judge import record
from passlab.memory.allocate import first_fit
from passlab.memory.buffers import BadPlan, Buffer, check, height, overlaps
from passlab.memory.liveness import check_order, liveness, ranges
from passlab.memory.storages import Storage, storages

#: Where torch puts tensors: multiples of 64 bytes, a line of the cache.
ALIGNMENT = 64
_KINDS = {"input": "an input", "parameter": "a parameter"}


@record
@dataclass(frozen=True)
class Plan:
    """`order`: names of all nodes; `offsets`: name of a storage → its first byte; `arena`: bytes."""

    order: tuple[str, ...]
    offsets: Mapping[str, int]
    arena: int


def planned(
    gm: fx.GraphModule,
    *inputs: torch.Tensor,
    allocate: Callable[..., Mapping[str, int]] = first_fit,
    order: Sequence[str] | None = None,
    alignment: int = ALIGNMENT,
) -> Plan:
    """Return a plan for a graph on such inputs, with offsets by `allocate(buffers, alignment=…)`."""
    buffers = liveness(gm, *inputs, order=order)
    offsets = allocate(buffers, alignment=alignment)
    names = tuple(order) if order is not None else tuple(node.name for node in gm.graph.nodes)
    return Plan(names, dict(offsets), height(buffers, offsets))


def check_plan(gm: fx.GraphModule, plan: Plan, *inputs: torch.Tensor, alignment: int = 1) -> list[Buffer]:
    """Return the buffers of a plan that can run; raise BadPlan, with the reason, for any other."""
    check_order(gm, plan.order)
    found = storages(gm, *inputs)
    buffers = ranges(found, gm, plan.order)
    if type(plan.arena) is not int or plan.arena < 0:
        raise BadPlan(f"The arena of the plan is {str(plan.arena)[:40]}: it must be an int, its number of bytes.")
    if isinstance(plan.offsets, Mapping):
        _check_owners(found, plan.offsets)
    check(buffers, plan.offsets, alignment, plan.arena)
    for one in found:
        if plan.offsets.get(one.name, 0) % one.width:
            raise BadPlan(
                f"The offset of {one.name} is {plan.offsets[one.name]}, and its numbers have {one.width} bytes: choose "
                f"a multiple of {one.width}."
            )
    return buffers


def _check_owners(found: Sequence[Storage], offsets: Mapping[str, int]) -> None:
    """Raise BadPlan for an offset of a value that has no memory of its own, such as an output that is a view."""
    owners = {storage.name for storage in found}
    for storage in found:
        if storage.kind != "value" and (named := [name for name in storage.values if name in offsets]):
            what = named[0] if named[0] == storage.name else f"{named[0]} lies in {storage.name}, which"
            raise BadPlan(
                f"{what} is {_KINDS[storage.kind]}: it is the caller's memory, and has no offset in the arena."
            )
        if not storage.size and storage.name in offsets:
            raise BadPlan(f"{storage.name} has 0 bytes, so it needs no place: leave its offset out.")
        if storage.kind == "value" and (views := [v for v in storage.values if v not in owners and v in offsets]):
            raise BadPlan(f"{views[0]} lies in the memory of {storage.name}: only {storage.name} has an offset.")


def clashes(gm: fx.GraphModule, plan: Plan, *inputs: torch.Tensor) -> list:
    """Return the pairs of storages that meet in time and place, as `overlaps` does."""
    return overlaps(liveness(gm, *inputs, order=plan.order), plan.offsets)
