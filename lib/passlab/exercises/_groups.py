"""Cases of fused groups, for the exercises of days 4 and 7 that are compared with Relay's FuseOps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from passlab.judge import Case


def without_groups(case: Case) -> Case:
    """Return a case in which FuseOps joins nothing; can be a decorator above `@groups_case`.

    It is not about `did`, which an answer keeps there by leaving all apart without a look.
    """
    return replace(case, about=("valid", "spared"))


def drawn_case(case: Case, groups: Callable[..., Iterable[Collection[Any]]]) -> Case:
    """Return a case that was drawn: `without_groups` where none of the right `groups` of its input has two members."""
    return case if any(len(group) > 1 for group in groups(*case.build())) else without_groups(case)
