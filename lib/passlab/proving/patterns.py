"""Inputs of all kinds of bits: special numbers, then random bits, so that every exponent is as likely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

#: How many inputs are tried, at most and at least; and how many elements are computed for them.
MOST, LEAST, ELEMENTS = 400, 9, 2_000_000


def special(dtype: torch.dtype) -> list[Any]:
    """Return the numbers of a dtype at which laws break."""
    if dtype == torch.bool:
        return [False, True]
    if not dtype.is_floating_point:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return [1, 0, least, most, least + 1, 2, 3, *([-1, -2] if least else [])]
    info = torch.finfo(dtype)
    ordinary = [1.0, -1.0, 0.0, -0.0, math.inf, math.nan, 3.0, 0.5, -math.inf, 1 + info.eps, 1 - info.eps / 2]
    return [*ordinary, info.max, info.min, info.tiny, info.smallest_normal * info.eps, math.sqrt(info.max), 0.1, 100.0]


def bit_patterns(inputs: tuple, work: int, seed: int = 0) -> Iterator[tuple[str, tuple]]:
    """Yield kinds of numbers, and inputs like the examples. work: elements that the programs compute for one input."""
    tensors = [t for t in pytree.tree_leaves(inputs) if isinstance(t, Tensor) and not t.dtype.is_complex]
    for trial in range(max(LEAST, min(MOST, ELEMENTS // max(1, work)))):
        gen = torch.Generator().manual_seed(seed * MOST + trial)
        kind = ("special", "bits", "plain")[trial % 3]
        if trial < 2 * LEAST and max((t.numel() for t in tensors), default=0) == 1:  # of single numbers, all special
            kind, places = "special", count()
            yield kind, pytree.tree_map_only(Tensor, lambda t: _one(t, trial * (1 + next(places))), inputs)  # noqa: B023
            continue
        yield kind, pytree.tree_map_only(Tensor, lambda t: drawn(t, kind, gen), inputs)  # noqa: B023


def _one(like: Tensor, number: int) -> Tensor:
    values = special(like.dtype)
    return torch.full_like(like, values[number % len(values)])


def drawn(like: Tensor, kind: str, gen: torch.Generator) -> Tensor:
    """Return a tensor of special numbers, of random bits, or of ordinary numbers."""
    dtype, shape = like.dtype, tuple(like.shape)
    if dtype.is_complex:
        return like
    if kind == "special" or dtype == torch.bool:
        values = torch.tensor(special(dtype), dtype=dtype)
        return values[torch.randint(0, len(values), shape, generator=gen)]
    if not dtype.is_floating_point:
        low, high = (-(2**62), 2**62) if kind == "bits" else (-100, 100)
        return torch.randint(low, high, shape, generator=gen).to(dtype)
    if kind == "plain":
        return torch.randn(shape, generator=gen, dtype=torch.float64).mul(3).to(dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    whole = torch.randint(-(2**62), 2**62, shape, generator=gen)
    return (whole.to(bits) if dtype.itemsize < 8 else whole * 2 + 1).view(dtype)
