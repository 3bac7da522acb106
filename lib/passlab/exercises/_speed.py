"""How fast a module is, for the exercises of several days that give points for speed.

No number that an answer reports counts. The judge builds the module in another process, with what it is compared with,
and runs them by turns on inputs that are drawn when it is judged and never twice the same, into fresh buffers; the
outputs of every timed run are compared. What counts is CPU time, of all threads together: other programs do not add to
it, and more cores do not shorten it. They do empty the caches, though, from which a short run suffers more than a long
one. So each module's time is that of its shortest run, which was disturbed least ("Robust benchmarking in noisy
environments", Chen and Revels, 2016).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from passlab.building.requests import Built

#: How often a module is built and timed at most, on a quiet and on a busy machine, and how many runs each time.
LOOKS, BUSY_LOOKS, RUNS = 3, 6, 16
#: One look is enough on a quiet machine where a ratio has not reached this share of what is required.
HOPELESS = 0.5
#: A machine is busy while a quarter of a module's runs take this many times as long as its shortest.
BUSY = 1.3


class Pace(NamedTuple):
    """A build, what is wrong with its outputs ("" if nothing), and the seconds of its shortest run.

    `ratios`: how many times as fast it is as each module beside it.
    """

    built: Built
    wrong: str
    seconds: float = 0.0
    ratios: tuple[float, ...] = ()


def drawn(shapes: Sequence[Sequence[int]], runs: int = RUNS, seed: int | None = None) -> list[tuple[np.ndarray, ...]]:
    """Return float32 inputs for a number of runs. Without a seed they are drawn from the system's entropy."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.standard_normal(shape, np.float32) for shape in shapes) for _ in range(runs)]


def first_wrong(built: Built, inputs: Sequence[tuple], difference: Callable[[list, tuple], str | None]) -> str:
    """Return what is wrong with a build: its error, or what `difference` says of the outputs of a run, or ""."""
    pairs = zip(built.outputs, inputs, strict=not built.error)
    return built.error or next(filter(None, (difference(outputs, values) for outputs, values in pairs)), "")


def pace(look: Callable[[], tuple[Built, str]], required: Sequence[float]) -> Pace:
    """Return how fast a module is beside others.

    look(): build and time the module (`builds.run_module(timed=True, beside=…)`), and compare all outputs. required:
    the least ratio for each module beside it. While all is right and a ratio is a little too small, or the runs of one
    module differ as on a busy machine, look again; the shortest runs of all looks count.
    """
    own, others, quiet = math.inf, [math.inf] * len(required), 0
    for _ in range(BUSY_LOOKS):
        built, wrong = look()
        if wrong:
            return Pace(built, wrong)
        own = min(own, *built.times)
        others = [min(other, *beside.times) for other, beside in zip(others, built.beside, strict=True)]
        ratios = tuple(other / max(own, 1e-9) for other in others)
        share = min(ratio / least for ratio, least in zip(ratios, required, strict=True))
        quiet += not any(_busy(runs.times) for runs in (built, *built.beside))
        if share >= 1 or quiet >= (1 if share < HOPELESS else LOOKS):
            break
    return Pace(built, "", own, ratios)


def _busy(times: Sequence[float]) -> bool:
    """Return whether the times of a module's runs differ as they do while other programs share its core."""
    return len(times) > 3 and statistics.quantiles(times)[2] > BUSY * min(times)
