"""A safe mixed-precision plan: which nodes may run in float16 without overflow, and a search for inputs that break one.

    safe = plan(gm, {"x": (-1.0, 1.0)})          # node → torch.float16 or torch.float32
    run(gm, safe, x)                             # run it, with casts between precisions
    overflow(gm, dict.fromkeys(safe, torch.float16), {"x": (-1.0, 1.0)})   # inputs on which all-half overflows, or None

The largest float16 is 65504, so a node is safe in it if its range and the partial sums of its products stay below that:
hardware may accumulate in float16 (P. Micikevicius et al., Mixed Precision Training, ICLR 2018). bfloat16 has the
exponents of float32 and overflows only where float32 does, but it has fewer digits.

Reading order: the plan, running it, the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from passlab.dataflow.ranges import UNIT, ranges

Plan = dict[str, torch.dtype]
HALF = torch.float16


def plan(gm: fx.GraphModule, inputs: Mapping[str, tuple[float, float]], half: torch.dtype = HALF) -> Plan:
    """Return the precision of every call: `half` if no input in the ranges overflows it, else float32.

    The ranges include the rounding of every result to `half`, so the plan is safe for any precision of earlier nodes.
    The operands of a safe node fit, too, since they are cast to half.
    """
    bounds, limit = ranges(gm, inputs, UNIT[half]), torch.finfo(half).max
    fits = {name: max(r.largest, r.partial) <= limit for name, r in bounds.items()}
    calls = [n for n in gm.graph.nodes if n.op.startswith("call_") and n.name in bounds]
    return {
        n.name: half if fits[n.name] and all(fits.get(o.name, True) for o in n.all_input_nodes) else torch.float32
        for n in calls
    }


class _Mixed(fx.Interpreter):
    """Run each call in its own precision."""

    def __init__(self, gm: fx.GraphModule, precision: Plan):
        super().__init__(gm)
        self.precision, self.values = precision, {}

    def run_node(self, n: fx.Node) -> Any:
        dtype = self.precision.get(n.name, torch.float32)
        if not n.op.startswith("call_"):
            result = super().run_node(n)
            if n.op == "output":
                return tree_map(lambda v: v.float() if isinstance(v, Tensor) else v, result)
        else:
            args, kwargs = tree_map(
                lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v,
                self.fetch_args_kwargs_from_env(n),
            )
            if n.op == "call_module":
                module = self.fetch_attr(n.target)
                weights = {k: v.to(dtype) if v.is_floating_point() else v for k, v in module.state_dict().items()}
                result = torch.func.functional_call(module, weights, args, kwargs)
            else:
                result = getattr(self, n.op)(n.target, args, kwargs)
        self.values[n.name] = result
        return result


def values(gm: fx.GraphModule, precision: Plan, *inputs: Tensor) -> dict[str, Any]:
    """Run a graph with each call in its precision and return every node's value in it."""
    interpreter = _Mixed(gm, precision)
    interpreter.run(*inputs)
    return interpreter.values


def run(gm: fx.GraphModule, precision: Plan, *inputs: Tensor) -> Any:
    """Run a graph with each call in its precision, and return its result in float32."""
    with torch.no_grad():
        return _Mixed(gm, precision).run(*inputs)


# ---------------------------------------------------------------------------------------------------- the search


@dataclass(frozen=True)
class Overflow:
    """Inputs within their ranges for which the result of `node` is infinite or NaN."""

    node: str
    inputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        return f"{self.node} overflows"


def extremes(
    gm: fx.GraphModule,
    inputs: Mapping[str, tuple[float, float]],
    node: str,
    seed: int = 0,
    steps: int = 12,
    up: bool = True,
) -> tuple[Tensor, ...]:
    """Return inputs within their ranges that make an element of a node large (or small, unless `up`).

    From random points, each step moves to the corner that the signs of the gradient select (as in I. Goodfellow et al.,
    Explaining and Harnessing Adversarial Examples, ICLR 2015). This is a search: it can miss the extreme.
    """
    rng = torch.Generator().manual_seed(seed % 2**64)
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    ends = [inputs[n.target] for n in places]

    def random_point(corner: bool) -> list[Tensor]:
        point = []
        for n, (low, high) in zip(places, ends, strict=True):
            share = torch.rand(tuple(n.meta["tensor_meta"].shape), generator=rng)
            point.append(torch.where(share < 0.5, low, high) if corner else low + (high - low) * share)
        return point

    best, best_goal = random_point(corner=True), -float("inf")
    for attempt in range(4):
        point = random_point(corner=attempt % 2 == 1)
        for _ in range(steps):
            point = [x.detach().clamp(low, high).requires_grad_() for x, (low, high) in zip(point, ends, strict=True)]
            value = _value(gm, node, point)
            goal = value.max() if up else -value.min()
            if not goal.isfinite():
                return tuple(x.detach() for x in point)
            if goal.item() > best_goal:
                best, best_goal = point, goal.item()
            if not goal.requires_grad:
                break
            gradients = torch.autograd.grad(goal, point, allow_unused=True)
            point = [
                x if g is None else torch.where(g > 0, high, torch.where(g < 0, low, x))
                for x, g, (low, high) in zip(point, gradients, ends, strict=True)
            ]
    return tuple(x.detach() for x in best)


def _value(gm: fx.GraphModule, name: str, point: list[Tensor]) -> Tensor:
    """Return a node's value, without running the nodes after it."""
    env: dict[fx.Node, Any] = {}
    interpreter = fx.Interpreter(gm)
    interpreter.env, inputs = env, iter(point)
    for n in gm.graph.nodes:
        env[n] = next(inputs) if n.op == "placeholder" else interpreter.run_node(n)
        if n.name == name:
            return env[n]
    raise ValueError(f"The graph has no node {name!r}.")


def overflow(
    gm: fx.GraphModule, precision: Plan, inputs: Mapping[str, tuple[float, float]], seed: int = 0
) -> Overflow | None:
    """Search for inputs within their ranges on which a node overflows in its precision; None if the search fails.

    The search maximizes and minimizes each node in turn. None is not a proof.
    """
    for node in gm.graph.nodes:
        if node.op.startswith("call_") and precision.get(node.name, torch.float32) != torch.float32:
            for up in (True, False):
                try:
                    point = extremes(gm, inputs, node.name, seed, up=up)
                except (AttributeError, RuntimeError):  # the node's value is not a tensor
                    continue
                with torch.no_grad():
                    results = values(gm, precision, *point)
                for name, value in results.items():
                    if name in precision and isinstance(value, Tensor) and not value.isfinite().all():
                        return Overflow(name, point)
    return None
