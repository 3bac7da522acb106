"""Day 1, swapping ReLU for LeakyReLU: the look-alikes in its graphs."""

from __future__ import annotations

import torch
from torch import nn

from passlab.judge import function_travels, module_travels


@function_travels
def relu(x: torch.Tensor) -> torch.Tensor:
    """A look-alike: a user's own function of that name."""
    return x.clamp(-0.5, 0.5)


@module_travels
class ReLU(nn.Module):
    """A look-alike: a user's own layer of that name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-0.25, 2.0)


@module_travels
class Clipped(nn.ReLU):
    """A look-alike: a subclass of ReLU that computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).clamp(max=0.75)


@module_travels
class Gate(nn.Module):
    """A layer that is one node of the graph, and has a ReLU inside."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.act(x + 0.5)
