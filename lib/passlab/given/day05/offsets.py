"""Day 5, offsets: the record that its cases are made of."""

from passlab.memory.buffers import Buffer

__all__ = ["Buffer"]
