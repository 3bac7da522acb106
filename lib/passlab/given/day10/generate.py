"""Day 10, from a schedule to a loop nest: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab import polyhedral
from passlab.given.day10._isl import errors_in_words
from passlab.judge import Case
from passlab.polyhedral import tensor_ir


@errors_in_words
def call(answer: Callable, case: Case) -> Any:
    """Call the answer with isl's AST of the case, and make a function from the statement that it returns."""
    from passlab.relax import tvm

    source, schedule, sizes = case.build()
    program = polyhedral.parse(source)
    statement, function = tensor_ir.by_hand(program, sizes)
    body = answer(polyhedral.ast(program, schedule, sizes), statement)
    return tvm.IRModule({"main": function(body)}) if isinstance(body, tvm.tirx.Stmt) else body
