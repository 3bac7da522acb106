"""Pictures of control flow: all facts are in them, one state at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from passlab import diff, draw, view
from passlab.dataflow import CONSTANTS, LIVENESS, parse, predecessors, random_program, solve
from passlab.drawing import flow, flow_steps, hasse
from passlab.drawing.flow import fact_text
from passlab.exercises.day06._programs import COUNT


def test_facts_in_words():
    assert fact_text(None) == "unreached" and fact_text(frozenset("ba")) == "{a, b}" and fact_text({"x": 3}) == "{x=3}"
    assert fact_text({"i": (0, 2**31 - 1), "j": (-(2**31), 4)}) == "{i=0..max, j=min..4}"
    assert fact_text(frozenset({("add", "x", "y")})) == "{add x y}"
    assert len(fact_text(frozenset(map(str, range(99))))) == 44


def test_the_text_form_has_each_block_and_the_fact_on_each_edge():
    text = flow(COUNT, solve(COUNT, LIVENESS)).text
    assert text.startswith("count(x, n)\nentry:\n  sum = const 0")
    assert "    → done  {sum}" in text
    assert flow(COUNT).text.count("→") == sum(len(block.terminator.targets) for block in COUNT.blocks)


def test_the_drawing_has_every_line_and_marks_the_edge_back():
    picture = flow(COUNT, solve(COUNT, LIVENESS))
    for block in COUNT.blocks:
        for line in block.instructions:
            assert str(line) in picture.svg
    assert picture.dot.count("penwidth=2") == 1
    assert "{sum}" in picture.svg


def test_steps_show_the_fact_after_each_visit_and_the_last_is_the_solution():
    solution = solve(COUNT, CONSTANTS)
    steps = flow_steps(COUNT, solution)
    last = len(solution.log) - 1
    shown = re.findall(rf'<text class="fact at{last}"[^>]*>([^<]*)</text>', steps.svg)
    expected = [fact_text(facts[block.name]) for block in COUNT.blocks for facts in (solution.before, solution.after)]
    assert sorted(shown) == sorted(expected)
    assert steps.html.count('type="radio"') == len(solution.log)
    assert len(steps.text.split("\n")) == len(solution.log)


def test_names_that_are_markup_are_escaped():
    program = parse("program p(x)\nentry:\n  y = <b> x\n  return y")
    assert "&lt;b&gt;" in flow(program).svg


def test_large_programs_stay_text():
    large = random_program(1, 200)
    assert "too many to draw" in flow(large).note and "b0:" in flow(large).text
    with pytest.raises(ValueError, match="blocks, at most 80 are drawn"):
        flow_steps(large, solve(large, LIVENESS))


def test_steps_need_visits():
    solution = solve(COUNT, LIVENESS)
    solution.log.clear()
    with pytest.raises(ValueError, match="has no visits in its log"):
        flow_steps(COUNT, solution)


def test_a_control_flow_graph_is_viewed_drawn_and_compared_like_other_irs():
    graph = view(COUNT)
    assert [node.id for node in graph] == [block.name for block in COUNT.blocks] and graph.ir == "CFG"
    assert graph.edges == tuple((a, b.name) for b in COUNT.blocks for a in predecessors(COUNT)[b.name])
    assert draw(COUNT).text == flow(COUNT).text
    first, *rest = COUNT.blocks
    other = replace(COUNT, blocks=(replace(first, instructions=first.instructions[:-1]), *rest))
    assert [line[0] for line in diff(COUNT, other).text.split("\n")[2:]] == ["≠", *" " * len(rest)]


def test_a_lattice_has_a_line_to_each_next_fact_above():
    facts = [frozenset(names) for names in ("", "i", "n", "in")]
    picture = hasse(facts, frozenset.union, [frozenset("i")])
    assert picture.text.split("\n") == [
        "{} below {i}, {n}",
        "{i} below {i, n}",
        "{n} below {i, n}",
        "{i, n} below nothing",
    ]
    assert sorted(re.findall(r"f(\d) -> f(\d)", picture.dot)) == [("0", "1"), ("0", "2"), ("1", "3"), ("2", "3")]
    assert picture.dot.count("penwidth") == 1


def test_merging_says_what_is_above():
    picture = hasse([{}, {"x": 0}, None], CONSTANTS.merge)
    assert picture.text.split("\n") == ["{} below nothing", "{x=0} below {}", "unreached below {x=0}"]


@pytest.mark.parametrize("fact", ["a\0b", "\ud800", "\x1b[31m", '"\\', "<script>"])
def test_a_fact_of_any_characters_is_drawn(fact):
    picture = hasse([fact, "b"], max)
    ElementTree.fromstring(picture.svg)
