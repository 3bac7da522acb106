"""Hidden cases and answers of day15.grid."""

from __future__ import annotations

import math

import torch

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.grid import grid_case
from passlab.judge import Case, drawn


@drawn
def ordinary(rng) -> list[Case]:
    def size():
        return rng.uniform(0.1, 9)

    return [
        grid_case("drawn, both sides", -size(), size(), rng.randint(2, 7)),
        grid_case("drawn, the larger side above", -size() / 100, 9 + size(), 8),
        grid_case("drawn, above", (low := size()), low + size(), rng.randint(3, 8)),
        grid_case("drawn, below", (low := -10 - size()), low + size(), rng.randint(3, 8)),
        grid_case("drawn, one value", (low := size()), low, rng.randint(3, 8)),
        grid_case("drawn, symmetric, more below", -9 - size(), size(), rng.randint(2, 7), True),
        grid_case("drawn, symmetric, more above", -size(), 9 + size(), rng.randint(2, 7), True),
        grid_case("drawn, symmetric, above", (low := size()), low + size(), 8, True),
        grid_case("drawn, symmetric, below", (low := -10 - size()), low + size(), 8, True),
        grid_case("drawn, large", -size() * 1e37, size() * 1e37, 8),
        grid_case("wider than the largest number of float32", -(2 + size() / 10) * 1e38, (2 + size() / 10) * 1e38, 8),
        grid_case("two bits", -size(), size(), 2),
        grid_case("symmetric, two bits", -size(), 9 + size(), 2, True),
        grid_case("as far below 0 as above", -(end := size()), end, rng.randint(3, 8)),
    ]


@drawn
def small(rng) -> list[Case]:
    tiny = rng.uniform(3, 9) * 2.0**-126
    return [
        grid_case("a scale that float32 cannot hold", -tiny, 2 * tiny),
        grid_case("a symmetric scale that float32 cannot hold", -tiny, tiny, 8, True),
        grid_case("narrower than the smallest scale", -tiny / 16, tiny / 32),
        grid_case("only 0, symmetric", 0.0, 0.0, rng.randint(2, 8), True),
        grid_case("only 0, few bits", -0.0, 0.0, rng.randint(2, 7)),
    ]


@drawn
def without(rng) -> list[Case]:
    a = rng.uniform(1, 9)
    ranges = {
        "the low end is NaN": (math.nan, a),
        "the high end is NaN": (-a, math.nan),
        "both ends are NaN": (math.nan, math.nan),
        "nothing was seen": (math.inf, -math.inf),
        "the high end is infinite": (-a, math.inf),
        "the low end is infinite": (-math.inf, a),
        "both ends are infinite": (-math.inf, math.inf),
        "empty, above 0": (2 * a, a),
        "empty, below 0": (-a, -2 * a),
        "empty, around 0": (a / 1000, -a / 1000),
    }
    return [grid_case(name, *ends, rng.randint(2, 8), rng.random() < 0.5) for name, ends in ranges.items()]


@right("looks for the first integer with numbers of torch")
def with_tensors(low, high, bits, symmetric):
    both = torch.tensor([low, high], dtype=torch.float64)
    if not both.isfinite().all() or both[0] > both[1]:
        return None
    both = torch.cat([both, torch.zeros(1)]).double()
    n = 2**bits // 2
    if not both.any():
        return 1.0, 0
    span = both.abs().max() / (n - 1) if symmetric else (both.max() - both.min()) / (2 * n - 1)
    scale = span.clamp(min=torch.finfo(torch.float32).tiny)
    return scale.item(), 0 if symmetric else int(torch.round(-n - both.min() / scale))


@right("rounds the scale to float32, and halves up")
def in_float32(low, high, bits, symmetric):
    if not -math.inf < low <= high < math.inf:
        return None
    steps = 2**bits - 1
    low, high = min(low, 0), max(high, 0)
    if symmetric:
        high = max(-low, high)
        low, steps = -high, steps - 1
    if high - low == 0:
        return 1, 0
    scale = max(torch.tensor((high - low) / steps, dtype=torch.float32).item(), 2**-126)
    return scale, 0 if symmetric else math.floor(-low / scale + 0.5) - (steps + 1) // 2


extended = ("low, high = min(low, 0.0), max(high, 0.0)",)
shifted = edited("did", "does not extend the range to 0, so that the zero point leaves the grid")(
    (*extended, "low, high = low, high")
)
only_below = edited("did", "extends a range above 0, and forgets one below")(
    (*extended, "low, high = min(low, 0.0), high")
)
only_above = edited("did", "extends a range below 0, and forgets one above")(
    (*extended, "low, high = low, max(high, 0.0)")
)
as_many_steps = edited("did", "counts integers in place of steps")(("last - first", "last - first + 1"))
first_end = edited("did", "divides a symmetric range by 2^(bits - 1)")(
    ("max(-low, high) / last", "max(-low, high) / -first")
)
high_only = edited("did", "looks only at the high end of a symmetric range")(("max(-low, high) / last", "high / last"))
eight = edited("did", "always has eight bits")(
    ("first, last = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1", "first, last = -128, 127")
)
tiny = edited("did", "returns scales that float32 cannot hold")(
    ("max((high - low) / (last - first), 2.0 ** -126)", "(high - low) / (last - first)")
)
no_width = edited("did", "takes a range narrower than the smallest scale for 0 … 0")(
    ("low == high", "high - low < 2.0**-126")
)
balanced = edited("did", "makes the grid symmetric where the range is")(
    ("if symmetric: ...", "if symmetric or low == -high: ...")
)
cut = edited("same", "cuts the zero point off in place of rounding")(
    ("round(first - low / scale)", "int(first - low / scale)")
)
down = edited("same", "rounds the zero point down")(("round(first - low / scale)", "math.floor(first - low / scale)"))
in_single = edited("did", "subtracts in float32, where the width of a range can be infinite")(
    ("(high - low) / (last - first)", "float(torch.tensor(high) - torch.tensor(low)) / (last - first)")
)
unsigned = edited("same", "counts from 0, as unsigned integers do")(
    ("round(first - low / scale)", "round(-low / scale)")
)
float_zero = edited("valid", "returns a zero point that is no integer")(
    ("round(first - low / scale)", "first - low / scale")
)
no_infinity = edited("spared", "refuses NaN, and forgets infinite ends")(
    ("not (math.isfinite(low) and math.isfinite(high))", "math.isnan(low) or math.isnan(high)")
)
infinite_above = edited("spared", "looks for infinity at the high end only")(
    ("not (math.isfinite(low) and math.isfinite(high))", "math.isnan(low) or not math.isfinite(high)")
)
by_comparison = edited("spared", "compares with infinity, and forgets that NaN is neither smaller nor larger")(
    ("not (math.isfinite(low) and math.isfinite(high))", "low == -math.inf or high == math.inf")
)
never_empty = edited("spared", "forgets empty ranges")(("... or low > high", "..."))
no_constant = edited("spared", "takes one value for an empty range")(("low > high", "low >= high"))


@wrong("spared", "extends the range to 0 first, and sees no empty range around 0")
def extended_first(low, high, bits, symmetric):
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if low > high and (low > 0) == (high > 0):
        return None
    return in_float32(min(low, 0), max(high, 0), bits, symmetric)
