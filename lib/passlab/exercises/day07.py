"""Day 7, TVM Relay: its exercises. Cases and laws, which need Relay, are in modules beside this one."""

from __future__ import annotations

from passlab.exercises import later  # noqa: F401
from passlab.judge import Exercise

EXERCISES: tuple[Exercise, ...] = (
    # Exercises 1 to 4: counts, mutators, batch norm, fusion groups.
    # Exercises 5 to 8: instruments, CSE and DCE, patterns, folding.
)
