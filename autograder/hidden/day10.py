"""Day 10: the cases that learners do not see, drawn from a seed."""

from __future__ import annotations

HIDDEN = {}
