"""Hidden cases and answers of day15.plan."""

from __future__ import annotations

import itertools
import random

import torch

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day15.plan import (
    Layers,
    budget_for,
    drawn_layers,
    error_bound,
    fewest_bytes,
    magnitudes,
    plan_case,
    run,
    size,
)
from passlab.given.day15.plan import BITS, bytes_of, quantized
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def sizes(count: int) -> list[int]:
        return [rng.randint(3, 9) for _ in range(count + 1)]

    def bits(count: int) -> list[int]:
        return [rng.choice([4, 8, 8]) for _ in range(count)]

    def drawn(name: str, count: int, low: float = -1.0, high: float = 1.0) -> Case:
        """A case in which neither plain greed nor 8 bits for all have the fewest bytes, nor a range that reaches 0."""
        while True:
            layers = drawn_layers(rng, sizes(count))
            budget = budget_for(layers, bits(count), low, high)
            least = fewest_bytes(layers, low, high, budget)
            unlike = size(layers, _greedy(layers, low, high, budget)) > least and size(layers, [8] * count) != least
            if unlike and (high >= 0 or fewest_bytes(layers, low, 0.0, budget) > least):
                return plan_case(name, layers, budget, low, high)

    def shifted(name: str, by: float) -> Case:
        layers = [(w, b + by) for w, b in drawn_layers(rng, sizes(3))]
        return plan_case(name, layers, budget_for(layers, (8, 4, 8)))

    exact = [(w.sign(), b) for w, b in drawn_layers(rng, sizes(3))]
    exact[1] = (drawn_layers(rng, (exact[1][0].shape[1], exact[1][0].shape[0]))[0][0], exact[1][1])
    empty = drawn_layers(rng, sizes(3))
    empty[1][0][0] = 0
    dead = drawn_layers(rng, (4, 6, 12, 3))
    dead[1][1].sub_(1000.0)
    long = drawn_layers(rng, sizes(8))
    narrow = drawn_layers(rng, (1, 9, 5))
    wide = drawn_layers(rng, (5, 9, 3))
    quiet = drawn_layers(rng, (5, 6, 4, 3))
    quiet[2][0].mul_(0.01)
    return [
        drawn("drawn, three layers", 3),
        drawn("drawn, four layers", 4),
        drawn("drawn, five layers", 5),
        plan_case("eight layers", long, budget_for(long, (8, 8, 4, 8, 4, 8, 4, 8))),
        drawn("positive inputs", 3, 0.5, 4.0),
        drawn("negative inputs", 3, -6.0, 0.5),
        shifted("large biases", 20.0),
        shifted("small values behind a relu", -0.8),
        plan_case("nothing behind a relu", dead, budget_for(dead, (8, 8, 2))),
        plan_case("weights that are exact", exact, 0.0),
        plan_case("an output without weights", empty, budget_for(empty, (8, 8, 4))),
        plan_case("errors that become small", quiet, budget_for(quiet, (4, 4, 8))),
        plan_case("a large budget", wide, 1e6),
        plan_case("one input, whose scales cost more than its bits save", narrow, 1e6),
        plan_case("one layer", wide[:1], budget_for(wide[:1], (4,))),
        drawn("inputs below 0", 3, -6.0, -5.0),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _greedy(layers: Layers, low: float, high: float, budget: float) -> list[int]:
    """Lower the bits of the largest layer first, as far as the budget allows."""
    plan = [32] * len(layers)
    for at in sorted(range(len(layers)), key=lambda at: -layers[at][0].numel()):
        for number in reversed(BITS):
            trial = [*plan[:at], number, *plan[at + 1 :]]
            if error_bound(layers, trial, low, high) <= budget and size(layers, trial) < size(layers, plan):
                plan = trial
    return plan


@right("keeps for each beginning only the plans that no other is better than")
def frontier(layers, low, high, budget):
    plans = [((), 0, torch.zeros_like(layers[0][0][0]))]
    for at, ((weight, _), most) in enumerate(zip(layers, magnitudes(layers, low, high), strict=True)):
        longer = []
        for bits, count, error in plans:
            for number in BITS:
                new = weight.abs().mv(error) + (quantized(weight, number) - weight).abs().mv(most + error)
                end = new
                for later, _ in layers[at + 1 :]:
                    end = later.abs().mv(end)
                if end.max() <= budget:
                    longer.append(((*bits, number), count + bytes_of(weight, number), new))
        longer.sort(key=lambda plan: plan[1])
        plans = []
        for plan in longer:
            if not any((other[2] <= plan[2]).all() for other in plans):
                plans.append(plan)
    return list(min(plans, key=lambda plan: plan[1])[0])


@right("from the last layer to the first: the cheapest plan that is found by bytes in ascending order")
def by_bytes(layers, low, high, budget):
    import heapq

    most, count = magnitudes(layers, low, high), len(layers)
    least = [sum(min(bytes_of(w, b) for b in BITS) for w, _ in layers[at:]) for at in range(count + 1)]
    heap, tie = [(least[0], 0, (), torch.zeros_like(most[0]))], itertools.count(1)
    while heap:
        total, _, bits, error = heapq.heappop(heap)
        at = len(bits)
        if at == count:
            return bits
        weight = layers[at][0]
        for number in BITS:
            new = weight.abs() @ error + (weight - quantized(weight, number)).abs() @ (most[at] + error)
            end = new
            for later, _ in layers[at + 1 :]:
                end = later.abs() @ end
            if float(end.max()) <= budget:
                estimate = total - least[at] + bytes_of(weight, number) + least[at + 1]
                heapq.heappush(heap, (estimate, next(tie), (*bits, number), new))
    return None


@wrong("cost", "lowers the bits of the largest layer first, as far as it can")
def greedy(layers, low, high, budget):
    return _greedy(layers, low, high, budget)


@wrong("did", "leaves everything as it is")
def floats(layers, low, high, budget):
    return [32] * len(layers)


@wrong("same", "measures the error on drawn inputs")
def measured(layers, low, high, budget):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(100, layers[0][0].shape[1], generator=generator, dtype=torch.float64) * (high - low) + low
    real = run(layers, x)
    for number in BITS:
        other = [(quantized(weight, number), bias) for weight, bias in layers]
        if (run(other, x) - real).abs().max() <= budget:
            return [number] * len(layers)
    return None


@wrong("did", "gives all layers the same bits")
def uniform(layers, low, high, budget):
    plans = [[number] * len(layers) for number in BITS]
    return next(plan for plan in plans if error_bound(layers, plan, low, high) <= budget)


not_own = edited("same", "forgets that a layer reads what is off already")(("w @ e + off @ (m + e)", "w @ e + off @ m"))
signs = edited("same", "lets errors cancel: multiplies by W in place of |W|")(
    ("(weight.abs(), m, options)", "(weight, m, options)")
)
to_zero = edited("cost", "lets inputs below 0 reach 0")(
    ("hi = torch.full_like(lo, high)", "hi = torch.full_like(lo, max(high, 0.0))")
)
no_low = edited("same", "takes the upper end for the largest magnitude")(
    ("torch.maximum(lo.abs(), hi.abs())", "hi.abs()")
)
no_relu = edited("cost", "forgets the relu between layers")(("(lo.relu(), hi.relu())", "(lo, hi)"))
no_bias = edited("same", "forgets the bias")(
    ("(up @ lo + down @ hi + bias, up @ hi + down @ lo + bias)", "(up @ lo + down @ hi, up @ hi + down @ lo)")
)
one_end = edited("same", "multiplies the ends by W as it is")(
    (
        "(up @ lo + down @ hi + bias, up @ hi + down @ lo + bias)",
        "((up + down) @ lo + bias, (up + down) @ hi + bias)",
    )
)


EQUIVALENT = {
    ("size + fewest(at) >= best_size", "size - fewest(at) >= best_size"): "more plans are tried, and the same is best",
}
no_scales = edited("cost", "counts the bits of weights, and forgets their scales")(
    (
        "(bits, bytes_of(weight, bits), (quantized(weight, bits) - weight).abs())",
        "(bits, weight.numel() * bits // 8, (quantized(weight, bits) - weight).abs())",
    )
)
