"""The line that `make grade` prints for a submission."""

from types import SimpleNamespace

from nbformat.v4 import new_notebook

from autograder.bench.grading import LINE
from autograder.engine.data import NotebookResult, Ran, Verdict
from autograder.grading.intake import Submission
from autograder.grading.paper import GradedSubmission
from autograder.reports import tables
from tests.support import books


def paper(*cells, result=None):
    result = result or NotebookResult("ada", "ps1", "p1", 7, seconds=1.25)
    return GradedSubmission(Submission("ada", "ps1"), {"p1": new_notebook(cells=list(cells))}, {"p1": result})


def test_what_a_person_has_to_grade_is_not_shown_as_lost():
    essay = books.cell("essay", "Why?", 5, markdown=True, grade=True, solution=True)
    result = NotebookResult("ada", "ps1", "p1", 7, seconds=1.25)
    result.verdicts[0] = Verdict("one", 4.0, 4.0, 7, {}, "")
    assert tables.line(paper(books.check("one", 4), result=result)) == "ada, ps1: 4 of 4 points, 1.2 s"
    line = tables.line(paper(books.check("one", 4), essay, result=result))
    assert line == "ada, ps1: 4 of 9 points, 5 to be graded by hand, 1.2 s"
    assert LINE.match(line)["points"] == "4", "the benchmarks read it"


def test_extra_credit_alone_is_not_of_0_points():
    result = NotebookResult("ada", "day02", "relax", 7, seconds=1.25)
    result.verdicts[0] = Verdict("fuse-silu", 10 / 3, 10.0, 7, {}, "")
    line = tables.line(paper(books.check("fuse-silu", 10), result=result))
    assert line == "ada, ps1: 3.33 of 10 extra points, 1.2 s"
    assert LINE.match(line)["points"] == "3.33", "the benchmarks read it"


def test_a_cell_that_raised_is_lost_and_not_waiting():
    result = NotebookResult("ada", "ps1", "p1", 7, ran={0: Ran(error="AssertionError")}, seconds=2.0)
    own = books.cell("own", "assert one", 2, grade=True, locked=True)
    assert tables.line(paper(own, result=result)) == "ada, ps1: 0 of 2 points, 2.0 s"


def test_a_submission_without_a_notebook_is_not_graded():
    nothing = SimpleNamespace(key=("ada\x1b[2J", "ps1"), failure="", results={})
    assert tables.line(nothing) == "ada?[2J, ps1: not graded"
