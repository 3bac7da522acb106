"""Hidden cases and answers of day10.dependences.

A pair is named source → target; most wrong answers lose one part of the definition.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import islpy as isl

from autograder.authoring.answers import reference, right, wrong
from passlab import polyhedral
from passlab.exercises.day10.dependences import dependences_case
from passlab.given.day10._isl import as_text
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    far, size = rng.randint(2, 4), rng.randint(5, 9)
    line = "[N] -> { S[i] : 0 <= i < N }"
    programs = {
        "backwards": (line, f"{{ S[i] -> A[i - {far}] }}", "{ S[i] -> A[i] }", "{ S[i] -> [-i] }"),
        "every second cell": (line, f"{{ S[i] -> A[2i + {far}] }}", "{ S[i] -> A[i] }", "{ S[i] -> [i] }"),
        "a ring of cells": (
            line,
            f"{{ S[i] -> A[(i - 1) mod {size}] }}",
            f"{{ S[i] -> A[i mod {size}] }}",
            "{ S[i] -> [i] }",
        ),
        "what is not in the domain": (
            f"[N] -> {{ S[i] : 0 <= i < N and i % {far} = 0; T[i] : {far} <= i < N }}",
            "{ T[i] -> A[i]; T[i] -> A[i - 1]; U[i] -> A[i] }",
            "{ S[i] -> A[i]; T[i] -> B[i]; U[i] -> A[i] }",
            "{ S[i] -> [0, i]; T[i] -> [1, i]; U[i] -> [0, i] }",
        ),
        "written twice, read twice": (
            "[N] -> { S[i] : 0 <= i < N; T[i] : 0 <= i < N; U[i] : 0 <= i < N }",
            "{ T[i] -> A[i]; U[i] -> A[i]; U[i] -> A[0] }",
            "{ S[i] -> A[i]; T[i] -> A[i]; T[i] -> B[i]; U[i] -> C[i] }",
            "{ S[i] -> [0, i, 0]; T[i] -> [1, i, 0]; U[i] -> [1, i, 1] }",
        ),
        "two cells, the later one overwritten": (
            f"[N] -> {{ S[i] : 0 <= i < N; P[i] : {far} <= i < N; T[i] : 0 <= i < N }}",
            "{ T[i] -> A[i]; T[i] -> B[i] }",
            "{ S[i] -> A[i]; S[i] -> B[i]; P[i] -> B[i] }",
            "{ S[i] -> [0, i]; P[i] -> [1, -i]; T[i] -> [2, i] }",
        ),
        "lu": (
            "[N] -> { D[k, i] : 0 <= k < i < N; M[k, i, j] : 0 <= k < N and k < i < N and k < j < N }",
            "{ D[k, i] -> A[i, k]; D[k, i] -> A[k, k]; "
            "M[k, i, j] -> A[i, j]; M[k, i, j] -> A[i, k]; M[k, i, j] -> A[k, j] }",
            "{ D[k, i] -> A[i, k]; M[k, i, j] -> A[i, j] }",
            "{ D[k, i] -> [k, i, 0, 0]; M[k, i, j] -> [k, i, 1, j] }",
        ),
    }
    programs |= {f"drawn, number {i + 1}": sweeps(rng) for i in range(3)}
    answer = reference("day10.dependences")
    cases = []
    for name, texts in programs.items():
        domain, *maps = texts
        relations = as_text(answer(isl.UnionSet(domain), *map(isl.UnionMap, maps)))
        cases.append(dependences_case(name, *texts, **relations))
    return cases


def sweeps(rng: random.Random) -> tuple[str, ...]:
    """Return two statements on two arrays, in one nest or in sequence, forwards or backwards, with near cells."""

    def cell() -> str:
        return f"{rng.choice('AB')}[i + {rng.randint(-1, 1)}, j + {rng.randint(-1, 1)}]"

    times = [f"{rng.choice(('', '-'))}i", f"{rng.choice(('', '-'))}j"]
    orders = (["{}", *times], [times[0], "{}", times[1]], [*times, "{}"])
    order = f"[{', '.join(rng.choice(orders))}]"
    return (
        "[N] -> { S[i, j] : 0 <= i < N and 0 <= j <= i; T[i, j] : 0 <= i < N and 0 <= j < N }",
        f"{{ S[i, j] -> {cell()}; S[i, j] -> {cell()}; T[i, j] -> {cell()} }}",
        f"{{ S[i, j] -> {cell()}; T[i, j] -> {cell()} }}",
        f"{{ S[i, j] -> {order.format(0)}; T[i, j] -> {order.format(1)} }}",
    )


# ---------------------------------------------------------------------------------------------------- answers


def _inside(domain, reads, writes, schedule):
    return (relation.intersect_domain(domain) for relation in (reads, writes, schedule))


def _values(reads, writes, schedule):
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule_map(schedule)
    return info.compute_flow().get_must_dependence()


def _all(reads, writes, before, values):
    return {
        "flow": writes.apply_range(reads.reverse()).intersect(before),
        "anti": reads.apply_range(writes.reverse()).intersect(before),
        "output": writes.apply_range(writes.reverse()).intersect(before),
        "values": values,
    }


def _plain(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    return _all(reads, writes, schedule.lex_lt_union_map(schedule), _values(reads, writes, schedule))


@right("takes from flow, cell by cell, the pairs that have a write in between")
def by_subtraction(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    before = schedule.lex_lt_union_map(schedule)

    def pairs(sink):
        """Return [write → cell] → [later instance → the same cell]"""
        cells = writes.range_map().apply_range(sink.range_map().reverse())
        return cells.intersect(writes.domain_map().apply_range(before).apply_range(sink.domain_map().reverse()))

    last = pairs(reads).subtract(pairs(writes).apply_range(pairs(reads)))
    values = writes.domain_map().reverse().apply_range(last).apply_range(reads.domain_map())
    return _all(reads, writes, before, values)


@right("asks isl for the flow of each kind, with may-sources that hide nothing")
def by_access_info(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)

    def every(source, sink):
        info = isl.UnionAccessInfo.from_sink(sink).set_may_source(source).set_schedule_map(schedule)
        return info.compute_flow().get_may_dependence()

    return {
        "flow": every(writes, reads),
        "anti": every(reads, writes),
        "output": every(writes, writes),
        "values": _values(reads, writes, schedule),
    }


@wrong("spared", "what touches the same cell depends on each other, both ways and on itself")
def no_order(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    pairs = isl.UnionMap.from_domain_and_range(domain, domain)
    return _all(reads, writes, pairs, _values(reads, writes, schedule))


@wrong("did", "only the last writer counts, in flow, too")
def only_values(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    return relations | {"flow": relations["values"]}


@wrong("did", "only the next write counts in output: the pairs further apart follow from those")
def next_write(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    return relations | {"output": relations["output"].subtract(relations["output"].apply_range(relations["output"]))}


@wrong("spared", "values are all of flow: nothing is ever overwritten")
def never_overwritten(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    return relations | {"values": relations["flow"]}


@wrong("did", "the last instance that an instance depends on, instead of the last write of each cell")
def one_source_each(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    _, _, schedule = _inside(domain, reads, writes, schedule)
    times = relations["flow"].reverse().apply_range(schedule).lexmax()
    return relations | {"values": times.apply_range(schedule.reverse()).reverse()}


@wrong("did", "one cell overwritten, and nothing of an instance is left: pairs are compared, not cells")
def without_cells(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    return relations | {"values": relations["flow"].subtract(relations["output"].apply_range(relations["flow"]))}


@wrong("did", "source and target the wrong way round")
def backwards(domain, reads, writes, schedule):
    return {kind: relation.reverse() for kind, relation in _plain(domain, reads, writes, schedule).items()}


@wrong("did", "flow and anti mixed up")
def mixed_up(domain, reads, writes, schedule):
    relations = _plain(domain, reads, writes, schedule)
    return relations | {"flow": relations["anti"], "anti": relations["flow"]}


@wrong("spared", "later in the text is later in time: compares iterators, not the schedule")
def by_iterators(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    plain = _untuple(domain).intersect_domain(domain)
    return _all(reads, writes, plain.lex_lt_union_map(plain), _values(reads, writes, schedule))


def _untuple(domain):
    """Map each instance to its iterators alone."""
    sets, result = domain.get_set_list(), isl.UnionMap("{ }")
    for k in range(sets.n_set()):
        space = sets.get_at(k).get_space()
        names = [f"i{n}" for n in range(space.dim(isl.dim_type.set))]
        text = f"{{ {space.get_tuple_name(isl.dim_type.set)}[{', '.join(names)}] -> [{', '.join(names)}] }}"
        result = result.union(isl.UnionMap(text))
    return result


@wrong("did", "whatever runs later depends on all that ran before: nothing is missed")
def all_later(domain, reads, writes, schedule):
    _, _, schedule = _inside(domain, reads, writes, schedule)
    later = schedule.lex_lt_union_map(schedule)
    return dict.fromkeys(("flow", "anti", "output", "values"), later)


@wrong("valid", "lets the library find them")
def by_the_library(domain, reads, writes, schedule):
    program = SimpleNamespace(domain=domain, reads=reads, writes=writes, schedule=schedule)
    return {kind: polyhedral.dependences(program, kind) for kind in ("flow", "anti", "output", "values")}
