"""Day 15, insert: which functions are layers, and which only move elements."""

from __future__ import annotations

import torch
from torch.nn import functional as F

#: Functions with an integer form. The second operand of the first two is a weight.
LAYERS = (F.linear, F.conv2d, torch.add)
#: Functions that only move elements of their first operand, or choose among them by order.
MOVES = (torch.flatten, torch.reshape, torch.transpose, torch.permute, F.max_pool2d)
