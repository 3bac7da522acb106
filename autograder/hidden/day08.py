"""Day 8: the cases that learners do not see, drawn from a seed. Generated modules, zoo models, traps made by hand."""

from __future__ import annotations

from collections.abc import Callable

from passlab.judge import Case

HIDDEN: dict[str, Callable[[int], list[Case]]] = {}
