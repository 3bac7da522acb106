"""Day 14, rules for gradients: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import torch
from torch import Tensor, fx

from passlab.equivalence.seeds import own_seed
from passlab.equivalence.trials import nearby
from passlab.equivalence.values import Tolerance, wide
from passlab.fx.judge import why_not_valid
from passlab.fx.programs import Program
from passlab.given.day14.vjp import OPERATIONS, call
from passlab.judge import Case, Finding, plural

__all__ = ["call", "cases", "judge"]

ORDINARY = ("valid", "did", "spared")
EDGE = ("same",)


def rule(name: str, op: str, *args: Any, edge: bool = False, g: Any = None, **kwargs: Any) -> Case:
    """Return a case: one call of an operation. Of lists of numbers, and of shapes, tensors are made.

    edge: its numbers are special ones, and torch decides. g: the gradient of the result; drawn if it is not given.
    """

    def build() -> tuple:
        return op, tuple(x.clone() if isinstance(x, Tensor) else x for x in args), dict(kwargs)

    return Case(name, build, EDGE if edge else ORDINARY, expect=g)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return numbers between 0.5 and 2 in size, so that no rule meets an edge."""
    gen = torch.Generator().manual_seed(seed)
    sizes = 0.5 + 1.5 * torch.rand(shape, generator=gen, dtype=torch.float64)
    return (sizes * torch.where(torch.rand(shape, generator=gen) < 0.5, -1.0, 1.0)).to(dtype)


def row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cases() -> list[Case]:
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    return [
        rule("add, with alpha", "add", x, y, alpha=3),
        rule("add, of a row and a column", "add", numbers(1, 4), numbers(3, 1, seed=1)),
        rule("mul, with a row", "mul", x, numbers(3, seed=1)),
        rule("mul, by whole numbers", "mul", x, torch.tensor([[1, -2, 3]])),
        rule("mul, of two types", "mul", numbers(3, dtype=torch.float32), y),
        rule("div", "div", x, y),
        rule("pow", "pow", x, 3),
        rule("exp", "exp", x),
        rule("sqrt", "sqrt", x.abs()),
        rule("tanh", "tanh", x),
        rule("relu", "relu", x),
        rule("maximum", "maximum", x, y),
        rule("where", "where", x > 0, x, y),
        rule("sum", "sum", x, [1]),
        rule("amax, dimension kept", "amax", x, [-1], keepdim=True),
        rule("norm", "norm", numbers(2, 3, 4), [0, 2]),
        rule("softmax", "softmax", x, 1),
        rule("expand", "expand", numbers(3, 1), [2, 3, 4]),
        rule("view", "view", x, [3, -1]),
        rule("permute", "permute", numbers(2, 3, 4), [2, 0, 1]),
        rule("mm", "mm", x, numbers(3, 4, seed=1)),
        rule("edges of relu", "relu", row(-1, 0, 1, inf, -inf, nan), edge=True),
        rule("edges of sqrt", "sqrt", row(0, 1, inf), edge=True),
        rule("edges of pow: n is 0", "pow", row(0, 2, inf, nan), 0, edge=True),
        rule("edges of maximum", "maximum", row(1, 1, inf, nan), row(1, 2, inf, 0), edge=True),
        rule("edges of amax", "amax", torch.stack([row(1, 1, 0), row(-inf, -inf, -inf)]), [1], edge=True),
        rule("edges of norm", "norm", torch.stack([row(0, 0), row(3, 4)]), [1], edge=True),
        rule("edges of where", "where", torch.tensor([True, False]), row(1, 1), row(2, 2), g=row(nan, inf), edge=True),
    ]


def _arguments(case: Case) -> tuple[str, tuple, dict]:
    """Return the call of a case, on numbers of the run's own unless they are special ones."""
    op, args, kwargs = case.build()
    return op, args if case.asks("same") else nearby(args), kwargs


def judge(case: Case, value: Any) -> Iterator[Finding]:
    op, args, kwargs = _arguments(case)
    reason = _misfit(op, args, value)
    yield Finding("valid", not reason, reason)
    if reason:
        return
    kinds, gm = value["kinds"], value["graph"]
    floats = [differentiable(x) for x in args]
    extra = [i for i, (kind, want) in enumerate(zip(kinds, floats, strict=True)) if kind == "tensor" and not want]
    yield Finding("spared", not extra, _extra(op, args, extra) if extra else "")
    missing = [i for i, (kind, want) in enumerate(zip(kinds, floats, strict=True)) if kind == "None" and want]
    if missing:
        reason = f"{op}: argument {missing[0]} is a tensor of floats, so it has a gradient; your rule returns None."
    else:
        places = [i for i, kind in enumerate(kinds) if kind == "tensor"]
        reason = _difference(case, op, args, kwargs, gm, places)
    yield Finding("same" if case.asks("same") else "did", not reason, reason, after=gm if reason else None)


def _misfit(op: str, args: tuple, value: Any) -> str:
    """Return why a value is not one entry for each argument, or ""."""
    if not (isinstance(value, dict) and set(value) == {"kinds", "graph"} and isinstance(value["kinds"], list)):
        return "Return a tuple with one entry for each argument."
    kinds = [str(kind) for kind in value["kinds"]]
    if kinds and kinds[0].startswith("not a tuple: "):
        kind = kinds[0].removeprefix("not a tuple: ")
        return f"The rule of {op} returned {kind}; return a tuple, one entry for each argument."
    if len(kinds) != len(args):
        return (
            f"{op} was called with {plural(len(args), 'argument')} besides keywords; your rule returned "
            f"{plural(len(kinds), 'gradient')}. Return one entry for each, None for what has no gradient."
        )
    if other := next((kind for kind in kinds if kind not in ("tensor", "None")), None):
        return f"The rule of {op} returned a tuple with {other} in it; its entries are tensors and None."
    gm = value["graph"]
    if not isinstance(gm, fx.GraphModule):
        return "Return a tuple with one entry for each argument."
    return why_not_valid(None, gm)


def differentiable(x: Any) -> bool:
    """Return whether a value has a gradient: whether it is a tensor of floats."""
    return isinstance(x, Tensor) and x.is_floating_point()


def _extra(op: str, args: tuple, places: list[int]) -> str:
    x = args[places[0]]
    kind = f"a tensor of {str(x.dtype).removeprefix('torch.')}" if isinstance(x, Tensor) else f"{x!r:.40}"
    return f"{op}: argument {places[0]} is {kind}, which has no gradient; your rule returns one. Return None."


def expected(case: Case) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """Return g, the result, and torch's gradients by the number of the argument."""
    op, args, kwargs = _arguments(case)
    leaves = [x.requires_grad_() if differentiable(x) else x for x in args]
    out = OPERATIONS[op](*leaves, **kwargs)
    g = numbers(*out.shape, seed=own_seed(7), dtype=out.dtype) if case.expect is None else case.expect.expand(out.shape)
    floats = [i for i, x in enumerate(leaves) if differentiable(x)]
    gradients = torch.autograd.grad(out, [leaves[i] for i in floats], g)
    return g, out.detach(), dict(zip(floats, gradients, strict=True))


def _difference(case: Case, op: str, args: tuple, kwargs: dict, gm: fx.GraphModule, places: list[int]) -> str:
    """Return where the gradients of a graph are not torch's, in one sentence, or ""."""
    g, out, expect = expected(case)
    run = Program(gm).run((g.clone(), out, *(x for x in args if isinstance(x, Tensor))))
    if run.error:
        return f"{op}: the graph of your rule does not run: {str(run.error).partition(chr(10))[0]:.160}"
    outputs = run.output if isinstance(run.output, tuple | list) else ()
    if len(outputs) != len(places) or not all(isinstance(gradient, Tensor) for gradient in outputs):
        return f"{op}: the graph of your rule does not return its gradients."
    for i, gradient in zip(places, outputs, strict=True):
        want = expect.get(i)
        if want is None:
            continue
        for part, has, should in (
            ("shape", list(gradient.shape), list(want.shape)),
            ("dtype", gradient.dtype, want.dtype),
        ):
            if has != should:
                return f"{op}: the gradient of argument {i} has the {part} {has}; the argument has {should}."
        if reason := _element(op, args, i, gradient, want, g):
            return reason
    return ""


def _element(op: str, args: tuple, i: int, value: Tensor, want: Tensor, g: Tensor) -> str:
    allowed = Tolerance(1e-5 if want.dtype == torch.float32 or g.dtype == torch.float32 else 1e-11)
    bad = allowed.mismatches(wide(want), wide(value)).nonzero()
    if not len(bad):
        return ""
    at = tuple(bad[0].tolist())
    operand = args[i]
    where = f"[{', '.join(map(str, at))}]" if at else ""
    return (
        f"{op}: where argument {i}{where} is {operand[at].item():.4g}, your gradient is {value[at].item() + 0.0:.6g} "
        f"and torch's is {want[at].item() + 0.0:.6g}."
    )
