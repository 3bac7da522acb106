"""Day 2, break six wrong passes: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import Program
from passlab.fx.suspects import SUSPECTS
from passlab.judge import Case, Finding, enough, plural
from passlab.judge.forms import excerpt, why_not_a_list, why_not_of_type

#: A counterexample larger than this explains little.
MOST_CALLS = 3


def _foreign(gm: fx.GraphModule) -> str | None:
    """Return a message about a node that runs code from outside torch, or None."""
    home = ("torch", "_operator", "math", "builtins", "passlab")
    for node in gm.graph.nodes:
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            if type(module).__module__.split(".")[0] not in home:
                return (
                    f"Node {node.name} calls a {type(module).__name__}, which is not a torch module. Use only torch's."
                )
        if node.op == "call_function":
            where = getattr(node.target, "__module__", None) or "torch"
            if where.split(".")[0] not in home:
                return f"Node {node.name} calls a function that is not torch's. Use only torch's."
    return None


def _effect(gm: fx.GraphModule, inputs: tuple) -> list:
    """Return everything a caller can see of a run: the outputs, and the inputs as they are afterwards."""
    run = Program(gm).run(inputs)
    if run.error:
        raise run.error
    leaves: list = []
    fx.node.map_aggregate((run.output, run.inputs), leaves.append)
    return leaves


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    near = 64 * torch.finfo(one.dtype).eps
    return torch.allclose(
        one, other, rtol=near, atol=near * float(one.nan_to_num().abs().max() if one.numel() else 0), equal_nan=True
    )


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge a graph: it runs (valid), the named pass silently breaks it (did), and it is small (cost)."""
    name = case.build()[0]
    if reason := why_not_a_list(value, "(gm, inputs), a GraphModule and a tuple of inputs", 2):
        yield Finding("valid", False, reason)
        return
    gm, inputs = value
    if not isinstance(inputs, tuple):
        yield Finding(
            "valid", False, f"The inputs must be a tuple; it is {excerpt(inputs)}. For one tensor, write (x,)."
        )
        return
    if reason := why_not_of_type(
        gm, "a torch.fx.GraphModule, as of fx.symbolic_trace(…), and its inputs", fx.GraphModule
    ):
        yield Finding("valid", False, reason)
        return
    problem = why_not_valid(None, gm) or _foreign(gm)
    if problem:
        yield Finding("valid", False, problem, before=gm)
        return
    before = rebuild(gm)
    try:
        expected = _effect(before, inputs)
    except Exception as error:
        message = f"Your graph does not run on your inputs: {type(error).__name__}: {str(error)[:120]}."
        yield Finding("valid", False, message, before=before)
        return
    yield Finding("valid", True)
    calls = sum(n.op.startswith("call_") for n in before.graph.nodes)
    message = (
        f"{plural(calls, 'call')} in your graph; {enough(MOST_CALLS)}. A small counterexample shows the reason best."
    )
    yield Finding("cost", calls <= MOST_CALLS, "" if calls <= MOST_CALLS else message, before=before)
    after = rebuild(gm)
    old = [(n.name, n.op, n.target) for n in after.graph.nodes]
    try:
        after = rebuild(SUSPECTS[name](after))
        result = _effect(after, inputs)
    except Exception as error:
        message = f"{name} stops with an error on your graph ({type(error).__name__}: {str(error)[:100]}). "
        message += "A crash is easy to notice. Look for a graph on which the pass gives a wrong result."
        yield Finding("did", False, message, before=before)
        return
    if [(n.name, n.op, n.target) for n in after.graph.nodes] == old:
        message = f"{name} finds nothing to rewrite in your graph. Start from the pattern that it matches."
        yield Finding("did", False, message, before=before)
        return
    if len(expected) == len(result) and all(map(_alike, expected, result)):
        message = f"{name} rewrote your graph, and the result is still right on your inputs. "
        message += "What does the pass assume that need not be true?"
        yield Finding("did", False, message, before=before, after=after)
        return
    yield Finding("did", True)


def cases() -> list[Case]:
    """Return one case for each suspect."""
    return [Case(name, lambda name=name: (name,)) for name in SUSPECTS]
