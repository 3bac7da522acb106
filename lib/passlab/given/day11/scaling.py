"""Day 11, scaling: the record that its cases are made of."""

from passlab.wafer.scaling import Stencil

__all__ = ["Stencil"]
