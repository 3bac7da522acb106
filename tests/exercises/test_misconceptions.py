"""Wrong answers are known by what they do: the known ones, mixtures, and unforeseen answers."""

import json
from functools import cache

import pytest

from autograder.authoring.answers import hidden_cases
from autograder.engine.data import CaseResult
from autograder.engine.verifier.misconceptions import Behaviour, match, signature
from autograder.proofs.wire import WireJudge
from passlab import exercises

#: Quick ones, whose answers give text, lists, graphs and objects.
EXERCISES = ["day01.to-ssa", "day02.pass-manager", "day02.counterexample", "day03.shrinking", "day03.cse"]


@pytest.fixture
def known(proofs):
    """Exercise → (name, note, signature) of its wrong answers that bring a value back."""

    @cache
    def of(exercise_id):
        proof = proofs(exercise_id)
        wrong = [(row["name"], row["note"]) for row in proof["rows"] if row["kind"] == "wrong"]
        results = [(name, note, proof["signatures"][name]) for name, note in wrong]
        return [entry for entry in results if any(case[3] for case in entry[2])]

    return of


def notes(known):
    return [(note, behaviour) for _, note, behaviour in known]


def alike(known, note, seen):
    """Return whether the answer with this note loses the same verdicts on every case."""
    return bool(note) and [case[:3] for case in dict(notes(known))[note]] == [case[:3] for case in seen]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_every_wrong_answer_is_known_by_its_own_note_or_one_that_behaves_the_same(known, exercise_id):
    known = known(exercise_id)
    results = {name: match(seen, notes(known)) for name, _, seen in known}
    assert [name for name, _, seen in known if not alike(known, results[name], seen)] == []
    assert sum(match(seen, notes(known)) == note for _, note, seen in known) >= 0.9 * len(known)


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_a_right_answer_shows_no_misconception(proofs, known, exercise_id):
    assert match(proofs(exercise_id)["signatures"]["reference"], notes(known(exercise_id))) == ""


UNRELATED = {
    "raises": lambda *given: 1 / 0,
    "gives text": lambda *given: "no idea",
    "gives a number": lambda *given: 7,
    "gives a list of itself": lambda *given: [given[0], given[0], given[0]],
}


@pytest.mark.parametrize("exercise_id", ["day01.to-ssa", "day03.cse"])
@pytest.mark.parametrize("name", UNRELATED)
def test_an_answer_that_has_nothing_to_do_with_it_gets_no_note(known, exercise_id, name):
    exercise = exercises.find(exercise_id)
    seen = WireJudge(exercise)
    seen.judge(exercise, UNRELATED[name])
    seen.judge(exercise, UNRELATED[name], hidden_cases(exercise_id, 0))
    [did] = map(signature, seen.cases.values())
    assert match(did, notes(known(exercise_id))) == ""


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_two_mistakes_in_one_answer_get_the_note_of_one_of_them_or_none(known, exercise_id):
    """Mixtures: where the first answer fails, its behaviour; elsewhere the second's."""
    known = known(exercise_id)
    mixtures = wrong = named = 0
    for one, _, seen in known:
        for other, _, also in known:
            if one != other:
                result = match([a if a.lost else b for a, b in zip(seen, also, strict=True)], notes(known))
                mixtures, named = mixtures + 1, named + bool(result)
                wrong += bool(result) and not alike(known, result, seen) and not alike(known, result, also)
    assert wrong <= 0.05 * mixtures
    assert named >= 0.25 * mixtures


def cases(*rows):
    return signature([CaseResult(name, False, status, verdicts, value) for name, status, verdicts, value in rows])


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
    verdicts = [("did", name) for name in "abcd"]
    one = [("one", cases(*((name, "ok", (verdict,), "1") for verdict, name in verdicts)))]
    assert match(cases(*((name, "ok", (verdict,), "1") for verdict, name in verdicts)), one) == "one"
    assert match(cases(*((name, "ok", (verdict,), "2") for verdict, name in verdicts)), one) == ""


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
    seen = signature([CaseResult("a", True, "timeout", ("same", "did"), "x")])
    assert [Behaviour(*case) for case in json.loads(json.dumps(seen))] == seen
