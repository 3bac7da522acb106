"""Day 1, depth, levels, and what may run in parallel: how an answer runs on a case."""

from passlab.given.day01._shared import frugally as call

__all__ = ["call"]
