"""Day 1, count nodes by kind: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Ask the answer. Return what it says, and whether the graph has changed."""
    (gm,) = case.build()
    text = str(gm.graph)
    value = answer(gm)
    return {"value": value, "changed": str(gm.graph) != text}
