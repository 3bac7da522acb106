"""Compare values: structure, dtype and shape exactly, numbers within a tolerance.

    compare(before, after, Tolerance.of(torch.float32, depth=10))     # a list of differences, empty when there are none

**Tolerance.** One operation rounds once, by at most u = eps/2 of its result. A sum of k terms collects errors that grow
like sqrt(k)·u, but so does the size of the sum, so relative to the root mean square (rms) of a tensor one operation
still costs a few u. The errors of d operations in a row are nearly independent and add like sqrt(d) (Higham and Mary,
SIAM J. Sci. Comput. 41(5), 2019). So two elements agree when

    |a - b| <= rtol·|b| + atol,    rtol = 16·eps·sqrt(d),    atol = rtol·rms(b),

with d the depth of the graph; 16·eps = 32 u leaves room for the largest of many elements. In a graph without sums every
element stands for itself: there atol is rtol·min(rms(b), 1), so that a huge neighbour hides nothing. Integers and
booleans must be equal. NaN equals NaN; inf must have the same sign; -0 equals 0.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

#: parts of the names of operations, torch's and TVM's, that sum several numbers
SUMS: tuple[str, ...] = (
    "conv",
    "linear",
    "dense",
    "mm",
    "matmul",
    "einsum",
    "sum",
    "mean",
    "norm",
    "softmax",
    "attention",
    "pool",
)
SUMS += ("var", "std", "lstm", "gru", "rnn", "dot", "interpolate", "loss", "addmv")


#: dtypes whose elements hold two numbers
PACKED = (torch.float4_e2m1fn_x2,)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True)
class Tolerance:
    """How far apart two floats may be. `atol=None`: as above. `sums`: the numbers come out of sums."""

    rtol: float
    atol: float | None = None
    sums: bool = True

    @staticmethod
    def of(dtype: torch.dtype, depth: int, sums: bool = True) -> Tolerance:
        return Tolerance(16 * torch.finfo(dtype).eps * math.sqrt(depth), None, sums)

    def mismatches(self, b: Tensor, a: Tensor) -> Tensor:
        """Return a mask of the elements at which `a` is not `b` (both float64)."""
        finite = torch.isfinite(b) & torch.isfinite(a)
        atol = self.atol
        if atol is None:
            atol = self.rtol * (rms(b) if self.sums else min(rms(b), 1.0))
        far = finite & ((a - b).abs() > atol + self.rtol * b.abs())
        odd = ~finite & ~(torch.isnan(a) & torch.isnan(b)) & (a != b)
        return far | odd


EXACT = Tolerance(0.0, 0.0, False)


@dataclass
class Errors:
    """How far apart two outputs are: mean squared error, largest error, largest number of floats in between."""

    mse: float = 0.0
    max_abs: float = 0.0
    max_ulp: float = 0.0

    def include(self, mse: float, max_abs: float, max_ulp: float) -> None:
        self.mse, self.max_abs = max(self.mse, mse), max(self.max_abs, max_abs)
        self.max_ulp = max(self.max_ulp, max_ulp)


@dataclass
class Difference:
    """One way in which two values differ.

    `bad` masks the elements whose numbers differ, which rounding may excuse; None for any other difference. `leaf`: the
    tensor's position in the value; `part`: what was compared (output, an input, a parameter, ...).
    """

    sentence: str
    part: str = "output"
    leaf: int = 0
    bad: Tensor | None = None
    at: tuple[int, ...] = ()


def rms(x: Tensor) -> float:
    """Return the root mean square of the finite elements, without overflow."""
    x = x[torch.isfinite(x)].abs()
    top = float(x.max()) if x.numel() else 0.0
    return top * float(((x / top) ** 2).mean().sqrt()) if top else 0.0


def ulps(a: Tensor, b: Tensor) -> Tensor:
    """Return the number of floats from a to b, element by element; -0 and 0 count as one float."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]

    def place(t: Tensor) -> Tensor:
        line = t.contiguous().view(bits).to(torch.int64)
        return torch.where(line < 0, torch.iinfo(bits).min - line, line)

    i, j = place(a), place(b)  # the difference of two of one sign fits in 64 bits
    return torch.where((i < 0) == (j < 0), (i - j).double(), i.double() - j.double()).abs()


def wide(t: Tensor) -> Tensor:
    """Return a tensor of any kind on the CPU: floats as float64 (complex ones as pairs), integers as they are."""
    t = t.detach()
    if t.is_nested:
        return torch.cat([wide(part).flatten() for part in t.unbind()] or [torch.empty(0)])
    if t.layout != torch.strided:
        t = t.to_dense()
    if t.is_quantized:
        t = t.dequantize()
    t = t.cpu().resolve_conj().resolve_neg()
    if t.is_complex():
        t = torch.view_as_real(t)
    if t.dtype in PACKED:
        return t.view(torch.uint8)
    if t.dtype in _UNSIGNED:  # torch has hardly any operation for them; numbers above 2**63 become negative
        return t.to(torch.int64)
    return t.double() if t.is_floating_point() else t


def unusual(t: Tensor) -> bool:
    """Return whether torch has hardly any operation for tensors of this kind: they are compared as they are given."""
    return t.is_nested or t.is_quantized or t.is_meta or t.dtype in PACKED


def identical(b: Tensor, a: Tensor) -> bool:
    """Return whether two tensors of one dtype have one shape and equal numbers; NaN equals nothing."""
    if unusual(b) or b.layout != torch.strided or b.dtype == torch.complex32:
        if shape_of(b) != shape_of(a):
            return False
        b, a = wide(b), wide(a)
    return torch.equal(b, a)


def shape_of(t: Tensor) -> tuple:
    """Return the shape, or those of the parts of a nested tensor."""
    return tuple(tuple(part.shape) for part in t.unbind()) if t.is_nested else tuple(t.shape)


def plain(value: Any) -> Any:
    """Return FX's immutable lists and dicts, torch.Size and named tuples as ordinary lists, dicts and tuples."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict) and type(value).__name__ in ("dict", "immutable_dict", "OrderedDict"):
        return {k: plain(v) for k, v in value.items()}
    return value


def leaves(value: Any) -> list[Any]:
    """Return the tensors and plain objects in nested tuples, lists and dicts."""
    return [value] if isinstance(value, Tensor) else pytree.tree_leaves(plain(value))


def compare(
    b: Any, a: Any, tolerance: Tolerance, part: str = "output", errors: Errors | None = None
) -> list[Difference]:
    """Return the differences of `a` from `b`: nested tuples, lists and dicts of tensors and plain objects."""
    if isinstance(b, Tensor) and isinstance(a, Tensor):
        pairs = [(b, a)]
    else:
        left, b_shape = pytree.tree_flatten(plain(b))
        right, a_shape = pytree.tree_flatten(plain(a))
        if b_shape != a_shape:
            return [Difference(f"{part} is {_outline(b)} before and {_outline(a)} after", part)]
        pairs = list(zip(left, right, strict=True))
    differences = []
    for i, (x, y) in enumerate(pairs):
        difference = _compare_leaf(x, y, tolerance, part if len(pairs) == 1 else f"{part} {i}", errors)
        if difference:
            difference.part, difference.leaf = part, i
            differences.append(difference)
    return differences


def _compare_leaf(b: Any, a: Any, tolerance: Tolerance, name: str, errors: Errors | None) -> Difference | None:
    if not (isinstance(b, Tensor) and isinstance(a, Tensor)):
        return (
            None if _same_object(b, a, tolerance) else Difference(f"{name} is {_brief(b)} before and {_brief(a)} after")
        )
    for part, before, after in (
        ("dtype", dtype_name(b), dtype_name(a)),
        ("shape", shape_of(b), shape_of(a)),
        ("device", b.device, a.device),
    ):
        if before != after:
            return Difference(f"the {part} of {name} is {before} before and {after} after")
    if b is a or b.is_meta or identical(b, a):
        return None
    x, y = wide(b), wide(a)
    if x.is_floating_point():
        bad = tolerance.mismatches(x, y)
        if errors is not None:
            both = torch.isfinite(x) & torch.isfinite(y)
            gap = torch.where(both, (x - y).abs(), 0.0)
            countable = not unusual(a) and a.layout == torch.strided and a.shape == x.shape
            ulp = ulps(a, b).cpu()[both] if countable else gap
            errors.include(float((gap**2).mean()), float(gap.max()), float(ulp.max()) if ulp.numel() else 0.0)
    else:
        bad = x != y
    if not bad.any():
        return None
    gap = (x.double() - y.double()).abs().nan_to_num(math.inf)
    at = _place(int(torch.where(bad, gap, -1.0).argmax()), bad.shape)
    place = f" at {list(at)}" if at else ""
    share = f" ({int(bad.sum())} of {bad.numel()} elements differ)" if bad.numel() > 1 else ""
    old, new = _number(x[at]), _number(y[at])
    if old == new:
        old, new = repr(float(x[at])), repr(float(y[at]))
    sentence = f"{name}{place} is {old} before and {new} after{share}"
    return Difference(sentence, bad=None if unusual(b) else bad, at=at)


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the `flat`-th element. (torch.unravel_index imports half of torch.)"""
    at = []
    for n in reversed(shape):
        flat, i = divmod(flat, n)
        at.append(i)
    return tuple(reversed(at))


def steady(x: Tensor, y: Tensor, moved: Tensor, neighbours: bool = True) -> Tensor:
    """Return a mask of the elements that differ more than rounding explains, which moved x to `moved`.

    An element may keep its value by chance. With `neighbours` it may differ as much as the others moved.
    """
    x, y, moved = wide(x), wide(y), wide(moved)
    if not x.is_floating_point():
        return x == moved
    shift = torch.where(torch.isfinite(x) & torch.isfinite(moved), (x - moved).abs(), 0.0)
    explained = (x - y).abs() <= 16 * shift.clamp(min=rms(shift) if neighbours else 0.0)  # False for NaN
    return ~explained & (torch.isfinite(x) == torch.isfinite(moved))


def nudge(t: Tensor, by: float, gen: torch.Generator) -> Tensor:
    """Return a float tensor whose elements are moved by up to `by`, relatively; zeros, inf and NaN stay."""
    noise = (2 * torch.rand(t.shape, generator=gen, dtype=torch.float64) - 1).to(t.device)
    return (t.double() * (1 + by * noise)).to(t.dtype)


def beyond_rounding(
    differences: list[Difference], old: list, new: list, moved: Iterable[list], neighbours: bool = True
) -> list[Difference]:
    """Return the differences that remain when elements that rounding alone moves as far are set aside.

    old, new: the leaves of both outputs; moved: for each nudge of the inputs, the leaves of the old program's output;
    neighbours: an element may differ as much as the others moved, which no huge one among them may decide. Every
    difference must have its `bad`.
    """
    for nudge in moved:
        for d in differences:
            if d.part != "output":
                continue
            x, y, z = old[d.leaf], new[d.leaf], nudge[d.leaf]
            if isinstance(z, Tensor) and x.shape == z.shape:
                d.bad = _bad(d) & steady(x, y, z, neighbours)
    return [d for d in differences if _bad(d).any()]


def _bad(difference: Difference) -> Tensor:
    assert difference.bad is not None, "the caller has left out the others"
    return difference.bad


def nan_or_inf(x: Tensor, y: Tensor) -> Tensor:
    """Return a mask of the elements where one is NaN and the other inf."""
    x, y = wide(x), wide(y)
    return (torch.isnan(x) & torch.isinf(y)) | (torch.isinf(x) & torch.isnan(y))


def nonfinite(x: Tensor) -> Tensor:
    return ~torch.isfinite(wide(x))


def _same_object(b: Any, a: Any, tolerance: Tolerance) -> bool:
    if isinstance(b, float) and isinstance(a, float):
        return not tolerance.mismatches(torch.tensor(b, dtype=torch.float64), torch.tensor(a, dtype=torch.float64))
    if type(b) is not type(a):
        return False
    if type(b).__eq__ is object.__eq__:  # without an __eq__ equality would be identity, which copies never have
        return True
    with contextlib.suppress(Exception):
        return bool(b == a)
    return True


def dtype_name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def _number(x: Tensor) -> str:
    return f"{float(x):.7g}" if x.is_floating_point() else str(x.item())


def _brief(x: Any) -> str:
    return f"a {dtype_name(x)} tensor" if isinstance(x, Tensor) else repr(x)[:60]


def _outline(x: Any) -> str:
    if isinstance(x, Tensor):
        return "one tensor"
    if isinstance(x, (tuple, list)):
        return f"a {'tuple' if isinstance(x, tuple) else 'list'} of {len(x)}"
    if isinstance(x, dict):
        return f"a dict with {', '.join(map(repr, list(x)[:5]))}"
    return f"{x!r:.60}"
