"""Weights of 4 bits, two in a byte."""

from __future__ import annotations

import torch
from torch import Tensor

from passlab.quantization.semantics import QuantizationError


def pack_int4(q: Tensor) -> Tensor:
    """Return int4 numbers (…, 2n), held as int8, as uint8 (…, n): the first of each pair is the low half of its byte.

    Raises QuantizationError for numbers outside -8 … 7 and for a last dimension that is odd.
    """
    if q.shape[-1] % 2:
        raise QuantizationError(f"A row of {q.shape[-1]} numbers cannot be packed two in a byte: pad it with a 0.")
    if q.numel() and (int(q.min()) < -8 or int(q.max()) > 7):
        raise QuantizationError(f"An int4 is -8 … 7; this tensor has {int(q.min())} … {int(q.max())}.")
    low, high = (q[..., start::2].to(torch.uint8) & 15 for start in (0, 1))
    return low | (high << 4)
