"""Hidden cases and answers of day06.predict."""

from __future__ import annotations

import math
import random

import numpy as np

from autograder.authoring.answers import right, wrong
from passlab.dataflow.predict import score
from passlab.exercises.day06.predict import BEYOND, ERROR, predicted
from passlab.judge import Case

#: How near lines come on the machines of hidden cases: their error as a share of the limit, and their rank.
NEAR, ORDERED = 0.7, 0.94


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    networks = {
        "resnets": ("resnet18", "resnet50", "residual"),
        "transformers": ("gpt", "vit", "attention"),
        "a mobile net": ("mobilenetv2",),
        "a u-net": ("unet", "skip"),
    }
    cases = [_drawn(name, rng, unseen) for name, unseen in networks.items()]
    cases += [_drawn(f"larger, number {k}", rng, ()) for k in (1, 2)]
    last = random.Random(f"{seed}, one feature")
    return [
        *cases,
        _drawn("a transformer, where bytes count", last, ("gpt",), "flops"),
        _drawn("larger, where operations count", last, (), "nbytes"),
    ]


def _drawn(name: str, rng: random.Random, unseen: tuple[str, ...], alone: str = "") -> Case:
    """Return a case on a machine where lines of operations and bytes are near, and those of `alone` are far off."""
    limit = ERROR if unseen else BEYOND
    while True:
        case = predicted(name, rng.getrandbits(64), unseen, beyond=not unseen)
        arguments = case.build()
        if alone and score(_lines(*arguments, (alone,)), case.expect).error < 1.4 * limit:
            continue
        scores = [score(_lines(*arguments, ("nbytes", "flops"), rounds), case.expect) for rounds in (1, 2)]
        near = max(s.error for s in scores) < NEAR * limit
        if near and (not unseen or min(s.rank for s in scores) > ORDERED):
            return case


# ---------------------------------------------------------------------------------------------------- answers


def _bound(machine, row):
    return machine["launch"] + max(row["nbytes"] / machine["bandwidth"], row["flops"] / machine["flops"])


def _kinds(measured, unseen, fit):
    """Fit each kind of operator by itself: fit(rows) gives a function of a row."""
    kinds = {row["kind"] for row in unseen}
    models = {kind: fit([row for row in measured if row["kind"] == kind]) for kind in kinds}
    return [max(float(models[row["kind"]](row)), 1e-9) for row in unseen]


def _lines(machine, measured, unseen, features, rounds=2):
    def fit(rows):
        a = np.array([[1, *(row[key] for key in features)] for row in rows]) / np.array(
            [[row["seconds"]] for row in rows]
        )
        size = np.abs(a).max(0) + 1e-30
        near = np.ones(len(a), bool)
        for _ in range(rounds):
            from scipy.optimize import nnls

            weights = nnls(a[near] / size, np.ones(near.sum()))[0] / size
            off = np.abs(a @ weights - 1)
            near = off <= max(np.quantile(off, 0.9), 1e-9)
        return lambda row: weights @ [1, *(row[key] for key in features)]

    return _kinds(measured, unseen, fit)


@right("three constants for each kind, by search: a start, a pace and a share, the slower of the two")
def by_search(machine, measured, unseen):
    from scipy.optimize import least_squares

    def fit(rows):
        flops, nbytes, times = (np.array([row[key] for row in rows]) for key in ("flops", "nbytes", "seconds"))

        def model(logs, flops, nbytes):
            start, move, compute = np.exp(logs)
            return start + np.maximum(nbytes * move, flops * compute)

        first = np.log([machine["launch"], 2 / machine["bandwidth"], 2 / machine["flops"]])
        starts = [first, *(first + np.array(step) for step in ([0, 1, 0], [0, 0, 2], [1, 0, 1]))]
        fits = [
            least_squares(lambda p: np.log(model(p, flops, nbytes) / times), at, loss="soft_l1", f_scale=0.1)
            for at in starts
        ]
        best = min(fits, key=lambda r: r.cost).x
        return lambda row: model(best, row["flops"], row["nbytes"])

    return _kinds(measured, unseen, fit)


@right(
    "a line for each kind, fitted to relative errors, on the quotients; twice, the second time without what is far off"
)
def lines_of_kinds(machine, measured, unseen):
    return _lines(machine, measured, unseen, ("nbytes", "flops"))


@wrong("did", "predicts the median for all, or fits operations per second")
def median(machine, measured, unseen):
    return [float(np.median([row["seconds"] for row in measured]))] * len(unseen)


@wrong("cost", "the roofline, unfitted")
def roofline_alone(machine, measured, unseen):
    return [_bound(machine, row) for row in unseen]


@wrong("cost", "one factor for the roofline, whatever the kind")
def one_factor(machine, measured, unseen):
    factor = float(np.median([row["seconds"] / _bound(machine, row) for row in measured]))
    return [factor * _bound(machine, row) for row in unseen]


@wrong("cost", "one line through all kinds, fitted to squared seconds: the largest operators decide")
def one_line(machine, measured, unseen):
    a = np.array([[1, row["nbytes"], row["flops"]] for row in measured])
    weights = np.linalg.lstsq(a / a.max(0), np.array([row["seconds"] for row in measured]), rcond=None)[0] / a.max(0)
    return [max(float(weights @ [1, row["nbytes"], row["flops"]]), 1e-9) for row in unseen]


@wrong("cost", "counts operations only")
def by_flops(machine, measured, unseen):
    factor = float(np.median([row["seconds"] / row["flops"] for row in measured]))
    return [factor * row["flops"] for row in unseen]


@wrong("cost", "a line for each kind in operations alone")
def lines_of_flops(machine, measured, unseen):
    return _lines(machine, measured, unseen, ("flops",))


@wrong("spared", "a line for each kind in bytes alone")
def lines_of_bytes(machine, measured, unseen):
    return _lines(machine, measured, unseen, ("nbytes",))


@wrong("spared", "asks measured operators of the same kind, or trees: nothing is larger than the largest")
def nearest(machine, measured, unseen):
    def place(row):
        return np.log([row["flops"], row["nbytes"]])

    def fit(rows):
        places, times = np.array([place(row) for row in rows]), [row["seconds"] for row in rows]
        return lambda row: times[int(np.abs(places - place(row)).sum(1).argmin())]

    return _kinds(measured, unseen, fit)


@wrong("valid", "returns logarithms of seconds")
def logarithms(machine, measured, unseen):
    return [math.log(_bound(machine, row)) for row in unseen]
