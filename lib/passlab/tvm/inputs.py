"""Inputs that tell modules apart, from the types of `main`'s parameters or from an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from passlab.building.arrays import as_torch
from passlab.equivalence.values import nudge
from passlab.fx.trials import Trials
from passlab.tvm.dialect import current_dialect
from passlab.tvm.modules import signature, typed

#: the default kinds; "nonfinite" (inf and NaN) is for exercises whose law is about them
KINDS = ("ordinary", "structured", "extreme", "sizes")
ALL_KINDS = (*KINDS, "nonfinite")


def random_inputs(module: Any, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[tuple[np.ndarray, ...]]:
    """Return inputs for `main` from the types of its parameters, for each of `kinds` at least one tuple of arrays.

    ordinary (normal numbers), structured (a ramp), extreme (0, -0, denormals, huge), nonfinite (inf, NaN), sizes
    (another size for each symbolic dimension, if there is one). Integers are 0 to 3: they may be indices. A symbolic
    dimension gets an odd size. Raises ValueError for a parameter that is not a tensor of known rank.
    """
    return [inputs for _, inputs in inputs_of(module, seed, kinds)]


def inputs_of(module: Any, seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Return inputs for `main` as (kind, inputs). Raises ValueError as `random_inputs` does."""
    check_kinds(kinds)
    module = typed(module)
    first, symbolic = _example(module, seed, 5)
    made = after_example(first, seed, [kind for kind in kinds if kind != "sizes"])
    if symbolic and "sizes" in kinds:
        made.append(("sizes", _example(module, seed + 1, 7)[0]))
    return [(kind, tuple(plain(t) for t in inputs)) for kind, inputs in made]


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise ValueError for an unknown kind."""
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise ValueError(f"No kind of inputs {kind!r}; the kinds are {', '.join(ALL_KINDS)}.")


def after_example(example: tuple[Tensor, ...], seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Return inputs of these kinds in the shapes and dtypes of an example."""
    floats = [t.dtype for t in example if t.is_floating_point()]
    trials = Trials([example], max(set(floats), key=floats.count) if floats else None, seed)
    trials.double = trials.spread = False
    return [(kind, trial.args) for kind in kinds for trial in trials.make(kind)]


def tensor(x: Any) -> Tensor:
    """Return an array, a number or a tensor of either library as a torch tensor."""
    if isinstance(x, Tensor):
        return x.detach()
    return as_torch(np.asarray(x.numpy() if hasattr(x, "numpy") else x))


def plain(t: Tensor) -> Any:
    """Return an array, or the tensor itself where NumPy lacks the dtype."""
    return t if t.dtype == torch.bfloat16 else t.contiguous().numpy()


def _example(module: Any, seed: int, odd: int) -> tuple[tuple[Tensor, ...], bool]:
    """Return random tensors for `main`, and whether it has symbolic dimensions; those become `odd`, odd + 2, …"""
    gen, made, symbolic = torch.Generator().manual_seed(seed), [], False
    function = signature(module).function
    if type(function).__name__ == "PrimFunc":
        raise ValueError("main is a PrimFunc, which does not say which of its buffers are outputs: give inputs.")
    for name, shape, dtype, free in current_dialect().examples(function, odd):
        symbolic |= free
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise ValueError(f"No random inputs for the parameter {name} of dtype {dtype}: give inputs.")
        if kind.is_floating_point:
            made.append(torch.randn(shape, generator=gen, dtype=torch.float64).to(kind))
        else:
            made.append(torch.randint(0, 2 if kind == torch.bool else 4, shape, generator=gen).to(kind))
    return tuple(made), symbolic


def nudged_inputs(inputs: tuple, sign: int) -> tuple:
    """Return the inputs, floats moved by up to four units of rounding; zeros, inf and NaN stay."""
    gen = torch.Generator().manual_seed(1 + sign)

    def one(t: Tensor) -> Tensor:
        return nudge(t, 4 * sign * torch.finfo(t.dtype).eps, gen) if t.is_floating_point() else t

    return tuple(plain(one(t)) for t in map(tensor, inputs))
