"""`make bench`, part fusion-cost: how often the cost model of day 4 chooses the faster side.

The exercise's kinds of choices, six times with drawn sizes, and others that it leaves out because they are close
or depend on something that the model has no term for. Both sides of a choice are built and timed in the same run; if
they differ by less than a factor of 1.2, either choice is right and it is not counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from autograder.bench.figures import Figure, apart, at_least

SEEDS = range(6)


def fusion_cost(largest: int) -> Iterator[Figure | str]:
    yield "to fuse or not: starting"
    yield from apart(figures)


def figures() -> Iterator[Figure | str]:
    from autograder.authoring.answers import reference
    from passlab.exercises.day04.cost import MACHINE, sides, situations

    model, right, clear = reference("day04.cost"), 0, []
    choices = [*(choice for seed in SEEDS for choice in situations(random.Random(seed))), *others()]
    choices = list(dict.fromkeys(choices))
    for choice in choices:
        gm = choice.graph()
        guess, both = model(gm, choice.named(gm), dict(MACHINE)), sides(choice)
        both.run()
        yield f"{choice.name}: {both.gain:.2f} times as fast fused, and {'fused' if guess else 'apart'} is chosen"
        if both.wrong(True) or both.wrong(False):
            clear.append(both.gain)
            right += not both.wrong(guess)
    wins = sum(gain > 1 for gain in clear)
    note = f"{right} of {len(clear)}; {len(choices) - len(clear)} of {len(choices)} choices too close to count"
    yield at_least("cost model: share of choices that are right", right / len(clear), 0.9, "", note)
    least = min(max(gain, 1 / gain) for gain in clear)
    note = f"fusing wins {wins} times, by {max(clear):.3g}x at most, and loses {len(clear) - wins} times"
    title = "sides of the choices that count: least and largest factor"
    yield Figure(title, f"{least:.3g}x, {max(max(gain, 1 / gain) for gain in clear):.3g}x", note)


def others() -> list[Any]:
    """Return choices that the exercise leaves out."""
    import torch

    from passlab.exercises.day04.cost import Situation, chain, to_two

    def dear(x):
        return torch.sigmoid(torch.erf(torch.exp(x)))

    def summed(x, y):
        return torch.sum((x * y + 1.0) * 0.5, -1, True)

    def epilogue(x, w):
        return torch.relu(torch.matmul(x, w) * 0.5 + 1.0)

    return [
        Situation("a chain of 5, from memory", chain(5), ((2**24,),)),
        to_two("a cheap chain that two read, from memory", 2**22),
        Situation("a chain of dear operations", dear, ((100_000,),)),
        Situation("relu of what a product reads", lambda x, w: torch.matmul(torch.relu(x), w), ((64, 64), (64, 256))),
        Situation("exp of what a small product reads", lambda x, w: torch.matmul(torch.exp(x), w), ((4, 4), (4, 4))),
        Situation("exp of a column", lambda column, x: torch.exp(column) + x, ((256, 1), (256, 300))),
        Situation("relu of a row", lambda row, x: torch.relu(row) + x, ((300,), (256, 300))),
        Situation("what a sum reads", summed, ((64, 1024), (64, 1024))),
        Situation("what follows a thick product", epilogue, ((128, 256), (256, 128))),
    ]
