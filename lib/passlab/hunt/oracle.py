"""The oracle for passes over torch.fx: is what a pass returns a valid graph that computes the same?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import fx

from passlab.equivalence import equivalent
from passlab.equivalence.trials import DEFAULT
from passlab.fx.judge import why_not_valid

#: Constants of six digits are no fault: GELU's 0.7978846, say. So float64 is compared as float32 is.
TOLERANCE = 1e-5
#: Trials of `equivalent`, without those of low precision: at this tolerance they would see rounding only.
TRIALS = tuple(trial for trial in DEFAULT if trial != "half")


def why_wrong(apply: Callable[[fx.GraphModule], Any], gm: fx.GraphModule) -> str:
    """Return how a pass fails on a graph, in one sentence, or "".

    It fails if it raises an exception, or returns no valid graph, or one that is not `equivalent` to the graph. It gets
    a copy, so `gm` stays as it is. gm: has its example inputs in `meta["inputs"]`, or shapes on its placeholders.
    Raises ValueError if the graph itself does not run.
    """
    try:
        after = apply(copy.deepcopy(gm))
    except Exception as error:
        return f"The pass raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    why = why_not_valid(gm, after)
    if why:
        return why
    result = equivalent(gm, after, atol=TOLERANCE, rtol=TOLERANCE, trials=TRIALS)
    return "" if result else result.reason
