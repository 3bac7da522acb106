"""Fused operations: one node where the plain graph has several. Lessons, learners and the judge share these names.

They run eagerly as the ops they stand for, so that a graph that holds them can be executed and compared anywhere.
What a real kernel would save is counted (nodes, launches, bytes), not measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    """Return `relu(conv2d(input, weight, bias, …))`, with the operands of `torch.nn.functional.conv2d`."""
    return torch.relu(F.conv2d(input, weight, bias, stride, padding, dilation, groups))


class ConvReLU2d(nn.Conv2d):
    """`relu(conv2d(x))` as one module, with the constructor of `nn.Conv2d`.

    >>> fused = ConvReLU2d(3, 8, kernel_size=3, stride=2, padding=1)

    It inherits the attributes and parameters of Conv2d. A pass that looks for plain convolutions tells them apart with
    `type(module) is nn.Conv2d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(super().forward(input))


#: The activations of `linear_act`. GELU has two forms that differ in the fourth digit, so they have two names.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def linear_act(input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "relu") -> Tensor:
    """Return `activation(linear(input, weight, bias))`, with the operands of `torch.nn.functional.linear`.

    `weight` is (outputs, inputs), `bias` (outputs,). `activation`: a name out of `ACTIVATIONS`. Raises ValueError for
    another name.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"linear_act has no activation {activation!r}; it has {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[activation](F.linear(input, weight, bias))


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return `(s, layer_norm(s, shape, weight, bias, eps))` with `s = input + residual`: two results from one read."""
    total = input + residual
    return total, F.layer_norm(total, shape, weight, bias, eps)
