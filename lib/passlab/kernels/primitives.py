"""Decompose a group of torch operations into a few dozen primitives with every type and shape explicit.

    program = primitives(gm, (x, y))      # softmax becomes amax, sub, exp, sum, div; `half + float` gets its casts
    print(program.code)

torch itself defines its operations, by its reference decompositions, which are traced here without data. So type
promotion, broadcasting and NaN are torch's, and a code generator needs only `POINTWISE`, `REDUCTIONS` and `VIEWS`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch._decomp
import torch._refs
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from passlab.fx.nodes import name_of

_prims, _aten = torch.ops.prims, torch.ops.aten


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: One element of the result from one element of each operand.
POINTWISE = _words(
    """abs neg sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh asin acos atan
    erf floor ceil trunc round sign signbit isfinite bitwise_not convert_element_type clone view_of
    add sub mul div pow fmod remainder maximum minimum atan2 eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor
    where"""
)
REDUCTIONS = _words("sum prod amax amin")
#: The same elements at other places.
VIEWS = _words(
    """broadcast_in_dim squeeze transpose collapse_view split_dim slice select view reshape _unsafe_view permute expand
    unsqueeze t alias detach unfold flip"""
)
#: Elements of several tensors, or of one and a constant.
MOVES = _words("cat constant_pad_nd")
#: Tensors filled with one number.
CONSTANTS = _words("scalar_tensor full full_like")
#: Its own position, and what lies at positions that are computed.
POSITIONS = _words("iota _unsafe_index")
#: Uninitialized memory: only its shape may matter.
_MEMORY = _words("empty_strided empty empty_like")
KNOWN = POINTWISE | REDUCTIONS | VIEWS | MOVES | CONSTANTS | POSITIONS


class Unsupported(ValueError):
    """An operation cannot be compiled to a kernel. `node` is the name of its node, which the message gives too.

    `depends`: whether it might be in a larger group, which gives it constants as operands, or users.
    """

    def __init__(self, node: str, reason: str, depends: bool = False):
        super().__init__(f"No kernel can be made of node {node!r}: {reason}.")
        self.node, self.reason, self.depends = node, reason, depends


def state(gm: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a group by name: inputs of its kernel, after the placeholders."""
    return {**dict(gm.named_parameters()), **dict(gm.named_buffers())}


def primitives(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return the program of `gm` on inputs like these, in primitives. Nothing is computed: only shapes and types
    matter.

    Placeholders are the inputs that are tensors, in order, then `state(gm)`; the output is a flat list. Every node has
    `meta["val"]`, a tensor without data, and `meta["of"]`, the name of the node of `gm` that it belongs to.
    Raise Unsupported, which names the node.
    """
    traced = _traced(_Run(gm), inputs)
    _share(traced.graph)
    traced.graph.eliminate_dead_code()
    for node in traced.graph.nodes:
        _check(node)
    return traced


def unsupported(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Unsupported]:
    """Return the nodes of `gm` that no kernel can be made of, by name. No node of `gm` reads another's value."""
    runner = _Run(gm, stops=False)
    traced = _traced(runner, inputs)
    traced.graph.eliminate_dead_code()
    errors = dict(runner.errors)
    for node in traced.graph.nodes:
        try:
            _check(node)
        except Unsupported as error:
            errors.setdefault(error.node, error)
    return errors


def _traced(runner: _Run, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return what the runner's graph calls on inputs like these, before any check of it."""
    fake, constants = FakeTensorMode(), state(runner.gm)

    def run(tensors: list, values: dict) -> Any:
        operands = iter(tensors)
        args = [next(operands) if isinstance(x, torch.Tensor) else x for x in inputs]
        return torch.func.functional_call(runner, values, tuple(args))

    tensors = [fake.from_tensor(x.detach()) for x in inputs if isinstance(x, torch.Tensor)]
    values = {f"gm.{name}": fake.from_tensor(value.detach()) for name, value in constants.items()}
    with fake, torch.no_grad():
        traced = make_fx(run, decomposition_table=_table())(tensors, values)
    for node in traced.graph.nodes:
        node.meta["of"] = runner.owner.get(node.name, node.name)
    _without_copies(traced.graph)
    return traced


def reduces(program: fx.GraphModule) -> bool:
    """Return whether a program of primitives has a reduction."""
    return any(name_of(step.target) in REDUCTIONS for step in program.graph.nodes if step.op == "call_function")


def _without_copies(graph: fx.Graph) -> None:
    """Replace a write into a fresh tensor by its new value, which all later uses read."""
    for node in [n for n in graph.nodes if n.target is _aten.copy_.default]:
        into, new = node.args[:2]
        same = into.meta["val"].shape == new.meta["val"].shape and into.meta["val"].dtype == new.meta["val"].dtype
        if same and into.op == "call_function" and name_of(into.target) in POINTWISE | _MEMORY:
            into.replace_all_uses_with(new, delete_user_cb=lambda user, node=node: user > node)
            node.replace_all_uses_with(new)
            graph.erase_node(node)


def _share(graph: fx.Graph) -> None:
    """Merge common subexpressions: all primitives here are pure. (Others are rejected afterwards.)"""
    first: dict[tuple, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "call_function" and name_of(node.target) in KNOWN:
            one = first.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
            if one is not node:
                node.replace_all_uses_with(one)


class _Run(torch.nn.Module):
    """Runs a graph node by node and records the origin of each traced node.

    At a node that torch cannot follow, it stops with Unsupported, or else records that in `errors` and goes on.
    """

    def __init__(self, gm: fx.GraphModule, stops: bool = True):
        super().__init__()
        self.gm, self.stops = gm, stops
        self.owner: dict[str, str] = {}
        self.errors: dict[str, Unsupported] = {}

    def forward(self, *args: Any) -> Any:
        owner, stops, errors = self.owner, self.stops, self.errors

        class Noting(fx.Interpreter):
            def run_node(self, n: fx.Node) -> Any:
                graph = get_proxy_mode().tracer.graph
                before = len(graph.nodes)
                try:
                    value = super().run_node(n)
                except Exception as error:
                    text = str(error).strip().split("\n")[0][:200].rstrip(".")
                    errors[n.name] = Unsupported(n.name, f"torch cannot follow it ({text})")
                    if stops:
                        raise errors[n.name] from error
                    return None
                count = len(graph.nodes) - before
                for new, _ in zip(reversed(graph.nodes), range(count), strict=False):
                    owner.setdefault(new.name, n.name)
                return value

        noting = Noting(self.gm)
        noting.extra_traceback = False
        return noting.run(*args)


def _var(x: torch.Tensor, dims: Sequence[int] | None, correction: float = 1.0, **_: Any) -> torch.Tensor:
    """Compute the variance in two passes: the mean, and the mean of squared distances to it."""
    dims = list(range(x.ndim)) if dims is None else list(dims)
    count = math.prod(x.shape[d] for d in dims)
    off = x - x.sum(dims, keepdim=True) / count
    return (off * off).sum(dims) / max(count - correction, 0)


def _split(x: torch.Tensor, size: int, dim: int = 0) -> tuple:
    return tuple(x.narrow(dim, at, min(size, x.shape[dim] - at)) for at in range(0, x.shape[dim], size))


def _softmax_backward(grad: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return (g - Σ g·y)·y, as eager does; torch's decomposition, g·y - y·Σ g·y, is inf - inf where g is large.

    dtype: of the operand of the softmax. Only half precision, which a GPU's softmax widens, gives the result its type.
    """
    wide = torch.promote_types(output.dtype, torch.float32)
    g, y = grad.to(wide), output.to(wide)
    return ((g - (g * y).sum(dim, keepdim=True)) * y).to(dtype if dtype == torch.float16 else grad.dtype)


_own: dict = {}


def _table() -> dict:
    """Return torch's decompositions, except for views, which a kernel reads as the same elements elsewhere."""
    if not _own:
        _own.update(torch._decomp.decomposition_table)
        moves = "slice select view reshape _unsafe_view permute expand unsqueeze t unfold flip cat constant_pad_nd"
        for packet in (*moves.split(), "_unsafe_index"):
            for overload in getattr(_aten, packet).overloads():
                _own.pop(getattr(getattr(_aten, packet), overload), None)
        _own[_prims.var.default] = _var
        _own[_aten.split.Tensor] = _split
        _own[_aten._softmax_backward_data.default] = _softmax_backward
    return _own


def _check(node: fx.Node) -> None:
    if node.op in ("placeholder", "output"):
        return
    of = node.meta["of"]
    if node.op == "get_attr":
        raise Unsupported(of, "it makes a tensor from data; register that as a buffer")
    name = name_of(node.target)
    if name in _MEMORY and all(user.op == "call_function" and constant(user) is not None for user in node.users):
        return
    if node.target is operator.getitem or name not in KNOWN:
        name = name_of(node.args[0].target) if node.target is operator.getitem else name
        reason = f"{name} is neither element-wise nor a view nor one of {', '.join(sorted(REDUCTIONS))}"
        raise Unsupported(of, reason, depends=name in _MEMORY)
    value = node.meta["val"]
    if value.dtype.is_complex or value.layout != torch.strided:
        raise Unsupported(of, f"its result is {value.dtype}, {value.layout}")
    operands = [a for a in node.args if isinstance(a, fx.Node)]
    if name in ("div", "fmod", "remainder") and not value.dtype.is_floating_point:
        divisor = constant(node.args[1])
        if not divisor:
            reason = "it divides integers by a tensor or by 0, for which torch raises an error and a kernel cannot"
            raise Unsupported(of, reason, depends=True)
    if name == "pow" and not value.dtype.is_floating_point:
        power = constant(node.args[1])
        if power is None or not 0 <= power <= 8:
            raise Unsupported(of, "it raises integers to a power that is not a number from 0 to 8", depends=True)
    devices = {a.meta["val"].device for a in operands}
    if len(devices) > 1 and any(a.meta["val"].ndim for a in operands if a.meta["val"].device.type == "cpu"):
        raise Unsupported(of, f"its operands are on {' and '.join(sorted(map(str, devices)))}")


def constant(value: Any) -> float | int | bool | None:
    """Return the number that fills an operand; None if it is not constant."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, fx.Node) or value.op != "call_function":
        return None
    if "number" not in value.meta:  # cached: shared operands would make the walk exponential
        value.meta["number"] = _number(value)
    return value.meta["number"]


def _number(node: fx.Node) -> float | int | bool | None:
    name = name_of(node.target)
    if name in CONSTANTS:
        filled = node.args[0 if name == "scalar_tensor" else 1]
        return filled if isinstance(filled, bool | int | float) else None
    if name in VIEWS or name == "view_of":
        return constant(node.args[0])
    operands = [constant(a) for a in node.args if isinstance(a, fx.Node)]
    if name not in POINTWISE or not operands or None in operands:
        return None
    filled = iter(operands)
    types = [a.meta["val"].dtype if isinstance(a, fx.Node) else None for a in node.args]
    known = [torch.tensor(next(filled), dtype=t) if t else a for a, t in zip(node.args, types, strict=True)]
    return node.target(*known).item()
