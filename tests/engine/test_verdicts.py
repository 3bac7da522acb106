"""What a verdict says of hidden cases, what it is earned with, and what of it is kept for others."""

from __future__ import annotations

import os
import socket
import warnings
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder.engine import wire
from autograder.engine.data import Verdict
from autograder.engine.messages import Judged, reader
from autograder.engine.verifier import process, verdicts
from autograder.engine.verifier.verdicts import Question
from passlab.building import requests
from passlab.equivalence.comparison import locating
from passlab.judge import MEANING, VERDICTS, WORDS, Case, Exercise, Finding
from passlab.process.messages import receive, send

CASES = [
    Case("two", lambda: (2,), expect=4),
    Case("zero", lambda: (0,), ("spared",), expect=0),
    Case("secret", lambda: (1234567,), ("did",), expect=2469134),
    Case("secret zero", lambda: (-1,), ("spared",), expect=-2),
]
QUIET = {"printed": 0, "seconds": 0.0, "in_place": False}
SLOW, QUICK = "slow", "quick"
#: The cases that were judged, and whether the place of a difference would have been searched for.
LOCATED: list[tuple[str, bool]] = []


def judge(case, value):
    LOCATED.append((case.name, locating()))
    if value in (SLOW, QUICK):
        requests.unsteady += 1
        yield Finding("did", value == QUICK, "It is slower than asked.")
        return
    yield Finding("did", value == case.expect, f"Expected {case.expect}, got {value}.")
    yield Finding("spared", value is not None, "Nothing came back.")


EXERCISE = Exercise(
    "day00.twice", "Twice", {"did": 2.0, "spared": 1.0}, 1, 2, ("one",), cases=lambda: CASES[:2], judge=judge
)


@pytest.fixture(autouse=True, scope="module")
def exercise():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts.exercises, "find", lambda name: EXERCISE)
        patch.setattr(verdicts, "hidden_cases", lambda name, seed: CASES[2:])
        yield


def ok(value) -> tuple[dict, bytes]:
    return QUIET | {"status": "ok", "error": ""}, wire.encode(value)


def ended(status: str, error: str = "", **more) -> tuple[dict, bytes]:
    return QUIET | {"status": status, "error": error} | more, b""


def question(*outcomes: tuple[dict, bytes], kept=None) -> Question:
    return Question(EXERCISE.id, 3, [head for head, _ in outcomes], [value for _, value in outcomes], kept or {})


def verdict(*outcomes: tuple[dict, bytes]) -> Verdict:
    return question(*outcomes).verdict(SimpleNamespace(name=lambda *_: ""))


def test_every_verdict_has_a_word_a_meaning_and_a_sentence_for_hidden_cases():
    assert tuple(WORDS) == tuple(MEANING) == tuple(verdicts.ON_HIDDEN) == VERDICTS


VISIBLE = (ok(4), ok(0))
ENDS = ("stub", "raised", "timeout", "refused", "died", "missing")


def test_right_on_all_cases_earns_all():
    assert verdict(*VISIBLE, ok(2469134), ok(-2)).points == 3


def test_who_knows_the_visible_cases_by_heart_and_does_nothing_else_earns_nothing():
    by_heart = verdict(ok(4), ok(0), ok(1234567), ok(-1))
    assert by_heart.verdicts == {"did": False, "spared": True} and by_heart.points == 0
    assert "is lost on every hidden case" in by_heart.text


def test_no_place_is_searched_for_that_no_learner_may_see():
    LOCATED.clear()
    verdict(ok(5), ok(0), ok(2469135), ok(-3))
    assert {name: located for name, located in LOCATED} == {case.name: at < 2 for at, case in enumerate(CASES)}


@pytest.mark.parametrize("status", ENDS)
def test_where_a_hidden_case_ends_early_what_it_and_those_below_are_about_is_lost(status):
    result = verdict(*VISIBLE, ended(status))
    assert result.verdicts == {"did": False, "spared": False} and result.points == 0 and result.attempted
    assert not any(verdict(*VISIBLE, ok(2469134), ended(status)).verdicts.values())


def test_not_written_at_all_is_still_said():
    assert not verdict(ended("stub")).attempted
    assert verdict(ok(4), ended("stub")).verdicts == {"did": False, "spared": False}


HEAD = st.fixed_dictionaries(
    {
        "error": st.text(),
        "printed": st.integers(0, 2**50),
        "seconds": st.floats(0, 5),
        "in_place": st.booleans(),
    }
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(ENDS), HEAD, HEAD)
def test_nothing_that_an_answer_chooses_in_a_hidden_case_is_told(status, one, other):
    """Two answers that differ only in what they say of a hidden case look the same to their learner."""
    assert verdict(*VISIBLE, ended(status, **one)) == verdict(*VISIBLE, ended(status, **other))
    value, another = (wire.encode([head["error"], head["printed"]]) for head in (one, other))
    results = [
        verdict(*VISIBLE, (head | {"status": "ok"}, value), ok(-2)) for head, value in ((one, value), (other, another))
    ]
    for result in results:
        for case in result.cases:  # which nobody but the instructor sees
            case.fingerprint = ""
    assert results[0] == results[1]


def test_printed_amounts_are_told_by_their_order_only():
    message = [verdict(ended("raised", "no", printed=n), ok(0), *VISIBLE).text for n in (23_456, 98_765)]
    assert message[0] == message[1] and "10,000 characters or more" in message[0]


def test_only_what_the_value_decides_is_kept():
    requests = question(*VISIBLE, ok(SLOW), ended("timeout"))
    requests.verdict(SimpleNamespace(name=lambda *_: ""))
    assert {key[2] for key in requests.fresh} == {0, 1}


def test_a_value_that_was_fast_enough_is_not_timed_again_and_one_that_was_not_is():
    request = question(*VISIBLE, ok(QUICK), ok(SLOW))
    request.verdict(SimpleNamespace(name=lambda *_: ""))
    assert {key[2] for key in request.fresh} == {0, 1, 2}
    before = requests.unsteady
    again = question(*VISIBLE, ok(QUICK), ok(SLOW), kept=request.fresh)
    again.verdict(SimpleNamespace(name=lambda *_: ""))
    assert requests.unsteady == before + 1 and not again.fresh


class Fatal:
    """A search for misconceptions that ends its process, as known answers did that were stopped inside a compiler."""

    def __init__(self, known, searching):
        self.fresh, self.searching = {}, searching

    def name(self, *_):
        return os._exit(1) if self.searching else ""


def served(monkeypatch, *questions: list[tuple[dict, bytes]]) -> list[Verdict]:
    """Return what a verifier replies to a request with these questions."""
    monkeypatch.setattr(process.exercises, "find", lambda name: EXERCISE)
    ours, theirs = socket.socketpair()
    asked = [
        {"exercise": EXERCISE.id, "seed": 3, "heads": [*heads], "sizes": [*map(len, values)]}
        for heads, values in (zip(*outcomes, strict=True) for outcomes in questions)
    ]
    if os.fork() == 0:
        ours.close()
        process.Verifier([theirs]).serve()
        os._exit(0)
    theirs.close()
    send(ours, {"judge": asked}, b"".join(value for outcomes in questions for _, value in outcomes))
    verdicts = receive(ours, form=reader(Judged))[0].verdicts
    ours.close()
    os.wait()
    return verdicts


HALF = [ok(5), ok(0), ok(2469134), ok(-2)]


def test_a_search_for_a_misconception_that_crashes_costs_no_points(monkeypatch):
    monkeypatch.setattr(process, "Misconceptions", Fatal)
    result = served(monkeypatch, HALF, HALF)
    assert [(verdict.points, verdict.crash) for verdict in result] == [(1.0, ""), (1.0, "")]


def test_a_message_quotes_no_more_than_a_learner_reads():
    request = question(ok("x" * 10**6), ok(0))
    result = request.verdict(SimpleNamespace(name=lambda *_: ""))
    assert len(result.message) == verdicts.MOST_WORDS and result.message.startswith("Expected 4, got xxx")
    assert all(
        len(row[2]) <= verdicts.MOST_WORDS for kept in request.fresh.values() for row in kept.to_json()["findings"]
    )
    assert len(result.html + result.text) < 30_000


def test_a_verdict_that_is_too_large_to_be_sent_costs_its_own_question(monkeypatch):
    monkeypatch.setattr(process, "MOST_HEAD", 20_000)
    monkeypatch.setattr(process, "Misconceptions", lambda *_: SimpleNamespace(name=lambda *_: "", fresh={}))
    large = [ok("x" * 10**6), ok(0), ok(5), ok(-2)]
    result = served(monkeypatch, HALF, large)
    assert [verdict.points for verdict in result] == [1.0, 0.0]
    assert result[0].crash == "" and "could not be judged" in result[1].crash


def test_a_hidden_case_that_cannot_be_built_costs_nothing_and_is_named_to_instructors_only(monkeypatch, capsys):
    def build():
        raise ValueError("high <= 0")

    hidden = [Case("broken", build), *CASES[2:]]
    monkeypatch.setattr(verdicts, "hidden_cases", lambda name, seed: hidden)
    verdicts.prepared.cache_clear()
    try:
        assert [case.name for case in verdicts.cases_of(EXERCISE.id, 3)[0]] == [case.name for case in CASES]
        assert len(verdicts.payloads(EXERCISE.id, 3)) == 4
        result = verdict(*VISIBLE, ok(2469134), ok(-2))
        assert result.points == 3 and result.unbuilt == ["broken"] and "broken" not in result.text + result.html
        assert "high <= 0" in capsys.readouterr().err
        assert verdict(*VISIBLE, ok(5), ok(-2)).points < 3
    finally:
        verdicts.prepared.cache_clear()


def test_warnings_of_libraries_while_cases_are_built_are_not_shown(monkeypatch):
    def build():
        warnings.warn("deprecated", stacklevel=1)
        return (2,)

    monkeypatch.setattr(verdicts, "hidden_cases", lambda name, seed: [Case("warns", build)])
    verdicts.prepared.cache_clear()
    try:
        with warnings.catch_warnings(record=True) as shown:
            assert not verdicts.prepared(EXERCISE.id, 3).unbuilt
        assert not shown
    finally:
        verdicts.prepared.cache_clear()
