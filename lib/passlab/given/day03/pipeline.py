"""Day 3, the pipeline, to the fixpoint: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.fx.stages import STAGES
from passlab.judge import Case


def call(answer: Callable, case: Case) -> Any:
    gm, stages = case.build()
    return answer(gm, {name: STAGES[name] for name in stages})
