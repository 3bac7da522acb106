"""Bank of day10.dependences. A pair is named source → target; most wrong answers lose one part of the definition."""

from __future__ import annotations

import islpy as isl

from autograder.bank import right, wrong


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
    before = schedule.lex_lt_union_map(schedule)

    def pairs(sink):
        """[write → cell] → [later instance → the same cell]"""
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
    anything = isl.UnionMap.from_domain_and_range(domain, domain)
    return _all(reads, writes, anything, _values(reads, writes, schedule))


@wrong("spared", "before or at the same time: an instance depends on itself")
def on_itself(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    return _all(reads, writes, schedule.lex_le_union_map(schedule), _values(reads, writes, schedule))


@wrong("did", "only the last writer counts, in flow, too")
def only_values(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found | {"flow": found["values"]}


@wrong("did", "only the next write counts in output: the pairs further apart follow from those")
def next_write(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found | {"output": found["output"].subtract(found["output"].apply_range(found["output"]))}


@wrong("spared", "values are all of flow: nothing is ever overwritten")
def never_overwritten(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found | {"values": found["flow"]}


@wrong("did", "the last instance that an instance depends on, instead of the last write of each cell")
def one_source_each(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    _, _, schedule = _inside(domain, reads, writes, schedule)
    times = found["flow"].reverse().apply_range(schedule).lexmax()
    return found | {"values": times.apply_range(schedule.reverse()).reverse()}


@wrong("did", "one cell overwritten, and nothing of an instance is left: pairs are compared, not cells")
def without_cells(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found | {"values": found["flow"].subtract(found["output"].apply_range(found["flow"]))}


@wrong("did", "source and target the wrong way round")
def backwards(domain, reads, writes, schedule):
    return {kind: found.reverse() for kind, found in _plain(domain, reads, writes, schedule).items()}


@wrong("did", "flow and anti mixed up")
def mixed_up(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found | {"flow": found["anti"], "anti": found["flow"]}


@wrong("spared", "the accesses say what runs: the domain is not looked at")
def no_domain(domain, reads, writes, schedule):
    return _all(reads, writes, schedule.lex_lt_union_map(schedule), _values(*_inside(domain, reads, writes, schedule)))


@wrong("did", "instances of one statement alone: others have loops of their own")
def one_statement(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    own = isl.UnionMap("{ }")
    sets = domain.get_set_list()
    for k in range(sets.n_set()):
        one = isl.UnionSet.from_set(sets.get_at(k))
        own = own.union(isl.UnionMap.from_domain_and_range(one, one))
    return {kind: pairs.intersect(own) for kind, pairs in found.items()}


@wrong("spared", "later in the text is later in time: compares iterators, not the schedule")
def by_iterators(domain, reads, writes, schedule):
    reads, writes, schedule = _inside(domain, reads, writes, schedule)
    plain = _untuple(domain).intersect_domain(domain)
    return _all(reads, writes, plain.lex_lt_union_map(plain), _values(reads, writes, schedule))


def _untuple(domain):
    """Each instance to its iterators alone."""
    sets, found = domain.get_set_list(), isl.UnionMap("{ }")
    for k in range(sets.n_set()):
        space = sets.get_at(k).get_space()
        names = [f"i{n}" for n in range(space.dim(isl.dim_type.set))]
        text = f"{{ {space.get_tuple_name(isl.dim_type.set)}[{', '.join(names)}] -> [{', '.join(names)}] }}"
        found = found.union(isl.UnionMap(text))
    return found


@wrong("valid", "one relation of all dependences together")
def all_together(domain, reads, writes, schedule):
    found = _plain(domain, reads, writes, schedule)
    return found["flow"].union(found["anti"]).union(found["output"])
