"""The operations of quantized graphs: what their nodes call. All follow passlab.quantization.semantics.

`quantize` and `dequantize` lead to integers and back; the operations whose names begin with `integer_`, `rescale` and
`lookup` take int8 and return int8, with accumulators of int32 in between. In all of them `multiplier` and `shift` are
the factor of the requantize, `zero_point` is the result's, and `low` … `high` are the ends at which it saturates: those
of its grid, or of an activation that was folded in (relu: the zero point is the low end).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from passlab.judge.travel import function_travels
from passlab.quantization.semantics import along, check_grid, ends, requantize, round_shift


@function_travels
def quantize(
    x: Tensor, scale: Any, zero_point: int = 0, bits: int = 8, axis: int | None = None, group: int | None = None
) -> Tensor:
    """Return saturate(round(x / scale) + zero_point) as int8. NaN becomes the zero point.

    `scale`: a number; with `axis` a vector, one for each index of that dimension; with `group` one for each run of
    `group` elements of the last dimension. Raises QuantizationError for a bad grid.
    """
    check_grid(scale, zero_point, bits, "quantize")
    low, high = ends(bits)
    steps = torch.round(x / along(scale, x, axis, group)).nan_to_num(0.0, float("inf"), float("-inf"))
    return (steps + zero_point).clamp(low, high).to(torch.int8)


@function_travels
def dequantize(
    q: Tensor, scale: Any, zero_point: int = 0, bits: int = 8, axis: int | None = None, group: int | None = None
) -> Tensor:
    """Return (q - zero_point) · scale in float32; the operands are those of `quantize`."""
    check_grid(scale, zero_point, bits, "dequantize")
    return (q.to(torch.int32) - zero_point).to(torch.float32) * along(scale, q, axis, group)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x · weightᵀ of two int8 matrices in int32, modulo 2^32."""
    return torch._int_mm(x.contiguous(), weight.t().contiguous())


@function_travels
def integer_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, x_zero: int, multiplier: Any, shift: Any, zero_point: int,
    low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return the requantized product of `x` (…, inputs) and `weight` (outputs, inputs), plus `bias`, an int32 vector.

    Σ (x - x_zero) · w = Σ x · w - x_zero · Σ w, so that the product is one of int8 matrices.
    """
    acc = product(x.reshape(-1, x.shape[-1]), weight) - x_zero * weight.sum(1, dtype=torch.int32)
    acc = acc if bias is None else acc + bias
    return requantize(acc, multiplier, shift, zero_point, low, high, 1).reshape(*x.shape[:-1], -1)


def windows(x: Tensor, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Return a view (n, height, width, channels, *sizes) of what a convolution's kernel meets at each place."""
    spans = [d * (size - 1) + 1 for size, d in zip(sizes, dilation, strict=True)]
    for axis, (span, step) in enumerate(zip(spans, stride, strict=True)):
        x = x.unfold(2 + axis, span, step)
    return x[..., :: dilation[0], :: dilation[1]].permute(0, 2, 3, 1, 4, 5)


@function_travels
def integer_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int, x_zero: int, multiplier: Any, shift: Any, zero_point: int,
    low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return the requantized convolution of `x` (n, channels, height, width) with `weight`, plus `bias`.

    The margin is filled with `x_zero`, which stands for 0. A group of channels is a product of int8 matrices.
    """
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=x_zero)
    patches = windows(x, weight.shape[2:], stride, dilation)
    n, high_, wide = patches.shape[:3]
    rows = patches.reshape(n * high_ * wide, groups, -1)
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    if groups == 1:
        acc = product(rows[:, 0], kernels[0])
    else:  # each channel or group alone: sums too short for a product of matrices
        acc = torch.einsum("ngk,gok->ngo", rows.to(torch.int32), kernels.to(torch.int32)).flatten(1)
    acc = acc - x_zero * weight.flatten(1).sum(1, dtype=torch.int32)
    acc = acc if bias is None else acc + bias
    out = requantize(acc, multiplier, shift, zero_point, low, high, 1)
    return out.reshape(n, high_, wide, -1).permute(0, 3, 1, 2).contiguous()


@function_travels
def integer_matmul(
    a: Tensor, b: Tensor, a_zero: int, b_zero: int, multiplier: int, shift: int, zero_point: int,
    low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return the requantized product of two stacks of matrices that are both computed by the network."""
    acc = (a.to(torch.int32) - a_zero) @ (b.to(torch.int32) - b_zero)
    return requantize(acc, multiplier, shift, zero_point, low, high)


@function_travels
def integer_add(
    a: Tensor, b: Tensor, a_zero: int, b_zero: int, a_multiplier: int, b_multiplier: int, shift: int, zero_point: int,
    low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return round(((a - a_zero) · a_multiplier + (b - b_zero) · b_multiplier) / 2^shift) + zero_point, saturated.

    Multipliers have at most 21 bits, so that the sum is an int32.
    """
    acc = (a.to(torch.int32) - a_zero) * a_multiplier + (b.to(torch.int32) - b_zero) * b_multiplier
    return (round_shift(acc.long(), shift) + zero_point).clamp(low, high).to(torch.int8)


@function_travels
def integer_mean(
    x: Tensor, dim: Sequence[int], keepdim: bool, x_zero: int, multiplier: int, shift: int, zero_point: int,
    low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return the requantized mean over some dimensions; the division by their size is in the multiplier."""
    acc = (x.to(torch.int32) - x_zero).sum(tuple(dim), keepdim=keepdim, dtype=torch.int32)
    return requantize(acc, multiplier, shift, zero_point, low, high)


@function_travels
def rescale(
    x: Tensor, x_zero: int, multiplier: int, shift: int, zero_point: int, low: int = -128, high: int = 127
) -> Tensor:
    """Return the integers of another grid: dequantize, then quantize, in one requantize."""
    return requantize(x.to(torch.int32) - x_zero, multiplier, shift, zero_point, low, high)


@function_travels
def lookup(x: Tensor, table: Tensor) -> Tensor:
    """Return table[x + 128]: a function of one int8, as its 256 results."""
    return table[x.to(torch.int64) + 128]


@function_travels
def unpack(packed: Tensor) -> Tensor:
    """Return the int4 numbers of uint8 `packed` (…, n) as int8 (…, 2n): of each byte first the low half."""
    halves = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(torch.int8)
    return halves - 16 * (halves > 7).to(torch.int8)


@function_travels
def integer_linear_int4(
    x: Tensor, packed: Tensor, bias: Tensor | None, group: int, x_zero: int, multiplier: Tensor, shift: Tensor,
    zero_point: int, low: int = -128, high: int = 127,
) -> Tensor:  # fmt: skip
    """Return the requantized product of `x` with int4 weights, two in a byte, that have a scale for each group.

    Each group of `group` inputs has an int32 accumulator. `multiplier` is (outputs, groups), `shift` (outputs,): the
    products of accumulators and multipliers are added in int64, and so is `bias`, an int64 vector.
    """
    weight = unpack(packed)
    rows = x.reshape(-1, x.shape[-1]).to(torch.int32) - x_zero
    parts = rows.reshape(len(rows), -1, group), weight.to(torch.int32).reshape(len(weight), -1, group)
    acc = torch.einsum("ngk,ogk->nog", *parts)
    total = (acc.long() * multiplier.long()).sum(2)
    total = total if bias is None else total + bias
    out = (round_shift(total, shift.long()) + zero_point).clamp(low, high).to(torch.int8)
    return out.reshape(*x.shape[:-1], -1)


#: Operations that compute with integers only.
INTEGER = (
    integer_linear, integer_linear_int4, integer_conv2d, integer_matmul, integer_add, integer_mean, rescale, lookup,
)  # fmt: skip
