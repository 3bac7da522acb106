"""Day 7, what runs at which level: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.given.day07._shared import plain
from passlab.judge import Case


def call(answer: Callable, case: Case) -> Any:
    table = answer(*case.build())
    return {plain(name): levels for name, levels in table.items()} if isinstance(table, dict) else table
