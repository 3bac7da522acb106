"""Day 15, pack: a linear layer that reads packed weights."""

from __future__ import annotations

import torch
from torch import Tensor

from passlab.judge.travel import function_travels
from passlab.quantization.ops import unpack

__all__ = ["linear_int4", "unpack"]


@function_travels
def linear_int4(x: Tensor, packed: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x · wᵀ + bias: w is unpacked while it is read. `scale` is (outputs, groups)."""
    groups = scale.shape[1]
    w = unpack(packed).float().unflatten(-1, (groups, -1))
    y = torch.einsum("...gk,ogk,og->...o", x.unflatten(-1, (groups, -1)), w, scale)
    return y if bias is None else y + bias
