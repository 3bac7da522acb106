"""Day 10, the same order in TVM: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import islpy as isl

from passlab.given.day10._isl import errors_in_words
from passlab.judge import Case


@errors_in_words
def call(answer: Callable, case: Case) -> Any:
    """Call the answer with the loops as written and the schedule. Its result travels as a module."""
    from passlab.relax import tvm

    module, schedule = case.build()
    function = answer(module["main"], isl.Map(schedule))
    return tvm.IRModule({"main": function}) if isinstance(function, tvm.tirx.PrimFunc) else function
