"""A class is graded to its end, whatever happens to one submission."""

import errno
from types import SimpleNamespace

import nbformat
import pytest

from autograder.engine.data import NotebookResult
from autograder.grading import class_run
from autograder.grading.gradebook import GradebookError, StorageError
from autograder.grading.intake import Submission
from autograder.grading.paper import GradedSubmission
from passlab import exercises


class Unused:
    """A grader that submissions without notebooks never reach."""

    jobs, ready = 2, ("torch",)


def test_a_submission_that_cannot_be_graded_does_not_stop_the_class(tmp_path, monkeypatch, capsys):
    def read(submission):
        if submission.learner == "bob":
            raise SystemError("a bug")
        return GradedSubmission(submission)

    monkeypatch.setattr(class_run, "read", read)
    class_ = [Submission(name, "day03") for name in ("ada", "bob", "cleo")]
    papers = {paper.submission.learner: paper for paper in class_run.grade_all(class_, Unused(), lambda _: 0, tmp_path)}
    assert papers.keys() == {"ada", "bob", "cleo"}
    assert papers["bob"].submission.notes == ["It could not be graded (SystemError: a bug)."]
    assert not papers["ada"].submission.notes and "a bug" in capsys.readouterr().err
    assert papers["bob"].failure == papers["bob"].submission.notes[0] and not papers["ada"].failure


def test_a_full_disk_is_no_fault_of_a_submission(tmp_path, monkeypatch):
    def full(paper, submitted):
        raise OSError(errno.ENOSPC, "No space left on device", "/run/submitted/ada")

    monkeypatch.setattr(class_run, "read", GradedSubmission)
    monkeypatch.setattr(class_run, "write_submitted", full)
    with pytest.raises(StorageError, match="/run/submitted/ada cannot be written: No space left on device"):
        list(class_run.grade_all([Submission("ada", "day03")], Unused(), lambda _: 0, tmp_path))


def test_a_submission_that_cannot_be_recorded_does_not_stop_the_class(tmp_path, monkeypatch, capsys):
    recorded = []

    def record(run, paper, digest, page):
        errors = {"bob": IndexError("a bug"), "cleo": GradebookError("cleo, day03: no disk")}
        if error := errors.get(paper.key[0]):
            raise error
        recorded.append(paper.key[0])

    result = NotebookResult("", "", "", 0)
    monkeypatch.setattr(class_run, "read", lambda submission: [][1])  # of those that are recorded already
    monkeypatch.setattr(
        class_run,
        "grade",
        lambda submission, *_: GradedSubmission(submission, {"n": nbformat.v4.new_notebook()}, {"n": result}),
    )
    recorder = SimpleNamespace(
        digests=lambda run: {("zoe", "day03"): class_run.digest(Submission("zoe", "day03"))}, record=record
    )
    session = class_run.Session(recorder, Unused(), tmp_path, page=None)
    class_ = [Submission(name, "day03") for name in ("ada", "bob", "cleo", "dan", "zoe")]
    session.grade(class_, SimpleNamespace(seed=0))
    assert sorted(recorded) == ["ada", "dan"] and session.failures.keys() == {
        (n, "day03") for n in ("bob", "cleo", "zoe")
    }
    assert session.failures["bob", "day03"] == "bob, day03: IndexError: a bug"
    assert {key[0]: what for key, what in session.missed.items()} == {
        "bob": "recorded",
        "cleo": "recorded",
        "zoe": "read",
    }
    assert session.recorded == 3, "zoe was recorded before"
    session.record([GradedSubmission(one) for one in class_[:4]], None)
    assert sorted(recorded) == ["ada", "ada", "dan", "dan"] and "a bug" in capsys.readouterr().err


def test_what_a_group_handed_in_is_graded_once_and_recorded_for_each(tmp_path, monkeypatch):
    graded, recorded, shown = [], [], []

    def grade(submission, *_):
        graded.append(submission.learner)
        if submission.learner == "eve":
            return GradedSubmission(submission, error="not a notebook")
        return GradedSubmission(
            submission, {"n": nbformat.v4.new_notebook()}, {"n": NotebookResult("bob", "d", "n", 0)}
        )

    def record(run, paper, digest, page):
        recorded.append((paper.key[0], paper.results["n"].learner))

    monkeypatch.setattr(class_run, "grade", grade)
    bob, eve = Submission("bob", "day03"), Submission("eve", "day03")
    class_ = [Submission("ada", "day03", same_as=bob), bob, Submission("cyd", "day03", same_as=bob)]
    class_ += [eve, Submission("fay", "day03", same_as=eve), Submission("zoe", "day03", same_as=eve)]
    done = {("zoe", "day03"): class_run.digest(class_[-1]), ("bob", "day04"): ""}
    session = class_run.Session(SimpleNamespace(digests=lambda run: done, record=record), Unused(), tmp_path, None)
    session.advance = shown.append
    assert session.grade(class_, SimpleNamespace(seed=0)) == 1
    assert sorted(graded) == ["bob", "eve"] and sorted(recorded) == [(who, who) for who in ("ada", "bob", "cyd")]
    assert session.failures == {("eve", "day03"): "not a notebook", ("fay", "day03"): "not a notebook"}
    assert len(shown) == len(class_) and (tmp_path / "ada/day03/n.ipynb").is_file()
    assert [who for who, *_ in session.answers] == [], "an answer of a group is nobody's copy of another's"


def test_of_a_group_whose_first_member_is_recorded_the_others_are_graded(tmp_path, monkeypatch):
    graded = []
    monkeypatch.setattr(
        class_run, "grade", lambda submission, *_: graded.append(submission) or GradedSubmission(submission)
    )
    monkeypatch.setattr(class_run, "read", GradedSubmission)
    bob = Submission("bob", "day03")
    ada = Submission("ada", "day03", same_as=bob)
    recorder = SimpleNamespace(digests=lambda run: {("bob", "day03"): class_run.digest(bob)})
    class_run.Session(recorder, Unused(), tmp_path, None).grade([ada, bob], SimpleNamespace(seed=0))
    assert graded == [ada], "it was recorded before the kill, and ada was not"


def test_a_gradebook_that_cannot_be_used_stops_the_class(tmp_path, monkeypatch):
    def record(run, paper, *_):
        raise StorageError("The gradebook is locked.")

    monkeypatch.setattr(class_run, "grade", lambda submission, *_: GradedSubmission(submission, {"n": None}))
    monkeypatch.setattr(GradedSubmission, "answers", lambda self: ())
    session = class_run.Session(SimpleNamespace(digests=lambda run: {}, record=record), Unused(), tmp_path, page=None)
    with pytest.raises(StorageError):
        session.grade([Submission(name, "day03") for name in ("ada", "bob", "cleo", "dan")], SimpleNamespace(seed=0))
    assert not session.failures and not session.recorded


def test_a_submission_whose_compiler_has_started_goes_before_one_that_would_wait():
    class_ = [Submission("ada", day) for day in ("day07", "day01", "day03", "day08")]
    assert list(class_run.by_day(class_)) == ["day01", "day03", "day07", "day08"]
    assert exercises.flavours(class_run.by_day(class_)) == ["torch", "relay", "relax"]
    for ready, first in (((), "day03"), (("torch",), "day03"), (("torch", "relay"), "day01"), (("relax",), "day08")):
        waiting = class_run.by_day(class_)
        assert class_run._take(waiting, ready, {}).assignment == first, ready
        assert first not in waiting and len(waiting) == 3


def test_days_of_compilers_go_before_days_of_torch_once_both_have_started():
    waiting = class_run.by_day([Submission("ada", day) for day in ("day03", "day04", "day05", "day08")])
    started = ("torch", "relay", "relax")
    values = [class_run._take(waiting, started, {}).assignment for _ in range(4)]
    assert values == ["day04", "day08", "day03", "day05"]


def test_two_submissions_of_a_day_are_not_graded_at_once_while_other_days_wait():
    waiting = class_run.by_day([Submission(name, day) for day in ("day03", "day05") for name in ("ada", "bob")])
    values = [class_run._take(waiting, ("torch",), busy) for busy in ({}, {"day03": 1}, {"day03": 1, "day05": 1})]
    assert [one.assignment for one in values] == ["day03", "day05", "day03"]
