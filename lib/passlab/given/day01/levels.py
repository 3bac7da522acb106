"""Day 1, depth, levels, and what may run in parallel: how a case is put to an answer."""

from passlab.given.day01._shared import frugally as call

__all__ = ["call"]
