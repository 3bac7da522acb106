"""Inputs that tell modules apart, from the types of the parameters of `main` or from an example.

Integers are 0 to 3, since they may be indices. A dimension of unknown size gets an odd one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from passlab.building.arrays import as_torch, dtype_of
from passlab.building.parameters import Parameter
from passlab.equivalence.trials import Trials
from passlab.equivalence.values import nudge

#: the default kinds; "nonfinite" (inf and NaN) is for exercises whose law is about them
KINDS = ("ordinary", "structured", "extreme", "large", "sizes")
ALL_KINDS = (*KINDS, "nonfinite")

#: The sizes of unknown dimensions: in the first trials, and in the trial "sizes".
ODD = (5, 7)


def inputs_for(
    parameters: Callable[[int], Iterable[Parameter]], seed: int, kinds: Sequence[str]
) -> list[tuple[str, tuple]]:
    """Return random inputs as (kind, inputs), at least one.

    parameters(size): those of `main`, with this size for dimensions of unknown size.

    Raises ValueError for a parameter of a dtype that no input can have.
    """
    check_kinds(kinds)
    example = list(parameters(ODD[0]))
    trials = _after_example(_random(example, seed), seed, kinds)
    if "sizes" in kinds and any(parameter.symbolic for parameter in example):
        trials.append(("sizes", _random(parameters(ODD[1]), seed + 1)))
    trials = trials or _after_example(_random(example, seed), seed, ["ordinary"])
    return [(kind, tuple(map(plain, tensors))) for kind, tensors in trials]


def inputs_like(example: Any, seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Return (kind, inputs): those given, one tuple or a list of them, and the other kinds in the same shapes."""
    check_kinds(kinds)
    if isinstance(example, Tensor | np.ndarray):
        example = (example,)
    several = isinstance(example, list) and example and all(isinstance(inputs, tuple) for inputs in example)
    tuples = [tuple(map(tensor, inputs)) for inputs in (example if several else [example])]
    trials = [("given", inputs) for inputs in tuples] + _after_example(tuples[0], seed, kinds)
    return [(kind, tuple(map(plain, tensors))) for kind, tensors in trials]


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise ValueError for an unknown kind."""
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise ValueError(f"No kind of inputs {kind!r}; the kinds are {', '.join(ALL_KINDS)}.")


def _after_example(example: tuple[Tensor, ...], seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Return inputs of these kinds, but for "sizes", in the shapes and dtypes of an example."""
    floats = [t.dtype for t in example if t.is_floating_point()]
    trials = Trials([example], max(set(floats), key=floats.count) if floats else None, seed)
    trials.double = trials.spread = False
    return [(kind, trial.args) for kind in kinds if kind != "sizes" for trial in trials.make(kind)]


def _random(parameters: Iterable[Parameter], seed: int) -> tuple[Tensor, ...]:
    gen, tensors = torch.Generator().manual_seed(seed), []
    for name, shape, dtype, _ in parameters:
        kind = _torch_dtype(name, dtype)
        if kind.is_floating_point:
            tensors.append(torch.randn(shape, generator=gen, dtype=torch.float64).to(kind))
        else:
            tensors.append(torch.randint(0, 2 if kind == torch.bool else 4, shape, generator=gen).to(kind))
    return tuple(tensors)


def _torch_dtype(name: str, dtype: str | None) -> torch.dtype:
    """Return torch's dtype of a parameter. Raises ValueError for one of which no input can be made or sent."""
    if not dtype:
        raise ValueError(f"No random inputs for the parameter {name}: its dtype is not known. Give inputs.")
    try:
        dtype_of(dtype)
    except ValueError as error:
        remedy = "Give the parameter one of NumPy's numbers or bfloat16, and cast it in the module"
        raise ValueError(f"No inputs for the parameter {name} of dtype {dtype}. {remedy}.") from error
    return getattr(torch, dtype)


def nudged(inputs: tuple, sign: int) -> tuple:
    """Return the inputs, floats moved by up to four units of rounding; zeros, inf and NaN stay."""
    gen = torch.Generator().manual_seed(1 + sign)

    def moved(t: Tensor) -> Tensor:
        return nudge(t, 4 * sign * torch.finfo(t.dtype).eps, gen) if t.is_floating_point() else t

    return tuple(plain(moved(t)) for t in map(tensor, inputs))


def tensor(x: Any) -> Tensor:
    """Return an array, a number or a tensor of either library as a torch tensor."""
    if isinstance(x, Tensor):
        return x.detach().cpu()
    return as_torch(np.asarray(x.numpy() if hasattr(x, "numpy") else x))


def plain(t: Tensor) -> Any:
    """Return an array, or the tensor itself where NumPy lacks the dtype."""
    return t if t.dtype == torch.bfloat16 else t.contiguous().numpy()
