"""Domains, dependences, legality and generated code of every program, against its points enumerated beside isl."""

from __future__ import annotations

import ast as python
import itertools

import numpy as np
import pytest

from passlab.polyhedral import (
    PROGRAMS,
    dependences,
    depth,
    interchange,
    legal,
    order,
    pairs,
    parallel,
    parse,
    python_source,
    random_arrays,
    reference,
    reverse,
    run_python,
    skew,
    tile,
    times,
    violated,
)

EACH = pytest.mark.parametrize("name", PROGRAMS)


def sizes_of(program) -> dict:
    return {name: {"R": 2, "T": 4}.get(name, 6) for name in program.parameters}


class Watched:
    """An array that notes which elements a statement reads and writes."""

    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def __getitem__(self, at):
        self.notes.append(("reads", self.name, at if isinstance(at, tuple) else (at,)))
        return 1.0

    def __setitem__(self, at, _):
        self.notes.append(("writes", self.name, at if isinstance(at, tuple) else (at,)))


def trace(program, sizes) -> list[tuple[str, tuple, list]]:
    """What running the source does: (statement, iteration, its accesses), in order. Python runs it, not isl."""
    tree, names, ran = python.parse(program.source), iter(program.statements), []

    def noting(node, loops):
        for field in getattr(node, "body", []):
            if isinstance(field, python.For):
                noting(field, [*loops, field.target.id])
            elif not isinstance(field, python.Expr):
                at = ", ".join(loops)
                call = python.parse(f"begin({next(names).name!r}, ({at}{',' if loops else ''}))").body[0]
                before.append((node, field, call))

    before: list = []
    noting(tree, [])
    for node, field, call in before:
        node.body.insert(node.body.index(field), call)

    def begin(name, iteration):
        ran.append((name, iteration, []))

    class Notes(list):
        def append(self, note):
            ran[-1][2].append(note)

    arrays = {name: Watched(name, Notes()) for name in program.arrays}
    exec(compile(python.fix_missing_locations(tree), "traced", "exec"), {**sizes, **arrays, "begin": begin})
    return ran


@EACH
def test_domains_accesses_and_order_are_those_of_the_loops(name):
    program = PROGRAMS[name]
    sizes, ran = sizes_of(program), trace(program, sizes_of(program))
    assert order(program, program.schedule, sizes) == [(statement, at) for statement, at, _ in ran]
    for kind in ("reads", "writes"):
        own = {((s, at), (array, cell)) for s, at, notes in ran for what, array, cell in notes if what == kind}
        assert set(pairs(getattr(program, kind), sizes)) == own


@EACH
def test_dependences_are_those_that_counting_finds(name):
    program = PROGRAMS[name]
    sizes, ran = sizes_of(program), trace(program, sizes_of(program))
    expected = {kind: set() for kind in ("flow", "anti", "output", "values")}
    kinds = {("writes", "reads"): "flow", ("reads", "writes"): "anti", ("writes", "writes"): "output"}
    for (s, a, first), (t, b, second) in itertools.combinations(ran, 2):
        for (what, array, cell), (then, other, place) in itertools.product(first, second):
            if (array, cell) == (other, place) and (what, then) in kinds:
                expected[kinds[what, then]].add(((s, a), (t, b)))
    last = {}
    for s, at, notes in ran:
        for what, array, cell in notes:
            if what == "reads" and (array, cell) in last:
                expected["values"].add((last[array, cell], (s, at)))
        for what, array, cell in notes:
            if what == "writes":
                last[array, cell] = s, at
    for kind, item in expected.items():
        assert set(pairs(dependences(program, kind), sizes)) == item, kind
    together = expected["flow"] | expected["anti"] | expected["output"]
    assert set(pairs(dependences(program), sizes)) == together


def transformed(program):
    """Schedules made of a program's own, legal or not."""
    old = program.schedule
    dims = range(min(depth(old), 3))
    yield "itself", old
    for dim in dims:
        yield f"reverse {dim}", reverse(old, dim)
    for one, other in itertools.permutations(dims, 2):
        yield f"skew {one} by {other}", skew(old, one, other)
        yield f"skew {one} by -{other}", skew(old, one, other, -1)
        yield f"interchange {one} {other}", interchange(old, one, other)
        yield f"tile {one} {other}", tile(old, [one, other], [2, 3])
        yield f"skew, tile {one} {other}", tile(skew(old, one, other), [one, other], [2, 3])


@EACH
def test_legality_is_what_enumeration_says_and_the_witness_is_a_violated_pair(name):
    program = PROGRAMS[name]
    sizes = sizes_of(program)
    every = pairs(dependences(program), sizes)
    for what, schedule in transformed(program):
        place = {f"{s}{list(at)}": n for n, (s, at) in enumerate(order(program, schedule, sizes))}
        broken = [(f"{s}{list(a)}", f"{t}{list(b)}") for (s, a), (t, b) in every]
        broken = [(s, t) for s, t in broken if place[s] > place[t]]
        result = violated(dependences(program), schedule, sizes)
        assert result == (broken[0] if broken else None), what
        assert legal(program, schedule) == (not broken), what


@EACH
def test_parallel_dimensions_are_those_without_a_pair_that_they_tell_apart(name):
    program = PROGRAMS[name]
    sizes = {**sizes_of(program), "N": 10}  # tiles of 2 × 3 want a few of them to show what they carry
    every = pairs(dependences(program), sizes)
    for what, schedule in transformed(program):
        time = {at: when for when, at in times(program, schedule, sizes)}
        carrying = {next(d for d, (a, b) in enumerate(zip(time[s], time[t], strict=True)) if a != b) for s, t in every}
        assert parallel(program, schedule) == [d for d in range(depth(schedule)) if d not in carrying], what


@EACH
def test_generated_source_runs_and_equals_the_original(name):
    program = PROGRAMS[name]
    sizes = sizes_of(program)
    arrays = random_arrays(program, sizes)
    want, ran = reference(program, sizes, arrays), 0
    for what, schedule in transformed(program):
        if legal(program, schedule):
            for source in (python_source(program, schedule), python_source(program, schedule, sizes)):
                actual = run_python(source, sizes, arrays)
                assert all(np.array_equal(want[array], actual[array]) for array in arrays), what
                again = parse(source)
                assert len(order(again, again.schedule, sizes)) == len(order(program, schedule, sizes))
                ran += 1
    assert ran >= 2
