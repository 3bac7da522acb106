"""Day 15, plan: what a weight becomes with fewer bits, and how many bytes it then has."""

from __future__ import annotations

import torch
from torch import Tensor

#: Bits that a weight may have; 32: it stays as it is.
BITS = (2, 4, 8, 32)


def quantized(weight: Tensor, bits: int) -> Tensor:
    """Return the numbers that a weight (outputs, inputs) becomes, with a scale for each output."""
    if bits == 32:
        return weight
    last = 2 ** (bits - 1) - 1
    most = weight.abs().amax(1, keepdim=True)
    scale = torch.where(most > 0, most / last, 1.0)
    return torch.round(weight / scale) * scale


def bytes_of(weight: Tensor, bits: int) -> int:
    """Return the bytes of a weight with these bits, and of its scales."""
    scales = 0 if bits == 32 else 4 * weight.shape[0]
    return -(-weight.numel() * bits // 8) + scales
