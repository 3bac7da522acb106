"""What a pass declares to its manager, and the error that names the culprit. Day 2 writes the manager itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: An analysis reads a graph and returns facts about it; it never changes the graph.
Analysis = Callable[[Any], Any]


@dataclass(frozen=True)
class Pass:
    """A pass, with what a manager must know about it.

    `run(graph, facts)` returns the new graph; `facts` holds the results of the analyses named in `requires`, and of no
    others. `preserves` names the analyses whose results still hold after the pass; all others are stale. `after` names
    passes that must run before this one.

    >>> Pass("dce", run, requires=("liveness",), after=("fold",))
    """

    name: str
    run: Callable[[Any, dict[str, Any]], Any]
    requires: tuple[str, ...] = ()
    preserves: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class PassError(Exception):
    """The graph is broken, and this pass broke it. `culprit`: the pass's name; `reason`: one sentence."""

    def __init__(self, culprit: str, reason: str):
        super().__init__(f"{culprit}: {reason}")
        self.culprit, self.reason = culprit, reason
