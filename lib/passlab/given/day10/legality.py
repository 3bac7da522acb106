"""Day 10, is this order legal?: how an answer runs on a case."""

from __future__ import annotations

from passlab.given.day10._isl import call_with

call = call_with("UnionMap", "UnionMap")
