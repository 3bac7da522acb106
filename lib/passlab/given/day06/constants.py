"""Day 6, constants: how a case is put to an answer."""

from passlab.given.day06._facts import call

__all__ = ["call"]
