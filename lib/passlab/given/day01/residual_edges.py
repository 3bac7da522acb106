"""Day 1, find the residual edges: how a case is put to an answer."""

from passlab.given.day01._shared import frugally as call

__all__ = ["call"]
