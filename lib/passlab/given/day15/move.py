"""Day 15, move: the functions that only move or choose elements."""

from __future__ import annotations

import operator

import torch
from torch.nn import functional as F

#: They return some of the elements of what they read, in another place.
MOVING = (
    *(torch.reshape, torch.flatten, torch.transpose, torch.permute, torch.flip, torch.roll),
    *(operator.getitem, torch.cat, torch.amax, F.max_pool2d),
)
