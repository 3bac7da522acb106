"""Integer arithmetic of a quantized network, stated once. Quantized graphs of this package run by it, bit for bit.

A *grid* maps integers to real numbers: x = scale · (q - zero_point), where q has `bits` bits and is signed:
-2^(bits-1) … 2^(bits-1) - 1, -128 … 127 for 8 bits. The scale is one number, one for each index of an axis ("per
channel"), or one for each run of `group` elements of the last dimension ("per group"); the latter two have the zero
point 0.

    quantize       q = saturate(round(x / scale) + zero_point)            in float32, as ONNX's QuantizeLinear
    dequantize     x = (q - zero_point) · scale                           in float32, as ONNX's DequantizeLinear
    accumulate     acc = Σ (q_x - z_x) · (q_w - z_w) + bias               in int32, modulo 2^32; the bias is on the grid
                                                                          of scale scale_x · scale_w with zero point 0
    requantize     q = saturate(round(acc · multiplier / 2^shift) + zero_point)     exact: the product is an int64

`round` takes the even one of two equally near integers, `saturate` the nearest integer between the two ends.
`fixed_point` makes multiplier and shift of the real factor scale_x · scale_w / scale: a multiplier of 31 bits, so that
the relative error of the factor is at most 2^-31.

Sources: B. Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
CVPR 2018, sections 2.1 to 2.4; gemmlowp, doc/quantization.md, which rounds halves away from 0 where this rounds to
even; ONNX operators QuantizeLinear and DequantizeLinear, opset 21.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Shifts of `requantize` are 1 … MAX_SHIFT, so that a product of 62 bits is shifted by less than its width.
MAX_SHIFT = 62
#: Bits of the multiplier of `requantize`, and of the two multipliers of a sum: 2 · 255 · 2^21 < 2^31.
MULTIPLIER_BITS, SUM_BITS = 31, 21


class QuantizationError(ValueError):
    """A graph, range or grid that cannot be quantized as requested; the message names node and remedy."""


class Grid(NamedTuple):
    """One scale and zero point for a whole tensor."""

    scale: float
    zero_point: int = 0
    bits: int = 8


class FixedPoint(NamedTuple):
    """The number multiplier / 2^shift, or several: tensors of int32 of one shape."""

    multiplier: Any
    shift: Any


def ends(bits: int) -> tuple[int, int]:
    """Return the smallest and the largest integer of some bits (2 … 8). Raise QuantizationError for other bits."""
    if not isinstance(bits, int) or not 2 <= bits <= 8:
        raise QuantizationError(f"A grid cannot have {bits!r} bits: it has 2 to 8.")
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def check_grid(scale: Any, zero_point: int, bits: int, where: str = "A grid") -> None:
    """Raise QuantizationError for a scale that is not a positive number, or a zero point that is not in the grid."""
    low, high = ends(bits)
    if isinstance(scale, Tensor):
        good = bool((scale.isfinite() & (scale > 0)).all())
        scale = scale[~(scale.isfinite() & (scale > 0))].flatten()[0].item() if not good else scale
    else:
        good = math.isfinite(scale) and scale > 0
    if not good:
        raise QuantizationError(f"{where} has the scale {scale}: a scale is positive and finite. Use grid(low, high).")
    if not (low <= zero_point <= high and zero_point == int(zero_point)):
        raise QuantizationError(
            f"{where} has the zero point {zero_point}: with {bits} bits it is an integer from {low} to {high}."
        )


def round_shift(value: Tensor, shift: Any) -> Tensor:
    """Return round(value / 2^shift) of int64 numbers, halves to even. `shift` is 1 … MAX_SHIFT."""
    quotient = value >> shift
    rest = value - (quotient << shift)
    half = torch.ones_like(rest) << (shift - 1)
    return quotient + ((rest > half) | ((rest == half) & (quotient % 2 == 1)))


def wrapped(value: Tensor, bits: int = 32) -> Tensor:
    """Return what an accumulator of `bits` bits (at most 62) holds in place of int64 numbers: them, modulo 2^bits."""
    half = 2 ** (bits - 1)
    return (value + half) % (2 * half) - half


def fixed_point(factor: float, bits: int = MULTIPLIER_BITS) -> FixedPoint:
    """Return a positive factor as multiplier / 2^shift with a multiplier of `bits` bits.

    A factor below 2^-31 has fewer bits. Raises QuantizationError for a factor that is not a positive number, and for
    one that needs a shift below 1.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise QuantizationError(f"The factor {factor} of a requantize is not a positive number: check the scales.")
    shift = min(bits - math.frexp(factor)[1], MAX_SHIFT)
    multiplier = round(math.ldexp(factor, shift))
    if multiplier == 2**bits:
        multiplier, shift = multiplier // 2, shift - 1
    if shift < 1:
        raise QuantizationError(f"The factor {factor:.3g} of a requantize is too large: scales differ by 2^30 or more.")
    return FixedPoint(multiplier, shift)


def fixed_points(factors: Tensor, bits: int = MULTIPLIER_BITS) -> FixedPoint:
    """Return factors, a vector, as two tensors of int32: multipliers and shifts."""
    pairs = [fixed_point(factor, bits) for factor in factors.double().flatten().tolist()]
    both = torch.tensor(pairs, dtype=torch.int32).reshape(*factors.shape, 2)
    return FixedPoint(both[..., 0].contiguous(), both[..., 1].contiguous())


def common_shift(factors: list[float], bits: int) -> tuple[list[int], int]:
    """Return multipliers of one shift: the largest factor gets `bits` bits."""
    multiplier, shift = fixed_point(max(factors), bits)
    return [multiplier if f == max(factors) else round(math.ldexp(f, shift)) for f in factors], shift


def along(parameter: Any, like: Tensor, axis: int | None = None, group: int | None = None) -> Any:
    """Return a parameter so that it broadcasts against a tensor: a number as it is, a vector along `axis`."""
    if not isinstance(parameter, Tensor) or parameter.dim() == 0:
        return parameter
    if group is not None:
        return parameter.repeat_interleave(group, -1)
    sizes = [1] * like.dim()
    sizes[axis or 0] = -1
    return parameter.reshape(sizes)


def requantize(
    acc: Tensor, multiplier: Any, shift: Any, zero_point: int, low: int = -128, high: int = 127, axis: int | None = None
) -> Tensor:
    """Return saturate(round(acc · multiplier / 2^shift) + zero_point) as int8; `low` … `high` are the ends.

    `axis`: the dimension of `acc` along which multipliers and shifts differ.
    """
    if isinstance(multiplier, Tensor):
        multiplier, shift = (along(part.long(), acc, axis) for part in (multiplier, shift))
    return (round_shift(acc.long() * multiplier, shift) + zero_point).clamp(low, high).to(torch.int8)
