"""Day 2, the same pass in Relax: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Run the pass. Return its module, and the given one as the pass left it."""
    (module,) = case.build()
    return {"module": answer(module), "given": module}
