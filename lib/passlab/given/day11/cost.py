"""Day 11, cost: the record that its cases are made of."""

from passlab.wafer import Message

__all__ = ["Message"]
