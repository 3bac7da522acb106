"""Day 14, forward mode: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from passlab.equivalence.seeds import own_seed
from passlab.equivalence.trials import nearby
from passlab.exercises.day14.backward import operations, program, why_not_called, why_unequal
from passlab.exercises.day14.vjp import differentiable, numbers, row
from passlab.fx.judge import why_not_valid
from passlab.fx.programs import Program
from passlab.given.day14.forward_mode import call
from passlab.judge import Case, Finding, enough, plural

__all__ = ["call", "cases", "judge"]

ORDINARY = ("valid", "did", "cost")
EDGE = ("valid", "same")
#: A graph may have this many operations for each one of the forward graph, and a few more.
TIMES, MORE = 6, 4


# ---------------------------------------------------------------------------------------------------- visible cases


def products(x: Any, w: Any, b: Any) -> tuple:
    return ((x @ w + b).tanh() * b, x.exp())


def quotients(x: Any, y: Any) -> tuple:
    return ((x.sin() - 2 * y.cos()) / y, torch.sub(x, y, alpha=3))


def shapes(x: Any) -> tuple:
    whole = torch.cat([x.t(), x.view(3, 2)], 1).unsqueeze(0).expand(2, -1, -1)
    return whole.permute(2, 0, 1).sum([0, 2]), x.mean([1], True)


def parts(x: Any, rows: Any) -> tuple:
    first, second = x.split([1, 2], 1)
    return first * second, x[rows], rows + 1


def choice(x: Any, y: Any) -> tuple:
    return torch.where(x > y, x, x * y), torch.softmax(x, 1).amax([0]), torch.maximum(x, y).sigmoid()


def some_alone(x: Any, n: Any, y: Any) -> tuple:
    return x * n, n.float() * 2, y.relu(), x > 0


def layers(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> tuple:
    for w in (a, b, c, d, e, f, g, h, a, b, c, d):
        x = x * w
    return (x,)


def kinks(x: Any, y: Any) -> tuple:
    return x.relu(), torch.maximum(x, y), torch.stack([x, y]).amax([0]), torch.where(x > 0, x, y)


def cases() -> list[Case]:
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    whole = torch.tensor([1, 0, 1])
    return [
        program("products", products, x, numbers(3, 4), numbers(4, seed=1), about=ORDINARY),
        program("quotients and differences", quotients, x, y, about=ORDINARY),
        program("shapes", shapes, x, about=ORDINARY),
        program("parts", parts, x, whole, about=ORDINARY),
        program("choices", choice, x, y, about=ORDINARY),
        program("outputs that do not depend on x", some_alone, x, whole, y, about=ORDINARY),
        program("many inputs", layers, *(numbers(3, seed=n) for n in range(9)), about=ORDINARY),
        program("edges: kinks and ties", kinks, row(0, 1, 2, -1), row(0, 1, 3, -2), about=EDGE),
    ]


# ---------------------------------------------------------------------------------------------------- judge


@dataclass
class Derivatives:
    """What torch says: the arguments of the graph, the outputs, and the derivatives of those that are floats."""

    arguments: tuple
    outputs: list[Tensor]
    derivatives: list[Tensor]


def expected(gm: fx.GraphModule, inputs: Sequence[Any]) -> Derivatives:
    """Return what the graph takes and returns on these inputs, by torch's own forward mode."""
    places = [i for i, x in enumerate(inputs) if differentiable(x)]
    changes = tuple(numbers(*inputs[i].shape, seed=own_seed(21 + i), dtype=inputs[i].dtype) for i in places)

    def run(*floats: Tensor) -> tuple[Tensor, ...]:
        values = dict(zip(places, floats, strict=True))
        return tuple(out for out in gm(*(values.get(i, x) for i, x in enumerate(inputs))) if differentiable(out))

    outputs = list(gm(*inputs))
    derivatives = [torch.zeros_like(out) for out in outputs if differentiable(out)]
    if places:
        derivatives = list(torch.func.jvp(run, tuple(inputs[i] for i in places), changes)[1])
    return Derivatives((*inputs, *changes), outputs, derivatives)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, _ = case.build()
    after: Any = value["graph"] if isinstance(value, dict) and "graph" in value else None
    given = gm.meta["inputs"]
    right = expected(gm, nearby(given) if case.asks("did") else given)
    fault = why_not_valid(None, after) or _misfit(gm, after, right)
    yield Finding("valid", not fault, fault, before=gm, after=after if isinstance(after, fx.GraphModule) else None)
    if fault:
        return
    run = Program(after).run(right.arguments)
    results = run.output if isinstance(run.output, tuple | list) else ()
    verdict = "did" if case.asks("did") else "same"
    if run.error or len(results) != len(right.outputs) + len(right.derivatives):
        reason = str(run.error).partition("\n")[0][:160] if run.error else "it does not return what its graph says"
        yield Finding(verdict, False, f"The graph does not run: {reason}", before=gm, after=after)
        return
    fault = _wrong(gm, results, right)
    yield Finding(verdict, not fault, fault, before=gm, after=after)
    if case.asks("cost"):
        most, number, old = TIMES * operations(gm) + MORE, operations(after), operations(gm)
        fault = (
            f"The graph has {plural(number, 'operation')} for {old} of the forward graph; {enough(most)}. "
            "Let the changes of all inputs travel together, and none where nothing changes."
        )
        fault = fault if number > most else ""
        yield Finding("cost", not fault, fault, before=gm, after=after)


def _misfit(gm: fx.GraphModule, after: fx.GraphModule, right: Derivatives) -> str:
    """Return how the inputs or the outputs of a graph are not those that they should be, or ""."""
    old = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    inputs = f"{', '.join(old)}, and a change of each input that is a tensor of floats"
    results = f"{plural(len(right.outputs), 'output')}, then the derivative of each that is a tensor of floats"
    lengths = len(right.arguments), len(right.outputs) + len(right.derivatives)
    return why_not_called("graph", after, lengths, inputs, results)


def _wrong(gm: fx.GraphModule, results: Sequence[Any], right: Derivatives) -> str:
    """Return which result is not what it should be, or ""."""
    results_of: Any = gm.graph.output_node().args[0]
    names = [str(node) for node in results_of]
    for i, (name, out) in enumerate(zip(names, right.outputs, strict=True)):
        if reason := why_unequal(results[i], out):
            return f"Output {i}, {name}, {reason}, as in the forward graph."
    floats = [name for name, out in zip(names, right.outputs, strict=True) if differentiable(out)]
    for name, derivative, want in zip(floats, results[len(names) :], right.derivatives, strict=True):
        if reason := why_unequal(derivative, want):
            return f"The derivative of {name} {reason}."
    return ""
