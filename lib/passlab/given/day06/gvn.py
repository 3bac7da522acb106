"""Day 6, gvn: how an answer runs on a case."""

from passlab.given.day06._facts import call

__all__ = ["call"]
