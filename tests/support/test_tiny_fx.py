"""The small course of torch.fx passes holds what it promises, for it is what attacks and benchmark are measured on."""

from __future__ import annotations

import json

import nbformat
import pytest

from autograder.toys import tiny, tiny_fx


@pytest.fixture(scope="module")
def fx(tmp_path_factory):
    folder = tiny_fx.make(tmp_path_factory.mktemp("fx") / "course")
    built = tiny.run(folder, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    return folder


def test_reference_alternative_and_wrong_answers_get_what_they_deserve(fx):
    result = tiny.run(fx, "-m", "passlab.cli", "prove", "--json", "--jobs", "1")
    proofs = json.loads(result.stdout)
    assert {proof["exercise"] for proof in proofs} == {f"day00.{name}" for name in tiny_fx.QUESTIONS}
    for proof in proofs:
        assert {row["kind"] for row in proof["rows"]} == {"reference", "stub", "unchanged", "right", "wrong"}
        assert [f"{row['name']}: {row['problem']}, {row['message']}" for row in proof["rows"] if row["problem"]] == []


SHOW = """
import json
from autograder.authoring.answers import hidden_cases
from passlab import exercises

def shown(cases):
    return [f"{case.name} {case.expect} {case.build()[0].graph}" for case in cases]

day = exercises.of_day("day00")
print(json.dumps([[s for e in day for s in shown(e.cases())], [s for e in day for s in shown(hidden_cases(e.id, 3))]]))
"""


def test_every_hidden_case_holds_marks_and_no_visible_one_does(fx):
    visible, hidden = json.loads(tiny.run(fx, "-c", SHOW).stdout)
    assert (len(visible), len(hidden)) == (2 * len(tiny_fx.QUESTIONS), 3 * len(tiny_fx.QUESTIONS))
    assert all(mark in case for case in hidden for mark in tiny_fx.SECRET)
    assert all(any(mark in case for case in hidden) for mark in tiny_fx.GIVEN)
    assert not any(mark in case for case in visible for mark in tiny_fx.MARKS)


def test_a_submission_is_the_release_with_answers(fx):
    path = tiny_fx.submission(fx, "ada", {"dce": tiny_fx.QUESTIONS["dce"].good})
    cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
    assert cells["dce"] == tiny_fx.QUESTIONS["dce"].good
    assert "NotImplementedError" in cells["cse"] and "hidden" not in path.read_text().lower()
