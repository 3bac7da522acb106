# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 15 · Quantization as a pass: exercises
#
# Three questions are the core, about 100 minutes; the rest is stretch: harder, and for extra credit. Read the lesson
# first: [day15_quantization.ipynb](../../course/day15_quantization.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day15.grid")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import math

import torch
from torch import fx
from torch.nn import functional as F

from passlab import check, hint, progress
from passlab.fx.nodes import attribute
from passlab.given.day15.fold import constant, window
from passlab.given.day15.insert import LAYERS, MOVES
from passlab.quantization import (
    dequantize,
    integer_conv2d,
    integer_linear,
    quantize,
    weight_scales,
)
from passlab.quantization.semantics import ends, fixed_points

# %% [markdown]
# ## 1 · A grid for a range
#
# A grid of b bits has the integers −2^(b−1) … 2^(b−1) − 1; q stands for scale · (q − zero_point). Its **ends** are the
# first and the last of these integers. `grid` returns the pair (scale, zero_point) for the values from `low` to `high`,
# or `None` if there is no grid. The laws:
#
# - A range has no grid if it is empty (low > high), or if an end is infinite or NaN. Every other range has one.
# - A range on one side of 0 is extended to 0. So is one with low = high, if that is not 0.
# - The scale is the extended range divided by the number of steps between the two ends of the grid.
# - The zero point is an `int`, and so that low is at the first end: the nearest integer; of two equally near ones, either.
# - If `symmetric`, the zero point is 0. The scale is the smallest with which the integers −n … n cover the range, where n
#   is the last end; the first one, −n − 1, is not counted on.
# - The range 0 … 0 has the scale 1 and the zero point 0.
# - float32 keeps all digits down to 2⁻¹²⁶, so a smaller scale becomes 2⁻¹²⁶; the zero point then goes with that scale.
#
# `low` and `high` are Python floats that float32 can hold, `bits` is 2 … 8. Scales are compared with a relative
# tolerance of 10⁻⁶. Not to be called: the library's `grid` and `weight_scales`.


# %%
def grid(low: float, high: float, bits: int, symmetric: bool) -> tuple | None:
    """Return (scale, zero_point) for the values low … high, None if there is no grid."""
    ### BEGIN SOLUTION
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        return None
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return 1.0, 0
    first, last = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if symmetric:
        return max(max(-low, high) / last, 2.0**-126), 0
    scale = max((high - low) / (last - first), 2.0**-126)
    return scale, round(first - low / scale)
    ### END SOLUTION


# %%
check("day15.grid", grid)

# %%
progress("day15")
