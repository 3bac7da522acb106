"""Day 17: two runs compared, and programs that learners return."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from passlab.equivalence.values import EXACT, Tolerance, compare
from passlab.fx.judge import why_not_valid
from passlab.fx.programs import Run
from passlab.judge import plural, shown


def differ(before: Run, after: Run, tolerance: Tolerance = EXACT) -> str:
    """Return how two runs of programs that take the same inputs differ, or "": results, writes, random numbers.

    `before` has run without an error.
    """
    if after.error is not None:
        return f"it raises {type(after.error).__name__}"
    differences = compare(before.output, after.output, tolerance)
    differences += compare(before.inputs, after.inputs, tolerance, "input")
    differences += compare(before.state, after.state, tolerance, "what is written into parameters and buffers")
    if differences:
        return differences[0].sentence
    return "" if torch.equal(before.rng, after.rng) else "it draws other random numbers"  # type: ignore[arg-type]


def why_not_a_program(value: Any, subject: str, most: int) -> str:
    """Return why a value is not a pair of a graph, with at most `most` operations, and a tuple of tensors."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        form = "a GraphModule" if isinstance(value, fx.GraphModule) else shown(value)
        return f"{subject} must be a pair of a graph and its inputs; it is {form}."
    gm, inputs = value
    if reason := why_not_valid(None, gm):
        return f"{subject}: {reason}"
    if not isinstance(inputs, (list, tuple)) or not all(isinstance(x, Tensor) for x in inputs):
        return f"The inputs of {subject[:1].lower() + subject[1:]} must be a tuple of tensors."
    if len(inputs) != len(gm.graph.find_nodes(op="placeholder")):
        count = len(gm.graph.find_nodes(op="placeholder"))
        return f"{subject} has {plural(count, 'input')}; you return {plural(len(inputs), 'tensor')}."
    if sum(x.numel() for x in inputs) > 1_000:
        return f"The inputs of {subject[:1].lower() + subject[1:]} have more than 1,000 numbers."
    if (count := operations(gm)) > most:
        return f"{subject} has {count} operations; at most {most} are allowed."
    return ""


def operations(gm: fx.GraphModule) -> int:
    """Return the number of calls in a graph."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)
