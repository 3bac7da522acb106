"""Day 1, find the residual edges: how an answer runs on a case."""

from passlab.given.day01._shared import frugally as call

__all__ = ["call"]
