"""Inputs that tell programs apart.

    for trial in Trials([(x, y)], native=torch.float32).make("nonfinite"): ...

Edge values are fed in float64 wherever the program runs in it: 1e30 then multiplies without overflow, so inf and NaN in
the output come from the mathematics of the program and not from the range of float32.

What each kind tells apart that the others do not: "given" the programs on numbers and indices that are meant; "double"
those that differ by less than float32 rounds; "extreme" where a zero, a sign or a range decides; "nonfinite" where inf
and NaN do, first one inf alone, since a NaN hides the rest of a sum; "structured" those that differ in ties, at 0 or by
strides; "large" the branches that small numbers do not take; "sizes" a size that has become a constant; "half" a cast
that is lost; "same tensor" writes into an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.equivalence.seeds import own_seed
from passlab.equivalence.values import dtype_name, nudge, wide

#: trial name → opening words of its message
TRIALS = {
    "given": "On the example inputs",
    "double": "On random inputs",
    "extreme": "On inputs with zeros, tiny and huge numbers",
    "nonfinite": "On inputs with inf and NaN",
    "structured": "On ones, ramps, one-hot and identity-like inputs, not contiguous in memory",
    "large": "On large random inputs",
    "sizes": "On inputs of another size",
    "half": "In low precision",
    "same tensor": "With one tensor given as two arguments",
    "ordinary": "On other random inputs",
    "float16": "In half precision",
}
#: the default trials ("same tensor" only where the program writes in place)
DEFAULT = ("given", "double", "extreme", "nonfinite", "structured", "large", "sizes", "half", "same tensor")

#: how much larger the numbers of "large" are than normal ones: past what activation functions saturate at
_LARGE = 32.0
_NONFINITE = (math.inf, 1.0, math.nan, -2.0, 0.0, -math.inf, 0.5)


@dataclass(frozen=True)
class Trial:
    """One set of inputs, and how to run programs on it.

    `dtype`: the type to convert float parameters to (None: unchanged). `edge`: chosen values, which must not be
    perturbed to measure the effect of rounding.
    """

    name: str
    args: tuple
    dtype: torch.dtype | None = None
    device: str = "cpu"
    mode: str | None = None
    edge: bool = False
    seed: int = 0

    @property
    def title(self) -> str:
        """The trial's name with its particulars: "double (float64, train mode)"."""
        extra = [dtype_name(t) for t in pytree.tree_leaves(self.args) if isinstance(t, Tensor)]
        extra = list(dict.fromkeys(extra)) + [f"{self.mode} mode"] * bool(self.mode)
        extra += [self.device] * (self.device != "cpu")
        return f"{self.name} ({', '.join(extra)})" if extra else self.name

    @property
    def phrase(self) -> str:
        where = [dtype_name(torch.empty(0, dtype=self.dtype))] if self.dtype else []
        where += [f"{self.mode} mode"] * bool(self.mode) + [self.device] * (self.device != "cpu")
        return TRIALS[self.name] + (f" ({', '.join(where)})" if where else "")


def example_inputs(program: Any) -> tuple | None:
    """Return the example inputs in a GraphModule's `meta["inputs"]`, else random ones of its placeholders' shapes."""
    if not isinstance(program, fx.GraphModule):
        return None
    if "inputs" in program.meta:
        return tuple(program.meta["inputs"])
    gen, inputs = torch.Generator().manual_seed(0), []
    for node in program.graph.find_nodes(op="placeholder"):
        meta = node.meta.get("tensor_meta", node.meta.get("val"))
        if meta is None:
            return None
        if isinstance(meta, torch.SymInt):
            inputs.append(meta.node.hint)
            continue
        shape = tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in meta.shape)
        inputs.append(draw(torch.zeros(shape, dtype=meta.dtype), gen))
    return tuple(inputs)


def nearby(inputs: Sequence[Any], by: float = 0.05) -> tuple:
    """Return inputs of the run's own, each float moved by up to `by` of its size; without a run, as they are.

    For judges with inputs that an answer knows: a program could hold its results in a table, and compute nothing.
    """
    seed = own_seed(0)
    if not seed:
        return tuple(inputs)
    gen = torch.Generator().manual_seed(seed)
    return tuple(nudge(x, by, gen) if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs)


def draw(like: Tensor, gen: torch.Generator, shape: Sequence[int] | None = None, dtype: Any = None) -> Tensor:
    """Draw random numbers to replace `like`: normal ones, or integers in its range (they may be indices)."""
    shape = tuple(like.shape if shape is None else shape)
    if like.is_complex():
        return torch.randn(shape, generator=gen, dtype=torch.complex128).to(like.dtype)
    if like.is_floating_point():
        return torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype or like.dtype)
    if like.dtype == torch.bool:
        return torch.rand(shape, generator=gen) < 0.5
    numbers = wide(like)
    low, high = (int(numbers.min()), int(numbers.max())) if like.numel() else (0, 0)
    return torch.randint(low, high + 1, shape, generator=gen).to(like.dtype)


def _extremes(dtype: torch.dtype, roomy: bool) -> tuple[float, ...]:
    """Return finite values at the edges of float32, or of `dtype` if it has no wider type (`roomy` False)."""
    huge = 1e30 if roomy else torch.finfo(dtype).max ** 0.25
    tiny = 1e-40 if roomy else torch.finfo(dtype).tiny / 4
    return (0.0, 1.5, -0.0, huge, tiny, -1.0, -huge, 100.0, -1e-8, 1.0, -100.0)


def _walk(like: Tensor, values: Sequence[float], step: int, dtype: torch.dtype) -> Tensor:
    """Fill a tensor shaped as `like` with `values`, from the `step`-th on in strides of 2·step + 1."""
    at = torch.arange(like.numel()) * (2 * step + 1) + step
    return torch.tensor(values, dtype=torch.float64)[at % len(values)].to(dtype).reshape(like.shape)


def _one_inf(like: Tensor, step: int, dtype: torch.dtype) -> Tensor:
    """Return ordinary numbers with a single inf, so that inf - inf can only come from the program."""
    t = torch.linspace(-1.5, 1.5, like.numel(), dtype=torch.float64)
    if like.numel():
        t[step % like.numel()] = math.inf
    return t.to(dtype).reshape(like.shape)


def structured(like: Tensor, kind: int) -> Tensor:
    """Return ones, a ramp through 0, a unit matrix or a one-hot tensor, by `kind` modulo 4."""
    shape, n = tuple(like.shape), like.numel()
    kind %= 4
    if kind == 0:
        return torch.ones(shape, dtype=like.dtype)
    if kind == 1:
        return ((torch.arange(n) - n // 4) / max(n, 1)).to(like.dtype).reshape(shape)
    if kind == 2 and like.dim() >= 2:
        return torch.eye(*shape[-2:], dtype=like.dtype).expand(shape).clone()
    hot = torch.zeros(n, dtype=like.dtype)
    hot[n // 2 : n // 2 + 1] = 1
    return hot.reshape(shape)


def spread(t: Tensor) -> Tensor:
    """Return the same values in another memory layout: the first dimension innermost; a vector with gaps."""
    if t.dim() > 1:
        order = tuple(reversed(range(t.dim())))
        return t.permute(order).contiguous().permute(order)
    return torch.stack([t, t], -1)[..., 0] if t.dim() else t


class Trials:
    """Makes trials modelled on example inputs. `native`: the float dtype that the program is written for."""

    def __init__(self, examples: list[tuple], native: torch.dtype | None, seed: int = 0, thorough: bool = False):
        self.examples, self.args, self.native = examples, examples[0], native
        self.seed, self.thorough = seed, thorough
        self.floats = [t for t in pytree.tree_leaves(self.args) if isinstance(t, Tensor) and t.is_floating_point()]
        self.double = native is not None  # set to False once the program rejects float64
        self.spread = True  # False for programs that draw: dropout draws in memory order

    def make(self, name: str) -> Iterable[Trial]:
        """Yield the trials called `name`; each is made on demand."""
        makers = {
            "given": self._given,
            "double": self._double,
            "extreme": self._extreme,
            "nonfinite": self._nonfinite,
            "structured": self._structured,
            "large": self._large,
            "sizes": self._sizes,
            "half": self._half,
            "same tensor": self._same_tensor,
            "ordinary": self._ordinary,
            "float16": self._float16,
        }
        yield from makers[name]()

    def _given(self) -> Iterable[Trial]:
        for args in self.examples:
            yield Trial("given", args, seed=self.seed)

    def _seeds(self) -> range:
        return range(self.seed, self.seed + (4 if self.thorough else 1))

    def _double(self) -> Iterable[Trial]:
        for seed in self._seeds():
            if self.double:
                yield Trial("double", self._random(seed, torch.float64), torch.float64, seed=seed)
        if not self.double:
            yield from self._ordinary()

    def _ordinary(self) -> Iterable[Trial]:
        for seed in self._seeds():
            yield Trial("ordinary", self._random(seed), seed=seed)

    def _extreme(self) -> Iterable[Trial]:
        dtype = torch.float64 if self.double else None
        for i in range(self._fills()):

            def fill(t: Tensor, k: int, i: int = i) -> Tensor:
                to = dtype or t.dtype
                return _walk(t, _extremes(to, to == torch.float64), k + 3 * i, to)

            yield Trial("extreme", self._each_float(fill), dtype, edge=True, seed=self.seed)

    def _nonfinite(self) -> Iterable[Trial]:
        dtype = torch.float64 if self.double else None
        if self.floats:  # one NaN would hide everything else in a sum
            yield Trial(
                "nonfinite",
                self._each_float(lambda t, k: _one_inf(t, k, dtype or t.dtype)),
                dtype,
                edge=True,
                seed=self.seed,
            )
        for i in range(self._fills()):
            shift = 3 * i
            args = self._each_float(lambda t, k: _walk(t, _NONFINITE, k + shift, dtype or t.dtype))  # noqa: B023
            yield Trial("nonfinite", args, dtype, edge=True, seed=self.seed)

    def _structured(self) -> Iterable[Trial]:
        for kind in range(4) if self.thorough else (1,):
            args = self._each_float(lambda t, k: structured(t, k + kind))  # noqa: B023
            if self.spread:
                args = pytree.tree_map_only(Tensor, spread, args)
            yield Trial("structured", args, edge=True, seed=self.seed)

    def _large(self) -> Iterable[Trial]:
        dtype = torch.float64 if self.double else None
        if self.floats and (self.double or self.native == torch.float32):  # smaller types have no room
            args = self._random(self.seed, dtype)
            larger = pytree.tree_map_only(Tensor, lambda t: t * _LARGE if t.is_floating_point() else t, args)
            yield Trial("large", larger, dtype, seed=self.seed)

    def _sizes(self) -> Iterable[Trial]:
        """Yield a larger batch (and image); if the program rejects it, only a larger batch.

        A number equal to the batch may be its size, as in a graph with symbolic sizes: first it grows as well.
        """
        tensors = [t for t in pytree.tree_leaves(self.args) if isinstance(t, Tensor) and t.dim()]
        if not tensors:
            return
        batch = tensors[0].shape[0]

        def resize(image: bool = False, number: bool = False) -> tuple:
            gen = torch.Generator().manual_seed(self.seed + 3)

            def one(leaf: Any) -> Any:
                if not isinstance(leaf, Tensor):
                    return leaf + 1 if number and type(leaf) is int and leaf == batch else leaf
                shape = list(leaf.shape)
                if shape and shape[0] == batch:
                    shape[0] += 1
                if image and len(shape) == 4:
                    shape[2:] = [shape[2] + 1, shape[3] + 3]
                return draw(leaf, gen, shape)

            return pytree.tree_map(one, self.args)

        self.resized = False  # the search sets it when the program accepts the trial
        if any(type(leaf) is int and leaf == batch for leaf in pytree.tree_leaves(self.args)):
            yield Trial("sizes", resize(number=True), seed=self.seed)
        if not self.resized and any(t.dim() == 4 for t in tensors):
            yield Trial("sizes", resize(image=True), seed=self.seed)
        if not self.resized:
            yield Trial("sizes", resize(), seed=self.seed)

    def _half(self) -> Iterable[Trial]:
        yield from self._low("half", torch.bfloat16)

    def _float16(self) -> Iterable[Trial]:
        yield from self._low("float16", torch.float16)

    def _low(self, name: str, dtype: torch.dtype) -> Iterable[Trial]:
        if self.native is not None:
            dtype = torch.float32 if self.native == dtype else dtype
            yield Trial(name, self._random(self.seed, dtype), dtype, seed=self.seed)

    def _same_tensor(self) -> Iterable[Trial]:
        for i, t in enumerate(self.args):
            for j, s in enumerate(self.args[:i]):
                if isinstance(t, Tensor) and isinstance(s, Tensor) and (s.shape, s.dtype) == (t.shape, t.dtype):
                    args = tuple(self.args[j] if k == i else a for k, a in enumerate(self.args))
                    yield Trial("same tensor", args, seed=self.seed)
                    return

    def _fills(self) -> int:
        """Return how many fills it takes for the smallest float input to see most edge values."""
        if not self.floats:
            return 0
        return max(1, min(4, math.ceil(8 / max(1, min(t.numel() for t in self.floats)))))

    def _random(self, seed: int, dtype: torch.dtype | None = None) -> tuple:
        gen = torch.Generator().manual_seed(seed + 1)
        return pytree.tree_map_only(Tensor, lambda t: draw(t, gen, dtype=dtype), self.args)

    def _each_float(self, make: Callable[[Tensor, int], Tensor]) -> tuple:
        gen, number = torch.Generator().manual_seed(self.seed + 2), count()

        def one(t: Tensor) -> Tensor:
            return make(t, next(number)) if t.is_floating_point() else draw(t, gen)

        return pytree.tree_map_only(Tensor, one, self.args)
