"""Day 3, graph-level optimizations: its exercises. Cases and laws, which need torch, are in modules beside this one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from passlab.judge import Exercise


def _later(module: str, name: str) -> Callable:
    """The function `name` of `cases_day03<module>`, imported when it is first called."""

    def function(*args: Any) -> Any:
        return getattr(importlib.import_module(f"passlab.exercises.cases_day03{module}"), name)(*args)

    return function


EXERCISES = (
    Exercise(
        id="day03.constant-folding",
        title="Constant folding",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=15,
        hints=("a", "b", "c"),
        cases=_later("_classics", "fold_cases"),
        judge=_later("", "judge"),
    ),
    Exercise(
        id="day03.dce",
        title="Dead code elimination",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3},
        difficulty=2,
        minutes=10,
        hints=("a", "b", "c"),
        cases=_later("_classics", "dce_cases"),
        judge=_later("", "judge"),
    ),
    Exercise(
        id="day03.cse",
        title="Common subexpression elimination",
        points={"valid": 1, "same": 2, "did": 3, "spared": 4},
        difficulty=3,
        minutes=15,
        hints=("a", "b", "c"),
        cases=_later("_classics", "cse_cases"),
        judge=_later("", "judge"),
    ),
    Exercise(
        id="day03.simplify",
        title="Algebraic simplification",
        points={"valid": 1, "same": 3, "did": 4, "spared": 4},
        difficulty=4,
        minutes=20,
        hints=("a", "b", "c"),
        cases=_later("_classics", "simplify_cases"),
        judge=_later("", "judge"),
    ),
    Exercise(
        id="day03.pipeline",
        title="The pipeline, to the fixpoint",
        points={"valid": 1, "same": 1, "did": 3, "cost": 3},
        difficulty=3,
        minutes=15,
        hints=("a", "b", "c"),
        cases=_later("_pipelines", "pipeline_cases"),
        judge=_later("_pipelines", "judge_pipeline"),
        call=_later("_pipelines", "call_pipeline"),
    ),
    Exercise(
        id="day03.gelu",
        title="A GELU matcher",
        points={"valid": 1, "same": 1, "did": 3, "spared": 3, "cost": 1},
        difficulty=4,
        minutes=20,
        hints=("a", "b", "c"),
        cases=_later("_rewrites", "gelu_cases"),
        judge=_later("", "judge"),
    ),
    Exercise(
        id="day03.channels-last",
        title="Channels last, with the fewest conversions",
        points={"valid": 1, "same": 1, "did": 2, "spared": 2, "cost": 4},
        difficulty=5,
        minutes=25,
        hints=("a", "b", "c"),
        cases=_later("_rewrites", "layout_cases"),
        judge=_later("_rewrites", "judge_layout"),
    ),
    Exercise(
        id="day03.shrinking",
        title="A program that shrinks at every stage",
        points={"valid": 1, "same": 1, "did": 5, "cost": 1},
        difficulty=4,
        minutes=20,
        hints=("a", "b", "c"),
        cases=_later("_pipelines", "shrinking_cases"),
        judge=_later("_pipelines", "judge_shrinking"),
    ),
)
