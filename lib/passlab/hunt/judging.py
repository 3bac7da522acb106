"""Is a graph that somebody hands in a fault of a target? The graph and the target run where such graphs may run."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, fx

from passlab.fx.isolation import confined
from passlab.hunt.faults import widened
from passlab.hunt.search import failure, quiet
from passlab.hunt.targets import TARGETS


@confined
def tried(gm: fx.GraphModule, inputs: tuple[Tensor, ...], target: str) -> dict[str, Any]:
    """Run a target on a graph, in evaluation mode, once as it is ("own") and once with all its floats as float64
    ("exact"): for each, the kind and the sentence of the failure, or two empty texts. "error": why the graph itself
    does not run, or "". What rounding alone makes differ in float32 seldom differs in float64.
    """
    answer: dict[str, Any] = {"error": "", "own": ("", ""), "exact": ("", "")}
    with quiet():
        for name, widen in (("own", lambda x: x), ("exact", widened)):
            program = copy.deepcopy(gm).eval()._apply(widen)
            program.meta["inputs"] = tuple(widen(x) for x in inputs)
            try:
                answer[name] = failure(TARGETS[target], program) or ("", "")
            except Exception as error:  # of the graph itself: those of the target are failures
                answer["error"] = f"{type(error).__name__}: {str(error)[:200]}"
    return answer
