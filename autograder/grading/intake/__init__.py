"""Take in submissions, a module for each step. Nothing here changes a submitted file or runs learner code.

submissions    find the notebooks in what learners handed in (`grading.reading` reads them)
claims         tell by its content which notebook a file is
groups         enter what a member of a group handed in for all of them
contents       tell what code cells check and define
repairs        restore locked and missing cells, ids and metadata
jobs           make the engine's job of its code cells
results        write the job's result into its outputs
"""

from autograder.grading.files import UnreadableError
from autograder.grading.intake.groups import share
from autograder.grading.intake.jobs import job
from autograder.grading.intake.repairs import repair
from autograder.grading.intake.results import AS_HANDED_IN, VERDICT, dead_output, fill
from autograder.grading.intake.submissions import MAX_NOTES, TIMESTAMP, ClassWork, Submission, collect
from autograder.grading.reading import read

__all__ = [
    "AS_HANDED_IN",
    "MAX_NOTES",
    "TIMESTAMP",
    "VERDICT",
    "ClassWork",
    "Submission",
    "UnreadableError",
    "collect",
    "dead_output",
    "fill",
    "job",
    "read",
    "repair",
    "share",
]  # fmt: skip
