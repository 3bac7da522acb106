"""Inputs that tell modules apart, from the types of `main`'s parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from passlab.building.inputs import ALL_KINDS, KINDS, inputs_for
from passlab.tvm.dialect import current_dialect
from passlab.tvm.modules import signature, typed

__all__ = ["ALL_KINDS", "KINDS", "inputs_of", "random_inputs"]


def random_inputs(module: Any, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[tuple[np.ndarray, ...]]:
    """Return inputs for `main` from the types of its parameters, for each of `kinds` at least one tuple of arrays.

    ordinary (normal numbers), structured (a ramp), extreme (0, -0, denormals, huge), nonfinite (inf, NaN), sizes
    (another size for each symbolic dimension, if there is one). Integers are 0 to 3: they may be indices. A symbolic
    dimension gets an odd size. Raises ValueError for a parameter that is not a tensor of known rank.
    """
    return [inputs for _, inputs in inputs_of(module, seed, kinds)]


def inputs_of(module: Any, seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Return inputs for `main` as (kind, inputs). Raises ValueError as `random_inputs` does."""
    function = signature(typed(module)).function
    if type(function).__name__ == "PrimFunc":
        raise ValueError("main is a PrimFunc, which does not say which of its buffers are outputs: give inputs.")
    return inputs_for(lambda odd: current_dialect().examples(function, odd), seed, kinds)
