"""How fast a module is, for the exercises of several days that give points for speed.

No number that an answer reports counts. The judge builds the module in another process, runs it on inputs that are
drawn when it is judged and never twice the same, into fresh buffers, and compares the outputs of every timed run. What
counts is CPU time, of all threads together: other programs do not add to it, and more cores do not shorten it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from passlab.tvm.builds import Built

#: How often a module is built and timed at most, and how many runs each time. A long pause of the machine itself,
#: which the guest of a hypervisor takes for its own work, falls within one of them, and so do neighbours on its cores.
LOOKS, RUNS = 4, 16
#: Two looks are enough where both take more than so many times the seconds that are enough.
HOPELESS = 4.0


def drawn(shapes: Sequence[Sequence[int]], runs: int = RUNS, seed: int | None = None) -> list[tuple[np.ndarray, ...]]:
    """Return float32 inputs for so many runs. Without a seed, nobody can know them: the system's entropy is theirs."""
    rng = np.random.default_rng(seed)
    return [tuple(rng.standard_normal(shape, np.float32) for shape in shapes) for _ in range(runs)]


def first_wrong(built: Built, given: Sequence[tuple], difference: Callable[[list, tuple], str | None]) -> str:
    """Return what is wrong with a build: its error, or what `difference` says of the outputs of a run, or ""."""
    pairs = zip(built.outputs, given, strict=not built.error)
    return built.error or next(filter(None, (difference(outputs, values) for outputs, values in pairs)), "")


def fastest(look: Callable[[], tuple[Built, str]], enough: float) -> tuple[Built, str, float]:
    """Return a build, what is wrong with its outputs ("" if nothing), and its seconds: the median of its runs.

    The least would be wrong: now and then a machine's clock stands still for the length of a run. look(): build the
    module, time it, and compare all outputs. It is called again while the module is right, but takes more than `enough`
    seconds, twice only where it is far from it (`HOPELESS`); then the best median counts.
    """
    least = math.inf
    for again in range(LOOKS):
        built, wrong = look()
        if wrong:
            return built, wrong, math.inf
        least = min(least, statistics.median(built.times))
        if least <= enough or (again and least > HOPELESS * enough):
            break
    return built, "", least
