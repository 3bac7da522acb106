"""Day 2, fuse conv2d and relu: the look-alike in its graphs."""

from __future__ import annotations

import torch
from torch import nn

from passlab.judge import module_travels


@module_travels
class Clipped(nn.ReLU):
    """A look-alike: a subclass of ReLU that computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).clamp(max=0.75)
