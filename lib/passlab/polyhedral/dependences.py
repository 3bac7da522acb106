"""Dependences between iterations, and whether an order respects them."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from passlab.polyhedral.program import Program, first_pair, fixed, instance
from passlab.polyhedral.schedules import Schedule, depth, schedule_of, why_not_a_schedule

#: Kind → what the earlier and the later iteration do to the element that both touch.
KINDS = {"flow": ("writes", "reads"), "anti": ("reads", "writes"), "output": ("writes", "writes")}


def dependences(program: Program, kind: str = "all") -> isl.UnionMap:
    """Return the pairs of iterations, earlier → later in the source's order, that touch the same element.

    kind: "flow" (write, then read), "anti" (read, then write), "output" (write, then write): every such pair, whether
    or not another iteration writes in between. "all": the three together, which a legal order must preserve. "values":
    from the last write before a read to that read, the pairs between which a value really travels. Raises ValueError
    for another kind.
    """
    if kind == "values":
        return _values(program)
    if kind == "all":
        flow, anti, output = (dependences(program, name) for name in KINDS)
        return anti.union(output).union(flow).coalesce()
    if kind not in KINDS:
        raise ValueError(f"There is no dependence kind {kind!r}; choose from {', '.join([*KINDS, 'values', 'all'])}.")
    source, target = (getattr(program, accesses) for accesses in KINDS[kind])
    return source.apply_range(target.reverse()).intersect(_before(program.schedule, program.domain)).coalesce()


def _before(schedule: isl.UnionMap, domain: isl.UnionSet) -> isl.UnionMap:
    """Return the pairs (a, b) of iterations where a is strictly before b."""
    timed = schedule.intersect_domain(domain)
    return timed.lex_lt_union_map(timed)


def _values(program: Program) -> isl.UnionMap:
    access = isl.UnionAccessInfo.from_sink(program.reads)
    access = access.set_must_source(program.writes).set_schedule_map(program.schedule.intersect_domain(program.domain))
    return access.compute_flow().get_must_dependence().coalesce()


def violated(
    dependences: isl.UnionMap, schedule: Schedule, sizes: Mapping[str, int] | None = None
) -> tuple[str, str] | None:
    """Return a pair of iterations (source, target) that the schedule does not run in this order, such as ("S[0, 2]",
    "S[1, 1]"), or None.

    The pair is the first by source, then target. sizes: check only these; without them all sizes are checked, and the
    pair is one at the smallest sizes that have one.
    """
    schedule = schedule_of(schedule)
    violations = dependences.subtract(_before(schedule, dependences.domain().union(dependences.range())))
    violations = fixed(violations, sizes or {})
    if violations.is_empty():
        return None
    source, target = first_pair(violations)
    return instance(*source), instance(*target)


def parallel(program: Program, schedule: Schedule) -> list[int]:
    """Return the dimensions whose loops may run all iterations at once: those that carry no dependence.

    A dimension carries a pair of iterations if their times differ there, and are equal in all dimensions outside of it.
    """
    schedule = schedule_of(schedule)
    waits = dependences(program).apply_domain(schedule).apply_range(schedule)
    count, free = depth(schedule), []
    early, late = ([f"{letter}{dim}" for dim in range(count)] for letter in "ab")
    for dim in range(count):
        conditions = [f"{a} = {b}" for a, b in zip(early[:dim], late[:dim], strict=True)]
        conditions.append(f"{early[dim]} != {late[dim]}")
        carried = isl.UnionMap(f"{{ [{', '.join(early)}] -> [{', '.join(late)}] : {' and '.join(conditions)} }}")
        if waits.is_disjoint(carried):
            free.append(dim)
    return free


def legal(program: Program, schedule: Schedule) -> bool:
    """Return whether the schedule runs every iteration once and respects all dependences, at any size."""
    schedule = schedule_of(schedule)
    return not why_not_a_schedule(program, schedule) and violated(dependences(program), schedule) is None
