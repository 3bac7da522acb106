"""Day 15, a plan of bits within a budget of error: visible cases and judge."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from passlab.equivalence.seeds import own_seed
from passlab.given.day15.plan import BITS, bytes_of, quantized
from passlab.judge import Case, Finding, enough, shown
from passlab.judge.forms import why_not_a_list

#: A layer: its weight (outputs, inputs) and its bias.
Layers = Sequence[tuple[Tensor, Tensor]]
#: How many bytes a complete plan may have, relative to the fewest.
NEARLY = 1.25
#: Relative error of float64 sums that were added in another order.
ROUNDING = 1e-9
#: Rounds of the search for an input whose error is over the budget.
ROUNDS = 30


def drawn_layers(rng: random.Random, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return layers between values of these sizes; rows have different magnitudes."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return [(draw(n, m) * draw(n, 1).exp() / m**0.5, draw(n) * 0.3) for m, n in pairwise(sizes)]


def plan_case(
    name: str, layers: Layers, budget: float, low: float = -1.0, high: float = 1.0, about: tuple[str, ...] = ()
) -> Case:
    return Case(name, lambda: ([(w.clone(), b.clone()) for w, b in layers], low, high, budget), about)


def budget_for(layers: Layers, bits: Sequence[int], low: float = -1.0, high: float = 1.0) -> float:
    """Return a budget that a plan just keeps."""
    return float(f"{1.01 * error_bound(layers, bits, low, high):.3g}")


def cases() -> list[Case]:
    rng = random.Random(15)
    two, three, tied = (drawn_layers(rng, sizes) for sizes in ((6, 8, 3), (5, 12, 4, 3), (4, 6, 6, 2)))
    return [
        plan_case("two layers", two, budget_for(two, (4, 8))),
        plan_case("three layers", three, budget_for(three, (4, 8, 4))),
        plan_case("positive inputs", tied, budget_for(tied, (8, 8, 4), 0.0, 2.0), 0.0, 2.0),
        plan_case("no error", two, 0.0, about=("valid", "same", "cost")),
    ]


# ---------------------------------------------------------------------------------------------------- the bound


def magnitudes(layers: Layers, low: float, high: float) -> list[Tensor]:
    """Return what each layer reads, at most, in the float network."""
    lowest = torch.full((layers[0][0].shape[1],), low, dtype=torch.float64)
    highest, result = torch.full_like(lowest, high), []
    for weight, bias in layers:
        result.append(torch.maximum(lowest.abs(), highest.abs()))
        up, down = weight.clamp(min=0), weight.clamp(max=0)
        lowest, highest = (up @ a + down @ b + bias for a, b in ((lowest, highest), (highest, lowest)))
        lowest, highest = lowest.clamp(min=0), highest.clamp(min=0)
    return result


def error_bound(layers: Layers, bits: Sequence[int], low: float, high: float) -> float:
    """Return the error of a plan by the stated bound, at most, at any output."""
    error = torch.zeros(layers[0][0].shape[1], dtype=torch.float64)
    for (weight, _), number, most in zip(layers, bits, magnitudes(layers, low, high), strict=True):
        error = weight.abs() @ error + (quantized(weight, number) - weight).abs() @ (most + error)
    return float(error.max())


def size(layers: Layers, bits: Sequence[int]) -> int:
    return sum(bytes_of(weight, number) for (weight, _), number in zip(layers, bits, strict=True))


def fewest_bytes(layers: Layers, low: float, high: float, budget: float) -> int:
    """Return the fewest bytes of a plan within the budget: all plans, layer by layer, without those that are worse."""
    # e ≤ f in all elements and no more bytes: what can be made of the second plan can be made of the first
    plans = [(0, torch.zeros(layers[0][0].shape[1], dtype=torch.float64))]
    for at, ((weight, _), most) in enumerate(zip(layers, magnitudes(layers, low, high), strict=True)):
        off = {number: (quantized(weight, number) - weight).abs() for number in BITS}
        candidates = [
            (nbytes + bytes_of(weight, number), weight.abs() @ error + off[number] @ (most + error))
            for nbytes, error in plans
            for number in BITS
        ]
        plans = []
        for nbytes, error in sorted(candidates, key=lambda plan: (plan[0], float(plan[1].sum()))):
            rest = error
            for later, _ in layers[at + 1 :]:
                rest = later.abs() @ rest
            valid = float(rest.max()) <= budget * (1 + ROUNDING)
            if valid and not any(bool((other <= error).all()) for _, other in plans):
                plans.append((nbytes, error))
    return min(nbytes for nbytes, _ in plans)


def run(layers: Layers, x: Tensor) -> Tensor:
    for at, (weight, bias) in enumerate(layers):
        x = (x.relu() if at else x) @ weight.T + bias
    return x


def counterexample(layers: Layers, bits: Sequence[int], low: float, high: float, budget: float) -> Tensor | None:
    """Return an input in range whose error is over the budget, if a search finds one."""
    other = [(quantized(w, number), b) for (w, b), number in zip(layers, bits, strict=True)]
    generator = torch.Generator().manual_seed(own_seed(0))
    shape = 64, layers[0][0].shape[1]
    x = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    for _ in range(ROUNDS):
        error = (run(other, x) - run(layers, x)).abs().amax(1)
        order = error.argsort(descending=True)
        if error[order[0]] > budget:
            return x[order[0]]
        x = x[order[:8]].repeat(8, 1)
        ends = torch.rand(shape, generator=generator).round().double() * (high - low) + low
        x = torch.where(torch.rand(shape, generator=generator) < 0.2, ends, x)
    return None


# ---------------------------------------------------------------------------------------------------- the judge


def why_not_a_plan(value: Any, layers: Layers) -> str:
    if reason := why_not_a_list(value, "a list of bits, one for each layer", len(layers)):
        return reason
    wrong = [number for number in value if type(number) is not int or number not in BITS]
    return f"{shown(wrong[0])} is none of the bits {', '.join(map(str, BITS))}." if wrong else ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    layers, low, high, budget = case.build()
    broken = why_not_a_plan(value, layers)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    error = error_bound(layers, value, low, high)
    over = ""
    if error > budget * (1 + ROUNDING):
        over = f"With the bits {shown(list(value))} the error may be {error:.4g}; the budget is {budget:g}."
        x = counterexample(layers, value, low, high, budget)
        if x is not None:
            over += f" It is over the budget for x = {[round(v, 3) for v in x.tolist()]}."
    yield Finding("same", not over, over)
    if over:
        return
    nbytes, least = size(layers, value), fewest_bytes(layers, low, high, budget)
    message = f"The bits {shown(list(value))} are {nbytes} bytes; {enough(least)}."
    yield Finding("did", nbytes <= math.floor(NEARLY * least), message)
    yield Finding("cost", nbytes <= least, message)
