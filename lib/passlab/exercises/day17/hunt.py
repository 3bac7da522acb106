"""Day 17, a fault in torch: visible cases and judge."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, fx

from passlab.fx.effects import effects
from passlab.fx.isolation import ProcessLostError
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import op_name
from passlab.hunt.judging import tried
from passlab.judge import Case, Finding, listed, plural, shown
from passlab.judge.forms import why_not_a_list

#: Target → the most operations of a small graph.
SMALL = {"cse": 2, "operators": 1, "const-fold": 2, "merge-matmul": 2, "fuse": 3}
#: How many numbers the inputs may have together.
NUMBERS = 1000


def fault_case(name: str, target: str, without: Sequence[str] = (), about: Sequence[str] = ()) -> Case:
    return Case(name, lambda: (target, list(without)), tuple(about))


def cases() -> list[Case]:
    return [fault_case(target, target) for target in SMALL]


# --------------------------------------------------------------------------------------------------------------- judge


def operations(gm: fx.GraphModule) -> list[str]:
    """Return the names of the operations of a graph, or the classes of its modules."""
    return [op_name(node, gm) for node in gm.graph.nodes if node.op.startswith("call_")]


def why_not_a_program(value: Any) -> str:
    """Return why a value is not a graph with inputs, or ""."""
    if reason := why_not_a_list(value, "a pair (graph, inputs)", 2):
        return reason
    gm, inputs = value
    if reason := why_not_valid(None, gm):
        return reason.replace("The pass returned", "The first part is")
    if not isinstance(inputs, list | tuple) or not all(isinstance(x, Tensor) for x in inputs):
        return f"The inputs are a list of tensors; here they are {shown(inputs)}."
    if len(inputs) != (number := len(gm.graph.find_nodes(op="placeholder"))):
        return f"The graph has {plural(number, 'input')}; you return {plural(len(inputs), 'tensor')}."
    if (size := sum(x.numel() for x in inputs)) > NUMBERS:
        return f"The inputs have {size:,} numbers; {NUMBERS:,} are enough for any fault."
    return ""


def why_not_admitted(gm: fx.GraphModule, without: Sequence[str]) -> str:
    """Return which node of a graph breaks a condition, or ""."""
    for node in gm.graph.nodes:
        if extra := effects(node) - {"signature"}:
            return f"Node {node.name} does more than compute ({listed(sorted(extra))}): no pass promises anything then."
        if "empty" in op_name(node, gm):
            return f"Node {node.name} makes a tensor without values: the graph returns something else each time."
    called = [name for name in operations(gm) if name in without]
    return f"The graph calls {called[0]}, and it must do without." if called else ""


def why_no_fault(gm: fx.GraphModule, inputs: Sequence[Tensor], target: str) -> tuple[str, str]:
    """Return ("valid" or "did", why a graph does not show a fault of a target), or two empty texts."""
    try:
        answer = tried(gm, tuple(inputs), target)
    except ProcessLostError as error:
        return "did", f"The pass gave no result: {error}."
    if answer["error"]:
        return "valid", f"The graph itself does not run on its inputs: {answer['error']}."
    if not answer["own"][0]:
        return "did", f"{target} keeps its promise: before and after it the graph computes the same."
    if answer["own"][0] != answer["exact"][0]:
        tail = answer["exact"][1] or "they agree."
        return "did", f"In float32 the results differ: {answer['own'][1]} In float64: {tail} This may be rounding."
    return "", ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    target, without = case.build()
    if broken := why_not_a_program(value):
        yield Finding("valid", False, broken)
        return
    gm, inputs = copy.deepcopy(rebuild(value[0])).eval(), value[1]
    outside = why_not_admitted(gm, without)
    verdict, reason = ("", "") if outside else why_no_fault(gm, inputs, target)
    yield Finding("valid", verdict != "valid", reason if verdict == "valid" else "", before=gm)
    if verdict == "valid":
        return
    yield Finding("spared", not outside, outside, before=gm)
    if outside:
        return
    yield Finding("did", not reason, reason, before=gm)
    if reason:
        return
    size, most = len(operations(gm)), SMALL[target]
    large = f"The graph has {plural(size, 'operation')}; a fault of {target} shows on {most}."
    yield Finding("cost", size <= most, "" if size <= most else large, before=gm)
