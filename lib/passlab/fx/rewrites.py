"""Rewrite several ops into one that has a library kernel: each rewrite is a function gm -> gm, its docstring the law.

    gm = residual(layer_norm(gemm(trace(model, x))))

Reading order: the shared questions (shapes, users, writes), the loop, then one rewrite after the other: what it matches
and what replaces that. They match by hand:
torch's own matcher (`torch.fx.subgraph_rewriter.replace_pattern`) finds a fixed tree of calls whose inner values have
no other users. It ignores the other order of a sum, other spellings of a keyword, shapes, dtypes and writes, and knows
a module only by its path: enough for a pattern that one program produced, too narrow and too unsafe here.

All need graphs with shapes and dtypes on their nodes (`passlab.trace` with inputs). They edit gm and return it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from passlab.fx.effects import written
from passlab.fx.nodes import calls, shape
from passlab.fx.ops import ConvReLU2d, add_layer_norm

_PRODUCT = (operator.matmul, torch.matmul, torch.mm, torch.bmm, "matmul", "mm", "bmm")
_TIMES, _OVER = (operator.mul, torch.mul, "mul"), (operator.truediv, torch.div, "div")
_PLUS, _MINUS = (operator.add, torch.add, "add"), (operator.sub, torch.sub, "sub")


# ---------------------------------------------------------------------------------------------------- shared questions


def _used_once(node: Any) -> bool:
    """Return whether a node has one user, which reads it once."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return False
    (user,) = node.users
    return sum(n is node for n in (*user.args, *user.kwargs.values())) == 1


def _dtype(node: Any) -> torch.dtype | None:
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return getattr(meta, "dtype", None)


def _one_float_dtype(*nodes: Any) -> bool:
    """Return whether these nodes are floating-point tensors of one dtype. None stands for an omitted operand."""
    dtypes = {_dtype(node) for node in nodes if node is not None}
    return len(dtypes) == 1 and None not in dtypes and dtypes.pop().is_floating_point


# ---------------------------------------------------------------------------------------------------- the loop


class Call(NamedTuple):
    """A call that computes what a node does. `inner`: the nodes that it does the work of, users first."""

    target: Callable
    args: tuple
    kwargs: dict[str, Any]
    inner: Sequence[fx.Node]


def _rewrite(
    gm: fx.GraphModule, nodes: Iterable[fx.Node], match: Callable[[fx.Node], Iterator[Call]]
) -> fx.GraphModule:
    """Replace each node by the first call that `match` yields for it, unless the program writes into its operands."""
    for node in nodes:
        for call in match(node):
            memory = written(gm.graph)  # anew, since an operand may be a call that took the place of a written node
            if not any(n in memory for n in call.args if isinstance(n, fx.Node)):
                _replace(gm, node, call)
                break
    gm.recompile()
    return gm


def _replace(gm: fx.GraphModule, old: fx.Node, call: Call) -> None:
    """Replace `old` by the call; erase it and those of the inner nodes that are now unused."""
    with gm.graph.inserting_before(old):
        new = gm.graph.call_function(call.target, call.args, call.kwargs)
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    for node in (old, *call.inner):
        if not node.users:
            gm.graph.erase_node(node)


# ---------------------------------------------------------------------------------------------------- GEMM


def gemm(gm: fx.GraphModule) -> fx.GraphModule:
    """`α·A·B + β·C` = `torch.addmm(C, A, B, beta=β, alpha=α)`; of stacks of matrices, `torch.baddbmm`.

    α and β are numbers: factors on either side, divisors, alpha= of torch.add and torch.sub, and the sign of a
    difference; by default they are 1. If A and B are both matrices, or both stacks of the same size; A, B and C are of
    one floating-point dtype; C is no larger than the product; neither α nor β is 0 (the op then skips an operand, and
    0 · NaN is NaN); the values in between have no other users; and the program does not write into A, B or C.
    """
    return _rewrite(gm, list(gm.graph.nodes), _gemms)


def _gemms(node: fx.Node) -> Iterator[Call]:
    for left, right in _terms(node):
        if (call := _gemm(node, left, right)) is not None:
            yield call


class Term(NamedTuple):
    """factor · node; `inner` are the nodes that multiply."""

    node: fx.Node
    factor: float
    inner: tuple[fx.Node, ...] = ()


def _terms(node: fx.Node) -> Iterator[tuple[Term, Term]]:
    """Yield both orders of the terms of a sum or difference: x - y has the terms 1·x and -1·y."""
    if not calls(node, (*_PLUS, *_MINUS)) or len(node.args) != 2 or set(node.kwargs) - {"alpha"}:
        return
    alpha = node.kwargs.get("alpha", 1)
    if isinstance(alpha, int | float) and all(isinstance(n, fx.Node) for n in node.args):
        first, second = Term(node.args[0], 1), Term(node.args[1], -alpha if calls(node, _MINUS) else alpha)
        yield from ((first, second), (second, first))


def _scaled(term: Term) -> Term:
    """Move all numbers that are factors or divisors of a term's node into its factor."""
    node, factor, inner = term
    while calls(node, (*_TIMES, *_OVER)) and len(node.args) == 2 and not node.kwargs and _used_once(node):
        a, b = node.args
        if isinstance(b, int | float) and (b or calls(node, _TIMES)):
            rest, factor = a, factor / b if calls(node, _OVER) else factor * b
        elif isinstance(a, int | float) and calls(node, _TIMES):
            rest, factor = b, factor * a
        else:
            break
        node, inner = rest, (*inner, node)
    return Term(node, factor, inner)


def _gemm(node: fx.Node, left: Term, right: Term) -> Call | None:
    """Match a sum `node` whose left term is α·A·B and whose right term is β·C."""
    product, alpha, factors = _scaled(left)
    if not calls(product, _PRODUCT) or product.kwargs or not _used_once(product) or not _used_once(left.node):
        return None
    c, beta, other_factors = _scaled(right)
    a, b = product.args
    ranks = [len(shape(n) or ()) for n in (a, b)]
    stacks = ranks == [3, 3] and shape(a)[0] == shape(b)[0]
    if c is product or not (stacks or ranks == [2, 2]) or not _one_float_dtype(a, b, c):
        return None
    if alpha == 0 or beta == 0 or not all(map(math.isfinite, (alpha, beta))) or shape(node) != shape(product):
        return None
    options = {name: value for name, value in (("beta", beta), ("alpha", alpha)) if value != 1}
    inner = (*factors, product, *other_factors)
    return Call(torch.baddbmm if stacks else torch.addmm, (c, a, b), options, inner)


# ---------------------------------------------------------------------------------------------------- conv, bn, relu


def conv_bn_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(batch_norm(conv(x)))` = `ConvReLU2d(x)` of weight w·s and bias (b - mean)·s + shift, s = scale/√(var + ε).

    If they are modules of exactly these types in eval mode, and the batch norm keeps running statistics (the ReLU may
    be a function or a method); the two values in between have no other users; and the program does not write into x.
    The weights are folded into a copy, one for each call: the traced model shares the old ones, and keeps them.
    """
    for node in list(gm.graph.nodes):
        match = _match_conv_bn_relu(gm, node)
        if match is not None and written(gm.graph).isdisjoint(match.conv.all_input_nodes):
            _replace_conv_bn_relu(gm, match)
    gm.recompile()
    return gm


class ConvBnRelu(NamedTuple):
    """Three nodes in a row."""

    conv: fx.Node
    norm: fx.Node
    relu: fx.Node


def _module(gm: fx.GraphModule, node: Any, kind: type) -> Any:
    """Return the module of exactly this type that a node calls, or None."""
    module = gm.get_submodule(node.target) if isinstance(node, fx.Node) and node.op == "call_module" else None
    return module if type(module) is kind else None


def _match_conv_bn_relu(gm: fx.GraphModule, relu: fx.Node) -> ConvBnRelu | None:
    if not (calls(relu, (torch.relu, F.relu, "relu")) or _module(gm, relu, nn.ReLU)) or not relu.args:
        return None
    norm = relu.args[0]
    bn = _module(gm, norm, nn.BatchNorm2d)
    if bn is None or not norm.args or bn.training or not bn.track_running_stats:
        return None
    conv = norm.args[0]
    weights = _module(gm, conv, nn.Conv2d)
    if weights is None or weights.training or not (_used_once(conv) and _used_once(norm)):
        return None
    return ConvBnRelu(conv, norm, relu)


def _replace_conv_bn_relu(gm: fx.GraphModule, match: ConvBnRelu) -> None:
    conv, norm, relu = match
    weights = gm.get_submodule(conv.target)
    fused = fuse_conv_bn_eval(weights, gm.get_submodule(norm.target))  # copies the convolution
    fused.__class__ = ConvReLU2d
    name = f"{conv.name}_bn_relu"
    while hasattr(gm, name):
        name += "_"
    gm.add_submodule(name, fused.requires_grad_(weights.weight.requires_grad))
    with gm.graph.inserting_before(relu):
        new = gm.graph.call_module(name, conv.args, conv.kwargs)
    new.meta = dict(relu.meta)
    relu.replace_all_uses_with(new)
    for node in (relu, norm, conv):
        gm.graph.erase_node(node)


# ---------------------------------------------------------------------------------------------------- norms


def layer_norm(gm: fx.GraphModule) -> fx.GraphModule:
    """`(x - mean) / √(var + ε) · w + b` = `F.layer_norm(x, shape, w, b, ε)`, with mean and variance over the last dims.

    The variance is x.var(…, unbiased=False), or correction=0, or the mean of the squares of x - mean; the quotient may
    be a product with rsqrt. b, or w and b, may be missing. If mean and variance are over the same last dimensions, with
    keepdim; ε is a positive number; w and b have exactly the shape of those dimensions and the floating-point dtype of
    x; the values in between have no other users; and the program does not write into x, w or b.
    """

    return _rewrite(gm, _outermost_first(gm), lambda node: _norms(node, _layer_normed, F.layer_norm))


def rms_norm(gm: fx.GraphModule) -> fx.GraphModule:
    """`x / √(mean(x²) + ε) · w` = `F.rms_norm(x, shape, w, ε)`, the mean over the last dimensions (arXiv 1910.07467).

    w may be missing; the rest as for `layer_norm`. LLaMA's form, which casts x to float32 and the quotient back, is not
    rewritten: the op rounds at other points. Run it after `layer_norm`, since x - mean would match as an x, too.
    """

    return _rewrite(gm, _outermost_first(gm), lambda node: _norms(node, _rms_normed, F.rms_norm))


def _outermost_first(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes in reverse: the whole formula before its inner part, which matches without w and b."""
    for node in reversed(list(gm.graph.nodes)):
        if node.users:  # not erased with a formula
            yield node


def _norms(node: fx.Node, match: Callable[[fx.Node], Normed | None], op: Callable) -> Iterator[Call]:
    for affine in _affine(node, bias=op is F.layer_norm):
        if (call := _norm(node, affine, match, op)) is not None:
            yield call


def _norm(node: fx.Node, affine: Affine, match: Callable[[fx.Node], Normed | None], op: Callable) -> Call | None:
    """Return the call of a norm for `node`, seen as quotient·w + b, if `match` matches the quotient."""
    quotient, weight, bias, outer = affine
    normed = match(quotient) if quotient is node or _used_once(quotient) else None
    if normed is None:
        return None
    inner = [*outer[1:], quotient, *normed.inner] if outer else normed.inner
    dims, parts = shape(normed.x)[-normed.dims :], [part for part in (weight, bias) if part is not None]
    if any(shape(part) != dims for part in parts) or not _one_float_dtype(normed.x, *parts):
        return None
    if not _private(node, inner):
        return None
    operands = (weight, bias) if op is F.layer_norm else (weight,)
    return Call(op, (normed.x, dims, *operands, normed.eps), {}, inner)


def _private(node: fx.Node, inner: Sequence[fx.Node]) -> bool:
    """Return whether the nodes of `inner` have no users but each other and `node`."""
    group = {node, *inner}
    return all(user in group for n in inner for user in n.users)


class Affine(NamedTuple):
    """quotient · weight + bias; `inner` are the sum and product, outermost first."""

    quotient: fx.Node
    weight: fx.Node | None
    bias: fx.Node | None
    inner: list[fx.Node]


class OverRoot(NamedTuple):
    """numerator / √(variance + eps); `inner` are the root and the sum."""

    numerator: fx.Node
    variance: fx.Node
    eps: float
    inner: list[fx.Node]


class Reduction(NamedTuple):
    """A mean or variance of x over its last `dims` dimensions, and its remaining options."""

    x: fx.Node
    dims: int
    options: dict[str, Any]


class Normed(NamedTuple):
    """x, normalized over its last `dims` dimensions; `inner` are the nodes in between."""

    x: fx.Node
    dims: int
    eps: float
    inner: list[fx.Node]


def _affine(node: fx.Node, bias: bool) -> Iterator[Affine]:
    """Yield each way to see a node as y·w + b, where b, or w and b, may be missing."""
    yield Affine(node, None, None, [])
    for y, b in _pairs(node, _PLUS) if bias else ():
        for z, w in _pairs(y, _TIMES):
            yield Affine(z, w, b, [node, y])
    for y, w in _pairs(node, _TIMES):
        yield Affine(y, w, None, [node])


def _pairs(node: Any, ops: Sequence[Any]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Yield the operands of a sum or product of two nodes, in both orders."""
    if calls(node, ops) and not node.kwargs and len(node.args) == 2 and all(isinstance(n, fx.Node) for n in node.args):
        yield node.args
        yield node.args[::-1]


def _over_root(node: Any) -> Iterator[OverRoot]:
    """Yield each way to see a node as y / √(v + ε)."""
    ways = [(y, r, (torch.rsqrt, "rsqrt")) for y, r in _pairs(node, _TIMES)]
    if calls(node, _OVER) and len(node.args) == 2 and not node.kwargs:
        ways.append((*node.args, (torch.sqrt, "sqrt")))
    for y, root, spelled in ways:
        total = root.args[0] if calls(root, spelled) and root.args else None
        if calls(total, _PLUS) and len(total.args) == 2 and not total.kwargs:
            for v, eps in (total.args, total.args[::-1]):
                if isinstance(v, fx.Node) and isinstance(eps, int | float) and eps > 0:
                    yield OverRoot(y, v, float(eps), [root, total])


def _reduced(node: Any, name: str) -> Reduction | None:
    """Match x.mean(dims, keepdim=True), or .var, over the last dimensions."""
    if not calls(node, (getattr(torch, name), name)):
        return None
    names = ("input", "dim", "keepdim") if name == "mean" else ("input", "dim")
    options = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    x, dims = options.pop("input", None), options.pop("dim", None)
    if len(node.args) > len(names) or options.pop("keepdim", False) is not True or shape(x) is None or dims is None:
        return None
    rank = len(shape(x))
    dims = sorted(d % rank for d in (dims if isinstance(dims, tuple | list) else (dims,)))
    return Reduction(x, len(dims), options) if dims == list(range(rank - len(dims), rank)) else None


def _squared(node: Any) -> fx.Node | None:
    """Return x of x * x or x ** 2, None for any other node."""
    if calls(node, (operator.pow, torch.pow, "pow")) and len(node.args) == 2 and node.args[1] == 2:
        return node.args[0]
    square = calls(node, (torch.square, "square")) and len(node.args) == 1
    times = calls(node, _TIMES) and len(node.args) == 2 and not node.kwargs and node.args[0] is node.args[1]
    return node.args[0] if square or times else None


def _layer_normed(node: fx.Node) -> Normed | None:
    """Match (x - mean) / √(var + ε)."""
    for centred, variance, eps, root in _over_root(node):
        if not calls(centred, _MINUS) or len(centred.args) != 2 or centred.kwargs:
            continue
        x, mean = centred.args
        of_mean = _reduced(mean, "mean")
        if of_mean is None or of_mean.x is not x or of_mean.options:
            continue
        squares = _variance(variance, centred, of_mean)
        if squares is not None:
            return Normed(x, of_mean.dims, eps, [*root, variance, *squares, centred, mean])
    return None


def _variance(node: Any, centred: fx.Node, of_mean: Reduction) -> list[fx.Node] | None:
    """Match the variance of x, given x - mean and the mean; return the nodes that compute it from these, or None."""
    x, dims, _ = of_mean
    biased = _reduced(node, "var")
    if biased is not None and biased.x is x and biased.options in ({"unbiased": False}, {"correction": 0}):
        return [] if biased.dims == dims else None
    of_squares = _reduced(node, "mean")  # the mean of the squares of x - mean
    if of_squares is None or of_squares.options or of_squares.dims != dims:
        return None
    square = of_squares.x
    base = _squared(square)
    if base is centred:
        return [square]
    if not calls(base, _MINUS) or len(base.args) != 2 or base.kwargs or base.args[0] is not x:
        return None
    mean = base.args[1]  # x - mean may be written twice, and so may the mean
    if _reduced(mean, "mean") != of_mean:
        return None
    return [square, base] if mean is centred.args[1] else [square, base, mean]


def _rms_normed(node: fx.Node) -> Normed | None:
    """Match x / √(mean(x²) + ε)."""
    for x, mean, eps, root in _over_root(node):
        of_squares = _reduced(mean, "mean")
        if of_squares is not None and not of_squares.options and _squared(of_squares.x) is x:
            return Normed(x, of_squares.dims, eps, [*root, mean, of_squares.x])
    return None


# ---------------------------------------------------------------------------------------------------- residual


def residual(gm: fx.GraphModule) -> fx.GraphModule:
    """`s = x + y;  layer_norm(s)` = `s, n = add_layer_norm(x, y)`: one kernel reads both once and returns two results.

    s may have any number of other users: in a transformer the next residual sum is one. If x and y have one shape and
    one floating-point dtype (no broadcasting, no alpha); the norm is F.layer_norm or a module of type nn.LayerNorm,
    whose operands are available before the sum; and the program does not write into x, y or s. Of two norms of one sum
    the first is taken.
    """
    for node in list(gm.graph.nodes):
        match = _match_residual(gm, node)
        if match is not None and written(gm.graph).isdisjoint((*match.total.args, match.total)):
            _replace_residual(gm, match)
    gm.recompile()
    return gm


class Residual(NamedTuple):
    """A layer norm of a sum. `options`: the other operands of the norm; those in `late` are computed after the sum."""

    total: fx.Node
    norm: fx.Node
    options: list[Any]
    late: list[fx.Node]


def _match_residual(gm: fx.GraphModule, node: fx.Node) -> Residual | None:
    norm = _norm_of(gm, node)
    if norm is None or not calls(norm.operand, _PLUS) or norm.operand.kwargs or len(norm.operand.args) != 2:
        return None
    total, *options = norm
    x, y = total.args
    if shape(x) is None or shape(x) != shape(y) or not _one_float_dtype(x, y):
        return None
    late = [n for n in options if isinstance(n, fx.Node) and not n < total]
    return Residual(total, node, options, late) if all(n.op == "get_attr" for n in late) else None


def _replace_residual(gm: fx.GraphModule, match: Residual) -> None:
    total, norm, options, late = match
    with gm.graph.inserting_before(total):
        # a parameter read after the sum is read again before it
        paths = [n.target if isinstance(n, fx.Node) and n in late else n for n in options]
        options = [gm.graph.get_attr(n) if isinstance(n, str) else n for n in paths]
        both = gm.graph.call_function(add_layer_norm, (*total.args, *options))
        results = [gm.graph.call_function(operator.getitem, (both, i)) for i in range(2)]
    for old, new in zip((total, norm), results, strict=True):
        new.meta = dict(old.meta)
        old.replace_all_uses_with(new)
    for node in (norm, total, *late):
        if not node.users:
            gm.graph.erase_node(node)


class Norm(NamedTuple):
    """The operands of a layer norm; parameters of a module are given by their path."""

    operand: Any
    shape: Any
    weight: Any
    bias: Any
    eps: Any


def _norm_of(gm: fx.GraphModule, node: fx.Node) -> Norm | None:
    """Match a layer norm, as a function or a module of exactly this type."""
    if node.op == "call_module" and type(norm := gm.get_submodule(node.target)) is nn.LayerNorm and node.args:
        paths = [f"{node.target}.{p}" if getattr(norm, p) is not None else None for p in ("weight", "bias")]
        return Norm(node.args[0], tuple(norm.normalized_shape), *paths, norm.eps)
    if not calls(node, (F.layer_norm, torch.layer_norm)):
        return None
    names = {"input": None, "normalized_shape": None, "weight": None, "bias": None, "eps": 1e-5}
    operands = names | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return Norm(*(operands[name] for name in names))
