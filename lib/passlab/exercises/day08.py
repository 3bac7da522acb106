"""Day 8, TVM today (Relax and TensorIR): its exercises. Cases and judges, which need TVM, are in modules beside this one."""

from __future__ import annotations

from passlab.exercises import later
from passlab.judge import Exercise

EXERCISES: tuple[Exercise, ...] = ()
