"""Rewrites of several ops into one that a library has a kernel for: each a function gm -> gm, its docstring its law.

    gm = residual(layer_norm(gemm(trace(model, x))))

Reading order: what all of them ask (shapes, readers, writes), then one rewrite after the other. They match by hand.
torch's own matcher (`torch.fx.subgraph_rewriter.replace_pattern`) finds a fixed tree of calls whose inner values nobody
else reads. It knows no second order of a sum, no second spelling of a keyword, no shape, no dtype and no write, and a
module only by its path: right for a pattern that one program made, too narrow and too bold for these.

All ask for graphs with shapes and dtypes on their nodes (`passlab.trace` with inputs). They edit gm and return it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


# ---------------------------------------------------------------------------------------------------- what all ask


def _read_once(node: Any) -> bool:
    """Is the value of a node read by one node, and there once?"""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return False
    (reader,) = node.users
    return sum(n is node for n in (*reader.args, *reader.kwargs.values())) == 1


def _dtype(node: Any) -> torch.dtype | None:
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return getattr(meta, "dtype", None)


def _one_float_dtype(*nodes: Any) -> bool:
    """Are the values of these nodes floating-point tensors of one dtype? None stands for an operand left out."""
    found = {_dtype(node) for node in nodes if node is not None}
    return len(found) == 1 and None not in found and found.pop().is_floating_point


def _replace(gm: fx.GraphModule, old: fx.Node, target: Callable, args: tuple, kwargs: dict, inner: Sequence) -> None:
    """Put a call in the place of `old`, and erase it and those of `inner` that nobody reads any more, readers first."""
    with gm.graph.inserting_before(old):
        new = gm.graph.call_function(target, args, kwargs)
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    for dead in (old, *inner):
        if not dead.users:
            gm.graph.erase_node(dead)


# ---------------------------------------------------------------------------------------------------- GEMM


def gemm(gm: fx.GraphModule) -> fx.GraphModule:
    """`α·A·B + β·C` = `torch.addmm(C, A, B, beta=β, alpha=α)`; of stacks of matrices, `torch.baddbmm`.

    α and β are numbers: factors on either side, divisors, alpha= of torch.add and torch.sub, and the sign of a
    difference; where there are none they are 1. If A and B are both matrices, or both stacks of equally many; A, B and
    C are of one floating-point dtype; C is no larger than the product; neither α nor β is 0 (the op then skips an
    operand, and 0 · NaN is NaN); nobody else reads the values in between; and the program writes into none of A, B, C.
    """
    memory = written(gm.graph)
    for node in list(gm.graph.nodes):
        for (left, sign), (right, other) in _terms(node):
            found = _gemm_of(node, left, sign, right, other)
            if found is not None and not any(n in memory for n in found[1]):
                _replace(gm, node, *found)
                break
    gm.recompile()
    return gm


def _terms(node: fx.Node) -> Iterator[tuple]:
    """Both orders of the terms of a sum or difference, each with its number: x - y is (x, 1), (y, -1)."""
    if not calls(node, (*_PLUS, *_MINUS)) or len(node.args) != 2 or set(node.kwargs) - {"alpha"}:
        return
    alpha = node.kwargs.get("alpha", 1)
    if isinstance(alpha, int | float) and all(isinstance(n, fx.Node) for n in node.args):
        first, second = (node.args[0], 1), (node.args[1], -alpha if calls(node, _MINUS) else alpha)
        yield from ((first, second), (second, first))


def _scaled(node: fx.Node, number: float = 1) -> tuple[fx.Node, float, list[fx.Node]]:
    """(y, c, the nodes that multiply) of a node that is c·y, with all numbers that are factors or divisors."""
    own: list[fx.Node] = []
    while calls(node, (*_TIMES, *_OVER)) and len(node.args) == 2 and not node.kwargs and _read_once(node):
        a, b = node.args
        if isinstance(b, int | float) and (b or calls(node, _TIMES)):
            own, inner, number = [*own, node], a, number / b if calls(node, _OVER) else number * b
        elif isinstance(a, int | float) and calls(node, _TIMES):
            own, inner, number = [*own, node], b, number * a
        else:
            break
        node = inner
    return node, number, own


def _gemm_of(node: fx.Node, left: fx.Node, sign: float, right: fx.Node, other: float) -> tuple | None:
    """(op, operands, keywords, nodes inside) where `left` is a product and `right` may be C, else None."""
    product, alpha, own = _scaled(left, sign)
    if not calls(product, _PRODUCT) or product.kwargs or not _read_once(product) or not _read_once(left):
        return None
    c, beta, more = _scaled(right, other)
    a, b = product.args
    ranks = [len(shape(n) or ()) for n in (a, b)]
    stacks = ranks == [3, 3] and shape(a)[0] == shape(b)[0]
    if c is product or not (stacks or ranks == [2, 2]) or not _one_float_dtype(a, b, c):
        return None
    if alpha == 0 or beta == 0 or not all(map(math.isfinite, (alpha, beta))) or shape(node) != shape(product):
        return None
    options = {name: value for name, value in (("beta", beta), ("alpha", alpha)) if value != 1}
    return torch.baddbmm if stacks else torch.addmm, (c, a, b), options, [*own, product, *more]


# ---------------------------------------------------------------------------------------------------- conv, bn, relu


def conv_bn_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(batch_norm(conv(x)))` = `ConvReLU2d(x)` of weight w·s and bias (b - mean)·s + shift, s = scale/√(var + ε).

    If they are modules of exactly these types in eval mode, and the batch norm keeps running statistics (the ReLU may
    be a function or a method); nobody else reads the two values in between; and the program does not write into x. The
    weights are folded into a copy, one for each call: the model that was traced shares the old ones, and keeps them.
    """

    def module(node: Any, kind: type) -> nn.Module | None:
        found = gm.get_submodule(node.target) if isinstance(node, fx.Node) and node.op == "call_module" else None
        return found if type(found) is kind else None

    memory = written(gm.graph)
    for relu in list(gm.graph.nodes):
        plain = calls(relu, (torch.relu, F.relu, "relu")) or module(relu, nn.ReLU)
        bn = relu.args[0] if plain and relu.args else None
        norm = module(bn, nn.BatchNorm2d)
        conv = bn.args[0] if norm is not None and bn.args else None
        weights = module(conv, nn.Conv2d)
        if weights is None or weights.training or norm.training or not norm.track_running_stats:
            continue
        if not (_read_once(conv) and _read_once(bn)) or any(n in memory for n in conv.all_input_nodes):
            continue
        fused = fuse_conv_bn_eval(weights, norm)  # a copy
        fused.__class__ = ConvReLU2d
        name = f"{conv.name}_bn_relu"
        while hasattr(gm, name):
            name += "_"
        gm.add_submodule(name, fused.requires_grad_(weights.weight.requires_grad))
        with gm.graph.inserting_before(relu):
            new = gm.graph.call_module(name, conv.args, conv.kwargs)
        new.meta = dict(relu.meta)
        relu.replace_all_uses_with(new)
        for dead in (relu, bn, conv):
            gm.graph.erase_node(dead)
    gm.recompile()
    return gm


# ---------------------------------------------------------------------------------------------------- norms


def layer_norm(gm: fx.GraphModule) -> fx.GraphModule:
    """`(x - mean) / √(var + ε) · w + b` = `F.layer_norm(x, shape, w, b, ε)`, with mean and variance over the last dims.

    The variance is x.var(…, unbiased=False), or correction=0, or the mean of the squares of x - mean; the quotient may
    be a product with rsqrt. w and b may be missing; b only with w. If mean and variance are over the same dimensions,
    which are the last ones, and kept; ε is a positive number; w and b have exactly the shape of those dimensions and
    the floating-point dtype of x; nobody else reads the values in between; and the program writes into none of x, w, b.
    """
    return _norms(gm, _layer_normed, F.layer_norm)


def rms_norm(gm: fx.GraphModule) -> fx.GraphModule:
    """`x / √(mean(x²) + ε) · w` = `F.rms_norm(x, shape, w, ε)`, the mean over the last dimensions (arXiv 1910.07467).

    w may be missing; the rest as for `layer_norm`. Where x is made float32 first and the quotient x's dtype again, as
    in LLaMA, it stays: the op rounds at other places. Comes after `layer_norm`: a centred x is an x, too.
    """
    return _norms(gm, _rms_normed, F.rms_norm)


def _norms(gm: fx.GraphModule, normed: Callable, op: Callable) -> fx.GraphModule:
    memory = written(gm.graph)
    for node in reversed(list(gm.graph.nodes)):  # the whole formula before its inner part, which is one without w and b
        if not node.users:  # gone with a formula, or never read
            continue
        for found in _affine(node, bias=op is F.layer_norm):
            quotient, weight, bias, own = found
            inner = normed(quotient)
            if inner is None or (quotient is not node and not _read_once(quotient)):
                continue
            x, dims, eps, more = inner
            normalized = shape(x)[-dims:]
            parts = [part for part in (weight, bias) if part is not None]
            replaced = [*own, quotient, *more][1:] if own else more
            if any(shape(part) != normalized for part in parts) or not _one_float_dtype(x, *parts):
                continue
            if any(n in memory for n in (x, *parts)) or not _private(node, replaced):
                continue
            args = (x, normalized, weight, bias, eps) if op is F.layer_norm else (x, normalized, weight, eps)
            _replace(gm, node, op, args, {}, replaced)
            break
    gm.recompile()
    return gm


def _private(node: fx.Node, inner: Sequence[fx.Node]) -> bool:
    """Does nobody but `node` and these nodes read the values of these nodes?"""
    group = {node, *inner}
    return all(user in group for n in inner for user in n.users)


def _affine(node: fx.Node, bias: bool) -> Iterator[tuple]:
    """Each way to see a node as y·w + b: (y, w, b, own nodes), the node first; w and b may be None."""
    yield node, None, None, []
    for y, b in _pairs(node, _PLUS) if bias else ():
        for z, w in _pairs(y, _TIMES):
            yield z, w, b, [node, y]
    for y, w in _pairs(node, _TIMES):
        yield y, w, None, [node]


def _pairs(node: Any, ops: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """The operands of a sum or product of two nodes, in both orders."""
    if calls(node, ops) and not node.kwargs and len(node.args) == 2 and all(isinstance(n, fx.Node) for n in node.args):
        yield node.args
        yield node.args[::-1]


def _over_root(node: Any) -> Iterator[tuple]:
    """Each way to see a node as y / √(v + ε): (y, v, ε, the nodes between)."""
    ways = [(y, r, (torch.rsqrt, "rsqrt")) for y, r in _pairs(node, _TIMES)]
    if calls(node, _OVER) and len(node.args) == 2 and not node.kwargs:
        ways.append((*node.args, (torch.sqrt, "sqrt")))
    for y, root, spelled in ways:
        total = root.args[0] if calls(root, spelled) and root.args else None
        if calls(total, _PLUS) and len(total.args) == 2 and not total.kwargs:
            for v, eps in (total.args, total.args[::-1]):
                if isinstance(v, fx.Node) and isinstance(eps, int | float) and eps > 0:
                    yield y, v, float(eps), [root, total]


def _reduced(node: Any, name: str) -> tuple[fx.Node, int, dict] | None:
    """(x, how many dimensions, the other options) of x.mean(dims, keepdim=True) or .var over the last dimensions."""
    if not calls(node, (getattr(torch, name), name)):
        return None
    names = ("input", "dim", "keepdim") if name == "mean" else ("input", "dim")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    x, dims = given.pop("input", None), given.pop("dim", None)
    if len(node.args) > len(names) or given.pop("keepdim", False) is not True or shape(x) is None or dims is None:
        return None
    rank = len(shape(x))
    dims = sorted(d % rank for d in (dims if isinstance(dims, tuple | list) else (dims,)))
    return (x, len(dims), given) if dims == list(range(rank - len(dims), rank)) else None


def _squared(node: Any) -> fx.Node | None:
    """x of x * x or x ** 2."""
    if calls(node, (operator.pow, torch.pow, "pow")) and len(node.args) == 2 and node.args[1] == 2:
        return node.args[0]
    square = calls(node, (torch.square, "square")) and len(node.args) == 1
    times = calls(node, _TIMES) and len(node.args) == 2 and not node.kwargs and node.args[0] is node.args[1]
    return node.args[0] if square or times else None


def _layer_normed(node: fx.Node) -> tuple | None:
    """(x, dimensions, ε, inner nodes) of a node that is (x - mean) / √(var + ε)."""
    for centred, variance, eps, own in _over_root(node):
        if not calls(centred, _MINUS) or len(centred.args) != 2 or centred.kwargs:
            continue
        x, mean = centred.args
        of_mean = _reduced(mean, "mean")
        if of_mean is None or of_mean[0] is not x or of_mean[2]:
            continue
        of_variance, more = _reduced(variance, "var"), []
        biased = (
            of_variance is not None
            and of_variance[0] is x
            and of_variance[2] in ({"unbiased": False}, {"correction": 0})
        )
        if not biased:
            of_variance = _reduced(variance, "mean")
            square = of_variance[0] if of_variance and not of_variance[2] else None
            base = _squared(square)
            if base is not centred:  # x - mean may have been written twice
                again = _reduced(base.args[1], "mean") if calls(base, _MINUS) and len(base.args) == 2 else None
                if again != of_mean or base.args[0] is not x or base.kwargs:
                    continue
                more = [base, base.args[1]] if base.args[1] is not mean else [base]
            more = [square, *more]
        if of_variance[1] == of_mean[1]:
            return x, of_mean[1], eps, [*own, variance, *more, centred, mean]
    return None


def _rms_normed(node: fx.Node) -> tuple | None:
    """(x, dimensions, ε, inner nodes) of a node that is x / √(mean(x²) + ε)."""
    for x, mean, eps, own in _over_root(node):
        found = _reduced(mean, "mean")
        if found is not None and not found[2] and _squared(found[0]) is x:
            return x, found[1], eps, [*own, mean, found[0]]
    return None


# ---------------------------------------------------------------------------------------------------- residual


def residual(gm: fx.GraphModule) -> fx.GraphModule:
    """`s = x + y;  layer_norm(s)` = `s, n = add_layer_norm(x, y)`: one kernel reads both once and gives two results.

    s may have any number of other readers: in a transformer the next residual sum is one. If x and y have one shape and
    one floating-point dtype (no broadcasting, no alpha); the norm is F.layer_norm or a module of type nn.LayerNorm,
    whose operands are there when the sum is made; and the program writes into none of x, y, s. Of two norms of one sum
    the first is taken.
    """
    memory = written(gm.graph)
    for norm in list(gm.graph.nodes):
        found = _norm_of(gm, norm)
        total = found[0] if found is not None else None
        if not calls(total, _PLUS) or total.kwargs or len(total.args) != 2:
            continue
        x, y = total.args
        if shape(x) is None or shape(x) != shape(y) or not _one_float_dtype(x, y):
            continue
        if any(n in memory for n in (x, y, total)):
            continue
        late = [n for n in found[1:] if isinstance(n, fx.Node) and not n < total]
        if any(n.op != "get_attr" for n in late):
            continue
        with gm.graph.inserting_before(total):
            paths = [n.target if isinstance(n, fx.Node) and n in late else n for n in found[1:]]
            options = [gm.graph.get_attr(n) if isinstance(n, str) else n for n in paths]
            both = gm.graph.call_function(add_layer_norm, (x, y, *options))
            results = [gm.graph.call_function(operator.getitem, (both, i)) for i in range(2)]
        for old, new in zip((total, norm), results, strict=True):
            new.meta = dict(old.meta)
            old.replace_all_uses_with(new)
        for dead in (norm, total, *late):
            if not dead.users:
                gm.graph.erase_node(dead)
    gm.recompile()
    return gm


def _norm_of(gm: fx.GraphModule, node: fx.Node) -> tuple | None:
    """(s, shape, weight, bias, ε) of a layer norm of s; parameters of a module by their path."""
    if node.op == "call_module" and type(norm := gm.get_submodule(node.target)) is nn.LayerNorm and node.args:
        paths = [f"{node.target}.{p}" if getattr(norm, p) is not None else None for p in ("weight", "bias")]
        return node.args[0], tuple(norm.normalized_shape), *paths, norm.eps
    if not calls(node, (F.layer_norm, torch.layer_norm)):
        return None
    names = {"input": None, "normalized_shape": None, "weight": None, "bias": None, "eps": 1e-5}
    given = names | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return tuple(given[name] for name in names)
