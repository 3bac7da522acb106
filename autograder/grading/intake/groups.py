"""Groups that hand in together: one submission counts for each member."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping

from autograder.grading import files
from autograder.grading.files import UnreadableError
from autograder.grading.intake.submissions import ClassWork, Submission
from passlab.judge import listed


def share(work: ClassWork, groups: Mapping[str, str]) -> None:
    """Enter what a member of a group handed in for all of its members.

    groups: learner → group, "" for none. Several members may have handed in the same files, as Moodle writes them.
    Where their files differ, the instructor has to decide: then none of them is graded.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for learner, group in groups.items():
        if group:
            members[group].append(learner)
    for assignment in sorted({assignment for _, assignment in work.submissions}):
        for group, learners in members.items():
            _share(work, group, learners, assignment)


def _share(work: ClassWork, group: str, learners: list[str], assignment: str) -> None:
    of_group = [work.submissions[key] for learner in learners if (key := (learner, assignment)) in work.submissions]
    if not of_group or len(learners) < 2:
        return
    first = of_group[0]
    if len({_content(submission) for submission in of_group}) > 1:
        names = listed([submission.learner for submission in of_group])
        reason = (
            f"{names} of the group {group} handed in different files for {assignment}. Decide which one counts: remove "
            "the others, and grade again."
        )
    else:
        reason = first.undecided
    for learner in learners:
        shared = work.submissions.setdefault((learner, assignment), Submission(learner, assignment))
        shared.undecided = reason
        if shared is first or (reason and shared in of_group):
            continue
        shared.notebooks, shared.times, shared.same_as = dict(first.notebooks), list(first.times), first
        shared.note(f"Handed in by {first.learner} for the group {group}.")


def _content(submission: Submission) -> tuple:
    """Return what tells the notebooks of a submission from those of another."""
    parts = []
    for name, path in sorted(submission.notebooks.items()):
        try:
            parts.append((name, hashlib.sha256(files.read_bytes(path)).hexdigest()))
        except UnreadableError as error:
            parts.append((name, str(error)))
    return tuple(parts)
