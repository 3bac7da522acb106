"""Day 5, order: the record that its cases are made of."""

from passlab.memory.tasks import Task

__all__ = ["Task"]
