"""Day 17, shrink: a compiler with faults, and how an answer runs on it.

A fault is a tuple: (stage, pattern, readers, result).

- stage: the name of the pass that has it; stages run in the order in which they are listed.
- pattern: ("sub", ("tanh", "?x"), "?y"), an operation and its operands. A variable stands for one value wherever it
  occurs; None matches every graph that returns one of its inputs.
- readers: how many users the inner operations need at least.
- result: a term that takes the place of a match, or the message of the error that the stage raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.equivalence.values import Tolerance, compare
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import name_of
from passlab.fx.programs import Program, Run, preserve_state
from passlab.fx.values import values_of
from passlab.judge import Case

__all__ = ["CALLS", "OPERATIONS", "Compiler", "Fault", "service", "values_of"]

#: The most calls of `failure` for one graph.
CALLS = 1_000
#: Name of an operation → its function. All are element-wise, but for transpose and sum.
OPERATIONS: dict[str, Callable] = {
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid", "neg", "abs", "sin", "cos", "relu")},
    **{name: getattr(operator, name) for name in ("add", "sub", "mul")},
    **{name: getattr(torch, name) for name in ("maximum", "transpose", "sum")},
}

Fault = tuple[str, Any, int, Any]
_SAME = Tolerance(1e-4, 1e-5)


class Compiler:
    """A compiler with faults. `calls`: how often `failure` was called."""

    def __init__(self, faults: Sequence[Fault], limit: int = CALLS):
        self.faults, self.limit, self.calls = faults, limit, 0

    def failure(self, gm: fx.GraphModule, inputs: Sequence[Tensor]) -> str:
        """Return how the compiler fails on a graph and its inputs: the reason, or "" if it does not fail.

        The graph is not changed. Raises ValueError if it is not valid or does not run on the inputs, and RuntimeError
        after too many calls.
        """
        self.calls += 1
        if self.calls > self.limit:
            raise RuntimeError(f"failure may be called {self.limit} times.")
        if reason := why_not_valid(None, gm):
            raise ValueError(reason)
        with preserve_state():
            return self._reason(rebuild(gm), tuple(inputs))

    def _reason(self, gm: fx.GraphModule, inputs: tuple) -> str:
        before = Program(gm).run(inputs)
        if before.error is not None:
            raise ValueError(f"The graph does not run on its inputs: {before.error}")
        for stage, pattern, readers, result in self.faults:
            matches = list(_matches(gm.graph, pattern, readers))
            if matches and isinstance(result, str):
                return reason_of(stage, result)
            for node, binding in matches:
                with gm.graph.inserting_before(node):
                    node.replace_all_uses_with(_emitted(gm.graph, result, binding))
            if matches and _differ(before, Program(rebuild(gm)).run(inputs)):
                return reason_of(stage, result)
        return ""


def reason_of(stage: str, result: Any) -> str:
    """Return how the compiler fails by a fault of this stage, with this result."""
    return f"{stage} raises an error: {result}" if isinstance(result, str) else f"{stage} changes the results"


def _differ(before: Run, after: Run) -> bool:
    return after.error is not None or bool(compare(before.output, after.output, _SAME))


def _matches(graph: fx.Graph, pattern: Any, readers: int) -> Iterator[tuple[fx.Node, dict[str, Any]]]:
    """Yield each node that a pattern describes, with the values of its variables."""
    for node in graph.nodes:
        if pattern is None:
            if node.op == "output" and any(operand.op == "placeholder" for operand in node.all_input_nodes):
                yield node, {}
        elif (binding := _match(node, pattern, {}, readers, 1)) is not None:
            yield node, binding


def _match(value: Any, pattern: Any, binding: Mapping[str, Any], readers: int, least: int = 0) -> dict[str, Any] | None:
    """Return the variables of a pattern after a match, or None. least: users of this value, if not `readers`."""
    if isinstance(pattern, str):
        if binding.get(pattern, value) is not value:
            return None
        return {**binding, pattern: value}
    if not isinstance(value, fx.Node) or value.op != "call_function" or len(value.users) < (least or readers):
        return None
    name, *operands = pattern
    if name_of(value.target) != name or len(value.args) < len(operands):
        return None
    result: dict[str, Any] | None = dict(binding)
    for operand, part in zip(value.args, operands, strict=False):
        result = None if result is None else _match(operand, part, result, readers)
    if result is not None:
        result[f"rest of {name}"] = value.args[len(operands) :]
    return result


def _emitted(graph: fx.Graph, term: Any, binding: Mapping[str, Any]) -> Any:
    """Return what stands for a term, with new nodes for its operations."""
    if isinstance(term, str):
        return binding[term]
    name, *operands = term
    args = [_emitted(graph, operand, binding) for operand in operands]
    return graph.call_function(OPERATIONS[name], (*args, *binding.get(f"rest of {name}", ())))


def service(case: Case) -> tuple[tuple, Callable]:
    """Return a graph with its inputs, and the compiler's function `failure`, which knows the faults."""
    gm, inputs, faults = case.build()
    return (gm, inputs), Compiler(faults).failure
