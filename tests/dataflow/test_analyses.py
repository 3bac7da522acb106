"""The solver and the analyses, against all paths and against runs of programs that are drawn."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from passlab.dataflow import (
    ANALYSES,
    CONSTANTS,
    INTERVALS,
    LIVENESS,
    VALUES,
    Analysis,
    Block,
    DoesNotEnd,
    Instruction,
    NotMonotone,
    Program,
    Terminator,
    evaluate,
    parse,
    random_program,
    redundant,
    round_robin,
    run,
    solve,
)
from passlab.dataflow.paths import over_all_paths
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, FOR_EVER
from passlab.exercises.day06.gvn import EQUAL

DRAWN = [random_program(seed, 3 + seed % 7, jumps=seed % 2 == 1, shuffle=True) for seed in range(60)]
DISTRIBUTIVE = ("liveness", "reaching definitions", "available expressions", "anticipated expressions", "dominators")


@pytest.mark.parametrize("name", DISTRIBUTIVE)
def test_distributive_analyses_equal_the_merge_over_all_paths(name):
    analysis = ANALYSES[name]
    for program in [*DRAWN, COUNT, ENTRY_IN_LOOP]:
        solution = solve(program, analysis)
        facts = solution.before if analysis.direction == "forward" else solution.after
        paths = over_all_paths(program, analysis)
        ends = {b.name for b in program.blocks} if analysis.direction == "forward" else leading_out(program)
        assert {n: facts[n] for n in ends} == {n: paths[n] for n in ends}


def leading_out(program):
    """Blocks all of whose ways can end: beyond them, facts also come from ways that do not."""
    from passlab.dataflow import depth_first_order, predecessors, successors

    ahead = successors(program)
    out = set(depth_first_order(predecessors(program), [n for n in ahead if not ahead[n]]))
    stuck = depth_first_order(predecessors(program), [n for n in ahead if n not in out])
    return set(ahead) - set(stuck)


@pytest.mark.parametrize("analysis", [*ANALYSES.values(), VALUES], ids=lambda a: a.name)
def test_rounds_and_other_orders_find_the_same(analysis):
    if analysis.widen:
        return
    for program in DRAWN[:30]:
        right, names = solve(program, analysis), [block.name for block in program.blocks]
        for other in (
            round_robin(program, analysis),
            solve(program, analysis, names),
            solve(program, analysis, names[::-1]),
        ):
            assert (other.before, other.after, other.edges) == (right.before, right.after, right.edges)


def states(program, seed):
    """The states at the starts of blocks in some runs."""
    rng = random.Random(seed)
    for _ in range(8):
        yield from run(program, rng.randint(-5, 5), rng.randint(-99, 99), fuel=60).trace


def test_what_is_known_holds_in_every_run():
    claims = 0
    for seed, program in enumerate(DRAWN):
        constants, ranges, equations = (solve(program, a).before for a in (CONSTANTS, INTERVALS, VALUES))
        for block, state in states(program, seed):
            assert all(state[name] == value for name, value in constants[block].items())
            assert all(low <= state[name] <= high for name, (low, high) in ranges[block].items())
            for name, (op, *args) in equations[block]:
                assert state[name] == (args[0] if op == "const" else evaluate(op, [state[a] for a in args]))
            claims += len(constants[block]) + len(ranges[block]) + len(equations[block])
    assert claims > 1000


def test_what_is_not_live_may_be_overwritten():
    for seed, program in enumerate(DRAWN):
        live = solve(program, LIVENESS).before
        rng = random.Random(seed)
        spoilt = parse(str(program))
        blocks = []
        for block in spoilt.blocks:
            dead = [name for name in spoilt.variables if name not in live[block.name]]
            junk = [f"  {name} = const {rng.randint(100, 999)}" for name in dead]
            lines = str(block).split("\n")
            blocks.append("\n".join([lines[0], *junk, *lines[1:]]))
        other = parse("\n".join([str(program).split("\n")[0], *blocks]))
        for arguments in ((0, 0), (3, -4)):
            one, two = run(program, *arguments, fuel=60), run(other, *arguments, fuel=60)
            assert (one.returned, one.printed) == (two.returned, two.printed)


def test_constants_find_what_only_an_optimist_finds():
    from passlab.exercises.day06.constants import OPTIMIST

    facts = solve(OPTIMIST, CONSTANTS).before
    assert facts["strange"] is None and facts["next"] == {"debug": 0}
    assert "debug" not in solve(OPTIMIST, replace(CONSTANTS, edge=None)).before["next"]


def test_what_is_no_number_is_no_constant():
    lines = (Instruction("y", "sub", ("x", "x")),)
    loop = Block("loop", lines, Terminator("branch", ("p",), ("loop", "end")))
    start = Block("start", (Instruction("x", "const", (), float("inf")),), Terminator("jump", (), ("loop",)))
    program = Program("endless", ("p",), (start, loop, Block("end", (), Terminator("return", ("y",)))))
    assert solve(program, CONSTANTS).before["end"] == {"x": float("inf")}


def test_constants_may_know_less_than_all_paths_but_never_more():
    less = 0
    for program in DRAWN:
        try:
            paths = over_all_paths(program, CONSTANTS, limit=3000)
        except ValueError:  # a variable counts up
            continue
        for name, known in solve(program, CONSTANTS).before.items():
            if known is None:
                assert paths[name] is None
            elif paths[name] is not None:
                assert known.items() <= paths[name].items()
                less += known != paths[name]
    assert less


def test_equal_values_behind_a_branch_are_redundant():
    assert redundant(EQUAL)["join"] == {1: ["r"]}


def test_visits_are_few_on_reducible_programs():
    large = random_program(3, 800, shuffle=True)
    stored = [block.name for block in large.blocks]
    for name in ("liveness", "reaching definitions", "available expressions"):
        solution = solve(large, ANALYSES[name])
        assert solution.visits <= 3 * len(stored)
        assert round_robin(large, ANALYSES[name], stored).visits >= 5 * solution.visits


def test_the_log_ends_with_the_solution():
    solution = solve(COUNT, LIVENESS)
    last = {visit.block: visit for visit in solution.log}
    assert {name: (v.before, v.after) for name, v in last.items()} == {
        name: (solution.before[name], solution.after[name]) for name in last
    }


def test_blocks_that_nothing_leads_to_keep_the_initial_fact():
    program = parse("program p(x)\na:\n  y = const 1\n  return y\nb:\n  y = const 2\n  jump a")
    solution = solve(program, CONSTANTS)
    assert solution.before["b"] is None and solution.after["a"] == {"y": 1}


def test_a_server_that_never_returns_has_live_variables():
    assert solve(FOR_EVER, LIVENESS).after["serve"] == {"n", "x"}


# ---------------------------------------------------------------------------------------------------- sentences


def test_a_fact_that_goes_back_names_the_block():
    def forgets(block, after):
        return LIVENESS.transfer(block, after) if len(after) < 4 else frozenset()

    with pytest.raises(NotMonotone) as caught:
        solve(COUNT, replace(LIVENESS, name="forgets", transfer=forgets))
    wrong = "count, analysis forgets: the fact of block next went the wrong way, from {i, n, step, sum} to {}"
    assert wrong in str(caught.value)


def test_an_analysis_without_end_names_the_block():
    with pytest.raises(DoesNotEnd) as caught:
        solve(COUNT, replace(INTERVALS, widen=None), max_visits=20)
    assert "count, analysis intervals: after 20 visits the fact of block loop still changes" in str(caught.value)
    assert "`widen`" in str(caught.value)


def test_long_facts_are_told_by_what_changed():
    def counts(block, before):
        return before | {10_000 + len(before)}

    def spreads(block, before):
        return {f"variable{i}": 0 for i in range(9)} | {"zero": before.get("zero", 0) + (block.name == "body")}

    def larger(one, other):
        return {name: max(d.get(name, 0) for d in (one, other)) for name in one | other}

    of_sets = Analysis("counts", "forward", lambda p: frozenset(), lambda p: frozenset(), frozenset.union, counts)
    with pytest.raises(DoesNotEnd, match=r"block loop still changes: it gains \{100\d\d(, 100\d\d)*\}\. Give"):
        solve(COUNT, of_sets, max_visits=20)
    of_dicts = Analysis("spreads", "forward", lambda p: {}, lambda p: {}, larger, spreads)
    with pytest.raises(DoesNotEnd, match=r"still changes: it gains \{zero=20\} and loses \{zero=19\}\. Give"):
        solve(COUNT, of_dicts, max_visits=20)


def test_a_direction_is_forward_or_backward():
    with pytest.raises(ValueError, match="'sideways'; it can be 'forward' or 'backward'"):
        Analysis("odd", "sideways", *[LIVENESS.boundary, LIVENESS.initial, LIVENESS.merge, LIVENESS.transfer])


def test_too_many_paths_are_refused():
    with pytest.raises(ValueError, match="more than 50 different facts"):
        over_all_paths(COUNT, replace(INTERVALS, edge=None), limit=50)
