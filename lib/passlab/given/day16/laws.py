"""Day 16, laws: terms of numbers, and all numbers of a type.

A term is a variable, "?x", a number, or the name of a function and terms: ("mul", "?x", 2). `value` computes it for
many inputs at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

#: Name → function, of tensors. The last ones return truth values.
FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "neg", "abs", "lshift", "rshift")},
    **{name: getattr(torch, name) for name in ("sqrt", "relu", "maximum", "minimum")},
    **{name: getattr(operator, name) for name in ("lt", "le", "eq", "ne")},
    **{"finite": torch.isfinite, "nan": torch.isnan, "signbit": torch.signbit, "not": torch.logical_not},
}


def value(term: Any, numbers: Mapping[str, Tensor]) -> Tensor:
    """Return what a term gives for each input. numbers: variable → its values, (inputs,), all of one type."""
    some = next(iter(numbers.values()))
    if isinstance(term, str):
        return numbers[term]
    if not isinstance(term, tuple):
        return torch.full_like(some, term)
    return FUNCTIONS[term[0]](*(value(part, numbers) for part in term[1:]))


def every(dtype: torch.dtype, *names: str) -> dict[str, Tensor]:
    """Return variable → values, (inputs,): all numbers of float16 for one variable, all pairs of int8 for two."""
    if dtype == torch.float16:
        numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    else:
        numbers = torch.arange(-128, 128).to(torch.int8)
    grid = torch.meshgrid(*[numbers] * len(names), indexing="ij")
    return {name: part.flatten() for name, part in zip(names, grid, strict=True)}
