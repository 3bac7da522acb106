"""Day 9, patterns: the driver applies what an answer returns, since patterns are code, and only modules travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case
from passlab.mlir.rewriting import Endless, rewrite


def call(answer: Callable, case: Case) -> Any:
    """Return the case's module, rewritten by the answer's patterns, or the sentence of the driver that had to stop."""
    (module,) = case.build()
    patterns = answer()
    if not isinstance(patterns, list | tuple):
        return f"Return a list of patterns; the result is of type {type(patterns).__name__}."
    try:
        rewrite(module, patterns)
    except (Endless, TypeError) as error:
        if isinstance(error, TypeError) and "RewritePattern" not in str(error):
            raise
        return str(error)
    return module
