"""Day 3, the pipeline, to the fixpoint: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passlab.equivalence import equivalent
from passlab.fx.cases import graph
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.stages import STAGES
from passlab.judge import Case, Finding, as_decorator
from passlab.judge.forms import why_not_a_list

SWEEP = ("fold", "simplify", "cse", "dce")


@dataclass(frozen=True)
class Best:
    """What the best order of these stages reaches: the number of nodes, and the runs of a stage until then."""

    nodes: int
    runs: int


@as_decorator
def pipeline_case(name: str, build: Callable[[], fx.GraphModule], stages: tuple[str, ...], best: Best) -> Case:
    """Return a case whose arguments are a graph and the names of stages (`call` turns the names into passes)."""
    return Case(name, lambda: (build(), stages), expect=best)


def wiring(gm: fx.GraphModule) -> list[tuple]:
    """Return the graph without its names: graphs with the same wiring give the same list."""
    place = {node: i for i, node in enumerate(gm.graph.nodes)}

    def plain(arg: Any) -> Any:
        return fx.node.map_arg(arg, lambda n: f"%{place[n]}")

    return [(n.op, n.target if n.op.startswith("call") else "", plain(n.args), plain(n.kwargs)) for n in place]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    before, stages = case.build()
    if broken := why_not_a_list(value, "three things: the graph, the order, the node counts", 3):
        yield Finding("valid", False, broken)
        return
    gm, order, counts = value
    broken = why_not_valid(before, gm)
    order = [str(name) for name in order] if isinstance(order, tuple | list) else order
    if not broken and (not isinstance(order, list) or sorted(order) != sorted(stages)):
        broken = f"The order should name each of {list(stages)} once; yours is {order!r}."
    if not broken and not (isinstance(counts, tuple | list) and all(type(c) is int for c in counts) and counts):
        broken = f"The node counts should be a list of whole numbers, one for each run of a pass; they are {counts!r}."
    if broken:
        yield Finding("valid", False, broken, before=before)
        return
    yield Finding("valid", True)
    after = rebuild(gm)
    result = equivalent(before, after)
    yield Finding("same", result.ok, result.reason, before=before, after=after)
    fault = _history(case.build()[0], after, order, list(counts))
    yield Finding("did", fault is None, fault or "", before=before, after=after)
    if fault is not None:
        return
    best, reached = case.expect, Best(len(after.graph.nodes), len(counts))
    sentence = ""
    if reached.nodes > best.nodes:
        sentence = (
            f"{' → '.join(order)} ends at {reached.nodes} nodes; another order reaches {best.nodes}. Try every order."
        )
    elif (reached.nodes, reached.runs) > (best.nodes, best.runs):
        sentence = (
            f"{' → '.join(order)} takes {reached.runs} runs of a pass until nothing changes; another order reaches "
            f"the same {best.nodes} nodes with {best.runs}."
        )
    yield Finding("cost", not sentence, sentence, before=before, after=after)


def _history(gm: fx.GraphModule, after: fx.GraphModule, order: list[str], counts: list[int]) -> str | None:
    """Replay the claimed order. Return None if counts, fixpoint and final graph are as claimed, else a message."""
    sweep, last = len(order), wiring(gm)
    for i, count in enumerate(counts):
        gm = STAGES[order[i % sweep]](gm)
        size = len(gm.graph.nodes)
        if size != count:
            return (
                f"Run {i + 1} ({order[i % sweep]}, in sweep {i // sweep + 1}) leaves {size} nodes; your list "
                f"says {count}. Does every order start from an untouched copy?"
            )
        if i % sweep == sweep - 1:
            current, final = wiring(gm), i == len(counts) - 1
            if current == last and not final:
                return (
                    f"Nothing changed in sweep {i // sweep + 1}: that is the fixpoint, so the runs after it are wasted."
                )
            if current != last and final:
                return (
                    f"Sweep {i // sweep + 1} was your last, but it still changed the graph. Run until a whole sweep "
                    f"changes nothing. (The number of nodes may stay the same while the graph changes.)"
                )
            last = current
    if len(counts) % sweep:
        return f"{len(counts)} node counts: a sweep is {sweep} runs, and only whole sweeps count."
    if wiring(after) != last:
        return f"The graph you returned is not the one that {' → '.join(order)} leads to."
    return None


@pipeline_case("one target each", graph(..., (2, 3), w=(3,)), SWEEP, Best(5, 8))
def four(m: Any, x: Any) -> Any:
    w = torch.tanh(m.w) * 3
    a, b = torch.relu(x * w), torch.relu(x * w)
    torch.exp(a)
    return torch.neg(torch.neg(torch.where(x > 0, a, b)))


@pipeline_case("scales", graph(..., (2, 3)), ("double", "scale", "simplify", "dce"), Best(4, 8))
def scales(m: Any, x: Any) -> Any:
    y = x * 2 * 2
    return y + torch.where(x > 0, y, y)


doubled, relu = graph(lambda m, x: x * 2 * 2, (2, 3)), graph(lambda m, x: torch.relu(x) * 2, (2, 3))
two_ends = pipeline_case("two orders, two ends", doubled, ("double", "scale"), Best(3, 4))
no_less = pipeline_case("no node less", relu, ("dce", "double"), Best(4, 4))
