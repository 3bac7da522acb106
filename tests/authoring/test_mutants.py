"""Mutants of a reference: what is changed, what falls, what survives, and what is listed."""

from __future__ import annotations

import json

import pytest

from autograder.authoring import mutants, source
from autograder.toys import tiny
from passlab import exercises

SHOUT = "autograder/answers/day00/shout.py"
DOUBLE = "return 2 * x"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("mutants") / "course")


def changes(cell):
    return {mutant.after for mutant in mutants._all(cell, 1)}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("a = b < c", {"a = b <= c", "pass"}),
        ("a = b not in c", {"a = b in c", "pass"}),
        ("a = b and c", {"a = ((b) or (c))", "a = ((b))", "a = ((c))", "pass"}),
        ("a = not b", {"a = (b)", "pass"}),
        ("a = b + 2", {"a = b - 2", "a = b + 3", "pass"}),
        ("a = f(b, key=c)", {"a = f(b)", "pass"}),
        ("a = zip(b, c, strict=True)", {"pass"}),
        ("a: list[1 + 1] = b + c", {"a: list[1 + 1] = b - c"}),
        ("a = f((b, c))", {"a = f((b,))", "a = f((c,))", "pass"}),
        ("a = {b: c, d: e}", {"a = {b: c}", "a = {d: e}", "pass"}),
        ("a = any(b)", {"a = all(b)", "pass"}),
        ("a = reversed(b)", {"a = (b)", "pass"}),
        ("a = [b for b in c if b.d]", {"a = [b for b in c if True]", "pass"}),
        ("a = 'é' + b * c", {"a = 'é' - b * c", "a = 'é' + b + c", "pass"}),
        ("if a: b()", {"if True: b()", "if False: b()", "if a: pass"}),
    ],
)
def test_one_piece_is_exchanged(line, made):
    assert changes(line) == made


def test_only_the_answer_between_the_marks_is_changed():
    cell = 'def f(a):\n    """Text: 1 + 1."""\n    ### BEGIN SOLUTION\n    return a + 1\n    ### END SOLUTION'
    assert changes(cell) == {"return a - 1", "return a + 2"}
    assert all(mutant.line == 4 for mutant in mutants._all(cell, 1))


def test_mutants_are_drawn_from_all_and_always_the_same_ones():
    few, many = mutants.mutants("day03.dce", 5), mutants.mutants("day03.dce", 10_000)
    assert len(few) == 5 and few == mutants.mutants("day03.dce", 5) and set(few) < set(many)


def test_a_change_of_nothing_survives():
    exercise, own = exercises.find("day03.dce"), source.find("day03.dce").answer.text
    assert mutants._survives(exercise, exercise.id, mutants.Mutant(1, "", "", own), exercise.cases())


def prove(course, *more):
    process = tiny.run(course, "-m", "passlab.cli", "prove", "--mutants", "50", *more)
    return process.returncode, process.stdout


def test_a_change_that_no_case_notices_survives_until_it_is_listed(course):
    authored = course / "solutions/day00/tiny.py"
    text, bank = authored.read_text(), (course / SHOUT).read_text()
    authored.write_text(text.replace("return word.upper()", "return word.upper()[0:1000]"))
    code, output = prove(course, "--json", "--exercise", "shout")
    [report] = json.loads(output)
    alive = {(mutant["before"], mutant["after"]) for mutant in report["survivors"]}
    before = "return word.upper()[0:1000]  # solutionmarker"
    assert code == 1 and alive == {(before, before.replace("1000", "1001"))}
    listed = f"EQUIVALENT = {{({before!r}, {before.replace('1000', '1001')!r}): 'no word is so long'}}\n"
    (course / SHOUT).write_text(bank + listed)
    code, output = prove(course, "--exercise", "shout")
    assert code == 0 and "✓ day00.shout: 1 of 2 fall, 1 listed as equivalent" in output, output
    (course / SHOUT).write_text(bank + listed.replace("1000", "999", 1))
    code, output = prove(course, "--exercise", "shout")
    assert code == 1 and "listed as equivalent, and no mutant: return word.upper()[0:999]" in output, output
