"""Day 13, decomposition: visible cases and judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.passes.shape_prop import ShapeProp

from passlab.equivalence.seeds import own_seed
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.patterns import canonical
from passlab.fx.programs import Program
from passlab.given.day13.decompose import SMALL, aten
from passlab.judge import Case, Finding, listed, shown

#: A result may be this many units of rounding off, or this many times as far as torch's own operation.
UNITS, TIMES = 16, 4
#: Below this, float32 has few digits or none.
TINY = 1e-36


def case(name: str, target: Any, inputs: Sequence[Any], *options: Any, about: Sequence[str] = (), **named: Any) -> Case:
    """Return a case of one operation, on float32 inputs given as lists or tensors."""
    return program_case(name, lambda *x: target(*x, *options, **named), inputs, about)


def program_case(name: str, body: Callable, inputs: Sequence[Any], about: Sequence[str] = ()) -> Case:
    """Return a case of a function of tensors."""

    def build() -> tuple[fx.GraphModule]:
        graph = fx.Graph()
        tracer = fx.proxy.GraphAppendingTracer(graph)
        names = "xyzw"[: len(inputs)]
        result = body(*(fx.Proxy(graph.placeholder(x), tracer) for x in names))
        graph.output(result.node)
        gm = fx.GraphModule({}, graph)
        gm.meta["inputs"] = tuple(torch.as_tensor(x, dtype=torch.float32).clone() for x in inputs)
        ShapeProp(gm).propagate(*gm.meta["inputs"])
        return (gm,)

    return Case(name, build, tuple(about))


INF = math.inf
#: Around 0, around 1, large, and infinite; the last for all of them.
NEAR = [0.0, 1e-30, 1e-8, -1e-8, 3e-4, -3e-4, 0.1, -0.1]
FAR = [1.0, -0.9999, 20.0, 80.0, 1e4, 3e38, INF]


def ordinary(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cases() -> list[Case]:
    return [
        case("softmax, ordinary numbers", aten._softmax.default, [ordinary(3, 5)], 1, False),
        case(
            "softmax, large numbers",
            aten._softmax.default,
            [[[1000.0, 999.0, -1000.0], [-500.0, -501.0, -600.0]]],
            1,
            False,
        ),
        case("log_softmax, far apart", aten._log_softmax.default, [[[0.0, 200.0, -3.0]]], 1, False),
        case("log1p near 0", aten.log1p.default, [NEAR]),
        case("expm1 near 0", aten.expm1.default, [NEAR]),
        case("tanh, near 0 and far", aten.tanh.default, [[*NEAR, 5.0, -5.0, 100.0, -100.0]]),
        case("softplus", aten.softplus.default, [[0.0, 1.0, -1.0, 100.0, -30.0]]),
        case("hypot, large", aten.hypot.default, [[3.0, 3e30, 1e-30, 0.0], [4.0, 4e30, 1e-30, 0.0]]),
        case("variance around 1000", aten.var.correction, [ordinary(2, 20) + 1e3], [1], correction=1),
        program_case(
            "several",
            lambda x, y: aten._softmax.default(aten.tanh.default(x) + aten.log1p.default(y * y), -1, False) * 2,
            [ordinary(3, 4), ordinary(3, 4, seed=1)],
        ),
    ]


def _why_left(gm: fx.GraphModule) -> str:
    rest = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output") and canonical(n) not in SMALL]
    if rest:
        names = ", ".join(dict.fromkeys(canonical(node) for node in rest))
        return f"{listed(rest)} should be gone: {names} cannot be left."
    typed = [n for n in gm.graph.nodes if any(isinstance(x, torch.dtype) for x in (*n.args, *n.kwargs.values()))]
    return f"{listed(typed)} may not be given a dtype: everything is computed in float32." if typed else ""


def _run(gm: fx.GraphModule, dtype: torch.dtype) -> Tensor:
    return gm(*(x.to(dtype) for x in gm.meta["inputs"]))


def _why_not_equal(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return where the two differ in float64, on ordinary inputs of the same shapes."""
    draw = torch.Generator().manual_seed(own_seed(1))
    inputs = [torch.rand(x.shape, generator=draw, dtype=torch.float64) * 3 - 0.75 for x in before.meta["inputs"]]
    expected = before(*inputs)
    run = Program(after).run(tuple(inputs))
    if run.error:
        return f"The graph does not run: {type(run.error).__name__}: {str(run.error).splitlines()[0][:120]}"
    value = run.output
    if not isinstance(value, Tensor) or value.shape != expected.shape:
        return f"The result should be a tensor of shape {tuple(expected.shape)}; it is {_form(value)}."
    off = ~torch.isclose(value.double(), expected, rtol=1e-7, atol=1e-9, equal_nan=True)
    if not off.any():
        return ""
    at = tuple(int(i) for i in off.nonzero()[0])
    return f"On ordinary numbers in float64, element {_at(at)} is {value[at]:.9g} and should be {expected[at]:.9g}."


def _form(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else shown(value)


def _at(place: tuple[int, ...]) -> str:
    return ", ".join(map(str, place)) or "0"


def _why_not_accurate(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return where float32 loses what the operation itself does not lose."""
    inputs = before.meta["inputs"]
    exact, torchs = _run(before, torch.float64), _run(before, torch.float32).double()
    value = Program(after).run(tuple(x.float() for x in inputs)).output
    if not isinstance(value, Tensor) or value.shape != exact.shape:
        return f"The result should be a tensor of shape {tuple(exact.shape)}; it is {_form(value)}."
    if value.dtype != torch.float32:
        return f"The result is in {str(value.dtype).removeprefix('torch.')}; the operation keeps float32."
    value, expected = value.double(), exact.float().double()
    unit = torch.finfo(torch.float32).eps * exact.abs()
    allowed = torch.maximum(UNITS * unit, TIMES * (torchs - exact).abs().nan_to_num(0, 0, 0)) + TINY
    same = (value == expected) | (value.isnan() & expected.isnan())
    off = ~(same | ((value - expected).abs() <= allowed))
    if not off.any():
        return ""
    at = tuple(int(i) for i in off.nonzero()[0])
    numbers = ", ".join(f"{float(x[at]):.9g}" for x in inputs) if all(x.shape == exact.shape for x in inputs) else ""
    where = f"of {numbers}" if numbers else f"element {_at(at)}"
    return f"In float32, the result {where} is {float(value[at]):.9g}; the operation gives {float(expected[at]):.9g}."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: a graph of the same form. `same`: equal in float64. `did`: only small operations are left.
    `spared`: in float32 as accurate as the operations themselves."""
    (before,) = case.build()
    reason = why_not_valid(before, value)
    yield Finding("valid", not reason, reason, before=before)
    if reason:
        return
    after = rebuild(value)
    reason = _why_not_equal(before, after)
    yield Finding("same", not reason, reason, before=before, after=after)
    if not reason and case.asks("spared"):
        reason = _why_not_accurate(before, after)
        yield Finding("spared", not reason, reason, before=before, after=after)
    reason = _why_left(after)
    yield Finding("did", not reason, reason, before=before, after=after)
