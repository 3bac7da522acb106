"""Hidden cases and answers of day08.tuner.

Right answers are models that can bend; wrong ones learn nothing, or from the wrong numbers.
"""

from __future__ import annotations

import math
import random

import numpy as np

from autograder.authoring.answers import SEED_BITS, edited, plain, right, wrong
from passlab.exercises.day08.tuner import drawn_machine, plain_machine, tuner_case
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn() -> int:
        return rng.getrandbits(SEED_BITS)

    machines = [tuner_case(f"machine {i + 1}", drawn_machine(drawn()), drawn()) for i in range(5)]
    plain_ones = [tuner_case(f"plain: machine {i + 1}", plain_machine(drawn()), drawn()) for i in range(3)]
    return [*map(core, plain_ones), *machines]


EQUIVALENT = {
    ('y * y, candidate["depth"] == 0', "y * y"): "two choices make up for it: without it, both values are tried",
    (
        'candidate["depth"] == 0',
        'candidate["depth"] == 1',
    ): "two choices make up for it: without it, both values are tried",
    ('candidate["local"], *words', "*words"): "two choices make up for it: without it, both values are tried",
    ('candidate["depth"] == 0', 'candidate["depth"] != 0'): "another basis of the same features",
    ("1, x, y, x * x", "2, x, y, x * x"): "another basis of the same features",
    ("... == word", "... != word"): "another basis of the same features",
}


# ---------------------------------------------------------------------------------------------------- answers


def _left(candidates, history):
    measured = {index for index, _ in history}
    return [index for index in range(len(candidates)) if index not in measured]


def _words(c):
    return [c["depth"] == 0, c["local"], c["innermost"] == "columns", c["innermost"] == "rows"]


def _logarithms(c):
    return [math.log2(c["rows"]), math.log2(c["columns"]), *_words(c)]


def _bent(c):
    x, y, *words = _logarithms(c)
    return [x, y, x * x, y * y, x * y, *words]


def _fitted(candidates, history, k, features, ridge):
    """Fit ridge regression on features; return the k candidates that it predicts to be fastest."""
    points = np.array([[1, *features(c)] for c in candidates], float)
    known, y = points[[i for i, _ in history]], np.log([t for _, t in history])
    mean = y.mean()
    penalty = ridge * np.eye(points.shape[1])
    weights = np.linalg.solve(known.T @ known + penalty + 1e-9 * np.eye(len(penalty)), known.T @ (y - mean))
    predicted = points @ weights
    return sorted(_left(candidates, history), key=predicted.__getitem__)[:k]


@right("a Gaussian process: near candidates take similar times, and what is unknown may be good")
def gaussian_process(candidates, history, k):
    points = np.array([_bent(c) for c in candidates], float)
    points = (points - points.mean(0)) / points.std(0)
    measured = [i for i, _ in history]
    y = np.log([t for _, t in history])

    def kernel(a, b):
        return 1 + 3 * (a @ b.T) / a.shape[1]

    gram = kernel(points[measured], points[measured]) + 0.002 * np.eye(len(measured))
    across = kernel(points, points[measured])
    mean = y.mean() + across @ np.linalg.solve(gram, y - y.mean())
    return [int(i) for i in np.argsort(mean) if int(i) in set(_left(candidates, history))][:k]


@right("the average of many models, each of a random part of the measurements")
def bagging(candidates, history, k):
    rng, votes = random.Random(0), dict.fromkeys(_left(candidates, history), 0.0)
    for _ in range(15):
        part = rng.sample(history, len(history) - 1)
        points = np.array([[1, *_bent(c)] for c in candidates], float)
        known, y = points[[i for i, _ in part]], np.log([t for _, t in part])
        gram = known.T @ known + 0.03 * np.eye(points.shape[1])
        predicted = y.mean() + points @ np.linalg.solve(gram, known.T @ (y - y.mean()))
        for index in votes:
            votes[index] += predicted[index]
    return sorted(votes, key=votes.get)[:k]


@right("centred ridge regression with another strength")
def centred(candidates, history, k):
    return _fitted(candidates, history, k, _bent, ridge=0.01)


@plain("one factor for each doubling and each word: no tile in the middle is best")
def factors(candidates, history, k):
    rows = []
    for c in candidates:
        sizes = [math.log2(c["rows"]), math.log2(c["columns"])]
        words = [c["depth"] == 0, c["local"], c["innermost"] == "columns", c["innermost"] == "rows"]
        rows.append([1, *sizes, *words])
    points = np.array(rows, float)
    measured = [index for index, _ in history]
    times = np.log([seconds for _, seconds in history])
    predicted = points @ np.linalg.lstsq(points[measured], times)[0]
    left = [index for index in range(len(candidates)) if index not in measured]
    return sorted(left, key=predicted.__getitem__)[:k]


@wrong("did", "chooses at random: measuring is all that counts", core=True)
def at_random(candidates, history, k):
    return random.Random(len(history)).sample(_left(candidates, history), k)


@wrong("did", "knows which tile is good, on any machine: the history is not read")
def known_tile(candidates, history, k):
    def far(i):
        x, y, whole, local, columns, _ = _logarithms(candidates[i])
        return abs(x - 3) + abs(y - 5) - 2 * columns - whole - local

    return sorted(_left(candidates, history), key=far)[:k]


@wrong(
    "did", "the largest tiles first: they reuse most; or rows and columns alone decide, without the words", core=True
)
def largest(candidates, history, k):
    return sorted(_left(candidates, history), key=lambda i: -candidates[i]["rows"] * candidates[i]["columns"])[:k]


slowest_first = edited("did", "takes predicted time for a score and chooses the largest", core=True)(
    ("points @ weights", "-points @ weights")
)


@wrong("did", "the neighbours of the best one so far, and nothing that the others tell")
def neighbours(candidates, history, k):
    best = _logarithms(candidates[min(history, key=lambda trial: trial[1])[0]])
    return sorted(_left(candidates, history), key=lambda i: math.dist(_logarithms(candidates[i]), best))[:k]


@wrong("valid", "measures the best ones again")
def again(candidates, history, k):
    return [index for index, _ in sorted(history, key=lambda trial: trial[1])[:k]]


one_less = edited("valid", "one too few: the last measurement is kept for later")(("k", "k - 1"))
