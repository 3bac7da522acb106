"""The recorder: it leaves in nbgrader's tables what nbgrader itself would, once, whoever else writes or dies."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import books
import nbformat
import pytest
from nbgrader import preprocessors
from nbgrader.api import Base, Gradebook
from nbgrader.converters import Autograde
from nbgrader.plugins import LateSubmissionPlugin
from sqlalchemy import create_engine, select

from autograder import gradebook
from autograder.gradebook import convert
from autograder.recorder import Recorder

ALL = {"one": 4, "two": 2.5, "three": 0, "four": "NameError: x", "five": 4, "own": 2, "six": 1}
LATE = "2030-01-02 00:00:00 UTC"


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("released") / "course"
    books.make(folder)
    return folder


@pytest.fixture
def config(released, tmp_path):
    """A course of its own with the release entered."""
    return books.settings(shutil.copytree(released, tmp_path / "course"))


class Tenth(LateSubmissionPlugin):
    """A tenth of the score for each day; too much after ten days, and less than nothing after twenty."""

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        days = total_seconds_late / 86_400
        return None if days < 1 else -1.0 if days > 20 else score * days / 10


def tables(url: str) -> dict[str, list]:
    """Everything in nbgrader's tables, row by row. A generated id is replaced by what it stands for."""
    engine = create_engine(url)
    with engine.connect() as db:
        rows = {name: db.execute(select(table)).mappings().all() for name, table in Base.metadata.tables.items()}
    engine.dispose()
    by_id = {(name, row["id"]): row for name, mine in rows.items() for row in mine}

    def told(name, row):
        columns = Base.metadata.tables[name].columns
        said = []
        for column in columns:
            value, foreign = row[column.name], next(iter(column.foreign_keys), None)
            if foreign is not None and value is not None:
                table = foreign.column.table.name
                value = told(table, by_id[table, value])
            elif column.name == "id" and getattr(column.type, "length", 0) == 32:
                continue
            said.append((column.name, value))
        return tuple(said)

    return {name: sorted((told(name, row) for row in mine), key=repr) for name, mine in rows.items()}


def stock(config, paper) -> None:
    """What `nbgrader autograde` does after a notebook was run, from its own steps."""
    step = preprocessors
    config = gradebook.Config(config)
    config.Autograde.sanitize_preprocessors = [step.DeduplicateIds, step.OverwriteCells, step.CheckCellMetadata]
    config.Autograde.autograde_preprocessors = [step.SaveAutoGrades, step.AssignLatePenalties, step.CheckCellMetadata]
    learner, assignment = paper.key
    folder = Path(config.CourseDirectory.root, "run/submitted", learner, assignment)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, nb in paper.notebooks.items():
        nbformat.write(nb, folder / f"{name}.ipynb")
    if paper.timestamp:
        (folder / "timestamp.txt").write_text(paper.timestamp)
    convert(Autograde, config, assignment, learner)


def by_hand(learner, cell, notebook="p1", **values):
    """A person's grade, as formgrader enters it."""

    def do(book):
        grade = book.find_grade(cell, notebook, "ps1", learner)
        for name, value in values.items():
            setattr(grade, name, value)
        grade.needs_manual_grade = False
        book.find_comment(cell if cell == "essay" else "one", notebook, "ps1", learner).manual_comment = "Well."

    return do


def due(book):
    book.find_assignment("ps1").duedate = datetime(2030, 1, 1)


def extended(learner, days):
    return lambda book: setattr(book.find_submission("ps1", learner), "extension", timedelta(days=days))


#: name → steps: (points, timestamp) of a submission of ada's, or what a person does to the gradebook in between.
SCENARIOS = {
    "honest": [(ALL, "")],
    "nothing answered": [({"own": "AssertionError", "six": 0}, "")],
    "by hand": [(ALL | {"essay": "Because.", "code-by-hand": "x = 2"}, "")],
    "one of two notebooks": [({"one": 4}, "")],
    "the other, later": [({"one": 4}, ""), ({"six": 1}, "")],
    "graded again": [(ALL, ""), (ALL | {"one": 1, "four": 4}, "")],
    "graded again after a person": [
        (ALL | {"essay": "Because."}, ""),
        by_hand("ada", "essay", manual_score=4.5),
        by_hand("ada", "one-check", manual_score=0.0),
        (ALL | {"essay": "Because of this.", "one": 3}, ""),
    ],
    "missing after a person": [
        (ALL, ""),
        by_hand("ada", "one-check", manual_score=1.0),
        ({"six": 1}, ""),
    ],
    "extra credit": [(ALL, ""), by_hand("ada", "two-check", extra_credit=1.5), (ALL | {"two": 3}, "")],
    "task by hand": [(ALL, ""), by_hand("ada", "sketch", manual_score=6.0), (ALL, "")],
    "in time": [due, (ALL, "2029-12-31 23:00:00 UTC")],
    "late": [due, (ALL, LATE)],
    "late, no penalty": [due, (ALL, "2030-01-01 10:00:00 UTC")],
    "late, more than there is": [due, (ALL, "2030-01-13 00:00:00 UTC")],
    "late, penalty below zero": [due, (ALL, "2030-02-13 00:00:00 UTC")],
    "late, with extra credit": [due, (ALL, LATE), by_hand("ada", "two-check", extra_credit=1.5), (ALL, LATE)],
    "late in another time zone": [due, (ALL, "2030-01-02 00:00:00 -0500")],
    "late, then extended": [due, (ALL, LATE), extended("ada", 5), (ALL, LATE)],
    "late, then graded without a timestamp": [due, (ALL, LATE), (ALL, "")],
    "late, then handed in one notebook": [due, (ALL, LATE), ({"one": 4}, LATE)],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nbgraders_tables_are_as_nbgrader_leaves_them(config, tmp_path, name):
    config.AssignLatePenalties.plugin_class = Tenth
    theirs = books.settings(shutil.copytree(config.CourseDirectory.root, tmp_path / "theirs"))
    theirs.AssignLatePenalties.plugin_class = Tenth
    assert tables(config.CourseDirectory.db_url) == tables(theirs.CourseDirectory.db_url)
    with Recorder(config) as recorder:
        run = recorder.begin()
        for step in SCENARIOS[name]:
            if callable(step):
                for mine in (config, theirs):
                    with Gradebook(mine.CourseDirectory.db_url, "passlab") as book:
                        step(book)
                        book.db.commit()
            else:
                stock(theirs, books.paper(theirs, "ada", *step))
                recorder.record(run, books.paper(config, "ada", *step), "")
    ours, expected = tables(config.CourseDirectory.db_url), tables(theirs.CourseDirectory.db_url)
    for table in expected:
        assert ours[table] == expected[table], table
    assert any(dict(row)["auto_score"] for row in ours["grade"]) == (name != "nothing answered")
