"""Vector-Jacobian products: for each ATen operation, how a gradient goes from its result to its operands.

Rule("law", lambda g, out, x, y: (gradient of x, gradient of y))

`g` is the gradient of the loss by the result `out`, of the same shape; the lambda takes the operation's arguments as
the graph has them, and returns a gradient for each of the first of them, or None where there is none. It may return it
in the broadcast shape and in the result's dtype: `fit` sums and converts. `g` and `out` of an operation with several
results are tuples; None stands for a result that nothing uses.

At the edges the rules follow torch (tools/autograd/derivatives.yaml): relu and abs have the slope 0 at 0, hardtanh has
0 and clamp 1 at its bounds, two operands of maximum that are equal share the gradient, and so do equal elements of
amax; max along a dimension gives all to the element that it chose. Where an operand of maximum is NaN, both get the
whole gradient; a NaN lets relu's gradient through and stops clamp's. (At a NaN, torch's hardtanh does the one or the
other, depending on the element's place in the vectors of its loop.) See Griewank and Walther, Evaluating Derivatives,
2008, chapter 3, for the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True)
class Rule:
    """The vector-Jacobian product of one operation. `law` is its derivative in the notation of calculus."""

    law: str
    apply: Callable[..., tuple]


def fit(g: Tensor, x: Tensor) -> Tensor:
    """Return a gradient in the shape and dtype of `x`: what was broadcast is summed (the dual of copying)."""
    return g.sum_to_size(x.shape).to(x.dtype)


def _dims(x: Tensor, dim: Any) -> list[int]:
    """Return the dimensions that a reduction goes over: all for None and for an empty list."""
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    return [d % max(x.dim(), 1) for d in dims]


def _over(value: Tensor, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Return a reduction's result (or its gradient) spread over the shape of what was reduced."""
    if not keepdim and x.dim():
        for d in sorted(_dims(x, dim)):
            value = value.unsqueeze(d)
    return value.expand(x.shape)


def _count(x: Tensor, dim: Any) -> Any:
    return math.prod(x.shape[d] for d in _dims(x, dim)) if x.dim() else 1


def _equal_share(g: Tensor, out: Tensor, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the gradient of a maximum or minimum over dimensions: equal elements share it."""
    chosen = x == _over(out, x, dim, keepdim)
    number = chosen.sum(_dims(x, dim), keepdim=True) if x.dim() else 1
    return _over(g, x, dim, keepdim) * chosen / number


def _select(g: Tensor, x: Tensor, dim: int, index: int) -> Tensor:
    return aten.select_backward(g, x.shape, dim, index)


def _slice(g: Tensor, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    size = x.shape[dim]
    first = 0 if start is None else start
    last = size if end is None else end
    return aten.slice_backward(g, x.shape, dim, first, last, step)


def _join(parts: Any, sizes: Any, like: Tensor, dim: int) -> Tensor:
    """Return the gradients of the parts of a tensor side by side; unused parts are zeros."""
    pieces = []
    for part, size in zip(parts, sizes, strict=True):
        shape = list(like.shape)
        shape[dim] = size
        pieces.append(like.new_zeros(shape) if part is None else part)
    return torch.cat(pieces, dim)


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)] or [0]


def _cat(g: Tensor, tensors: Any, dim: int = 0) -> tuple:
    return (list(g.split([t.shape[dim] if t.dim() == g.dim() else 0 for t in tensors], dim)),)


def _convolution(g: Tensor, x: Tensor, w: Tensor, b: Any, *options: Any) -> tuple:
    sizes = None if b is None else [w.shape[1] * options[-1] if options[3] else w.shape[0]]
    return aten.convolution_backward(g, x, w, sizes, *options, [True, True, b is not None])


def _layer_norm(g: tuple, out: tuple, x: Tensor, shape: Any, w: Any, b: Any, eps: float) -> tuple:
    mask = [True, w is not None, b is not None]
    dx, dw, db = aten.native_layer_norm_backward(g[0], x, shape, out[1], out[2], w, b, mask)
    return dx, None, dw, db


def _batch_norm(
    g: tuple, out: tuple, x: Tensor, w: Any, b: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple:
    mask = [True, w is not None, b is not None]
    return aten.native_batch_norm_backward(g[0], x, w, mean, var, out[1], out[2], False, eps, mask)


def _gelu(g: Tensor, out: Tensor, x: Tensor, approximate: str = "none") -> tuple:
    return (aten.gelu_backward(g, x, approximate=approximate),)


def _power(g: Tensor, out: Tensor, x: Tensor, n: float) -> tuple:
    return (torch.zeros_like(g) if n == 0 else g * (n * x ** (n - 1)),)


def _norm(g: Tensor, out: Tensor, x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False) -> tuple:
    if ord != 2:
        raise NotImplementedError(f"ord={ord}")
    whole = _over(out, x, dim, keepdim)
    return (_over(g, x, dim, keepdim) * (x / whole).masked_fill(whole == 0, 0),)


def _indexed(g: Tensor, x: Tensor, indices: Any) -> Tensor:
    return aten.index_put(g.new_zeros(x.shape), indices, g, True)


def _clamp(g: Tensor, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    if low is not None:
        g = torch.where(x >= low, g, 0.0)
    return g if high is None else torch.where(x <= high, g, 0.0)


def _shared(g: Tensor, x: Tensor, y: Tensor, after: Callable) -> tuple[Tensor, Tensor]:
    """Return the gradients of two operands of which one is chosen: not the one that comes after the other."""
    half = torch.where(x == y, g / 2, g)
    return half.masked_fill(after(x, y), 0), half.masked_fill(after(y, x), 0)


def _alpha(g: Tensor, alpha: Any) -> Tensor:
    return g if alpha == 1 else g * alpha


#: Operations without a gradient: results that are integers, or that do not depend on their operands' values.
CONSTANT = {
    *(aten.arange.default, aten.arange.start, aten.full.default, aten.full_like.default, aten.zeros_like.default),
    *(aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default, aten.scalar_tensor.default),
    *(
        aten.zeros.default,
        aten.ones.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.sign.default,
        aten.sgn.default,
    ),
    *(aten.floor.default, aten.trunc.default, aten.isnan.default, aten.isfinite.default),
    *(aten.ceil.default, aten.round.default, aten.detach.default, aten.bernoulli.p, aten.rand_like.default),
    *(aten.eq.Scalar, aten.eq.Tensor, aten.ne.Scalar, aten.ne.Tensor, aten.lt.Scalar, aten.lt.Tensor),
    *(aten.le.Scalar, aten.le.Tensor, aten.gt.Scalar, aten.gt.Tensor, aten.ge.Scalar, aten.ge.Tensor),
    *(aten.logical_not.default, aten.logical_and.default, aten.bitwise_not.default, aten.argmax.default),
}

#: Operation → its rule.
RULES: dict[Any, Rule] = {
    # Numbers, one by one.
    aten.add.Tensor: Rule("(x + y)' = x' + y'", lambda g, out, x, y, alpha=1: (g, _alpha(g, alpha))),
    aten.add.Scalar: Rule("(x + c)' = x'", lambda g, out, x, c, alpha=1: (g,)),
    aten.sub.Tensor: Rule("(x - y)' = x' - y'", lambda g, out, x, y, alpha=1: (g, _alpha(-g, alpha))),
    aten.sub.Scalar: Rule("(x - c)' = x'", lambda g, out, x, c, alpha=1: (g,)),
    aten.rsub.Scalar: Rule("(c - x)' = -x'", lambda g, out, x, c, alpha=1: (_alpha(-g, alpha),)),
    aten.mul.Tensor: Rule("(x y)' = x' y + x y'", lambda g, out, x, y: (g * y, g * x)),
    aten.mul.Scalar: Rule("(c x)' = c x'", lambda g, out, x, c: (g * c,)),
    aten.div.Tensor: Rule("(x / y)' = (x' - (x / y) y') / y", lambda g, out, x, y: (g / y, -g * (x / y / y))),
    aten.div.Scalar: Rule("(x / c)' = x' / c", lambda g, out, x, c: (g / c,)),
    aten.neg.default: Rule("(-x)' = -x'", lambda g, out, x: (-g,)),
    aten.reciprocal.default: Rule("(1 / x)' = -x' / x²", lambda g, out, x: (-g * (out * out),)),
    aten.pow.Tensor_Scalar: Rule("(xⁿ)' = n xⁿ⁻¹ x'", _power),
    aten.sqrt.default: Rule("(√x)' = x' / (2 √x)", lambda g, out, x: (g / (2 * out),)),
    aten.rsqrt.default: Rule("(x^-½)' = -½ x^-1½ x'", lambda g, out, x: (-0.5 * g * out**3,)),
    aten.exp.default: Rule("(eˣ)' = eˣ x'", lambda g, out, x: (g * out,)),
    aten.expm1.default: Rule("(eˣ - 1)' = eˣ x'", lambda g, out, x: (g * (out + 1),)),
    aten.log.default: Rule("(log x)' = x' / x", lambda g, out, x: (g / x,)),
    aten.log1p.default: Rule("log(1 + x)' = x' / (1 + x)", lambda g, out, x: (g / (x + 1),)),
    aten.sin.default: Rule("(sin x)' = cos x x'", lambda g, out, x: (g * x.cos(),)),
    aten.cos.default: Rule("(cos x)' = -sin x x'", lambda g, out, x: (g * -x.sin(),)),
    aten.erf.default: Rule(
        "(erf x)' = 2/√π e^(-x²) x'", lambda g, out, x: (g * (2 / math.sqrt(math.pi)) * (-x * x).exp(),)
    ),
    aten.tanh.default: Rule("(tanh x)' = (1 - tanh² x) x'", lambda g, out, x: (g * (1 - out * out),)),
    aten.sigmoid.default: Rule("σ' = σ (1 - σ) x'", lambda g, out, x: (g * (1 - out) * out,)),
    aten.silu.default: Rule(
        "(x σ)' = σ (1 + x (1 - σ)) x'",
        lambda g, out, x: (g * x.sigmoid() * (1 + x * (1 - x.sigmoid())),),
    ),
    aten.gelu.default: Rule("(x Φ(x))' = (Φ + x φ) x'", _gelu),
    aten.softplus.default: Rule(
        "log(1 + eˣ)' = σ(x) x'",
        lambda g, out, x, beta=1, threshold=20: (aten.softplus_backward(g, x, beta, threshold),),
    ),
    aten.relu.default: Rule("relu' = x' where relu > 0, else 0", lambda g, out, x: (torch.where(out <= 0, 0.0, g),)),
    aten.leaky_relu.default: Rule(
        "x' where x > 0, else c x'", lambda g, out, x, c=0.01: (torch.where(x > 0, g, g * c),)
    ),
    aten.hardtanh.default: Rule(
        "x' strictly between the bounds, else 0",
        lambda g, out, x, low=-1.0, high=1.0: (aten.hardtanh_backward(g, x, low, high),),
    ),
    aten.abs.default: Rule("|x|' = sign(x) x'", lambda g, out, x: (g * x.sign(),)),
    aten.clamp.default: Rule(
        "x' between the bounds, else 0", lambda g, out, x, low=None, high=None: (_clamp(g, x, low, high),)
    ),
    aten.clamp_min.default: Rule("x' where x ≥ c, else 0", lambda g, out, x, low: (_clamp(g, x, low),)),
    aten.clamp_max.default: Rule("x' where x ≤ c, else 0", lambda g, out, x, high: (_clamp(g, x, None, high),)),
    aten.maximum.default: Rule("the larger one's; half each if equal", lambda g, out, x, y: _shared(g, x, y, torch.lt)),
    aten.minimum.default: Rule(
        "the smaller one's; half each if equal", lambda g, out, x, y: _shared(g, x, y, torch.gt)
    ),
    aten.where.self: Rule(
        "x' where c, else y'", lambda g, out, c, x, y: (None, torch.where(c, g, 0.0), torch.where(c, 0.0, g))
    ),
    aten.masked_fill.Scalar: Rule("0 where the mask is", lambda g, out, x, mask, c: (g.masked_fill(mask, 0),)),
    aten.nan_to_num.default: Rule("x' where x is finite, else 0", lambda g, out, x, *to: (g * x.isfinite(),)),
    aten.clone.default: Rule("x'", lambda g, out, x, **kw: (g,)),
    aten.alias.default: Rule("x'", lambda g, out, x: (g,)),
    aten.copy.default: Rule("the new one's", lambda g, out, x, new, wait=False: (None, g)),
    aten._to_copy.default: Rule("x', in the dtype of x", lambda g, out, x, **kw: (g,)),
    # Shapes: the same numbers elsewhere. Back through a copy to many places is a sum.
    aten.view.default: Rule("view back", lambda g, out, x, shape: (g.reshape(x.shape),)),
    aten._unsafe_view.default: Rule("view back", lambda g, out, x, shape: (g.reshape(x.shape),)),
    aten.t.default: Rule("transpose back", lambda g, out, x: (g.t(),)),
    aten.transpose.int: Rule("transpose back", lambda g, out, x, a, b: (g.transpose(a, b),)),
    aten.permute.default: Rule(
        "the inverse permutation",
        lambda g, out, x, dims: (g.permute(sorted(range(len(dims)), key=[d % len(dims) for d in dims].__getitem__)),),
    ),
    aten.expand.default: Rule("sum over the copies", lambda g, out, x, shape, **kw: (g,)),
    aten.unsqueeze.default: Rule("squeeze", lambda g, out, x, dim: (g.squeeze(dim),)),
    aten.squeeze.dim: Rule("unsqueeze", lambda g, out, x, dim: (g.reshape(x.shape),)),
    aten.squeeze.dims: Rule("unsqueeze", lambda g, out, x, dims: (g.reshape(x.shape),)),
    aten.select.int: Rule("zeros elsewhere", lambda g, out, x, dim, index: (_select(g, x, dim, index),)),
    aten.slice.Tensor: Rule("zeros elsewhere", lambda g, out, x, *args: (_slice(g, x, *args),)),
    aten.cat.default: Rule("each part its own", lambda g, out, tensors, dim=0: _cat(g, tensors, dim)),
    aten.stack.default: Rule("each part its own", lambda g, out, tensors, dim=0: (list(g.unbind(dim)),)),
    aten.unbind.int: Rule(
        "stack, with zeros for the unused",
        lambda g, out, x, dim=0: (
            torch.stack([torch.zeros_like(o) if p is None else p for p, o in zip(g, out, strict=True)], dim),
        ),
    ),
    aten.split.Tensor: Rule(
        "side by side, with zeros for the unused",
        lambda g, out, x, size, dim=0: (_join(g, _chunks(x.shape[dim], size), x, dim),),
    ),
    aten.split_with_sizes.default: Rule(
        "side by side, with zeros for the unused", lambda g, out, x, sizes, dim=0: (_join(g, sizes, x, dim),)
    ),
    aten.constant_pad_nd.default: Rule(
        "cut the padding off", lambda g, out, x, pad, c=0: (aten.constant_pad_nd(g, [-p for p in pad]),)
    ),
    aten.reflection_pad2d.default: Rule(
        "sum over the copies", lambda g, out, x, pad: (aten.reflection_pad2d_backward(g, x, pad),)
    ),
    aten.replication_pad2d.default: Rule(
        "sum over the copies", lambda g, out, x, pad: (aten.replication_pad2d_backward(g, x, pad),)
    ),
    aten.slice_scatter.default: Rule(
        "0 where it was overwritten; the part its own",
        lambda g, out, x, part, *args: (
            aten.slice_scatter(g, torch.zeros_like(part), *args),
            aten.slice(g, *args),
        ),
    ),
    aten.flip.default: Rule("flip back", lambda g, out, x, dims: (g.flip(dims),)),
    aten.index.Tensor: Rule("add at the indices", lambda g, out, x, indices: (_indexed(g, x, indices),)),
    aten._unsafe_index.Tensor: Rule("add at the indices", lambda g, out, x, indices: (_indexed(g, x, indices),)),
    aten.gather.default: Rule(
        "add at the indices", lambda g, out, x, dim, index: (g.new_zeros(x.shape).scatter_add(dim, index, g),)
    ),
    aten.embedding.default: Rule(
        "add at the rows",
        lambda g, out, w, rows, padding=-1, scale=False, sparse=False: (
            aten.embedding_dense_backward(g, rows, w.shape[0], padding, scale),
        ),
    ),
    # Sums.
    aten.sum.default: Rule("(Σ x)' = Σ x'", lambda g, out, x, **kw: (g.expand(x.shape),)),
    aten.sum.dim_IntList: Rule(
        "(Σ x)' = Σ x'", lambda g, out, x, dim, keepdim=False, **kw: (_over(g, x, dim, keepdim),)
    ),
    aten.mean.default: Rule("(Σ x / n)' = Σ x' / n", lambda g, out, x, **kw: (g.expand(x.shape) / x.numel(),)),
    aten.mean.dim: Rule(
        "(Σ x / n)' = Σ x' / n",
        lambda g, out, x, dim, keepdim=False, **kw: (_over(g, x, dim, keepdim) / _count(x, dim),),
    ),
    aten.cumsum.default: Rule(
        "the sum from the end", lambda g, out, x, dim, **kw: (g.flip([dim]).cumsum(dim).flip([dim]),)
    ),
    aten.amax.default: Rule(
        "the largest one's; equal ones share",
        lambda g, out, x, dim=None, keepdim=False: (_equal_share(g, out, x, dim, keepdim),),
    ),
    aten.amin.default: Rule(
        "the smallest one's; equal ones share",
        lambda g, out, x, dim=None, keepdim=False: (_equal_share(g, out, x, dim, keepdim),),
    ),
    aten.max.dim: Rule(
        "the chosen one's",
        lambda g, out, x, dim, keepdim=False: (
            torch.zeros_like(x).scatter(
                dim, out[1] if keepdim else out[1].unsqueeze(dim), g[0] if keepdim else g[0].unsqueeze(dim)
            ),
        ),
    ),
    aten.linalg_vector_norm.default: Rule("‖x‖' = x·x' / ‖x‖, and 0 at 0", _norm),
    # Products of matrices.
    aten.mm.default: Rule("(X Y)' = X' Y + X Y'", lambda g, out, x, y: (g.mm(y.t()), x.t().mm(g))),
    aten.bmm.default: Rule(
        "(X Y)' = X' Y + X Y'", lambda g, out, x, y: (g.bmm(y.transpose(1, 2)), x.transpose(1, 2).bmm(g))
    ),
    aten.addmm.default: Rule(
        "(b + X Y)' = b' + X' Y + X Y'",
        lambda g, out, b, x, y, beta=1, alpha=1: (
            _alpha(g, beta),
            _alpha(g.mm(y.t()), alpha),
            _alpha(x.t().mm(g), alpha),
        ),
    ),
    # Layers.
    aten._softmax.default: Rule(
        "s' = s (x' - s·x')", lambda g, out, x, dim, half: ((g - (g * out).sum(dim, keepdim=True)) * out,)
    ),
    aten._log_softmax.default: Rule(
        "(log s)' = x' - s·x'", lambda g, out, x, dim, half: (g - out.exp() * g.sum(dim, keepdim=True),)
    ),
    aten.convolution.default: Rule("(x * w)' = x' * w + x * w'", lambda g, out, *args: _convolution(g, *args)),
    aten.max_pool2d_with_indices.default: Rule(
        "the chosen one's",
        lambda g, out, x, size, stride=(), padding=0, dilation=1, ceil=False: (
            aten.max_pool2d_with_indices_backward(g[0], x, size, stride, padding, dilation, ceil, out[1]),
        ),
    ),
    aten.avg_pool2d.default: Rule(
        "an equal share for each one in the window",
        lambda g, out, x, size, stride=(), padding=0, ceil=False, all=True, divisor=None: (
            aten.avg_pool2d_backward(g, x, size, stride, padding, ceil, all, divisor),
        ),
    ),
    aten._adaptive_avg_pool2d.default: Rule(
        "an equal share for each one in the window", lambda g, out, x, size: (aten._adaptive_avg_pool2d_backward(g, x),)
    ),
    aten.upsample_nearest2d.vec: Rule(
        "sum over the copies",
        lambda g, out, x, size, scales: (
            aten.upsample_nearest2d_backward(g, out.shape[2:], x.shape, *(scales or (None, None))),
        ),
    ),
    aten.native_layer_norm.default: Rule("x' less its mean and its part along x̂, scaled", _layer_norm),
    aten._native_batch_norm_legit_no_training.default: Rule("a scale per channel", _batch_norm),
}
