"""The sample class, graded on its first day: what `make grade` does, on the real exercises."""

from __future__ import annotations

import csv
import os
import subprocess
import sys

import pytest

from autograder.authoring import source
from autograder.authoring.source import ROOT

DAY = "day01"
PLACES = source.places(DAY)
#: Of each notebook of the day, in the order in which they stand there.
NOTEBOOKS = {
    path.stem: [exercise.split(".")[1] for exercise, place in PLACES.items() if place.path == path]
    for path in dict.fromkeys(place.path for place in PLACES.values())
}
QUESTIONS = [question for questions in NOTEBOOKS.values() for question in questions]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    command = [sys.executable, "-m", "passlab.cli", "grade", "--assignment", DAY, "--seed", "1"]
    env = os.environ | {"PASSLAB_RUN": str(run), "PYTHONFAULTHANDLER": "1"}  # who ends by a signal says where
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr + result.stdout
    with (run / "grades.csv").open(newline="") as lines:
        rows = {
            (r["learner"], r["question"]): (float(r["points"]), float(r["max_points"]))
            for r in csv.DictReader(lines)
            if r["question"]  # else there is no grade
        }
    return run, result.stdout, rows


def shares(graded, learner, questions=QUESTIONS) -> list[float]:
    """Share of the points, question by question."""
    return [points / total for points, total in (graded[2][learner, question] for question in questions)]


def test_perfect_and_untouched(graded):
    assert shares(graded, "perfect") == [1] * len(QUESTIONS)
    assert shares(graded, "untouched") == [0] * len(QUESTIONS)


@pytest.mark.parametrize("learner", ["crash", "endless-loop"])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_an_accident_costs_its_own_question(graded, learner, notebook):
    actual = shares(graded, learner, NOTEBOOKS[notebook])
    assert actual[:2] == [0, 1][: len(actual)] and set(actual[2:]) <= {0}


def test_partly_right_is_right_wrong_and_then_unwritten(graded):
    actual = shares(graded, "partly-right", NOTEBOOKS["graphs"])
    assert actual[0] == 1 and actual[1] < 1 and set(actual[2:]) == {0}


def test_the_damaged_notebook_is_named_and_feedback_written_for_the_rest(graded):
    run, message, _ = graded
    assert "graphs.ipynb is damaged" in message and "(1 could not be read)" in message
    learners = {"perfect", "untouched", "partly-right", "crash", "endless-loop"}
    assert {page.parts[-3] for page in run.glob("feedback/*/*/*.html")} == learners
