"""Day 4, fusion: its exercises. Cases and judges need torch and TVM: they are in modules beside this."""

from __future__ import annotations

from passlab.exercises import later
from passlab.judge import Exercise

EXERCISES: tuple[Exercise, ...] = ()
