"""Products, convolutions and pools as sums and choices that a kernel of `passlab.kernels` can compute.

    gm = as_sums(gm)        # small `mm`, `bmm`, `addmm`, `convolution` and their gradients; the graph is changed

A kernel computes a product with what surrounds it, so a small one need not be a launch of its own. It keeps what it
reads often in a buffer, adds in the order of the sum, and has no tiles: from some size on a library is much faster,
so `most` bounds the multiplications. `max_pool` and its gradient are decompositions for AOTAutograd.

Reading order: products, convolutions, pools, the pass.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten

#: Multiplications of a convolution above which it stays a library call.
MOST = 2**22
#: The same for a product of matrices, and for a convolution with filters of 1 × 1 and each of its gradients, which a
#: library computes as one: 10 to 60 multiplications a nanosecond on one core of an x86-64; a kernel does 0.4 to 7.
MOST_PRODUCT = 2**20


#: Key of `node.meta`: the value is only ever a number in a loop of the kernel that sums it.
INSIDE = "inside"


# -------------------------------------------------------------------------------------------------------- the products


def mm(a: Tensor, b: Tensor) -> Tensor:
    """Return a matrix product, or one for each member of a batch, as a sum of products."""
    return (a.unsqueeze(-2) * _rows(b).transpose(-1, -2).unsqueeze(-3)).sum(-1)


def addmm(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return mm(a, b) + c


def _rows(x: Tensor) -> Tensor:
    """Return the tensor with its last dimension in neighbouring elements, which a kernel reads as vectors."""
    return x if x.stride(-1) == 1 else x.clone(memory_format=torch.contiguous_format)


# ---------------------------------------------------------------------------------------------------- the convolutions


def _windows(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], fill: float = 0.0
) -> Tensor:
    """Return the windows of images: [n, c, rows, columns, kernel rows, kernel columns]."""
    if any(padding):
        x = aten.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]], fill)
    return x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])


def _summed(windows: Tensor, weight: Tensor) -> Tensor:
    """Return each window times each filter. weight: [filters, c, kernel rows, kernel columns]."""
    filters = weight.permute(1, 2, 3, 0).clone(memory_format=torch.contiguous_format).permute(3, 0, 1, 2)
    return (windows.permute(0, 2, 3, 1, 4, 5).unsqueeze(3) * filters).sum((-3, -2, -1)).permute(0, 3, 1, 2)


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, *rest: Any) -> Tensor:
    """Return a convolution of images; with groups, each has one channel. rest: dilation, …, the number of groups."""
    windows = _windows(x, weight.shape[2:], stride, padding)
    y = (windows * weight[:, 0, None, None]).sum((-2, -1)) if rest[-1] > 1 else _summed(windows, weight)
    y = y if bias is None else y + bias[:, None, None]
    return y.contiguous()


def convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, sizes: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> list[Tensor | None]:
    """Return the gradients of images, filters and bias; None for those that the mask does not ask for."""
    (*_, groups, mask), kernel = rest, weight.shape[2:]
    gradients: list[Tensor | None] = [None, None, None]
    if mask[0]:
        spread = g
        for d in (0, 1):
            begin = kernel[d] - 1 - padding[d]
            spread = _spread(spread, 2 + d, begin, stride[d], x.shape[2 + d] + kernel[d] - 1)
        windows, turned = _windows(spread, kernel, (1, 1), (0, 0)), weight.flip(2, 3)
        if groups > 1:
            gradients[0] = (windows * turned[:, 0, None, None]).sum((-2, -1))
        else:
            gradients[0] = _summed(windows, turned.transpose(0, 1)).contiguous()
    if mask[1]:
        windows = _windows(x, kernel, stride, padding)
        patches = windows.permute(1, 4, 5, 0, 2, 3)  # [c, kernel rows, kernel columns, n, rows, columns]
        if groups > 1:
            gradients[1] = (patches * g.transpose(0, 1)[:, None, None]).sum((-3, -2, -1)).unsqueeze(1)
        else:
            filters = g.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(3, 0, 1, 2)
            gradients[1] = (patches.unsqueeze(3) * filters).sum((-3, -2, -1)).permute(3, 0, 1, 2).contiguous()
    if mask[2]:
        gradients[2] = g.sum((0, 2, 3))
    return gradients


def _spread(x: Tensor, d: int, begin: int, step: int, size: int) -> Tensor:
    """Return zeros with the elements of `x` at begin, begin + step, … of dimension `d`, which has `size` elements."""
    d, number = d % x.ndim, x.shape[d]
    if step > 1:
        after = [0, 0] * (x.ndim - d - 1)
        x = aten.constant_pad_nd(x.unsqueeze(d + 1), [*after, 0, step - 1], 0)
        x = x.reshape(*x.shape[:d], number * step, *x.shape[d + 2 :])
    last = size - begin - x.shape[d]
    pads = [0, 0] * (x.ndim - d - 1) + [max(begin, 0), max(last, 0)]
    x = aten.constant_pad_nd(x, pads, 0) if any(pads) else x
    return x.narrow(d, max(-begin, 0), size) if x.shape[d] != size else x


# ----------------------------------------------------------------------------------------------------------- the pools


def _pool(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple | None:
    """Return kernel, stride and padding by dimension, or None if such a pool is not taken apart."""
    kernel, padding = (list(n) * 2 if len(n) == 1 else list(n) for n in (kernel, padding))
    stride = list(stride or kernel)
    stride = stride * 2 if len(stride) == 1 else stride
    plain = x.ndim == 4 and not ceil_mode and set(dilation) <= {1} and x.is_floating_point() and math.prod(kernel) <= 16
    return (kernel, stride, padding) if plain else None


def _places(shape: Sequence[int], d: int, stride: int, padding: int, device: torch.device) -> Tensor:
    """Return where the windows of a row (d = 0) or column (d = 1) of results begin, to broadcast against results."""
    at = torch.arange(shape[2 + d], device=device) * stride - padding
    return at[:, None] if d == 0 else at


def max_pool(
    x: Tensor, kernel: Any, stride: Any = (), padding: Any = (0, 0), dilation: Any = (1, 1), ceil_mode: bool = False
) -> Any:
    """Return the largest element of each window, and its place in the image: the first of equals, the last NaN."""
    settings = _pool(x, kernel, stride, padding, dilation, ceil_mode)
    if settings is None:
        return NotImplemented
    kernel, stride, padding = settings
    windows = _windows(x, kernel, stride, padding, -math.inf)
    rows, columns = (_places(windows.shape, d, stride[d], padding[d], x.device) for d in (0, 1))
    best = windows[..., 0, 0]
    place = (rows.clamp(min=0) * x.shape[3] + columns.clamp(min=0)).expand(best.shape)
    for i, j in list(itertools.product(*map(range, kernel)))[1:]:
        value, at = windows[..., i, j], (rows + i) * x.shape[3] + (columns + j)
        above = (value > best) | value.isnan()
        best, place = torch.where(above, value, best), torch.where(above, at.expand(value.shape), place)
    return best, place


def max_pool_backward(
    g: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, places: Tensor
) -> Any:
    """Return the gradient of the images: each element's window, or windows, hand theirs to it."""
    settings = _pool(x, kernel, stride, padding, dilation, ceil_mode)
    if settings is None:
        return NotImplemented
    kernel, stride, padding = settings
    rows, columns = (_places(g.shape, d, stride[d], padding[d], x.device) for d in (0, 1))
    parts = []
    for i, j in itertools.product(*map(range, kernel)):
        part = torch.where(places == (rows + i) * x.shape[3] + (columns + j), g, 0.0)
        part = _spread(part, 2, i - padding[0], stride[0], x.shape[2])
        parts.append(_spread(part, 3, j - padding[1], stride[1], x.shape[3]))
    return functools.reduce(torch.add, parts)


def put_together(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool) -> Tensor:
    """Return `x` with `values` added at pairs of rows and columns: the gradient of an enlarged image."""
    *_, rows, columns = indices
    mask = columns == torch.arange(x.shape[3], device=x.device)[:, None]
    by_column = torch.where(mask, values.unsqueeze(3), 0.0).sum(-1)  # [n, c, rows of values, columns of x]
    mask = rows == torch.arange(x.shape[2], device=x.device)
    return x + torch.where(mask[..., None], by_column.unsqueeze(3), 0.0).sum(2)


# ------------------------------------------------------------------------------------------------------------ the pass

#: Operation → what it means, in operations of which a kernel can be made.
MEANINGS: dict[Any, Callable] = {
    aten.mm.default: mm,
    aten.bmm.default: mm,
    aten.addmm.default: addmm,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten._unsafe_index_put.default: put_together,
}


#: Convolution → the place of its filters among its operands, and how many products it is.
FILTERS: dict[Any, tuple[int, int]] = {aten.convolution.default: (1, 1), aten.convolution_backward.default: (2, 2)}


def multiplications(node: fx.Node) -> float:
    """Return how many numbers a product or convolution multiplies; infinity for one that has no meaning here."""
    values: Any = fx.node.map_arg(node.args, lambda operand: operand.meta["val"])
    dtype = node.all_input_nodes[0].meta["val"].dtype
    if node.target not in MEANINGS or node.kwargs or dtype not in (torch.float32, torch.float64):
        return math.inf
    if node.target is aten._unsafe_index_put.default:
        return _of_put(*values)
    if node.target is aten.convolution.default:
        return _of_convolution(node.meta["val"], *values[:2], *values[3:])
    if node.target is aten.convolution_backward.default:
        return 2 * _of_convolution(*values[:3], *values[4:10])
    a, b = values[-2:]
    return a.numel() * b.shape[-1]


def most(node: fx.Node) -> int:
    """Return how many numbers a product or convolution may multiply to be computed in a kernel."""
    if node.target is aten._unsafe_index_put.default:
        return MOST
    place, products = FILTERS.get(node.target, (None, 1))
    filters: Any = node.args[place] if place else None
    is_wide = filters is not None and math.prod(filters.meta["val"].shape[2:]) > 1
    return MOST if is_wide else MOST_PRODUCT * products


def _of_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> float:
    shapes = [None if index is None else (index.ndim, index.shape[-1]) for index in indices]
    fits = accumulate and len(shapes) == 4 and shapes[:2] == [None, None] and shapes[2] == (2, 1)
    fits = fits and indices[3] is not None and indices[3].ndim == 1
    return values.numel() * (x.shape[2] + x.shape[3]) if fits else math.inf


def _of_convolution(
    y: Tensor, x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, transposed: bool, *rest: Any
) -> float:
    groups = rest[-1]
    fits = weight.ndim == 4 and not transposed and set(dilation) == {1}
    fits = fits and (groups == 1 or (groups == x.shape[1] and weight.shape[:2] == (groups, 1)))
    fits = fits and all(size > skip for size, skip in zip(weight.shape[2:], padding, strict=True))
    return y.numel() * math.prod(weight.shape[1:]) if fits else math.inf


def as_sums(gm: fx.GraphModule) -> fx.GraphModule:
    """Write small products and convolutions as sums of products. Return the same graph."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in MEANINGS and multiplications(node) <= most(node):
            _replace(gm, node, MEANINGS[node.target])
    return gm


def _replace(gm: fx.GraphModule, node: fx.Node, meaning: Callable) -> None:
    """Put what a function computes in the place of a node."""
    operands = node.all_input_nodes
    values = [operand.meta["val"] for operand in operands]

    def call(*tensors: Tensor) -> Any:
        known = dict(zip(operands, tensors, strict=True))
        return meaning(*fx.node.map_arg(node.args, known.__getitem__))

    with values[0].fake_mode:
        traced = make_fx(call)(*values)
    copies = dict(zip(traced.graph.find_nodes(op="placeholder"), operands, strict=True))
    with gm.graph.inserting_before(node):
        for step in traced.graph.nodes:
            if step.op == "call_function":
                copies[step] = gm.graph.node_copy(step, copies.__getitem__)
                copies[step].meta[INSIDE] = step.target is aten.mul.Tensor
    results: Any = traced.graph.find_nodes(op="output")[0].args[0]
    if isinstance(node.meta["val"], Tensor):
        node.replace_all_uses_with(copies[results])
    else:
        for user in list(node.users):
            if (result := results[user.args[1]]) is not None:
                user.replace_all_uses_with(copies[result])
            if not user.users:
                gm.graph.erase_node(user)
    if not node.users:
        gm.graph.erase_node(node)
