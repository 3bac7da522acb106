"""Schedules: maps from iterations to times, transformations of them, and how to check them.

A schedule is { S[i, j] -> [j, i]; … }: iterations run in the lexicographic order of their times. All statements have
times of the same length; a dimension that is constant for each statement orders the statements (as 0 and 1 in
{ S[i] -> [i, 0]; T[i] -> [i, 1] }). Dimensions are counted from 0, the outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import islpy as isl

from passlab.polyhedral.program import Program, coordinates, first_of, first_pair, fixed, instance, maps_of, smallest

#: A schedule, or its text.
Schedule = isl.UnionMap | isl.Map | str


#: Notation unknown to isl → its replacement.
_UNKNOWN = {"==": "=", "&&": "and", "||": "or", "**": "a product by a number", "//": "floor(a/b)"}


def remedy(text: str) -> str:
    """Return how to correct a text that isl cannot read, as a sentence to append, or ""."""
    for opening, closing in ("{}", "[]", "()"):
        if text.count(opening) != text.count(closing):
            return f" It has {text.count(opening)} {opening} and {text.count(closing)} {closing}."
    advice = [f"{write!r} for {foreign!r}" for foreign, write in _UNKNOWN.items() if foreign in text]
    return f" Write {', '.join(advice)}." if advice else ""


def cannot_read(text: str) -> str:
    return f"isl cannot read {text[:120]!r}.{remedy(text)}"


def schedule_of(schedule: Schedule) -> isl.UnionMap:
    """Return the schedule as an isl object.

    Raise ValueError for text that cannot be parsed, and TypeError for a value that is neither text nor a map.
    """
    if isinstance(schedule, isl.UnionMap):
        return schedule
    if isinstance(schedule, isl.Map):
        return isl.UnionMap.from_map(schedule)
    if not isinstance(schedule, str):
        raise TypeError(f"A schedule is a map of isl or its text; got {type(schedule).__name__}.")
    try:
        return isl.UnionMap(schedule)
    except isl.Error:
        raise ValueError(f"{cannot_read(schedule)} A schedule is written {{ S[i, j] -> [j, i] }}.") from None


# ── From a schedule to another ────────────────────────────────────────────────────────────────────────────────────────


def interchange(schedule: Schedule, first: int, second: int) -> isl.UnionMap:
    """[…, a, …, b, …] → […, b, …, a, …]: interchange two loops."""

    def times(t: list[str]) -> list[str]:
        swapped = list(t)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        return swapped

    return _after(schedule, times, first, second)


def reverse(schedule: Schedule, dim: int) -> isl.UnionMap:
    """[…, a, …] → […, -a, …]: run a loop backwards."""
    return _after(schedule, lambda t: [*t[:dim], f"-{t[dim]}", *t[dim + 1 :]], dim)


def skew(schedule: Schedule, dim: int, by: int, factor: int = 1) -> isl.UnionMap:
    """[…, b, …, a, …] → […, b, …, a + factor·b, …]: each iteration of loop `by` shifts loop `dim` further."""
    return _after(schedule, lambda t: [*t[:dim], f"{t[dim]} + {factor} * {t[by]}", *t[dim + 1 :]], dim, by)


def tile(schedule: Schedule, dims: Sequence[int], sizes: Sequence[int]) -> isl.UnionMap:
    """[…, a, b, …] → […, ⌊a/s⌋, ⌊b/t⌋, a, b, …]: loops over tiles, outside the first loop that they tile.

    Raises ValueError for sizes below 1, or not one for each dimension.
    """
    if len(dims) != len(sizes) or not dims:
        raise ValueError(f"tile needs one size for each of the dimensions {list(dims)}; got {list(sizes)}.")
    if any(size < 1 for size in sizes):
        raise ValueError(f"Tile sizes must be at least 1; got {list(sizes)}.")
    first = min(dims)

    def times(t: list[str]) -> list[str]:
        tiles = [f"floor({t[dim]} / {size})" for dim, size in zip(dims, sizes, strict=True)]
        return [*t[:first], *tiles, *t[first:]]

    return _after(schedule, times, *dims)


def fuse(schedule: Schedule, dim: int, depth: int = 1) -> isl.UnionMap:
    """[…, n, a, …] → […, a, n, …]: merge loops in sequence (n is 0, 1, …) into one.

    depth: how many loops to merge, from the outermost.
    """
    return _after(
        schedule,
        lambda t: [*t[:dim], *t[dim + 1 : dim + depth + 1], t[dim], *t[dim + depth + 1 :]],
        dim,
        dim + depth,
    )


def distribute(schedule: Schedule, dim: int, depth: int = 1) -> isl.UnionMap:
    """[…, a, n, …] → […, n, a, …]: split a loop over several statements (n is 0, 1, …).

    dim: the dimension of n. depth: how many loops to split.
    """
    return _after(
        schedule,
        lambda t: [*t[: dim - depth], t[dim], *t[dim - depth : dim], *t[dim + 1 :]],
        dim - depth,
        dim,
    )


def depth(schedule: Schedule) -> int:
    """Return the number of dimensions of the times."""
    return max((relation.dim(isl.dim_type.out) for relation in maps_of(schedule_of(schedule))), default=0)


def _after(schedule: Schedule, times: Callable[[list[str]], list[str]], *dims: int) -> isl.UnionMap:
    """Apply a map of times to the schedule. `dims`: dimensions that must exist."""
    schedule = schedule_of(schedule)
    count = depth(schedule)
    for dim in dims:
        if not 0 <= dim < count:
            raise ValueError(f"There is no dimension {dim}: the times of this schedule have {count}, counted from 0.")
    old = [f"t{at}" for at in range(count)]
    return schedule.apply_range(isl.UnionMap(f"{{ [{', '.join(old)}] -> [{', '.join(times(old))}] }}"))


# ── Checking an order ─────────────────────────────────────────────────────────────────────────────────────────────────


def why_not_a_schedule(program: Program, schedule: Schedule) -> str:
    """Return why this is not an order of the program's iterations, or "".

    A schedule gives each iteration exactly one time, and no two iterations the same.
    """
    try:
        schedule = schedule_of(schedule)
    except (TypeError, ValueError) as error:
        return str(error)
    relations, names = maps_of(schedule), {statement.name: statement for statement in program.statements}
    for relation in relations:
        name = relation.get_tuple_name(isl.dim_type.in_)
        if name not in names:
            return f"The schedule orders {name or 'something without a name'}; the statements are {', '.join(names)}."
        wants, has = len(names[name].iterators), relation.dim(isl.dim_type.in_)
        if wants != has:
            return f"The statement {name} is in {wants} loops; the schedule gives it {has} variables."
        if relation.has_tuple_name(isl.dim_type.out):
            label = relation.get_tuple_name(isl.dim_type.out)
            return f"The times of {name} are named {label}: drop the name, {name}[…] -> […]."
    if unknown := sorted(set(schedule.get_var_names(isl.dim_type.param)) - set(program.parameters)):
        return f"The schedule uses a size {unknown[0]}; the program has {', '.join(program.parameters) or 'none'}."
    lengths = {(relation.get_tuple_name(isl.dim_type.in_), relation.dim(isl.dim_type.out)) for relation in relations}
    if len({length for _, length in lengths}) > 1:
        lengths_text = ", ".join(f"those of {name} have {length}" for name, length in sorted(lengths))
        return f"Times must have the same number of dimensions to be compared: {lengths_text}."
    for name, statement in names.items():
        dropped = isl.UnionSet.from_set(statement.domain).subtract(schedule.domain())
        if not dropped.is_empty():
            if name not in dict(lengths):
                return f"The schedule drops the statement {name}: it gives it no time."
            return f"The schedule drops iterations of {name}: {instance(*first_of(dropped))} has no time."
    schedule = schedule.intersect_domain(program.domain)
    return _why_not_a_function(schedule) or _why_not_injective(schedule)


def _why_not_a_function(schedule: isl.UnionMap) -> str:
    if schedule.is_single_valued():
        return ""
    for relation in maps_of(schedule):
        twice = relation.lex_lt_map(relation)
        twice = twice.intersect(isl.Map.identity(twice.get_space())).domain()
        if not twice.is_empty():
            sizes = smallest(twice.params())
            iteration = fixed(twice, sizes).lexmin()
            times = fixed(relation, sizes).intersect_domain(iteration).range()
            first = times.sample_point()
            second = times.subtract(isl.Set.from_point(first)).sample_point()
            early, late = sorted([coordinates(first), coordinates(second)])
            name = instance(relation.get_tuple_name(isl.dim_type.in_), coordinates(iteration.sample_point()))
            return f"The schedule is not a function: it gives {name} the times {list(early)} and {list(late)}."
    raise AssertionError("isl calls the schedule multi-valued, but no statement has two times")


def _why_not_injective(schedule: isl.UnionMap) -> str:
    if schedule.is_injective():
        return ""
    simultaneous = schedule.apply_range(schedule.reverse())
    first, second = first_pair(simultaneous.subtract(schedule.domain().identity()))
    return f"The schedule gives {instance(*first)} and {instance(*second)} the same time, so their order is undefined."
