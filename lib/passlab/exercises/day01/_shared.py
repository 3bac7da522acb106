"""What the exercises of day 1 share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from passlab import trace, view
from passlab.fx.cases import seeded
from passlab.judge import Case, Finding, record

#: An answer whose work is limited may make this many calls (Python functions and built-ins) on one graph. Comparing
#: all pairs of nodes fits; walking all paths of `LADDER` does not.
MOST_CALLS = 1_000_000
LADDER = 60
CHAIN = 1_200


def net(forward: Callable, **parts: nn.Module | torch.Tensor) -> nn.Module:
    """A module in eval mode with the given parts and `forward(self, x, …)`; tensors become buffers."""
    model = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
            model.register_buffer(name, part)
        else:
            setattr(model, name, part)
    return model.eval()


def traced(make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], tuple]:
    """A case's `build`: the module's graph, with the shapes that inputs of the given shapes bring."""

    def build() -> tuple:
        inputs = seeded(lambda: tuple(torch.randn(shape) for shape in shapes), 1)()
        return (trace(seeded(make)(), *inputs),)

    return build


def from_edges(reads: list[list[int]], op: Callable[[int], Any]) -> fx.GraphModule:
    """A graph whose node 0 is the input and whose node i reads the nodes `reads[i]`; every value is a (2, 2) tensor."""
    graph = fx.Graph()
    made = [graph.placeholder("x")]
    for sources in reads[1:]:
        made.append(graph.call_function(op(len(sources)), tuple(made[j] for j in sources)))
    graph.output(made[-1])
    meta = _extract_tensor_metadata(torch.zeros(2, 2))
    for node in graph.nodes:
        node.meta["tensor_meta"] = meta
    return fx.GraphModule(nn.Module(), graph)


def _op(operands: int) -> Callable:
    return torch.relu if operands == 1 else torch.add


def ladder() -> tuple:
    """A row of diamonds: few nodes, 2 ** LADDER paths from the input to the output."""
    reads: list[list[int]] = [[]]
    for _ in range(LADDER):
        top = len(reads) - 1
        reads += [[top], [top], [top + 1, top + 2]]
    return (from_edges(reads, _op),)


def chain() -> tuple:
    """CHAIN operations in a row, and an addition that joins the input with the end of it."""
    return (from_edges([[]] + [[i] for i in range(CHAIN)] + [[0, CHAIN]], _op),)


@record
@dataclass(frozen=True)
class TooMuch:
    """In place of a value: the answer did more work than promised. `what`: a key of `TOO_MUCH`."""

    what: str


TOO_MUCH = {
    "calls": f"More than {MOST_CALLS:,} function calls on a graph of {{nodes:,}} nodes: work is done again for every "
    "path. Keep what you found out about a node, and each node is worked on once.",
    "depth": "A graph {nodes:,} nodes deep is deeper than Python's recursion. "
    "gm.graph.nodes lists every node after the nodes it reads: one loop in that order needs no recursion.",
    "data": "It ran an operation on real elements. Tensors made with device='meta' have a shape and a dtype and no "
    "data; weights become so with tensor.to('meta').",
}


def excess(value: TooMuch, gm: fx.GraphModule) -> Finding:
    """What is said of too much work on a graph."""
    return Finding("cost", False, TOO_MUCH[value.what].format(nodes=len(gm.graph.nodes)))


class _Stop(BaseException):
    """Raised inside an answer that makes too many calls; no `except Exception` catches it."""


def frugally(answer: Callable, case: Case) -> Any:
    """Put a case to an answer; in a case about cost, stop after MOST_CALLS calls.

    An answer could switch the counting off. It gains nothing: 2 ** LADDER paths take longer than any time limit.
    """
    arguments = case.build()
    if "cost" not in case.about:
        return answer(*arguments)
    calls = 0
    before, deepest = sys.getprofile(), sys.getrecursionlimit()

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > MOST_CALLS:
            raise _Stop

    sys.setprofile(count)
    try:
        return answer(*arguments)
    except _Stop:
        return TooMuch("calls")
    except RecursionError:
        return TooMuch("depth")
    finally:
        sys.setprofile(before)
        sys.setrecursionlimit(deepest)


def line(gm: fx.GraphModule, name: str) -> str:
    """A node as one line of Python, as pictures have it: `add = add(x, linear)`."""
    return f"`{view(gm).node(name).text}`"


def kind_of(value: Any) -> str:
    if value is None:
        return "None: is there a `return` on every way out?"
    return f"of type {type(value).__name__}"


def cost_cases() -> list[Case]:
    return [
        Case(f"{LADDER} diamonds in a row: 2^{LADDER} paths", ladder, ("cost",)),
        Case(f"{CHAIN:,} operations in a row", chain, ("cost",)),
    ]


def read_pairs(value: Any, nodes: dict, wanted: str) -> tuple[set[tuple[str, str]], str | None]:
    """The pairs of names in a value, or the sentence that says why it holds none."""
    if not isinstance(value, set | frozenset | list | tuple):
        return set(), f"{wanted}; this is {kind_of(value)}."
    pairs = set()
    for entry in value:
        if not isinstance(entry, tuple | list | frozenset | set) or len(entry) != 2:
            return set(), f"{wanted}; it holds {str(entry)[:60]}, which is no pair."
        for name in entry:
            if isinstance(name, fx.Node):
                return set(), f"{wanted}; it holds the node {name} itself. Give its name, {name}.name."
            if not isinstance(name, str) or name not in nodes:
                return set(), f"{wanted}; the graph has no node called {str(name)[:60]!r}."
        pairs.add(tuple(entry))
    return pairs, None
