"""Day 13, decomposition: the operations that may be left, and those that must go."""

from __future__ import annotations

import torch

aten = torch.ops.aten

#: The names of the operations that may be left, whichever way they are called: a + b, torch.add, aten.add.Tensor.
_NAMES = """
    abs add amax bitwise_and bitwise_not bitwise_or div eq exp ge gt le log logical_and logical_not logical_or
    lt maximum minimum mul ne neg sqrt sub sum truediv where"""
#: The names of the operations that may be left.
SMALL = frozenset(_NAMES.split())
#: The operations that are to be replaced.
LARGE = frozenset(
    {
        aten._log_softmax.default,
        aten._softmax.default,
        aten.expm1.default,
        aten.hypot.default,
        aten.log1p.default,
        aten.softplus.default,
        aten.tanh.default,
        aten.var.correction,
    }
)
