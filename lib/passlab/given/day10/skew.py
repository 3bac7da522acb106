"""Day 10, skew a stencil: how a case is put to an answer."""

from __future__ import annotations

from passlab.given.day10._isl import call_with

call = call_with("UnionSet", "UnionMap")
