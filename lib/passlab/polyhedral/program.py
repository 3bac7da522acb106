"""A loop nest in the polyhedral model: statements with their iterations, reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import islpy as isl


@dataclass(frozen=True, eq=False)
class Statement:
    """One assignment in a loop nest.

    `domain`: its iterations, { S[i, j] : 0 <= i < N and … }. `reads`, `writes`: the elements that each iteration
    touches, { S[i, j] -> A[i, j - 1] }. `body`: the assignment as text, in the loop variables. `line`: in the source.
    """

    name: str
    domain: isl.Set
    reads: isl.UnionMap
    writes: isl.UnionMap
    body: str
    line: int = 0

    @property
    def iterators(self) -> tuple[str, ...]:
        """The variables of the enclosing loops, from the outermost."""
        return tuple(self.domain.get_var_names(isl.dim_type.set))


@dataclass(frozen=True, eq=False)
class Program:
    """Statements in loops. `arrays`: name → number of subscripts. `schedule`: the order in which the source runs them,
    as a map from iterations to times. `parameters`: the symbolic sizes. `source`: the loops as text.
    """

    statements: tuple[Statement, ...]
    arrays: Mapping[str, int]
    schedule: isl.UnionMap
    parameters: tuple[str, ...]
    source: str
    name: str = field(default="main", kw_only=True)

    def __getitem__(self, name: str) -> Statement:
        for statement in self.statements:
            if statement.name == name:
                return statement
        raise KeyError(f"There is no statement {name}; there are {', '.join(s.name for s in self.statements)}.")

    @property
    def domain(self) -> isl.UnionSet:
        """All iterations."""
        return _union([isl.UnionSet.from_set(s.domain) for s in self.statements])

    @property
    def reads(self) -> isl.UnionMap:
        return _union([s.reads for s in self.statements])

    @property
    def writes(self) -> isl.UnionMap:
        return _union([s.writes for s in self.statements])

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the smallest shapes that hold all accesses. Raise ValueError for a negative subscript."""
        touched = at_sizes(self, self.reads.union(self.writes).intersect_domain(self.domain), sizes)
        extents = {name: (0,) * rank for name, rank in self.arrays.items()}
        for cells in sets_of(touched.range()):
            name, rank = cells.get_tuple_name(), cells.dim(isl.dim_type.set)
            for axis in range(rank):
                if (least := cells.dim_min_val(axis).to_python()) < 0:
                    raise ValueError(
                        f"{self._outside(name, axis, touched)} reaches {name} at {least} on axis {axis}, before its "
                        "beginning: start the loop later, or shift the subscript."
                    )
            extents[name] = tuple(cells.dim_max_val(axis).to_python() + 1 for axis in range(rank))
        return extents

    def _outside(self, array: str, axis: int, touched: isl.UnionMap) -> str:
        for access in maps_of(touched):
            cells = access.range()
            if cells.get_tuple_name() == array and cells.dim_min_val(axis).to_python() < 0:
                return f"The statement {access.get_tuple_name(isl.dim_type.in_)}"
        return "A statement"

    def __repr__(self) -> str:
        return f"Program({self.name}: {', '.join(s.name for s in self.statements)})\n{self.source}"


def at_sizes(program: Program, relation, sizes: Mapping[str, int] | None):
    """Fix a set or relation at given sizes. Raise ValueError for a parameter without a size."""
    sizes = sizes or {}
    if missing := [name for name in program.parameters if name not in sizes]:
        raise ValueError(f"There is no size for {' and '.join(missing)}: give sizes={{{missing[0]!r}: 8, …}}.")
    return fixed(relation, {name: sizes[name] for name in program.parameters})


def fixed(relation, sizes: Mapping[str, int]):
    """Fix parameters of a set or relation at the given values."""
    if not sizes:
        return relation
    names = ", ".join(sizes)
    equal = " and ".join(f"{name} = {int(value)}" for name, value in sizes.items())
    return relation.intersect_params(isl.Set(f"[{names}] -> {{ : {equal} }}"))


def instance(name: str, values) -> str:
    """Format an iteration as "S[1, 2]"."""
    return f"{name}[{', '.join(map(str, values))}]"


def smallest(params: isl.Set) -> dict[str, int]:
    """Return the sizes of least sum in a set of sizes, without negative ones if possible."""
    names = params.get_var_names(isl.dim_type.param)
    if not names:
        return {}
    values = [f"v{at}" for at in range(len(names))]
    equal = " and ".join(f"{value} = {name}" for value, name in zip(values, names, strict=True))
    space = f"[total, {', '.join(values)}]"
    sizes = isl.Set(f"[{', '.join(names)}] -> {{ {space} : total = {' + '.join(names)} and {equal} }}")
    sizes = sizes.intersect_params(params).project_out_all_params()
    natural = sizes.intersect(isl.Set(f"{{ {space} : {' and '.join(f'{value} >= 0' for value in values)} }}"))
    point = sizes.sample_point() if natural.is_empty() else natural.lexmin().sample_point()
    return dict(zip(names, coordinates(point)[1:], strict=True))


def first_pair(relation: isl.UnionMap) -> tuple[tuple[str, tuple], tuple[str, tuple]]:
    """Return the first pair of a relation at the smallest sizes that have one: (("S", (0, 1)), ("S", (1, 0)))."""
    relation = fixed(relation, smallest(relation.params()))
    firsts = []
    for part in maps_of(relation):
        values, split = coordinates(part.wrap().lexmin().sample_point()), part.dim(isl.dim_type.in_)
        source, target = (part.get_tuple_name(kind) for kind in (isl.dim_type.in_, isl.dim_type.out))
        firsts.append(((source, values[:split]), (target, values[split:])))
    return min(firsts)


def pairs(relation: isl.UnionMap, sizes: Mapping[str, int]) -> list[tuple[tuple[str, tuple], tuple[str, tuple]]]:
    """List all pairs at given (small) sizes, sorted: [(("S", (0, 1)), ("S", (1, 0))), …]."""
    instances = []
    for part in maps_of(fixed(relation, sizes)):
        split = part.dim(isl.dim_type.in_)
        names = [part.get_tuple_name(kind) for kind in (isl.dim_type.in_, isl.dim_type.out)]

        def note(point: isl.Point, split=split, names=names) -> None:
            values = coordinates(point)
            instances.append(((names[0], values[:split]), (names[1], values[split:])))

        part.wrap().foreach_point(note)
    return sorted(instances)


def first_of(instances: isl.UnionSet) -> tuple[str, tuple]:
    """Return the first iteration of a set at the smallest sizes that have one: ("S", (0, 1))."""
    instances = fixed(instances, smallest(instances.params()))
    return min((domain.get_tuple_name(), coordinates(domain.lexmin().sample_point())) for domain in sets_of(instances))


def coordinates(point: isl.Point) -> tuple[int, ...]:
    """Return the coordinates of a point, without parameters."""
    count = point.get_space().dim(isl.dim_type.set)
    return tuple(point.get_coordinate_val(isl.dim_type.set, at).to_python() for at in range(count))


def sets_of(union: isl.UnionSet) -> list[isl.Set]:
    """Split a union into its sets, one for each name."""
    sets: list[isl.Set] = []
    union.foreach_set(sets.append)
    return sets


def maps_of(union: isl.UnionMap) -> list[isl.Map]:
    """Split a union into its maps, one for each pair of names."""
    maps: list[isl.Map] = []
    union.foreach_map(maps.append)
    return maps


def _union(parts: list):
    return reduce(lambda a, b: a.union(b), parts)
