"""Day 17, breaking compilers: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"breaking": "torch"}

EXERCISES: tuple[Exercise, ...] = ()
