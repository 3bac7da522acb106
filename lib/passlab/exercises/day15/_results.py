"""Results of two graphs side by side: shared by the exercises that return a changed graph."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.nodes import attribute
from passlab.fx.programs import Program
from passlab.judge import there_are


def why_not_alike(
    before: fx.GraphModule, after: fx.GraphModule, inputs: tuple, compare: Callable[[Tensor, Tensor], str]
) -> str:
    """Return why the results of two graphs are not alike, or "": `compare(old, new)` compares tensors of one form."""
    return why_not_returned(Program(before).run(inputs).output, after, inputs, compare, "was")


def why_not_returned(
    right: Any, gm: fx.GraphModule, inputs: tuple, compare: Callable[[Tensor, Tensor], str], verb: str = "should be"
) -> str:
    """Return why a graph does not return `right`, or "". `verb`: what its sentence about a tensor's form says."""
    run = Program(gm).run(inputs)
    if run.error is not None:
        return f"The graph cannot run: {(str(run.error).splitlines() or [''])[0][:200]}"
    if reason := why_not_formed(right, run.output):
        return reason
    for at, (a, b) in enumerate(zip(_tensors(right), _tensors(run.output), strict=True)):
        if not isinstance(b, Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            form = f"{b.dtype} {list(b.shape)}" if isinstance(b, Tensor) else type(b).__name__
            return f"Result {at} {verb} {a.dtype} {list(a.shape)}; it is {form}."
        if reason := compare(a, b):
            return f"Result {at} {reason}"
    return ""


def _tensors(result: Any) -> Sequence[Any]:
    """Return the tensors that a graph returns, one alone in a list."""
    return result if isinstance(result, tuple | list) else [result]


def why_not_formed(old: Any, new: Any) -> str:
    """Return how what a graph returns is not of the same form, such as a tuple of one tensor for that tensor, or ""."""
    before, after = (
        f"a {type(result).__name__} of {len(result)}" if isinstance(result, tuple | list) else "one value"
        for result in (old, new)
    )
    return f"The graph should return {before}; it returns {after}." if before != after else ""


def why_not_near(rounding: float) -> Callable[[Tensor, Tensor], str]:
    """Return a comparison that allows an error of `rounding`, relative to the largest number."""

    def why(a: Tensor, b: Tensor) -> str:
        off, most = float((a - b).abs().max()), float(a.abs().max())
        return "" if off <= rounding * max(most, 1e-3) else f"is off by {off:.3g}; its numbers are at most {most:.3g}."

    return why


def why_not_equal(a: Tensor, b: Tensor) -> str:
    """Compare bit for bit."""
    if torch.equal(a, b):
        return ""
    where = tuple(int(i) for i in (a != b).nonzero()[0])
    count = f"{int((a != b).sum())} of {a.numel()} elements"
    return f"differs in {count}: at {list(where)} it was {a[where]:g}, and is {b[where]:g}."


def why_not_as_often(old: Counter[str], new: Counter[str]) -> str:
    """Return which function a graph calls more or less often than before, or ""."""
    for name in old | new:
        if old[name] != new[name]:
            return f"{there_are(new[name], f'{name} node')}; there were {old[name]}."
    return ""


def constant_of(gm: fx.GraphModule, node: Any) -> Any:
    """Return the attribute that a get_attr node reads, None for anything else."""
    return attribute(gm, str(node.target)) if isinstance(node, fx.Node) and node.op == "get_attr" else None


def operands(node: fx.Node) -> dict[str, Any]:
    """Return what the function of a node gets, by the names of its parameters, defaults included."""
    assert callable(node.target)
    bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments
