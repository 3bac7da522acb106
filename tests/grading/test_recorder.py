"""The recorder: it leaves in nbgrader's tables what nbgrader itself would, once, whoever else writes or dies."""

from __future__ import annotations

import errno
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import nbformat
import pytest
from nbgrader import preprocessors
from nbgrader.api import Base, Gradebook
from nbgrader.converters import Autograde
from nbgrader.plugins import LateSubmissionPlugin
from sqlalchemy import create_engine, select
from traitlets.config import Config

from autograder.engine.data import NotebookResult
from autograder.grading import gradebook
from autograder.grading import recorder as recording
from autograder.grading.gradebook import GradebookError, StorageError, convert
from autograder.grading.intake import Submission
from autograder.grading.recorder import Recorder, digest
from autograder.grading.scores import RUN, differences
from passlab import exercises
from tests.support import books

#: nbgrader's own, from entering a submission.
pytestmark = pytest.mark.filterwarnings("ignore:Object of type <Submitted")

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
    by_id = {(name, row["id"]): row for name, own in rows.items() for row in own}

    def told(name, row):
        columns = Base.metadata.tables[name].columns
        message = []
        for column in columns:
            value, foreign = row[column.name], next(iter(column.foreign_keys), None)
            if foreign is not None and value is not None:
                table = foreign.column.table.name
                value = told(table, by_id[table, value])
            elif column.name == "id" and getattr(column.type, "length", 0) == 32:
                continue
            message.append((column.name, value))
        return tuple(message)

    return {name: sorted((told(name, row) for row in own), key=repr) for name, own in rows.items()}


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
    "missing after a person": [(ALL, ""), by_hand("ada", "one-check", manual_score=1.0), ({"six": 1}, "")],
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


def leave_the_same(ours: Config, theirs: Config, scenario: list) -> dict[str, list]:
    """Take our recorder and nbgrader through a scenario, compare their tables, and return them."""
    for config in (ours, theirs):
        config.AssignLatePenalties.plugin_class = Tenth
    assert tables(ours.CourseDirectory.db_url) == tables(theirs.CourseDirectory.db_url)
    with Recorder(ours) as recorder:
        run = recorder.begin()
        for step in scenario:
            if callable(step):
                for config in (ours, theirs):
                    with Gradebook(config.CourseDirectory.db_url, "passlab") as book:
                        step(book)
                        book.db.commit()
            else:
                stock(theirs, books.paper(theirs, "ada", *step))
                recorder.record(run, books.paper(ours, "ada", *step), "")
    result, expected = tables(ours.CourseDirectory.db_url), tables(theirs.CourseDirectory.db_url)
    for table in expected:
        assert [row for row in result[table] if row not in expected[table]] == []
        assert result[table] == expected[table]
    return result


@pytest.mark.parametrize("name", SCENARIOS)
def test_nbgraders_tables_are_as_nbgrader_leaves_them(config, tmp_path, name):
    theirs = books.settings(shutil.copytree(config.CourseDirectory.root, tmp_path / "theirs"))
    result = leave_the_same(config, theirs, SCENARIOS[name])
    assert any(dict(row)["auto_score"] for row in result["grade"]) == (name != "nothing answered")


def total(scores) -> float:
    return sum(score.points or 0.0 for score in scores)


def test_scores_are_what_counts_with_what_is_behind_them(config):
    with Recorder(config) as recorder:
        run = recorder.begin(seed=7)
        recorder.record(run, books.paper(config, "ada", ALL | {"essay": "Because."}), "")
        by_hand("ada", "two-check", extra_credit=0.5)(book := Gradebook(config.CourseDirectory.db_url, "passlab"))
        book.db.commit()
        book.close()
        scores = {score.question: score for score in recorder.scores()["ada", "ps1"]}
    assert list(scores)[:6] == ["one", "two", "three", "four", "five", "own"] and list(scores)[-1] == "six"
    points = {name: score.points for name, score in scores.items()}
    assert points == {
        "one": 4, "two": 3, "three": 0, "four": 0, "five": 4, "own": 2, "bonus": 0, "six": 1,
        "essay": None, "code-by-hand": 0, "sketch": None,
    }  # fmt: skip
    assert scores["two"].verdict.exercise == "ps1.two" and scores["two"].seed == 7
    assert scores["four"].error == "NameError: x" and scores["four"].verdict.crash == "NameError: x"
    assert (scores["sketch"].total, scores["sketch"].verdict) == (6, None)


@pytest.fixture
def bonus(monkeypatch):
    """The question "bonus" gives up to 6 points of extra credit."""
    monkeypatch.setattr(exercises, "extra_credit", lambda name: 6.0 if name == "ps1.bonus" else 0.0)


def given(config) -> tuple[float, float, float, float | None]:
    """Ada's score and its maximum, and the two parts of her bonus, as nbgrader has them."""
    with Gradebook(config.CourseDirectory.db_url, "passlab") as book:
        submission, grade = book.find_submission("ps1", "ada"), book.find_grade("bonus-check", "p2", "ps1", "ada")
        return submission.score, submission.max_score, grade.auto_score, grade.extra_credit


@pytest.mark.usefixtures("bonus")
def test_a_stretch_question_gives_extra_credit_that_nbgrader_knows(config):
    with Recorder(config) as recorder:
        recorder.record(recorder.begin(seed=7), books.paper(config, "ada", {"one": 4, "own": "E", "bonus": 3}), "")
        assert given(config) == (7, 37, 0, 3)
        recorder.record(recorder.begin(seed=8), books.paper(config, "ada", {"one": 4, "own": "E", "bonus": 9}), "")
        assert given(config) == (10, 37, 0, 6)
        score = next(s for s in recorder.scores()["ada", "ps1"] if s.question == "bonus")
        assert (score.points, score.total, score.stretch, score.auto) == (6, 6, True, 6)
        assert recorder.latest("ada", "ps1")[-2].points == 6
        recorder.record(recorder.begin(seed=9), books.paper(config, "ada", {"one": 4, "own": "E"}), "")
        assert given(config) == (4, 37, 0, 0)


@pytest.mark.usefixtures("bonus")
def test_extra_credit_that_a_person_changed_stays(config):
    with Recorder(config) as recorder:
        recorder.record(recorder.begin(seed=7), books.paper(config, "ada", {"one": 4, "own": "E", "bonus": 3}), "")
        with Gradebook(config.CourseDirectory.db_url, "passlab") as book:
            book.find_grade("bonus-check", "p2", "ps1", "ada").extra_credit = 5.5
            book.db.commit()
        recorder.record(recorder.begin(seed=8), books.paper(config, "ada", {"one": 4, "own": "E", "bonus": 2}), "")
        assert given(config) == (9.5, 37, 0, 5.5)
        results = {s.question: (s.points, s.auto) for s in recorder.preview(books.paper(config, "ada", {"bonus": 2}))}
        assert results["bonus"] == (5.5, 2)


def give(config, extra: float | None) -> None:
    """A person enters extra credit for ada's bonus."""
    with Gradebook(config.CourseDirectory.db_url, "passlab") as book:
        book.find_grade("bonus-check", "p2", "ps1", "ada").extra_credit = extra
        book.db.commit()


@pytest.mark.usefixtures("bonus")
def test_extra_credit_that_a_person_gave_is_never_taken_for_automatic(config):
    with Recorder(config) as recorder:
        for seed, points in enumerate((3, 5.5, 5.5, 1)):  # 5.5, by chance, is what the person gave
            recorder.record(recorder.begin(seed), books.paper(config, "ada", {"own": "E", "bonus": points}), "")
            if seed == 0:
                give(config, 5.5)
        assert given(config)[3] == 5.5
        give(config, None)
        recorder.record(recorder.begin(9), books.paper(config, "ada", {"own": "E", "bonus": 2}), "")
        assert given(config)[3] == 2, "a person who takes it back leaves it to the grader"


#: The clock of one grading after the other, in days.
CLOCKS = {"ahead once": (0, 400, 1, 2), "behind": (0, -400, -401, -300), "stands still": (0, 0, 0, 0)}


@pytest.mark.usefixtures("bonus")
@pytest.mark.parametrize("clock", CLOCKS)
def test_gradings_are_in_order_whatever_the_clock_says(config, monkeypatch, clock):
    with Recorder(config) as recorder:
        for seed, days in enumerate(CLOCKS[clock]):
            monkeypatch.setattr(recording, "_now", lambda days=days: datetime(2030, 1, 1) + timedelta(days=days))
            run = recorder.begin(seed)
            paper = books.paper(config, "ada", {"one": seed, "own": "E", "bonus": 4 - seed}, seed=seed)
            expected = {score.question: score.points for score in recorder.preview(paper)}
            recorder.record(run, paper, str(seed))
            recorder.finish(run)
            assert given(config) == (4, 37, 0, 4 - seed), "extra credit is replaced, too"
            results = {score.question: score.points for score in recorder.scores()["ada", "ps1"]}
            assert results == expected and results["one"] == seed
            assert {score.seed for score in recorder.latest("ada", "ps1")} == {seed}
            entries = recorder.entries("ps1", "one")
            assert entries.last_seed == seed
            assert [digest for _, digest, _ in entries.handed_in["ada"]] == [str(n) for n in range(seed + 1)]


@pytest.mark.usefixtures("bonus")
def test_an_older_gradebook_is_put_in_the_order_in_which_it_was_filled(config, monkeypatch):
    with Recorder(config) as recorder:
        for seed, year in ((0, 2040), (1, 2030)):
            monkeypatch.setattr(recording, "_now", lambda year=year: datetime(year, 1, 1))
            recorder.record(recorder.begin(seed), books.paper(config, "ada", {"bonus": seed}, seed=seed), "")
        with recorder.engine.begin() as db:
            for order in (
                "DROP INDEX passlab_notebook_number",
                "ALTER TABLE passlab_notebook DROP COLUMN number",
                "ALTER TABLE passlab_score DROP COLUMN extra",
            ):
                db.exec_driver_sql(order)
    with Recorder(config) as recorder:
        assert {score.seed for score in recorder.latest("ada", "ps1")} == {1}
        recorder.record(recorder.begin(2), books.paper(config, "ada", {"bonus": 2}, seed=2), "")
        assert given(config)[3] == 2 and {score.seed for score in recorder.latest("ada", "ps1")} == {2}


@pytest.mark.usefixtures("bonus")
def test_nbgrader_grades_one_notebook_after_the_other(config):
    for seed, bonus in ((7, 3), (8, 1)):
        paper = books.paper(config, "ada", {"one": 4, "own": "E", "bonus": bonus}, seed=seed)
        stock(config, paper)
        with Recorder(config) as recorder:
            run = recorder.scratch_run(seed)
            for name, nb in sorted(paper.notebooks.items()):
                recorder.note(run, "ada", nb, paper.results[name])
        assert given(config)[3] == bonus


@pytest.mark.usefixtures("bonus")
def test_grades_that_nbgrader_saves_get_their_extra_credit(config):
    paper = books.paper(config, "ada", {"one": 4, "own": "E", "bonus": 3})
    stock(config, paper)
    assert given(config) == (4, 37, 0, None)
    with Recorder(config) as recorder:
        for name, nb in paper.notebooks.items():
            recorder.note(recorder.scratch_run(7), "ada", nb, paper.results[name])
    assert given(config) == (7, 37, 0, 3)


def test_how_many_submissions_it_took_to_the_best_one(config):
    with Recorder(config) as recorder:
        arguments = [("ada", 0), ("ada", 4), ("ada", 4), ("ada", 2), ("bob", 1)]
        for number, (who, points) in enumerate(arguments):
            for seed in (number, number + 100):  # graded twice: one submission
                run = recorder.scratch_run(seed)
                recorder.record(run, books.paper(config, who, {"one": points, "five": 4 - points}), f"digest {number}")
        tries = recorder.tries()
    assert sorted(tries["ps1", "one"]) == [1, 2] and sorted(tries["ps1", "five"]) == [1, 1]


def test_what_was_graded_can_be_read_back_to_replay_it(config):
    with Recorder(config) as recorder:
        for seed, points in ((7, ALL), (8, ALL | {"one": 2})):
            run = recorder.begin(seed)
            recorder.record(run, books.paper(config, "ada", points, seed=seed), "")
            recorder.finish(run)
        stored = {score.question: (score.points, score.seed) for score in recorder.latest("ada", "ps1")}
        results = recorder.results()
    assert stored["one"] == (2, 8) and stored["two"] == (2.5, 8) and stored["sketch"] == (None, 8)
    assert [(r.notebook, r.seed, r.seconds) for r in results] == [("p1", 8, 0.25), ("p2", 8, 0.25)]
    message = {v.exercise: (v.points, v.verdicts, v.crash) for r in results for v in r.verdicts.values()}
    assert message["ps1.four"] == (0.0, {"did": False}, "NameError: x") and message["ps1.six"] == (
        1.0,
        {"did": True},
        "",
    )


def test_a_preview_shows_every_difference_and_writes_nothing(config):
    with Recorder(config) as recorder:
        recorder.record(recorder.begin(), books.paper(config, "ada", ALL), "")
        before = tables(config.CourseDirectory.db_url)
        paper = books.paper(config, "ada", ALL | {"one": 1, "four": 3})
        result = differences(recorder.scores(), {paper.key: recorder.preview(paper)})
        assert [(d.question, d.old.points, d.new.points) for d in result] == [("one", 4, 1), ("four", 0, 3)]
        assert tables(config.CourseDirectory.db_url) == before
        assert total(recorder.latest("ada", "ps1")) == 13.5
        paper = books.paper(config, "bob", ALL)
        assert all(d.old is None for d in differences(recorder.scores(), {paper.key: recorder.preview(paper)}))


def test_an_unfinished_run_goes_on_and_a_finished_one_does_not(config):
    with Recorder(config) as recorder, Recorder(config) as other:
        run = recorder.begin()
        assert other.begin() == run == recorder.begin(run.seed)
        assert recorder.begin(run.seed + 1).seed == run.seed + 1
        recorder.finish(recorder.begin())
        assert recorder.begin(run.seed).id != run.id
        with recorder.engine.connect() as db:
            assert len(db.execute(select(RUN)).all()) == 3


def test_a_run_knows_what_it_has_recorded_and_a_changed_submission_is_not_that(config, tmp_path):
    submission = Submission("ada", "ps1", {"p1": tmp_path / "p1.ipynb"}, times=[tmp_path / "timestamp.txt"])
    digests = [digest(submission)]
    for name, text in (("p1.ipynb", "{}"), ("p1.ipynb", "{ }"), ("timestamp.txt", "2030")):
        (tmp_path / name).write_text(text)
        digests.append(digest(submission))
    assert len(set(digests)) == 4 and digest(submission) == digests[-1]
    with Recorder(config) as recorder:
        run = recorder.begin()
        recorder.record(run, books.paper(config, "ada", ALL), digests[0])
        assert recorder.digests(run) == {("ada", "ps1"): digests[0]}
        recorder.record(run, books.paper(config, "ada", {"one": 1}), digests[1])
        assert recorder.digests(run) == {("ada", "ps1"): digests[1]}
        assert total(recorder.scores()["ada", "ps1"]) == 3, "one: 1, own: 2"


def test_files_are_those_of_the_last_grading(config):
    folder = Path(config.CourseDirectory.root, "run")
    with Recorder(config) as recorder:
        run = recorder.begin()
        recorder.record(
            run, books.paper(config, "ada", ALL, LATE), "", lambda nb, result, notes: lambda marks: "before"
        )
        (folder / "autograded/ada/ps1/.p1.ipynb.1.tmp").write_text("half a")
        paper = books.paper(config, "ada", {"one": 3})
        recorder.record(
            run,
            paper,
            "",
            lambda nb, result, notes: lambda m: f"{result.notebook} {m.points['one-check'][:2]} {m.comments}",
        )
    assert [p.name for p in (folder / "autograded/ada/ps1").iterdir()] == ["p1.ipynb"]
    nb = nbformat.read(folder / "autograded/ada/ps1/p1.ipynb", as_version=4)
    assert nb.cells[1].source == "one = 3" and nb.cells[2].outputs[0].data["text/plain"] == "3.0"
    message = {path.name: path.read_text() for path in (folder / "feedback/ada/ps1").iterdir()}
    assert list(message) == ["p1.html"] and message["p1.html"].startswith("p1 (3.0, 4.0) {")
    assert "'two': 'No response.'" in message["p1.html"] and "'one'" not in message["p1.html"]


def test_nothing_is_recorded_of_what_was_not_graded(config):
    failed, strange = (books.paper(config, "ada", ALL) for _ in range(2))
    failed.results["p2"] = NotebookResult("ada", "ps1", "p2", 7, failure="the engine has ended")
    strange.notebooks["p9"], strange.results["p9"] = strange.notebooks["p1"], strange.results["p1"]
    with Recorder(config) as recorder:
        run = recorder.begin()
        for paper, why in ((failed, "the engine has ended"), (strange, "no notebook p9")):
            with pytest.raises(GradebookError, match=why):
                recorder.record(run, paper, "")
        strange.submission.assignment = "ps9"
        with pytest.raises(GradebookError, match="ps9 is not in the gradebook"):
            recorder.record(run, strange, "")
        assert recorder.scores() == {} == recorder.digests(run)
    assert not Path(config.CourseDirectory.root, "run/autograded").exists()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageError),
        (errno.EDQUOT, StorageError),
        (errno.EROFS, StorageError),
        (errno.EACCES, GradebookError),
    ],
)
def test_a_full_disk_stops_a_grading_and_a_file_alone_does_not(config, monkeypatch, number, kind):
    def full(*_):
        raise OSError(number, os.strerror(number))  # as of a write, which knows no name

    with Recorder(config) as recorder:
        run = recorder.begin()
        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(
            GradebookError, match=f"ada/ps1/p1.ipynb cannot be written: {os.strerror(number)}"
        ) as failure:
            recorder.record(run, books.paper(config, "ada", ALL), "")
        assert type(failure.value) is kind
        monkeypatch.undo()
        assert recorder.digests(run) == {} == recorder.scores() and recorder.begin() == run
        recorder.record(run, books.paper(config, "ada", ALL), "")
        assert list(recorder.scores()) == [("ada", "ps1")]


def test_points_are_never_more_than_the_release_gives(config):
    paper = books.paper(config, "ada", ALL)
    paper.results["p1"].verdicts[2].points = 99.0
    paper.results["p1"].verdicts.pop(4)
    paper.notebooks["p1"].cells[4].outputs = []
    own = next(cell for cell in paper.notebooks["p1"].cells if cell.id == "own")
    own.metadata["nbgrader"]["points"] = 99
    own.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "50"}, execution_count=1)]
    with Recorder(config) as recorder:
        recorder.record(recorder.begin(), paper, "")
        scores = {score.question: score.points for score in recorder.scores()["ada", "ps1"]}
    assert scores["one"] == 4 and scores["own"] is None, "a person looks at what claims too much"
    assert scores["two"] == 0, "nothing is known of it"


def test_odd_texts_are_kept(config):
    paper = books.paper(config, "ada", ALL | {"four": "odd \0 \ud800 text"}, timestamp="yesterday, I think")
    paper.results["p1"].verdicts[2].message = "\0 and \ud800"
    with Recorder(config) as recorder:
        recorder.record(recorder.begin(), paper, "")
        scores = {score.question: score for score in recorder.scores()["ada", "ps1"]}
    assert scores["four"].error == "odd  ? text" and scores["one"].verdict.message == "\0 and \ud800"
    assert not Path(config.CourseDirectory.root, "run/autograded/ada/ps1/timestamp.txt").exists()


def test_seeds_cannot_be_guessed_and_an_older_database_takes_them(config):
    with Recorder(config) as recorder:
        assert recorder.begin().seed.bit_length() > 100
        columns = "id VARCHAR, folder TEXT, seed BIGINT, started DATETIME, finished DATETIME"
        with recorder.engine.begin() as db:
            for order in (
                "DROP TABLE passlab_run",
                f"CREATE TABLE passlab_run ({columns})",
                "CREATE UNIQUE INDEX unfinished ON passlab_run (folder) WHERE finished IS NULL",
                f"INSERT INTO passlab_run VALUES ('a', '{recorder.folder}', 2147483647, '2030-01-01 00:00:00.0', NULL)",
            ):
                db.exec_driver_sql(order)
        assert recorder.begin().seed == 2**31 - 1
        wide = 2**127 + 1
        assert recorder.begin(wide).seed == wide and recorder.begin().seed == wide
