"""Guesses: what is noted, how it is compared, and that a lesson runs without one."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest

from autograder.authoring.source import ROOT
from passlab import guess
from passlab.notebook.cells import cells

LESSONS = sorted((ROOT / "course").glob("day*.py"))


@pytest.fixture(autouse=True)
def work(monkeypatch, tmp_path):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path


def noted(work) -> dict:
    path = work / "guesses.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_a_guess_is_noted_and_compared(work, capsys):
    bet = guess("How many nodes?", 12)
    assert noted(work) == {"How many nodes?": {"guess": 12}}
    bet.compare(4)
    assert noted(work) == {"How many nodes?": {"guess": 12, "truth": 4}}
    out = capsys.readouterr().out
    assert "You guessed 12: How many nodes? 4. You expected 3 times as much." in out
    guess("How many nodes?", 4).compare(np.int64(4))
    assert "That is what you expected." in capsys.readouterr().out


def test_without_a_guess_nothing_is_noted_and_the_answer_is_shown(work, capsys):
    guess("How many nodes?", ...).compare(1_000)
    assert noted(work) == {}
    assert "Without a guess: How many nodes? 1,000." in capsys.readouterr().out


def test_an_order_is_compared_by_pairs(work, capsys):
    guess("From the smallest?", ["c", "a", "b"], among="abc").compare(("a", "b", "c"))
    assert "Of 3 pairs, 1 is in the order that you expected." in capsys.readouterr().out
    assert noted(work)["From the smallest?"]["truth"] == ["a", "b", "c"]
    guess("Which comes first?", ["b", "a"], among="ab").compare(["a", "b"])
    assert "a, b. You expected the other order." in capsys.readouterr().out


def test_a_choice_is_compared(work, capsys):
    guess("Which?", "b", among=("a", "b")).compare("a")
    assert "You expected something else: why?" in capsys.readouterr().out
    assert noted(work)["Which?"] == {"guess": "b", "truth": "a"}


@pytest.mark.parametrize(
    ("value", "among"), [("12", ()), ("c", ("a", "b")), (["a"], ("a", "b")), (3, ("a", "b")), ([1, 2], ()), (True, ())]
)
def test_a_value_of_another_form_is_no_guess(work, capsys, value, among):
    guess("Which?", value, among=among).compare("a" if among else 1)
    out = capsys.readouterr().out
    assert "is not an answer to this. Give " in out and "Without a guess" in out
    assert noted(work) == {}


def test_a_comparison_with_what_cannot_be_guessed_is_an_error_of_the_lesson():
    with pytest.raises(ValueError, match=r"'c' is not an answer to 'Which\?'"):
        guess("Which?", among=("a", "b")).compare("c")
    with pytest.raises(ValueError, match="Compare with a number"):
        guess("How many?").compare("c")


def test_no_text_of_a_guess_is_markup(monkeypatch):
    from passlab.notebook import guesses

    shown = []
    monkeypatch.setattr(guesses, "show", lambda card: shown.append(card.html))
    guess("<b>?", "<i>", among=("<i>", "<u>")).compare("<u>")
    assert len(shown) == 2 and not any(tag in html for html in shown for tag in ("<b>?", "<i>", "<u>"))


def calls(text: str, name: str) -> list[ast.Call]:
    tree = ast.parse(text)
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


@pytest.mark.parametrize("path", LESSONS[:16], ids=lambda path: path.stem)
def test_a_lesson_asks_one_to_three_guesses_and_folds_what_answers_them(path):
    """Each guess has a cell of its own without a value, and the next cell of code, folded in the book, compares."""
    text = path.read_text(encoding="utf-8")
    header = text.split("\n")
    code = [cell for cell in cells(text) if not cell.markdown and "%%beside" not in cell.text]
    asking = [i for i, cell in enumerate(code) if calls(cell.text, "guess")]
    comparing = [i for i, cell in enumerate(code) if calls(cell.text, "bet.compare")]
    assert 1 <= len(asking) <= 3
    assert comparing == [i + 1 for i in asking]
    assert all('tags=["hide-output"]' in header[code[i].first - 2] for i in comparing)
    for i in asking:
        [call] = calls(code[i].text, "guess")
        assert ast.unparse(call.args[1]) == "..."


def test_questions_have_different_texts():
    """They are the keys of what is noted."""
    questions = [
        ast.unparse(call.args[0])
        for path in LESSONS
        for cell in cells(path.read_text(encoding="utf-8"))
        if not cell.markdown and "guess(" in cell.text and "%%" not in cell.text
        for call in calls(cell.text, "guess")
    ]
    assert len(questions) > 20 and len(set(questions)) == len(questions)
