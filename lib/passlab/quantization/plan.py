"""A mixed plan: bits for each weight, so that the error is within a budget for all inputs in range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import fx

from passlab.fx.nodes import attribute
from passlab.quantization.bounds import output_error
from passlab.quantization.graphs import Node, kind, layers_of
from passlab.quantization.grids import Ranges
from passlab.quantization.insert import FLOAT, insert
from passlab.quantization.semantics import QuantizationError


class Plan(NamedTuple):
    """Bits of each layer's weights; the bytes of all, scales included; the proved error; whether none has fewer."""

    bits: Mapping[str, int]
    bytes: int
    error: float
    optimal: bool


def plan(
    net: fx.GraphModule, ranges: Ranges, inputs: Mapping[str, tuple[float, float]], budget: float,
    group: int = 16, limit: int = 500,
) -> Plan:  # fmt: skip
    """Return the bits with the fewest bytes whose error is proved to be at most `budget` for all inputs in range.

        plan(net, proved_ranges(net, {"x": (-1, 1)}), {"x": (-1, 1)}, budget=0.5).bits      # {"linear": 4, "head": 8}

    A weight has 4 bits (of linear layers only, in groups of `group`), 8, or 32: its layers stay in float. The error is
    `output_error` of what `insert` makes with these bits. Branch and bound over weights, the largest first: a branch
    ends where the error is over the budget even with the rest in float, or where the fewest bytes of the rest are too
    many. At most `limit` errors are computed. Raises QuantizationError for a budget that is not a positive number, and
    for one that is exceeded even if no weight is quantized.
    """
    if not 0 < budget < float("inf"):
        raise QuantizationError(f"The budget is {budget}: it is a positive number, the error that may be at an output.")
    weights = sorted(_weights(net, group), key=lambda weight: -weight.bytes[FLOAT])

    def error(bits: Mapping[str, int]) -> float:
        return output_error(net, insert(net, ranges, bits, group), inputs)

    best = {name: FLOAT for weight in weights for name in weight.layers}
    least = error(best)
    if least > budget:
        raise QuantizationError(
            f"Even with all weights in float the error may be {least:.3g}: the budget is {budget:.3g}."
        )
    search = _Search(weights, error, budget, Plan(best, sum(w.bytes[FLOAT] for w in weights), least, True), limit)
    search.branch((), 0)
    return search.best._replace(optimal=search.left > 0)


class _Weight(NamedTuple):
    """A tensor of weights: the layers that read it, and bits → its bytes."""

    layers: list[str]
    bytes: Mapping[int, int]


def _weights(net: fx.GraphModule, group: int) -> list[_Weight]:
    readers: dict[str, list[Node]] = {}
    for node in layers_of(net):
        if kind(node) in ("linear", "conv2d"):
            readers.setdefault(node.args[1].target, []).append(node)
    weights = []
    for target, nodes in readers.items():
        value = attribute(net, target)
        count, outputs = value.numel(), len(value)
        sizes = {8: count + 4 * outputs, FLOAT: 4 * count}
        if all(kind(node) == "linear" for node in nodes) and value.shape[-1] % group == 0:
            sizes = {4: count // 2 + 4 * (count // group), **sizes}
        weights.append(_Weight([node.name for node in nodes], sizes))
    return weights


class _Search:
    """The state of the branch and bound: the best plan, and how many errors may still be computed."""

    def __init__(
        self, weights: list[_Weight], error: Callable[[Mapping], float], budget: float, best: Plan, limit: int
    ):
        self.weights, self.error, self.budget, self.best, self.left = weights, error, budget, best, limit

    def branch(self, chosen: tuple[int, ...], size: int) -> None:
        """Try all bits of the weights after those that are `chosen`, whose bytes are `size`."""
        rest = self.weights[len(chosen) :]
        if self.left <= 0 or size + sum(min(w.bytes.values()) for w in rest) >= self.best.bytes:
            return
        self.left -= 1
        numbers = [*chosen, *[FLOAT] * len(rest)]
        bits = {name: number for w, number in zip(self.weights, numbers, strict=True) for name in w.layers}
        error = self.error(bits)
        if error > self.budget:
            return
        if not rest:
            self.best = Plan(bits, size, error, True)
            return
        for number, nbytes in sorted(rest[0].bytes.items()):
            self.branch((*chosen, number), size + nbytes)
