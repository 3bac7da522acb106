"""A model that calls one function or module on its input x."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Called(nn.Module):
    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)
