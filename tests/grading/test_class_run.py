"""A class is graded to its end, whatever happens to one submission."""

from autograder.grading import class_run
from autograder.grading.intake import Submission
from autograder.grading.paper import Paper


class Unused:
    """A grader that submissions without notebooks never reach."""

    jobs = 2


def test_a_submission_that_cannot_be_graded_does_not_stop_the_class(tmp_path, monkeypatch, capsys):
    def read(submission):
        if submission.learner == "bob":
            raise SystemError("a bug")
        return Paper(submission)

    monkeypatch.setattr(class_run, "read", read)
    class_ = [Submission(name, "day03") for name in ("ada", "bob", "cleo")]
    papers = {paper.submission.learner: paper for paper in class_run.grade_all(class_, Unused(), lambda _: 0, tmp_path)}
    assert papers.keys() == {"ada", "bob", "cleo"}
    assert papers["bob"].submission.notes == ["It could not be graded (SystemError: a bug)."]
    assert not papers["ada"].submission.notes and "a bug" in capsys.readouterr().err
