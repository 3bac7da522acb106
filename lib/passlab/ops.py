"""Fused operations: one node where the plain graph has two. Lessons, learners and the judge mean these by their names.

Both run eagerly as the two ops they stand for, so that a graph that holds them can be executed and compared anywhere.
What a kernel behind them would save is counted (nodes, launches, bytes), not felt here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv2d_relu(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """`relu(conv2d(input, weight, bias, …))`, with the operands of `torch.nn.functional.conv2d`."""
    return torch.relu(F.conv2d(input, weight, bias, stride, padding, dilation, groups))


class ConvReLU2d(nn.Conv2d):
    """`relu(conv2d(x))` as one module; it is made with what makes an `nn.Conv2d`.

    >>> fused = ConvReLU2d(3, 8, kernel_size=3, stride=2, padding=1)

    It is a Conv2d by inheritance, for its attributes and parameters. A pass that looks for plain convolutions tells
    them apart with `type(module) is nn.Conv2d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(super().forward(input))
