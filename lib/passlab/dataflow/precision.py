"""A safe mixed-precision plan: which nodes may run in float16 without overflow, and a search for inputs that break one.

    found = plan(gm, {"x": (-1.0, 1.0)})         # node → torch.float16 or torch.float32
    run(gm, found, x)                            # executes it: casts where two precisions meet
    overflow(gm, dict.fromkeys(found, torch.float16), {"x": (-1.0, 1.0)})  # inputs on which all-half overflows, or None

float16 ends at 65504, so a node is safe in it if its range stays below that, and the partial sums of its products,
too: hardware that accumulates in float16 holds them (P. Micikevicius et al., Mixed Precision Training, ICLR 2018).
bfloat16 has float32's exponents and cannot overflow where float32 does not; what it lacks is digits.

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
    """Return the precision of every call: `half` where no input in the ranges can overflow it, else float32.

    The ranges allow for every result being rounded to `half`, so the plan is safe whatever runs in half before a node.
    A node is safe if its operands fit, too: they are cast to half.
    """
    found, most = ranges(gm, inputs, UNIT[half]), torch.finfo(half).max
    fits = {name: max(r.largest, r.partial) <= most for name, r in found.items()}
    calls = [n for n in gm.graph.nodes if n.op.startswith("call_") and n.name in found]
    return {
        n.name: half if fits[n.name] and all(fits.get(o.name, True) for o in n.all_input_nodes) else torch.float32
        for n in calls
    }


class _Mixed(fx.Interpreter):
    """Run each call in its own precision."""

    def __init__(self, gm: fx.GraphModule, precision: Plan):
        super().__init__(gm)
        self.precision, self.seen = precision, {}

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
        self.seen[n.name] = result
        return result


def values(gm: fx.GraphModule, precision: Plan, *inputs: Tensor) -> dict[str, Any]:
    """Run a graph with each call in its precision and return every node's value, as it came."""
    mixed = _Mixed(gm, precision)
    mixed.run(*inputs)
    return mixed.seen


def run(gm: fx.GraphModule, precision: Plan, *inputs: Tensor) -> Any:
    """Run a graph with each call in its precision, and return its result in float32."""
    with torch.no_grad():
        return _Mixed(gm, precision).run(*inputs)


# ---------------------------------------------------------------------------------------------------- the search


@dataclass(frozen=True)
class Overflow:
    """Inputs in the stated ranges with which a node's result is infinite or not a number."""

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
    """Return inputs in their ranges that make an element of a node as large (or as small) as a search finds.

    From random corners, each step moves to the corner to which the gradient's signs point (as in I. Goodfellow et al.,
    Explaining and Harnessing Adversarial Examples, ICLR 2015). It is a search: it can miss the extreme.
    """
    rng = torch.Generator().manual_seed(seed % 2**64)
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    ends = [inputs[n.target] for n in places]
    shapes = [tuple(n.meta["tensor_meta"].shape) for n in places]

    def corner() -> list[Tensor]:
        return [
            torch.where(torch.rand(s, generator=rng) < 0.5, low, high)
            for s, (low, high) in zip(shapes, ends, strict=True)
        ]

    def middle() -> list[Tensor]:
        return [low + (high - low) * torch.rand(s, generator=rng) for s, (low, high) in zip(shapes, ends, strict=True)]

    best, reached = corner(), -float("inf")
    for attempt in range(4):
        at = corner() if attempt % 2 else middle()
        for _ in range(steps):
            at = [x.detach().clamp(low, high).requires_grad_() for x, (low, high) in zip(at, ends, strict=True)]
            seen = _value(gm, node, at)
            goal = seen.max() if up else -seen.min()
            if not goal.isfinite():
                return tuple(x.detach() for x in at)
            if goal.item() > reached:
                best, reached = at, goal.item()
            if not goal.requires_grad:
                break
            pulls = torch.autograd.grad(goal, at, allow_unused=True)
            at = [
                x if g is None else torch.where(g > 0, high, torch.where(g < 0, low, x))
                for x, g, (low, high) in zip(at, pulls, ends, strict=True)
            ]
    return tuple(x.detach() for x in best)


def _value(gm: fx.GraphModule, name: str, at: list[Tensor]) -> Tensor:
    """Return a node's value, without running what comes after it."""
    env: dict[fx.Node, Any] = {}
    interpreter = fx.Interpreter(gm)
    interpreter.env, given = env, iter(at)
    for n in gm.graph.nodes:
        env[n] = next(given) if n.op == "placeholder" else interpreter.run_node(n)
        if n.name == name:
            return env[n]
    raise ValueError(f"The graph has no node {name!r}.")


def overflow(
    gm: fx.GraphModule, precision: Plan, inputs: Mapping[str, tuple[float, float]], seed: int = 0
) -> Overflow | None:
    """Search for inputs in their ranges with which a node overflows as planned; None if the search finds none.

    It drives each node, from the first on, up and down as far as it can. None does not prove that there are none.
    """
    for node in gm.graph.nodes:
        if node.op.startswith("call_") and precision.get(node.name, torch.float32) != torch.float32:
            for up in (True, False):
                try:
                    found = extremes(gm, inputs, node.name, seed, up=up)
                except (AttributeError, RuntimeError):  # a node whose value is no tensor
                    continue
                with torch.no_grad():
                    seen = values(gm, precision, *found)
                for name, value in seen.items():
                    if name in precision and isinstance(value, Tensor) and not value.isfinite().all():
                        return Overflow(name, found)
    return None
