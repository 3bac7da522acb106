"""Hidden cases and answers of day06.predict."""

from __future__ import annotations

import math
import random

import numpy as np

from autograder.authoring.answers import right, wrong
from passlab.exercises.day06.predict import predicted
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    networks = {
        "resnets": ("resnet18", "resnet50", "residual"),
        "transformers": ("gpt", "vit", "attention"),
        "a mobile net": ("mobilenetv2",),
        "a u-net": ("unet", "skip"),
    }
    found = [predicted(name, rng.getrandbits(64), unseen) for name, unseen in networks.items()]
    return [*found, *(predicted(f"larger, number {k}", rng.getrandbits(64), (), beyond=True) for k in (1, 2))]


# ---------------------------------------------------------------------------------------------------- answers


def _bound(machine, row):
    return machine["launch"] + max(row["nbytes"] / machine["bandwidth"], row["flops"] / machine["flops"])


def _kinds(measured, unseen, fit):
    """Fit each kind of operator by itself: fit(rows) gives a function of a row."""
    kinds = {row["kind"] for row in unseen}
    made = {kind: fit([row for row in measured if row["kind"] == kind]) for kind in kinds}
    return [max(float(made[row["kind"]](row)), 1e-9) for row in unseen]


@right("three constants for each kind, by search: a start, a pace and a share, the slower of the two")
def by_search(machine, measured, unseen):
    from scipy.optimize import least_squares

    def fit(rows):
        flops, nbytes, times = (np.array([row[key] for row in rows]) for key in ("flops", "nbytes", "seconds"))

        def model(logs, flops, nbytes):
            start, move, compute = np.exp(logs)
            return start + np.maximum(nbytes * move, flops * compute)

        first = np.log([machine["launch"], 2 / machine["bandwidth"], 2 / machine["flops"]])
        tried = [first, *(first + np.array(step) for step in ([0, 1, 0], [0, 0, 2], [1, 0, 1]))]
        found = [
            least_squares(lambda p: np.log(model(p, flops, nbytes) / times), at, loss="soft_l1", f_scale=0.1)
            for at in tried
        ]
        best = min(found, key=lambda r: r.cost).x
        return lambda row: model(best, row["flops"], row["nbytes"])

    return _kinds(measured, unseen, fit)


@right(
    "a line for each kind, fitted to relative errors, on the quotients; twice, the second time without what is far off"
)
def lines_of_kinds(machine, measured, unseen):
    def fit(rows):
        a = np.array([[1, row["nbytes"], row["flops"]] for row in rows]) / np.array([[row["seconds"]] for row in rows])
        size = np.abs(a).max(0) + 1e-30
        kept = np.ones(len(a), bool)
        for _ in range(2):
            from scipy.optimize import nnls

            found = nnls(a[kept] / size, np.ones(kept.sum()))[0] / size
            off = np.abs(a @ found - 1)
            kept = off <= max(np.quantile(off, 0.9), 1e-9)
        return lambda row: found @ [1, row["nbytes"], row["flops"]]

    return _kinds(measured, unseen, fit)


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
    found = np.linalg.lstsq(a / a.max(0), np.array([row["seconds"] for row in measured]), rcond=None)[0] / a.max(0)
    return [max(float(found @ [1, row["nbytes"], row["flops"]]), 1e-9) for row in unseen]


@wrong("cost", "counts operations only")
def by_flops(machine, measured, unseen):
    factor = float(np.median([row["seconds"] / row["flops"] for row in measured]))
    return [factor * row["flops"] for row in unseen]


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
