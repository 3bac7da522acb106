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


def two_parts(rng: random.Random, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return layers of two parts that do not meet; in each layer 2 bits are exact for one of them."""
    one, other = (drawn_layers(rng, (3,) * count + (1,)) for _ in range(2))
    layers = []
    for (w, b), (v, c) in zip(one, other, strict=True):
        weights = [w, v]
        exact = rng.randrange(2)
        weights[exact] = weights[exact].sign() / 3
        layers.append((torch.block_diag(*weights), torch.cat([b, c])))
    return layers


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
        *searched(rng),
    ]


def searched(rng: random.Random) -> list[Case]:
    """Return cases that few drawn layers would decide."""
    count = rng.randint(4, 7)
    one = drawn_layers(rng, (count, 6))
    # whole numbers with a 7 in each row: 4 bits are exact, 8 are not
    whole = [(rows(rng, size), torch.zeros(size[0], dtype=torch.float64)) for size in ((5, count), (3, 5))]
    # behind the first layer with 2 bits, less than half of the range is left
    small = torch.tensor([[rng.uniform(0.35, 0.45) for _ in range(count)] for _ in range(4)], dtype=torch.float64)
    small[:, rng.randrange(count)] = 1.0
    first = small, torch.zeros(4, dtype=torch.float64)
    while True:
        shrunk = [first, *drawn_layers(rng, (4, 3))]
        budget = 0.995 * error_bound(shrunk, (2, 4), 0.0, 1.0)
        if fewest_bytes(shrunk, 0.0, 1.0, budget) > size(shrunk, (2, 4)):
            break
    # found by search: in the first, exchanging the bits of two layers is not enough; in the second, beginnings with as
    # many bytes differ in which output is off
    exchanged, parted = drawn_layers(random.Random(112), (3,) * 6), two_parts(random.Random(66), 4)
    return [
        plan_case("a budget that 4 bits just exceed", one, 0.998 * error_bound(one, (4,), -1.0, 1.0)),
        plan_case("exact with 4 bits, and not with 8", whole, 0.0),
        plan_case("a range that 2 bits make smaller", shrunk, budget, 0.0, 1.0),
        plan_case("five layers of one size", exchanged, 0.0278),
        plan_case("two parts that do not meet", parted, 0.567),
    ]


def rows(rng: random.Random, size: tuple[int, int]) -> torch.Tensor:
    """Return a weight of whole numbers from -7 to 7, with a 7 in each row."""
    weight = torch.tensor([[rng.randint(-7, 7) for _ in range(size[1])] for _ in range(size[0])], dtype=torch.float64)
    weight[:, rng.randrange(size[1])] = 7.0
    return weight


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
tolerant = edited("same", "lets the error be one hundredth over the budget")(
    ("final(at, e) > budget", "final(at, e) > 1.01 * budget")
)
monotone = edited("did", "takes for granted that more bits are always nearer")(
    (
        "for number, more, off in options:\n    search([*bits, number], size + more, w @ e + off @ (m + e))",
        "for number, more, off in reversed(options):\n"
        "    if final(at + 1, w @ e + off @ (m + e)) > budget:\n"
        "        break\n"
        "    search([*bits, number], size + more, w @ e + off @ (m + e))",
    )
)


@wrong("same", "takes the magnitudes from the network with fewer bits")
def magnitudes_of_plan(layers, low, high, budget):
    plans = [((), torch.zeros_like(layers[0][0][0]))]
    for at, (weight, _) in enumerate(layers):
        longer = []
        for bits, error in plans:
            before = [(quantized(w, b), bias) for (w, bias), b in zip(layers, bits, strict=False)]
            most = magnitudes([*before, layers[at]], low, high)[-1]
            for number in BITS:
                new = weight.abs().mv(error) + (quantized(weight, number) - weight).abs().mv(most + error)
                end = new
                for later, _ in layers[at + 1 :]:
                    end = later.abs().mv(end)
                if end.max() <= budget:
                    longer.append(((*bits, number), new))
        longer.sort(key=lambda plan: size(layers[: at + 1], plan[0]))
        plans = []
        for plan in longer:
            if not any((other[1] <= plan[1]).all() for other in plans):
                plans.append(plan)
    return list(plans[0][0])


@wrong("cost", "keeps of the beginnings with as many bytes the one whose largest error is least at the end")
def one_of_each_size(layers, low, high, budget):
    plans = {0: ((), torch.zeros_like(layers[0][0][0]), 0.0)}
    for at, ((weight, _), most) in enumerate(zip(layers, magnitudes(layers, low, high), strict=True)):
        longer = {}
        for nbytes, (bits, error, _) in plans.items():
            for number in BITS:
                new = weight.abs().mv(error) + (quantized(weight, number) - weight).abs().mv(most + error)
                end = new
                for later, _ in layers[at + 1 :]:
                    end = later.abs().mv(end)
                total, largest = nbytes + bytes_of(weight, number), float(end.max())
                if largest <= budget and (total not in longer or largest < longer[total][2]):
                    longer[total] = (*bits, number), new, largest
        plans = longer
    return list(plans[min(plans)][0])


@wrong("cost", "lowers and exchanges bits as long as one or two layers suffice for fewer bytes")
def exchanging(layers, low, high, budget):
    def bound(plan):
        return error_bound(layers, plan, low, high)

    def better(plan, count):
        """Return the plans with fewer bytes in which so many layers have other bits."""
        found = []
        for places in itertools.combinations(range(len(layers)), count):
            for bits in itertools.product(BITS, repeat=count):
                trial = list(plan)
                for at, number in zip(places, bits, strict=True):
                    trial[at] = number
                if size(layers, trial) < size(layers, plan) and bound(trial) <= budget:
                    found.append(trial)
        return found

    plan = [32] * len(layers)
    while trials := better(plan, 1) or better(plan, 2):
        nbytes, error = size(layers, plan), bound(plan)
        plan = max(trials, key=lambda trial: (nbytes - size(layers, trial)) / max(bound(trial) - error, 1e-30))
    return plan
