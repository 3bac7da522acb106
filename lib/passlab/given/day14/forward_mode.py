"""Day 14, forward mode: how a case is put to an answer."""

from passlab.given.day14.backward import call

__all__ = ["call"]
