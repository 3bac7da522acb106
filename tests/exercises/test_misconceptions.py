"""Wrong answers are known by what they do: the bank against itself, mixtures, and answers that nobody foresaw."""

import hashlib
import json
from functools import cache

import pytest

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from autograder.engine.data import CaseResult
from autograder.engine.verifier.misconceptions import match, signature
from passlab import exercises
from passlab.judge import judge_outcome, run

#: Quick ones, whose answers give text, lists, graphs and objects.
EXERCISES = ["day01.to-ssa", "day02.pass-manager", "day02.counterexample", "day03.shrinking", "day03.cse"]


def judged(exercise, answer):
    """How an answer does on every case, judged in this process."""
    results = []
    for case in [*exercise.cases(), *hidden_cases(exercise.id, 0)]:
        outcome = run(exercise, answer, case)
        lost = tuple({f.verdict for f in judge_outcome(exercise, case, outcome) if not f.ok})
        value = str(getattr(outcome.value, "graph", outcome.value)) if outcome.status == "ok" else ""
        results.append(
            CaseResult(case.name, True, outcome.status, lost, value and hashlib.md5(value.encode()).hexdigest())
        )
    return results


@cache
def known(exercise_id):
    """(name, note, signature) of the wrong answers in the bank that bring a value back."""
    exercise = exercises.find(exercise_id)
    wrong = [answer for answer in answers.load(exercise_id) if answer.mark.kind == "wrong"]
    found = [(answer.__name__, answer.mark.note, signature(judged(exercise, answer))) for answer in wrong]
    return [entry for entry in found if any(case[3] for case in entry[2])]


def notes(exercise_id):
    return [(note, behaviour) for _, note, behaviour in known(exercise_id)]


def alike(exercise_id, note, seen):
    """Does the bank answer with this note lose the same verdicts on every case?"""
    return bool(note) and [case[:3] for case in dict(notes(exercise_id))[note]] == [case[:3] for case in seen]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_every_wrong_answer_of_the_bank_is_known_by_its_own_note_or_one_that_behaves_the_same(exercise_id):
    found = {name: match(seen, notes(exercise_id)) for name, _, seen in known(exercise_id)}
    assert [name for name, _, seen in known(exercise_id) if not alike(exercise_id, found[name], seen)] == []
    own = sum(match(seen, notes(exercise_id)) == note for _, note, seen in known(exercise_id))
    assert own >= 0.9 * len(known(exercise_id))


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_a_right_answer_shows_no_misconception(exercise_id):
    assert (
        match(signature(judged(exercises.find(exercise_id), answers.reference(exercise_id))), notes(exercise_id)) == ""
    )


UNRELATED = {
    "raises": lambda *given: 1 / 0,
    "gives text": lambda *given: "no idea",
    "gives a number": lambda *given: 7,
    "gives a list of itself": lambda *given: [given[0], given[0], given[0]],
}


@pytest.mark.parametrize("exercise_id", ["day01.to-ssa", "day03.cse"])
@pytest.mark.parametrize("name", UNRELATED)
def test_an_answer_that_has_nothing_to_do_with_it_gets_no_note(exercise_id, name):
    assert match(signature(judged(exercises.find(exercise_id), UNRELATED[name])), notes(exercise_id)) == ""


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_two_mistakes_in_one_answer_get_the_note_of_one_of_them_or_none(exercise_id):
    """Mixtures: where the first answer fails, its behaviour; elsewhere the second's."""
    mixtures = wrong = named = 0
    for one, _, seen in known(exercise_id):
        for other, _, also in known(exercise_id):
            if one != other:
                found = match([a if a[2] else b for a, b in zip(seen, also, strict=True)], notes(exercise_id))
                mixtures, named = mixtures + 1, named + bool(found)
                wrong += bool(found) and not alike(exercise_id, found, seen) and not alike(exercise_id, found, also)
    assert wrong <= 0.05 * mixtures
    assert named >= 0.25 * mixtures


def cases(*rows):
    return signature([CaseResult(name, False, status, lost, value) for name, status, lost, value in rows])


OK = ("a", "ok", (), "x")


def test_the_values_decide_between_two_that_lose_the_same():
    one = cases(OK, ("b", "ok", ("did",), "1"), ("c", "ok", ("did",), "2"))
    other = cases(OK, ("b", "ok", ("did",), "7"), ("c", "ok", ("did",), "8"))
    both = [("one", one), ("other", other)]
    assert match(cases(OK, ("b", "ok", ("did",), "1"), ("c", "ok", ("did",), "9")), both) == "one"
    assert match(cases(OK, ("b", "ok", ("did",), "7"), ("c", "ok", ("did",), "9")), both) == "other"
    assert match(cases(OK, ("b", "ok", ("did",), "9"), ("c", "ok", ("did",), "9")), both) == ""
    assert match(cases(OK, ("b", "ok", ("did",), "9"), ("c", "ok", ("did",), "9")), both[:1]) == "one"


def test_failing_everywhere_says_something_only_with_the_same_values():
    lost = [("did", name) for name in "abcd"]
    one = [("one", cases(*((name, "ok", (verdict,), "1") for verdict, name in lost)))]
    assert match(cases(*((name, "ok", (verdict,), "1") for verdict, name in lost)), one) == "one"
    assert match(cases(*((name, "ok", (verdict,), "2") for verdict, name in lost)), one) == ""


def test_the_nearest_note_needs_three_quarters_of_the_cases():
    failed = [(name, "ok", ("did",), name) for name in "bcdefg"]
    known_ones = [("six", cases(OK, *failed)), ("two", cases(OK, *failed[:2], *((n, "ok", (), n) for n in "defg")))]
    more = cases(("a", "ok", ("cost",), "y"), *failed)
    assert match(more, known_ones) == "six"
    other_values = cases(("a", "ok", ("cost",), "y"), *((n, "ok", ("did",), "?") for n in "bcdefg"))
    assert match(other_values, known_ones) == ""
    assert match(cases(("a", "ok", ("cost",), "y"), *failed[:2], *((n, "ok", (), n) for n in "defg")), known_ones) == ""
    assert match(more, [*known_ones, ("also six", cases(OK, *failed))]) == "", "as near as another: nothing is said"


def test_cases_that_were_not_put_any_more_count_as_different():
    full = [("slow", cases(OK, ("b", "timeout", ("did",), "")))]
    assert match(cases(OK, ("b", "timeout", ("did",), "")), full) == "slow"
    assert match(cases(("b", "timeout", ("did",), "")), full) == ""


def test_a_signature_survives_json():
    seen = known("day01.to-ssa")[0][2]
    assert json.loads(json.dumps(seen)) == seen
