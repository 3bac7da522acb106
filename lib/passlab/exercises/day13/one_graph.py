"""Day 13, one graph: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.values import differentiate
from passlab.given.day13.one_graph import If, While
from passlab.judge import Case, Finding, enough, plural

Step = If | While
#: What both results are the same up to, in float64.
ROUNDING = 1e-9


def traced(function: Callable, names: Sequence[str]) -> fx.GraphModule:
    """Return the graph of a function of the state."""
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    result = function(*(fx.Proxy(graph.placeholder(name), tracer) for name in names))
    graph.output(fx.node.map_aggregate(result, lambda x: x.node if isinstance(x, fx.Proxy) else x))
    return fx.GraphModule({}, graph)


def step(names: str, *parts: Any, safe: Sequence[float]) -> Step:
    """Return an If of three functions, or a While of two and a number. names: of the tensors, a letter each."""
    graphs = [traced(part, names) if callable(part) else part for part in parts]
    kind: Any = If if callable(parts[2]) else While
    return kind(*graphs, tuple(safe))


def case(name: str, steps: Callable[[], list[Step]], *inputs: Sequence[Any], about: Sequence[str] = ()) -> Case:
    """Return a case: a program, and states on which it is tried, each with a list of numbers for a tensor."""
    states = [tuple(torch.tensor(x, dtype=torch.float64) for x in state) for state in inputs]
    return Case(name, lambda: (steps(),), tuple(about), expect=states)


def positive(x: Any) -> Any:
    return x.sum() > 0


def apart(x: Any, y: Any) -> Any:
    return y.abs().amin() > 0


def cases() -> list[Case]:
    return [
        case(
            "two ordinary branches",
            lambda: [step("x", positive, lambda x: (x * 2,), lambda x: (-x,), safe=[0.0])],
            [[1.0, 2.0]],
            [[1.0, -2.0]],
        ),
        case(
            "a division that is not taken",
            lambda: [step("xy", apart, lambda x, y: (x / y, y), lambda x, y: (x, y + 1), safe=[1.0, 1.0])],
            [[1.0, 2.0], [4.0, -5.0]],
            [[1.0, 2.0], [0.0, 3.0]],
        ),
        case(
            "a root at 0",
            lambda: [step("x", lambda x: x.amin() > 0, lambda x: (torch.sqrt(x),), lambda x: (x * 3,), safe=[1.0])],
            [[4.0, 9.0]],
            [[4.0, 0.0]],
            [[-1.0, 9.0]],
        ),
        case(
            "a loop",
            lambda: [step("x", lambda x: x.abs().sum() > 1, lambda x: (x / 2,), 4, safe=[0.0])],
            [[3.0, -4.0]],
            [[0.25, 0.5]],
            [[8.0, 8.0]],
        ),
        case(
            "one after the other",
            lambda: [
                step("xy", lambda x, y: x.sum() > y.sum(), lambda x, y: (y, x), lambda x, y: (x, y), safe=[0.0, 0.0]),
                step("xy", lambda x, y: x.sum() < 3, lambda x, y: (x + torch.log(y), y * 2), 3, safe=[0.0, 2.0]),
            ],
            [[5.0], [1.5]],
            [[4.0], [0.0]],
            [[2.0], [3.0]],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- judge


def run(steps: Sequence[Step], state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Run a program as Python does."""
    for step in steps:
        if isinstance(step, If):
            state = (step.yes if step.predicate(*state) else step.no)(*state)
        else:
            while step.predicate(*state):
                state = step.body(*state)
    return state


def _number_of_calls(gm: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def calls(steps: Sequence[Step]) -> int:
    """Return the number of calls of one graph in which every branch is once, and every turn of a loop."""
    number = 0
    for step in steps:
        width = len(step.safe)
        if isinstance(step, If):
            number += sum(map(_number_of_calls, (step.predicate, step.yes, step.no))) + 3 * width
        else:
            number += step.most * (_number_of_calls(step.predicate) + _number_of_calls(step.body) + 2 * width)
    return number


def _inputs(steps: Sequence[Step]) -> list[str]:
    return [str(node.target) for node in steps[0].predicate.graph.find_nodes(op="placeholder")]


def _of_torch(function: Any) -> bool:
    """Return whether a function is an operation of torch or of Python, and does not run graphs that it is given."""
    home = (getattr(function, "__module__", None) or "torch").split(".")
    return home[0] in ("torch", "_operator", "builtins", "math") and home[:2] not in (
        ["torch", "_higher_order_ops"],
        ["torch", "fx"],
    )


def _why_not_one_graph(steps: Sequence[Step], value: Any) -> str:
    if reason := why_not_valid(None, value):
        return reason.replace("The pass returned", "The answer returned")
    names = [str(node.target) for node in value.graph.find_nodes(op="placeholder")]
    if names != _inputs(steps):
        return f"The inputs of the graph should be {', '.join(_inputs(steps))}; they are {', '.join(names) or 'none'}."
    for node in value.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            return f"Node {node.name} refers to a part of the module. Put all operations into the one graph."
        if node.op == "call_function" and not _of_torch(node.target):
            return (
                f"Node {node.name} calls a function that is neither torch's nor one of Python's operators. "
                "Write its operations as nodes of the graph."
            )
    (output,) = value.graph.find_nodes(op="output")
    results = output.args[0]
    if not isinstance(results, tuple) or len(results) != len(names):
        return f"The graph should return a tuple of {plural(len(names), 'tensor')}, the state after the last step."
    return ""


def _difference(names: Sequence[str], old: Sequence[Tensor], new: Sequence[Any], subject: str) -> str:
    for name, one, other in zip(names, old, new, strict=True):
        if not isinstance(other, Tensor) or other.shape != one.shape:
            return f"{subject} {name} should be a tensor of shape {tuple(one.shape)}"
        if not torch.allclose(one, other.to(one.dtype), rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
            return f"{subject} {name} is {_text(other)} and should be {_text(one)}"
    return ""


def _text(x: Tensor) -> str:
    return "[" + ", ".join(f"{float(value):.6g}" for value in x.detach().flatten()[:6]) + "]"


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: one graph of the right form. `same`: it computes what the program computes. `did`: so do its
    gradients. `cost`: it has each branch once."""
    (steps,) = case.build()
    fault = _why_not_one_graph(steps, value)
    yield Finding("valid", not fault, fault)
    if fault:
        return
    after, names = rebuild(value), _inputs(steps)
    messages = {"same": "", "did": ""}
    for state in case.expect:
        expected = differentiate(lambda *x: run(steps, x), state)
        arguments = ", ".join(f"{name} = {_text(x)}" for name, x in zip(names, state, strict=True))
        try:
            actual = differentiate(after, state)
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            reason = f"For {arguments}, the graph does not run: {text}"
            messages = {verdict: message or reason for verdict, message in messages.items()}
            break
        for verdict, subject, one, other in zip(
            messages, ("the new", "the gradient of"), expected, actual, strict=True
        ):
            if not messages[verdict] and (fault := _difference(names, one, other, subject)):
                messages[verdict] = f"For {arguments}, {fault}."
    for verdict, message in messages.items():
        yield Finding(verdict, not message, message, after=after)
    number, limit = _number_of_calls(after), 2 * calls(steps)
    fault = f"The graph has {plural(number, 'call')}; {enough(limit)} with every branch in it once."
    yield Finding("cost", number <= limit, "" if number <= limit else fault, after=after)
