"""Day 14, forward mode: how an answer runs on a case."""

from passlab.given.day14.backward import call

__all__ = ["call"]
