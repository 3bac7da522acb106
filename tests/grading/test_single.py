"""One notebook, or answers as files, graded without a gradebook: the form of the JSON, and the exit status."""

from __future__ import annotations

import json
import shutil

import pytest

from autograder.grading import single
from autograder.toys import tiny
from autograder.toys.classes import GOOD, submit

PARTLY = {"double": GOOD["double"], "shout": "def shout(word):\n    return word.upper()[:2]"}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    course = tiny.make(tmp_path_factory.mktemp("single") / "course")
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    return course


def grade(course, path, *options):
    ended = tiny.run(course, "-m", "passlab.cli", "grade", "--json", str(path), *options)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def test_one_notebook_has_a_result_and_no_gradebook(course, tmp_path):
    path = shutil.copy(submit(course, "ada", PARTLY), tmp_path / "homework (2).ipynb")
    status, result = grade(course, path, "--seed", "5")
    assert status == 1 and (result["assignment"], result["notebook"], result["seed"]) == ("day00", "tiny", 5)
    assert result["core"] == {"points": 3, "of": 9} and result["extra"] == {"points": 0, "of": 0}
    rows = {row["question"]: row for row in result["questions"]}
    assert [(row["points"], row["of"], row["extra"]) for row in rows.values()] == [
        (3, 3, False),
        (0, 3, False),  # right in the visible case alone
        (0, 3, False),
    ]
    assert rows["shout"]["verdicts"] == {"complete": False, "precise": True} and rows["shout"]["message"]
    assert rows["sort-words"]["attempted"] is False and result["sandboxed"] and result["schema"] == single.SCHEMA
    assert not list(course.rglob("gradebook.db")) and "hiddenword" not in json.dumps(result)
    assert grade(course, path, "--seed", "5")[1]["core"] == result["core"]


def test_all_points_of_the_core_are_status_0(course):
    assert grade(course, submit(course, "bob", GOOD))[0] == 0


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.ipynb", None, "Name one notebook"),
        ("text.ipynb", "{", "text.ipynb has no check of a notebook of this course: day00."),
        ("empty.ipynb", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}', "has no check of"),
    ],
)
def test_what_cannot_be_graded_is_status_2_with_a_sentence(course, tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_text(content)
    status, result = grade(course, tmp_path / name)
    assert status == 2 and sentence in result["error"] and result["schema"] == single.SCHEMA


def judge(course, *words):
    ended = tiny.run(course, "-m", "passlab.cli", "judge", *map(str, words))
    return ended, [json.loads(line) for line in ended.stdout.splitlines()]


def test_answers_as_files_have_a_line_for_each_task(course, tmp_path):
    (tmp_path / "day00").mkdir()
    (tmp_path / "day00.double.py").write_text("def double(x):\n    return sum([x, x])\n")
    (tmp_path / "day00/sort_words.py").write_text("import os\n\ndef sort_words(words):\n    os._exit(3)\n")
    (tmp_path / "notes.py").write_text("not an answer")
    ended, rows = judge(course, tmp_path, "--seed", "7")
    assert ended.returncode == 0, ended.stderr
    assert [(row["task"], row["points"], row["of"]) for row in rows] == [
        ("day00.double", 3, 3),
        ("day00.shout", 0, 3),
        ("day00.sort-words", 0, 3),
    ]
    assert rows[0]["verdicts"] == {"complete": True, "precise": True} and rows[0]["sandboxed"]
    assert rows[1] == {
        "schema": single.SCHEMA, "task": "day00.shout", "points": 0, "of": 3, "extra": False, "attempted": False,
        "message": "There is no answer.",
    }  # fmt: skip
    assert "ended" in rows[2]["message"] and "1 of 3 tasks have all points; 3 of 9 points" in ended.stderr
    _, (row,) = judge(course, tmp_path, "--task", "double", "--seed", "7")
    assert row["points"] == 3


def test_the_tasks_are_printed_without_their_answers(course):
    ended, rows = judge(course, "--prompts")
    assert [row["task"] for row in rows] == ["day00.double", "day00.shout", "day00.sort-words"]
    assert rows[0]["text"] == "## double" and rows[0]["stub"].startswith("def double(x):")
    assert "raise NotImplementedError()" in rows[0]["stub"] and "solutionmarker" not in ended.stdout
    assert rows[0]["points"] == {"complete": 2, "precise": 1} and rows[0]["seconds"] == 1


def test_a_text_reaches_back_to_the_heading_over_cells_that_show_something():
    patterns = single.prompt("day09.patterns")["text"]
    assert patterns.startswith("## 2 · Rewrite patterns") and "```python\nclass" in patterns
    assert single.prompt("day11.place")["text"].startswith("## 2 · A place for everything")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "Name a folder with answers: passlab judge answers."),
        ((), "Name a folder with answers"),
        ((".", "--task", "duoble"), "There is no exercise 'duoble'. Did you mean"),
    ],
)
def test_wrong_words_are_said_in_a_sentence(course, words, sentence):
    ended, _ = judge(course, *words)
    assert ended.returncode == 1 and sentence in " ".join(ended.stderr.split())


def test_a_file_that_names_no_exercise_is_refused(course, tmp_path):
    (tmp_path / "day00.duoble.py").write_text("")
    ended, _ = judge(course, tmp_path)
    assert ended.returncode == 1 and "There is no exercise 'day00.duoble'" in ended.stderr
