"""A plan: the order of the nodes of a graph, and the offsets of their storages in one arena.

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

#: torch aligns tensors to 64 bytes, a line of the cache.
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
    """Return a plan for a graph and inputs, with offsets by `allocate(buffers, alignment=…)`."""
    buffers = liveness(gm, *inputs, order=order)
    offsets = allocate(buffers, alignment=alignment)
    names = tuple(order) if order is not None else tuple(node.name for node in gm.graph.nodes)
    return Plan(names, dict(offsets), height(buffers, offsets))


def check_plan(gm: fx.GraphModule, plan: Plan, *inputs: torch.Tensor, alignment: int = 1) -> list[Buffer]:
    """Return the buffers of a valid plan; raise BadPlan, with the reason, for any other."""
    check_order(gm, plan.order)
    known = storages(gm, *inputs)
    buffers = ranges(known, gm, plan.order)
    if type(plan.arena) is not int or plan.arena < 0:
        raise BadPlan(f"The arena of the plan is {str(plan.arena)[:40]}: it must be an int, its number of bytes.")
    if isinstance(plan.offsets, Mapping):
        _check_owners(known, plan.offsets)
    check(buffers, plan.offsets, alignment, plan.arena)
    for storage in known:
        if (offset := plan.offsets.get(storage.name, 0)) % storage.width:
            raise BadPlan(
                f"The offset of {storage.name} is {offset}, and its numbers have {storage.width} bytes: choose a "
                f"multiple of {storage.width}."
            )
    return buffers


def _check_owners(known: Sequence[Storage], offsets: Mapping[str, int]) -> None:
    """Raise BadPlan for an offset of a value that has no memory of its own, such as an output that is a view."""
    owners = {storage.name for storage in known}
    for storage in known:
        values = [name for name in storage.values if name in offsets]
        if storage.kind != "value" and values:
            subject = values[0] if values[0] == storage.name else f"{values[0]} is in {storage.name}, which"
            raise BadPlan(
                f"{subject} is {_KINDS[storage.kind]}: it is the caller's memory, and has no offset in the arena."
            )
        if not storage.size and storage.name in offsets:
            raise BadPlan(f"{storage.name} has 0 bytes, so it needs no place: leave its offset out.")
        if views := [name for name in values if name not in owners]:
            raise BadPlan(f"{views[0]} is in the memory of {storage.name}: only {storage.name} has an offset.")


def clashes(gm: fx.GraphModule, plan: Plan, *inputs: torch.Tensor) -> list:
    """Return the pairs of storages that overlap in time and in the arena, as `overlaps` does."""
    return overlaps(liveness(gm, *inputs, order=plan.order), plan.offsets)
