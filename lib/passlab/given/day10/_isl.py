"""Shared parts of how an answer runs on the cases of day 10: isl objects travel as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import islpy as isl

from passlab.judge import Case
from passlab.polyhedral.schedules import cannot_read


def as_text(value: Any) -> Any:
    """Return the value with its isl objects as text, so that it can travel."""
    if type(value).__module__.split(".")[0] == "islpy":
        return str(value)
    if isinstance(value, dict):
        return {as_text(key): as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(as_text, value)) if type(value) in (list, tuple) else list(map(as_text, value))
    return value


def errors_in_words(call: Callable[[Callable, Case], Any]) -> Callable[[Callable, Case], Any]:
    """Let a `call` say isl's errors in words: the text that isl could not read, or the operation that failed."""

    @wraps(call)
    def telling(answer: Callable, case: Case) -> Any:
        try:
            return call(answer, case)
        except isl.Error as error:
            raise ValueError(_sentence(error)).with_traceback(error.__traceback__) from None

    return telling


def _sentence(error: isl.Error) -> str:
    named = re.search(r"isl_(\w+) failed: (.*?)(?: in /.*)?$", str(error))
    operation, reason = named.groups() if named else ("an operation", str(error))
    if not operation.endswith("read_from_str"):
        return f"isl cannot do {operation}: {reason}"
    frame = error.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    texts = [text for text in frame.tb_frame.f_locals.values() if isinstance(text, str) and "{" in text]
    unread = next((text for text in reversed(texts) if not _reads(text)), None)
    if unread is None:
        return f"isl cannot read the text of this {operation.removesuffix('_read_from_str')} ({reason}): print the text"
    return cannot_read(unread).rstrip(".")


def _reads(text: str) -> bool:
    for kind in (isl.UnionSet, isl.UnionMap):
        try:
            kind(text)
        except isl.Error:
            continue
        return True
    return False


def call_with(*kinds: str) -> Callable[[Callable, Case], Any]:
    """Return a `call` that turns the texts of a case into isl objects; kinds are names of isl's classes."""

    @errors_in_words
    def call(answer: Callable, case: Case) -> Any:
        return as_text(answer(*(getattr(isl, kind)(text) for kind, text in zip(kinds, case.build(), strict=True))))

    return call
