"""`review`, `answer` and `fast_track`: what they show, what they remember, and when a question comes back."""

from __future__ import annotations

import json

import pytest

from passlab import answer, fast_track, progress, review
from passlab import reviews as questions
from passlab.notebook import reviews
from passlab.notebook.project import remember
from passlab.reviews.schedule import DAY, RIGHT, WRONG, Card, due


@pytest.fixture(autouse=True)
def work(monkeypatch, tmp_path):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(reviews, "_session", reviews._Session())
    clock = [1_000_000.0]
    monkeypatch.setattr(reviews.time, "time", lambda: clock[0])
    return clock, tmp_path / "review.json"


def question() -> questions.Question:
    return reviews._session.queue[0][1]


def reply(right: bool) -> None:
    """Answer the open question as a learner would."""
    open_, wrong = question(), 10**9
    if open_.choices:
        at = open_.choices.index(open_.answer) + 1
        answer(at if right else at % len(open_.choices) + 1)
    elif isinstance(open_.answer, int):
        answer(open_.answer if right else wrong)
    else:
        answer(" ".join(open_.answer) if right else "nothing")


def test_nothing_is_asked_unless_called(capsys, work):
    progress("day01")
    assert not work[1].exists() and "review" not in capsys.readouterr().out
    answer(1)
    assert "No question is open. review() asks one." in capsys.readouterr().out


def test_a_question_is_asked_answered_and_explained(capsys):
    review("day03")
    out = capsys.readouterr().out
    assert "· day03" in out and question().text in out and question().form in out
    assert all(f"{i}. {choice}" in out for i, choice in enumerate(question().choices, 1))
    why = question().why
    reply(True)
    out = capsys.readouterr().out
    assert out.startswith("Right.") and why in out
    answer(1)
    assert "No question is open." in capsys.readouterr().out


def test_an_answer_of_another_form_leaves_the_question_open(capsys):
    review("day15")
    before = question()
    answer(None)
    assert before.form in capsys.readouterr().out and question() is before


def test_questions_are_about_the_days_that_are_begun(capsys):
    review()
    assert reviews._session.queue[0][0].day == "day01"
    remember("day06.liveness", attempts=1)
    review()
    assert reviews._session.queue[0][0].day == "day06"
    review("day99")
    assert "No questions for 'day99'." in capsys.readouterr().out


def test_every_kind_is_asked_once_and_wrong_ones_come_back_first(capsys, work):
    clock, _ = work
    kinds = [kind.name for kind in questions.kinds_of("day02")]
    asked = []
    for i in range(len(kinds)):
        review("day02")
        asked.append(reviews._session.queue[0][0].name)
        reply(right=i != 1)
    assert asked == kinds
    review("day02")
    assert "the next question is due in 1 day." in capsys.readouterr().out
    clock[0] += 1.5 * DAY  # what was right once comes back after a day, too; right twice, after six
    again = []
    for _ in kinds:
        review("day02")
        again.append(reviews._session.queue[0][0].name)
        reply(True)
    assert sorted(again) == sorted(kinds)
    clock[0] += 2 * DAY
    review("day02")
    assert reviews._session.queue[0][0].name == kinds[1], "right once since it was wrong"


def test_a_fast_track_is_passed_with_four_of_five(capsys, work):
    fast_track("day04")
    assert "1 of 5" in capsys.readouterr().out
    for right in (True, False, True, True, True):
        reply(right)
    assert "4 of 5 right. You may go on with the next day." in capsys.readouterr().out
    progress()
    assert "fast track passed: day04" in capsys.readouterr().out
    fast_track("day04")
    for _ in range(5):
        reply(False)
    assert "0 of 5 right. Take day04 first" in capsys.readouterr().out
    assert json.loads(work[1].read_text())["day04"] == {"right": 0, "passed": True}
    progress("day05")
    assert "fast track" not in capsys.readouterr().out
    fast_track("day99")
    assert "No fast track for 'day99'." in capsys.readouterr().out


def test_what_ends_a_fast_track_says_so(capsys):
    for another in (lambda: review("day01"), lambda: fast_track("day02")):
        fast_track("day01")
        reply(True)
        capsys.readouterr()
        another()
        assert capsys.readouterr().out.startswith("You leave the fast track of day01. fast_track('day01') begins it")
        review("day01")
        capsys.readouterr()
        review("day01")
        assert "You leave" not in capsys.readouterr().out


def test_a_day_without_questions_is_a_day_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(questions, "kinds_of", lambda *days: [])
    for ask in (review, fast_track):
        ask("day05")
        assert "Days are written" not in capsys.readouterr().out
        ask("day5")
        assert "Days are written 'day03'." in capsys.readouterr().out


def test_a_failed_fast_track_is_not_shown(capsys):
    fast_track("day05")
    for i in range(5):
        reply(right=i < 3)
    progress()
    out = capsys.readouterr().out
    assert "3 of 5 right." in out and "fast track passed" not in out


def test_a_passed_day_is_reviewed(capsys):
    fast_track("day07")
    for _ in range(5):
        reply(True)
    assert reviews._begun() == ["day07"]


def test_intervals_are_those_of_sm2():
    """1 day, 6 days, then times the ease, which a wrong answer lowers: Woźniak 1990."""
    card, days = Card(), []
    for _ in range(4):
        card = card.after(RIGHT, now=0)
        days.append(card.days)
    assert days == [1, 6, 15, 37.5] and card.due == 37.5 * DAY
    card = card.after(WRONG, now=100)
    assert (card.streak, card.days, card.due) == (0, 1, 100 + DAY) and card.ease == pytest.approx(2.18)
    assert card.after(0, 0).after(0, 0).after(0, 0).after(0, 0).ease == 1.3
    assert Card().after(5, 0).ease == pytest.approx(2.6)


def test_what_is_overdue_comes_before_what_is_new():
    cards = {"a": Card(due=5), "b": Card(due=3), "c": Card(due=50)}
    assert due("abcd", cards, now=10) == "b"
    assert due("cd", cards, now=10) == "d"
    assert due("c", cards, now=10) is None


@pytest.mark.parametrize("name", [kind.name for kind in questions.kinds_of()])
def test_answers_are_told_and_taken_in_every_form(name):
    for seed in range(5):
        one = questions.draw(name, seed)
        right = one.answer
        assert one.why and one.text and one.told
        if one.choices:
            assert one.right(one.choices.index(right) + 1) and one.right(right)
            assert len(set(one.choices)) == len(one.choices) > 1
            assert not any(one.right(i) for i, choice in enumerate(one.choices, 1) if choice != right)
        elif isinstance(right, int):
            assert one.right(right) and not one.right(right + 1)
        else:
            assert one.right(list(right)) and one.right(", ".join(right)) and not one.right([*right, "other"])
        with pytest.raises(ValueError, match="Call answer"):
            one.right({1: 2})


def test_a_kind_that_does_not_exist_is_named():
    with pytest.raises(KeyError, match=r"nothing.*readers"):
        questions.draw("nothing", 0)
