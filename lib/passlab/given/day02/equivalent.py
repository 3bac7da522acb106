"""Day 2, are two programs the same function?: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from passlab.judge import Case


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Ask the answer. Return what it says, and whether the example inputs changed."""
    before, after, inputs = case.build()
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    copies = [x.clone() for x in tensors]
    value = answer(before, after, inputs)
    same = all(torch.allclose(x, copy, rtol=0, atol=0, equal_nan=True) for x, copy in zip(tensors, copies, strict=True))
    return {"value": value, "changed": not same}
