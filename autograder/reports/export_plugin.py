"""What `nbgrader export` writes: nbgrader's columns, each field quoted and none a formula."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin

from autograder.reports.exports import harmless, write

COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
    "raw_score", "late_submission_penalty", "score", "max_score",
)  # fmt: skip


class SafeCsv(ExportPlugin):
    """nbgrader's CSV export, whose own writes fields as they are: a learner's name could be a formula or a column."""

    def export(self, gradebook: Gradebook) -> None:
        lines: list[Sequence[str]] = [COLUMNS]
        for assignment in gradebook.assignments:
            if self.assignment and assignment.name not in map(str, self.assignment):
                continue
            for student in gradebook.students:
                if not self.student or student.id in map(str, self.student):
                    fields = self._fields(gradebook, assignment, student)
                    lines.append([harmless("" if field is None else field) for field in fields])
        write(Path(self.to or "grades.csv"), lines)

    @staticmethod
    def _fields(gradebook: Gradebook, assignment, student) -> tuple:
        time, raw, penalty = "", 0.0, 0.0
        try:
            submission = gradebook.find_submission(assignment.name, student.id)
            time, raw, penalty = submission.timestamp, submission.score, submission.late_submission_penalty
        except MissingEntry:
            pass
        known = (student.id, student.last_name, student.first_name, student.email)
        points = (raw, penalty, max(0.0, raw - (penalty or 0.0)), assignment.max_score)
        return (assignment.name, assignment.duedate, time, *known, *points)
