"""Pack the outcome of a case for its way from the worker to the verifier: a head (JSON data) and a value as bytes."""

from __future__ import annotations

import builtins
from typing import Any

from passlab.judge import Outcome

#: For an exception in a hidden case, the learner sees only the class name, and only that of a built-in class.
_OWN = {name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)}


def to_wire(outcome: Outcome) -> tuple[dict[str, Any], bytes]:
    """Return an outcome as head and payload. If its value cannot travel, the status is "refused", with the reason."""
    head = {
        "status": outcome.status,
        "error": outcome.error,
        "error_kind": outcome.error_kind,
        "printed": outcome.printed,
        "seconds": outcome.seconds,
        "in_place": outcome.in_place,
    }
    if outcome.status != "ok":
        return head, b""
    from autograder.engine import wire  # imports torch, which the engine's own process does without

    try:
        return head, wire.encode(outcome.value)
    except wire.Refused as refused:
        return head | {"status": "refused", "error": str(refused)}, b""
    except Exception as error:
        return head | {"status": "refused", "error": f"The value could not be read ({type(error).__name__})."}, b""


def failure(error: str, status: str = "died") -> dict[str, Any]:
    """Return the head for a case that produced no outcome."""
    return {"status": status, "error": error, "error_kind": "", "printed": 0, "seconds": 0.0, "in_place": False}


def plain(head: dict[str, Any]) -> dict[str, Any]:
    """Return a head from an untrusted one: known fields of the right types, with short, printable texts."""
    status = head.get("status")
    numbers = {name: head.get(name) for name in ("printed", "seconds")}
    return {
        "status": status if status in ("ok", "stub", "raised", "timeout", "refused", "missing") else "raised",
        "error": printable(head.get("error")),
        "error_kind": head.get("error_kind") if head.get("error_kind") in _OWN else "",
        "in_place": head.get("in_place") is True,
    } | {name: n if isinstance(n, int | float) and 0 <= n < 2**53 else 0 for name, n in numbers.items()}


def printable(text: Any, most: int = 400) -> str:
    """Return a learner's text as one line of at most `most` characters."""
    text = text if isinstance(text, str) else ""
    return "".join(ch if ch.isprintable() else " " for ch in text[:most])
