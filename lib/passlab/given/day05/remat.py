"""Day 5, remat: the record that its cases are made of."""

from passlab.memory.tasks import Task

__all__ = ["Task"]
