"""Day 2, a post-order visitor: how an answer runs on a case."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import fx

from passlab.given._plain import plain
from passlab.judge import Case


class _Again(BaseException):
    """Raised in a callback when a node is visited a second time; it ends the log, and with it an exponential walk."""


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Visit with callbacks that log their arguments and return the number of the visit (0, 1, 2, …).

    Callbacks of placeholders return None, which is a valid result, as 0 is: the node is still done.
    """
    graph, root, keys = case.build()
    log: list[tuple[str, Any, tuple]] = []
    visited: set[str] = set()

    def recorder(key: Any) -> Callable:
        def callback(node: fx.Node, *results: Any) -> int | None:
            log.append((node.name, spelled(key), plain(results, lists=False)))
            if node.name in visited:
                raise _Again
            visited.add(node.name)
            nonlocal deepest
            deepest = max(deepest, sys.getrecursionlimit())
            return None if key == "placeholder" else len(log) - 1

        return callback

    start = next(n for n in graph.nodes if n.name == root)
    deepest = limit = sys.getrecursionlimit()
    record: dict[str, Any] = {"log": log, "result": None, "too_deep": False}
    try:
        record["result"] = plain(answer(start, {key: recorder(key) for key in keys}), lists=False)
    except _Again:
        pass
    except RecursionError:
        record["too_deep"] = True
    record["raised_limit"] = max(deepest, sys.getrecursionlimit()) > limit
    sys.setrecursionlimit(limit)
    return record


def spelled(key: Any) -> str:
    return key if isinstance(key, str) else getattr(key, "__name__", str(key))
