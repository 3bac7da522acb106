"""Day 7, what a pipeline leaves: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from passlab import models
from passlab.exercises.day07._shared import block, ladder
from passlab.given.day07.pipeline_counts import LIBRARIES
from passlab.judge import Case, Finding, as_decorator
from passlab.judge.forms import excerpt, why_not_of_type
from passlab.judge.words import plural, times
from passlab.relay import relay, tvm
from passlab.relay.cases import number, program, tuple_of
from passlab.relay.folding import build_once
from passlab.tvm.importers import relay_module
from passlab.tvm.judge import counts


@cache
def _imported(name: str, bind: bool) -> tvm.IRModule:
    zoo = models.ZOO[name]
    module = relay_module(zoo.build(), *zoo.inputs(), bind=bind)
    return module if bind else module[0]


def zoo(name: str, bind: bool = False, simplified: bool = False) -> Callable[[], tvm.IRModule]:
    """Return a model of the zoo; without `bind` its parameters are inputs of main.

    simplified: after SimplifyInference.
    """

    def build() -> tvm.IRModule:
        module = tvm.IRModule(_imported(name, bind).functions)  # functions are never edited, modules may be
        return relay.transform.SimplifyInference()(module) if simplified else relay.transform.InferType()(module)

    return build


def table(module: tvm.IRModule, passes: list[str]) -> list[Counter]:
    """Return the right answer."""
    rows = [counts(module)]
    # FoldScaleAxis is two passes in a row, and each requires level 3
    with tvm.transform.PassContext(opt_level=4), build_once(LIBRARIES):
        for name in passes:
            module = getattr(relay.transform, name)()(module)
            rows.append(counts(module))
    return rows


@as_decorator
def counts_case(name: str, build: Callable[[], tvm.IRModule], *passes: str, about: str = "did") -> Case:
    return Case(name, lambda: (build(), list(passes)), ("valid", about), expect=cache(lambda: table(build(), passes)))


def _why_not_a_table(value: Any, rows: int) -> str:
    """Return why `value` is not a table of that many rows."""
    if reason := why_not_of_type(value, "a list of dictionaries", list):
        return reason
    for at, row in enumerate(value):
        if not isinstance(row, dict):
            return f"Row {at} must be a dictionary from operator to number of calls; it is {excerpt(row)}."
        for op, count in row.items():
            if not isinstance(op, str) or isinstance(count, bool) or not isinstance(count, int):
                return f"Row {at} holds {op!r}: {count!r}; keys must be names of operators and values ints."
    if len(value) != rows:
        own = plural(len(value), "row")
        return f"The table has {own}; expected {rows}: one before the first pass and one after each pass."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    module, passes = case.build()
    wrong = _why_not_a_table(value, len(passes) + 1)
    yield Finding("valid", not wrong, wrong)
    if wrong:
        return
    for verdict in case.about:
        if verdict != "valid":
            sentence = _difference(value, case.expect(), passes)
            yield Finding(verdict, sentence is None, sentence or "", before=module)


def _difference(value: list[dict], right: list[Counter], passes: list[str]) -> str | None:
    for at, (entry, expected) in enumerate(zip(value, right, strict=True)):
        row = {op: count for op, count in entry.items() if count}
        if row == expected:
            continue
        when = f"After {', '.join(passes[:at])}" if at else "Before the first pass"
        op = min(op for op in row.keys() | expected.keys() if row.get(op, 0) != expected[op])
        return f"{when}, {op} is called {times(expected[op])}; your table says {times(row.get(op, 0))}."
    return None


def twins(x: relay.Var) -> relay.Expr:
    return relay.exp(relay.nn.relu(x)) + relay.exp(relay.nn.relu(x)) * number(2)


def fused_twice(x: relay.Var) -> relay.Expr:
    """Return one kernel that is called on two values: its body exists once."""
    a = relay.var("a", shape=(2, 3))
    kernel = relay.Function([a], relay.tanh(relay.nn.relu(a))).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    first, second = relay.split(x, 2, axis=0)
    return tuple_of(kernel(first), kernel(second), relay.abs(first))


def two_functions() -> tvm.IRModule:
    """Return a module whose main calls another function of the module."""
    module, half = tvm.IRModule(), relay.GlobalVar("half")
    a, x, same = relay.var("a", shape=(2, 3)), relay.var("x", shape=(2, 3)), relay.TensorType((2, 3))
    module[half] = relay.Function([a], relay.nn.relu(a) * number(0.5) + number(0.0), same)
    module["main"] = relay.Function([x], relay.tanh(half(x)) + half(relay.exp(x)), same)
    return relay.transform.InferType()(module)


SHAPE = (1, 4, 6, 6)


def cases() -> list[Case]:
    return [
        counts_case("a block", program(block, SHAPE), "SimplifyInference", "FoldConstant", "FuseOps"),
        counts_case(
            "passes of a high level",
            program(block, SHAPE),
            *("SimplifyInference", "FoldScaleAxis", "FoldConstant", "EliminateCommonSubexpr", "FastMath"),
        ),
        counts_case(
            "ResNet-18, parameters as inputs",
            zoo("resnet18"),
            *("SimplifyInference", "FoldConstant", "FuseOps"),
        ),
        counts_case("two equal calls are two", program(twins, (2, 3)), "EliminateCommonSubexpr", "FuseOps"),
        counts_case("every value read twice", program(ladder, (2, 3)), "FuseOps", about="spared"),
        counts_case("one kernel, called twice", program(fused_twice, (4, 3)), "InferType", about="spared"),
        counts_case("two functions", two_functions, "SimplifyExpr", "FuseOps"),
    ]
