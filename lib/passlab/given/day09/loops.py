"""Day 9, loops: a program travels as its text."""

from passlab.given.day09.reuse import call

__all__ = ["call"]
