"""The stated integer semantics, against exact rational arithmetic."""

import random
from fractions import Fraction

import pytest
import torch
from torch.nn import functional as F

from passlab.quantization import (
    QuantizationError,
    dequantize,
    fixed_point,
    integer_add,
    integer_conv2d,
    integer_linear,
    integer_linear_int4,
    integer_matmul,
    integer_mean,
    lookup,
    pack_int4,
    quantize,
    requantize,
    rescale,
    unpack,
)
from passlab.quantization.semantics import check_grid, ends, round_shift, wrapped

INT32 = 2**31


def saturated(value: Fraction, zero_point: int, low: int = -128, high: int = 127) -> int:
    """Python rounds a fraction to the nearest integer, halves to even."""
    return min(max(round(value) + zero_point, low), high)


def held(total: int) -> int:
    return (total + INT32) % (2 * INT32) - INT32


def int8(*sizes: int) -> torch.Tensor:
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


def test_halves_are_rounded_to_even():
    values = [*range(-20, 20), -(2**61), 2**61 - 1]
    for shift in (1, 2, 3, 40, 62):
        result = round_shift(torch.tensor(values), shift)
        assert result.tolist() == [round(Fraction(v, 2**shift)) for v in values]


def test_quantize_rounds_halves_to_even_and_saturates():
    x = torch.tensor([-1e30, -0.75, -0.25, 0.25, 0.75, 1.25, 1e30, -torch.inf, torch.inf, torch.nan])
    assert quantize(x, 0.5, 3).tolist() == [-128, 3 - 2, 3, 3, 3 + 2, 3 + 2, 127, -128, 127, 3]
    assert quantize(x, 0.5, 0, 4).tolist() == [-8, -2, 0, 0, 2, 2, 7, -8, 7, 0]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_every_integer_of_a_grid_survives_a_round_trip(bits):
    low, high = ends(bits)
    q = torch.arange(low, high + 1).to(torch.int8)
    for zero_point in (low, 0, high):
        assert quantize(dequantize(q, 0.37, zero_point, bits), 0.37, zero_point, bits).equal(q)


def test_scales_of_channels_and_of_groups():
    q = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.int8)
    rows = dequantize(q, torch.tensor([1.0, 10.0]), axis=0)
    columns = dequantize(q, torch.tensor([1.0, 2.0, 3.0, 4.0]), axis=1)
    groups = dequantize(q, torch.tensor([[1.0, 10.0], [100.0, 0.5]]), group=2)
    assert rows.tolist() == [[1, 2, 3, 4], [50, 60, 70, 80]]
    assert columns.tolist() == [[1, 4, 9, 16], [5, 12, 21, 32]]
    assert groups.tolist() == [[1, 2, 30, 40], [500, 600, 3.5, 4]]


def test_a_fixed_point_is_within_2_to_the_minus_31():
    rng = random.Random(0)
    factors = [2.0**-31, 2.0**-20, 1.0, 2.0**29, 1 - 2.0**-53, *(2 ** rng.uniform(-31, 29) for _ in range(500))]
    for factor in factors:
        multiplier, shift = fixed_point(factor)
        assert 2**30 <= multiplier < 2**31 and 1 <= shift <= 62
        assert abs(Fraction(multiplier, 2**shift) / Fraction(factor) - 1) <= Fraction(1, 2**31)


def test_tiny_factors_keep_fewer_bits_and_huge_ones_are_refused():
    assert fixed_point(2.0**-40) == (2**22, 62)
    assert fixed_point(1e-30) == (0, 62)
    with pytest.raises(QuantizationError, match="too large"):
        fixed_point(2.0**31)
    for factor in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(QuantizationError, match="not a positive number"):
            fixed_point(factor)


def test_requantize_is_exact():
    rng = random.Random(1)
    for _ in range(300):
        acc = rng.choice([rng.randrange(-INT32, INT32), rng.randrange(-3000, 3000), -INT32, INT32 - 1])
        multiplier, shift = fixed_point(2 ** rng.uniform(-31, 3))
        zero_point = rng.randrange(-128, 128)
        expected = saturated(Fraction(acc * multiplier, 2**shift), zero_point)
        assert requantize(torch.tensor([acc]), multiplier, shift, zero_point).item() == expected


def test_requantize_takes_a_factor_for_each_channel():
    acc = torch.tensor([[100, 100], [-7, 7]], dtype=torch.int32)
    multiplier, shift = torch.tensor([1, 3], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int8)
    assert requantize(acc, multiplier, shift, 0, axis=1).tolist() == [[50, 75], [-4, 5]]
    assert requantize(acc, multiplier, shift, 0, axis=0).tolist() == [[50, 50], [-5, 5]]


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_accumulators_wrap_around(bits):
    half = 2 ** (bits - 1)
    values = torch.tensor([half - 1, half, -half, -half - 1, 3 * half])
    assert wrapped(values, bits).tolist() == [half - 1, -half, -half, half - 1, -half]


def test_integer_linear_follows_its_definition():
    x, w, b = int8(3, 5), int8(4, 5), torch.randint(-9999, 9999, (4,), dtype=torch.int32)
    factors = [fixed_point(f) for f in (0.001, 0.01, 0.1, 1.0)]
    multiplier = torch.tensor([f.multiplier for f in factors], dtype=torch.int32)
    shift = torch.tensor([f.shift for f in factors], dtype=torch.int8)
    out = integer_linear(x, w, b, 7, multiplier, shift, -3, -100, 90)
    for i in range(3):
        for o, (m, s) in enumerate(factors):
            total = sum((int(x[i, k]) - 7) * int(w[o, k]) for k in range(5)) + int(b[o])
            assert out[i, o] == saturated(Fraction(total * m, 2**s), -3, -100, 90)


def test_an_accumulator_of_integer_linear_wraps_around_at_int32():
    size = 140_000
    x, w = torch.full((1, size), -128, dtype=torch.int8), torch.full((1, size), -128, dtype=torch.int8)
    multiplier, shift = fixed_point(2.0**-24)
    total = held(128 * 128 * size)
    assert total != 128 * 128 * size
    out = integer_linear(x, w, None, 0, multiplier, shift, 0)
    assert out.item() == saturated(Fraction(total * multiplier, 2**shift), 0)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [([1, 1], [0, 0], [1, 1]), ([2, 1], [1, 2], [1, 2])])
def test_integer_conv2d_is_a_convolution_of_what_the_integers_stand_for(groups, stride, padding, dilation):
    x, w, b = int8(2, 4, 7, 8), int8(8, 4 // groups, 3, 2), torch.randint(-999, 999, (8,), dtype=torch.int32)
    multiplier, shift = fixed_point(0.003)
    acc = F.conv2d(x.long() + 5, w.long(), b.long(), stride, padding, dilation, groups)
    expected = [saturated(Fraction(v * multiplier, 2**shift), 9) for v in acc.flatten().tolist()]
    out = integer_conv2d(x, w, b, stride, padding, dilation, groups, -5, multiplier, shift, 9)
    assert out.shape == acc.shape and out.flatten().tolist() == expected


def test_integer_matmul_mean_and_rescale_follow_their_definitions():
    a, b = int8(2, 3, 4), int8(2, 4, 5)
    multiplier, shift = fixed_point(0.004)

    def expected(acc):
        return [saturated(Fraction(v * multiplier, 2**shift), 2) for v in acc.flatten().tolist()]

    how = multiplier, shift, 2
    assert integer_matmul(a, b, 3, -4, *how).flatten().tolist() == expected((a.long() - 3) @ (b.long() + 4))
    assert integer_mean(a, (1, 2), True, 3, *how).flatten().tolist() == expected((a.long() - 3).sum((1, 2)))
    assert rescale(a, 3, *how).flatten().tolist() == expected(a.long() - 3)


def test_integer_add_rounds_once():
    a, b = int8(500), int8(500)
    out = integer_add(a, b, 3, -5, 1_500_000, 2_000_001, 22, 1)
    sums = [(int(x) - 3) * 1_500_000 + (int(y) + 5) * 2_000_001 for x, y in zip(a, b, strict=True)]
    assert out.tolist() == [saturated(Fraction(total, 2**22), 1) for total in sums]


def test_lookup_reads_the_entry_of_each_integer():
    table = torch.randperm(256).sub(128).to(torch.int8)
    q = torch.arange(-128, 128).to(torch.int8)
    assert lookup(q, table).equal(table)
    assert lookup(torch.tensor([[-128], [127]], dtype=torch.int8), table).tolist() == [[table[0]], [table[255]]]


def test_int4_lie_two_in_a_byte_the_first_one_low():
    q = torch.tensor([[1, -8, 7, -1]], dtype=torch.int8)
    packed = pack_int4(q)
    assert packed.dtype == torch.uint8 and packed.tolist() == [[0x81, 0xF7]]
    everything = torch.cartesian_prod(torch.arange(-8, 8), torch.arange(-8, 8)).to(torch.int8)
    assert unpack(pack_int4(everything)).equal(everything)


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(QuantizationError, match="3 numbers cannot be packed"):
        pack_int4(torch.zeros(2, 3, dtype=torch.int8))
    with pytest.raises(QuantizationError, match="this tensor has -9 … 1"):
        pack_int4(torch.tensor([-9, 1], dtype=torch.int8))


def test_integer_linear_int4_adds_its_groups_before_it_rounds():
    x, w = int8(3, 8), torch.randint(-8, 8, (2, 8), dtype=torch.int8)
    multiplier = torch.tensor([[1_000_003, 7_000_001], [5, 2_000_000_011]], dtype=torch.int32)
    shift, bias = torch.tensor([30, 33], dtype=torch.int8), torch.tensor([12345678901, -98765432101])
    out = integer_linear_int4(x, pack_int4(w), bias, 4, 6, multiplier, shift, -2)
    for i in range(3):
        for o in range(2):
            sums = [sum((int(x[i, k]) - 6) * int(w[o, k]) for k in range(g, g + 4)) for g in (0, 4)]
            total = sum(s * int(m) for s, m in zip(sums, multiplier[o], strict=True)) + int(bias[o])
            assert out[i, o] == saturated(Fraction(total, 2 ** int(shift[o])), -2)


@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan"), float("inf")])
def test_a_bad_scale_is_refused(scale):
    for value in (scale, torch.tensor([0.5, scale])):
        with pytest.raises(QuantizationError, match=r"has the scale .*: a scale is positive and finite"):
            quantize(torch.zeros(2), value, axis=0 if isinstance(value, torch.Tensor) else None)


def test_a_zero_point_outside_the_grid_is_refused():
    with pytest.raises(QuantizationError, match="zero point 128: with 8 bits it is an integer from -128 to 127"):
        dequantize(torch.zeros(1, dtype=torch.int8), 0.1, 128)
    with pytest.raises(QuantizationError, match="zero point -9: with 4 bits"):
        check_grid(0.1, -9, 4)
    with pytest.raises(QuantizationError, match=r"zero point 0\.5: with 8 bits it is an integer"):
        quantize(torch.zeros(1), 0.1, 0.5)
    with pytest.raises(QuantizationError, match="cannot have 9 bits"):
        check_grid(0.1, 0, 9)
