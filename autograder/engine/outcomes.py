"""Pack the outcome of a case for its way from the worker to the verifier: a head (JSON data) and a value as bytes."""

from __future__ import annotations

from typing import Any

from autograder.engine import messages
from passlab.judge import Outcome


def to_wire(outcome: Outcome) -> tuple[dict[str, Any], bytes]:
    """Return an outcome as head and payload. If its value cannot travel, the status is "refused", with the reason."""
    head = {
        "status": outcome.status,
        "error": _words(outcome.error),
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
        return head | {"status": "refused", "error": _words(str(refused))}, b""
    except Exception as error:
        return head | {"status": "refused", "error": f"The value could not be read ({type(error).__name__})."}, b""


def failure(error: str, status: str = "died") -> dict[str, Any]:
    """Return the head for a case that produced no outcome."""
    return {"status": status, "error": error, "printed": 0, "seconds": 0.0, "in_place": False}


def plain(outcome: messages.Outcome) -> dict[str, Any]:
    """Return the head for an outcome that a worker sent."""
    return {
        "status": "raised" if outcome.status == "died" else outcome.status,  # that is for the engine to say
        "error": printable(outcome.error),
        "printed": outcome.printed,
        "seconds": outcome.seconds,
        "in_place": outcome.in_place,
    }


def _words(text: str) -> str:
    """Return the beginning of a text, without lone surrogates, which no message can hold."""
    return text[:2_000].encode("utf-8", "replace").decode()


def printable(text: Any, most: int = 400) -> str:
    """Return a learner's text as one line of at most `most` characters."""
    text = text if isinstance(text, str) else ""
    return "".join(ch if ch.isprintable() else " " for ch in text[:most])
