"""Other right answers than the course's own: found in the text of the bank, without running it."""

import builtins
import json
import symtable
from pathlib import Path

import pytest

from passlab import exercises
from passlab.judge import judge
from passlab.notebook import others, ui
from passlab.notebook.project import load_progress

ROOT = Path(__file__).resolve().parents[2]
BANK = ROOT / "autograder/answers"
TEXT = """
import math
from os import path, sep

from autograder.authoring.answers import answer_of, right, wrong
from passlab.judge import case

UNIT, OTHER = 2, 3


@case("one", lambda: (1,))
def hidden(): ...


def helper(x):
    return more(x) * UNIT  # twice


def more(x):
    return math.floor(x)


@right("uses a helper")
def by_helper(x):
    return helper(x) + len(sep)


@right("asks the grader")
def by_grader(x):
    return answer_of("day00.double")(x)


@wrong("same", "is wrong")
def by_mistake(x):
    return x


@right("is a class")
class Doubling:
    def __call__(self, x):
        return x + x
"""


def test_a_right_answer_comes_with_what_it_needs_and_without_marks():
    helper, whole = others.right_answers(TEXT)
    assert (helper.note, whole.note) == ("uses a helper", "is a class")
    assert helper.code.startswith("import math\nfrom os import sep\n\n\nUNIT, OTHER = 2, 3\n")
    assert "# twice" in helper.code, "comments stay"
    assert not any(word in helper.code for word in ("right", "hidden", "path", "Doubling", "by_mistake"))
    scope = {}
    exec(helper.code, scope)
    assert scope["by_helper"](4.5) == 9
    assert whole.code.splitlines()[0] == "class Doubling:"


def bank():
    """Exercise → its other right answers, for those that have some."""
    every = [e.id for day in exercises.days() for e in exercises.of_day(day) if not exercises.is_core(e.id)]
    return {name: answers for name in every if (answers := others.in_bank(BANK, name))}


def unbound(code):
    """Global names that code reads and does not define."""
    table = symtable.symtable(code, "answer", "exec")
    top = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    tables, free = [table], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        free |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return free - top - set(vars(builtins))


def test_every_answer_of_the_bank_that_is_shown_stands_alone():
    answers = bank()
    assert len(answers) > 0.8 * sum(len(exercises.of_day(day)) for day in exercises.days()) / 2
    for name, rows in answers.items():
        for note, code in rows:
            assert note and "autograder" not in code and not unbound(code), (name, note)


@pytest.mark.parametrize("name", ["day03.cse", "day05.reuse"])
def test_what_is_shown_has_all_points(name):
    exercise = exercises.find(name)
    for note, code in others.in_bank(BANK, exercise.id):
        scope = {}
        exec(code, scope)
        last = [value for key, value in scope.items() if key != "__builtins__" and callable(value)][-1]
        assert judge(exercise, last).ok, note


@pytest.fixture
def cse(monkeypatch, tmp_path):
    """A copy of the course in which others.json has two answers to day03.cse, and nothing is tried yet."""
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(others, "root", lambda: tmp_path)
    folder = tmp_path / "solutions/day03"
    folder.mkdir(parents=True)
    rows = {"day03.cse": [["has a table", "table = {}"], ["sorts", "sorted"]]}
    (folder / others.RELEASED).write_text(json.dumps(rows))


def test_after_full_points_check_offers_another_answer(cse, capsys, monkeypatch):
    from passlab.judge import Judgement

    for ok, name in ((False, "day03.cse"), (True, "day03.cse"), (True, "day03.cse-core"), (True, "day03.dce")):
        result = Judgement(exercises.find(name))
        monkeypatch.setattr(Judgement, "ok", ok)
        notes = list(ui._advice(result, 1))
        offered = "Another right answer: solution('day03.cse', other=1). What differs: has a table."
        assert notes == ([offered] if (ok, name) == (True, "day03.cse") else []), name


def test_an_answer_is_shown_after_an_attempt_or_anyway(cse, capsys):
    def shown(**options):
        ui.solution("day03.cse", **options)
        return capsys.readouterr().out

    asked = shown(other=1)
    assert "Try it once before" in asked and "solution('day03.cse', other=1, anyway=True)" in asked
    assert "table = {}" in shown(other=1, anyway=True)
    assert "has no such solution" in shown(other=3, anyway=True)
    assert load_progress() == {}, "reading is no attempt"
    ui.count_check("day03.cse", 0, 1)
    first, second = shown(other=1), shown(other=2)
    assert "1 of 2 other right answers. What differs: has a table." in first and "other=2" in first
    assert "sorted" in second and "The next" not in second
