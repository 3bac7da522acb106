"""Late days: nbgrader's plugin for penalties, with a share of the score for each day."""

from __future__ import annotations

import math

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Float, Integer

DAY = 86_400


class LateDays(LateSubmissionPlugin):
    """A notebook loses a share of its score for each day begun after the due date, beyond some free days.

    Without `per_day`, nbgrader's own `penalty_method` holds.
    """

    per_day = Float(0.0, help="The share of the score that each late day costs, such as 0.1.").tag(config=True)
    free_days = Integer(0, help="How many late days cost nothing.").tag(config=True)

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        if not self.per_day:
            return super().late_submission_penalty(student_id, score, total_seconds_late)
        days = max(0, math.ceil(total_seconds_late / DAY) - self.free_days)
        return min(score, score * self.per_day * days) if days else None
