"""Shared by the exercises of day 12: models as cases, and what a compiled one must satisfy, equivalence first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passlab.capstone import Compiled, Counts, counts, examined, why_not_compiled
from passlab.capstone.counting import allowed
from passlab.capstone.families import FAMILIES, Drawn
from passlab.capstone.reference import STAGES, compile
from passlab.equivalence import equivalent
from passlab.fx.effects import effects
from passlab.fx.isolation import ProcessLostError, device
from passlab.fx.judge import rebuild
from passlab.fx.nodes import attribute
from passlab.judge import Case, Finding

#: What a timed model has besides its counts: seconds in each round.
TIMED = ("eager", "mine")
#: An answer has to save this part of what the course's compiler saves: of a model of the zoo, and of any other graph.
#: On random graphs, two good compilers differ by a third.
OF_MODELS, OF_GRAPHS = 0.8, 0.5


@dataclass(frozen=True)
class Demand:
    """What a case requires: how many rounds to time the model (0: none), and eager's share of the time it may take."""

    rounds: int = 0
    ratio: float = 1.0


def model_case(model: Drawn, about: tuple[str, ...] = (), demand: Demand = Demand()) -> Case:
    return Case(model.name, lambda: (model.graph(), model.inputs), about, expect=demand)


def graph_case(
    name: str,
    make: Callable[[], fx.GraphModule],
    about: tuple[str, ...] = (),
    demand: Demand = Demand(),
) -> Case:
    """A case of a function that returns a graph with `meta["inputs"]`."""

    def build() -> tuple:
        gm = make()
        return gm, tuple(gm.meta["inputs"])

    return Case(name, build, about, expect=demand)


def saved(before: fx.GraphModule, inputs: Sequence[Any]) -> tuple[Counts, Counts]:
    """Return what the model costs as it is, and compiled by the course's compiler, by the stages of days 2 to 4."""
    return counts(Compiled(before), inputs), counts(compile(before, inputs, STAGES[:4]), inputs)


def limit(case: Case, eager: int, reference: int) -> int:
    """Return the most that an answer may cost on a case where the two cost so much."""
    share = OF_MODELS if case.name in FAMILIES else OF_GRAPHS
    return int(eager - share * max(0, eager - reference))


def weights(gm: fx.GraphModule) -> dict[str, int]:
    """Return name → bytes of each parameter and buffer that the nodes of a graph use, once for all its names."""
    sizes: dict[int, tuple[str, int]] = {}
    for node in gm.graph.nodes:
        part = attribute(gm, node.target) if node.op in ("get_attr", "call_module") else None
        tensors = {node.target: part} if isinstance(part, torch.Tensor) else {}
        if isinstance(part, torch.nn.Module):
            tensors = {f"{node.target}.{name}": t for name, t in (*part.named_parameters(), *part.named_buffers())}
        for name, t in tensors.items():
            sizes.setdefault(id(t), (name, t.numel() * t.element_size()))
    return dict(sizes.values())


def why_larger(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return what of the model was not left alone, or "": its random draws and writes, and the size of its weights."""
    for effect in ("draws", "writes"):
        old, new = ([n.name for n in gm.graph.nodes if effect in effects(n)] for gm in (before, after))
        if len(old) > len(new):
            node = next((name for name in old if name not in new), old[-1])
            what = {"draws": "draws random numbers", "writes": "writes into memory"}[effect]
            return f"Node {node} {what}, and the compiled graph has {len(new)} of {len(old)} such nodes."
    bytes_before, bytes_after = weights(before), weights(after)
    if (grown := sum(bytes_after.values())) > 1.1 * sum(bytes_before.values()) + 4096:
        name = max(bytes_after, key=lambda name: bytes_after[name] - bytes_before.get(name, 0))
        message = (
            f"The weights grew from {sum(bytes_before.values()):,} to {grown:,} bytes, {bytes_after[name]:,} of them "
            f"in {name}"
        )
        return f"{message}: a constant that gets larger is no gain."
    return ""


def first_three(case: Case, value: Any, time_it: bool = False) -> Iterator[Finding | dict]:
    """Yield the findings on valid, same and spared; then, if the model is equivalent, what `examined` says of it, and
    "before", its graph as it is."""
    before, inputs = case.build()
    broken, reply = why_not_compiled(before, value) or "", {}
    if not broken:
        try:
            reply = examined_case(case, value, before, inputs, case.expect.rounds if time_it else 0)
            broken = broken_in(reply, TIMED if time_it and case.expect.rounds else ())
        except ProcessLostError as error:
            broken = f"No program can be built from it: {error}."
    yield Finding("valid", not broken, broken)
    if broken:
        return
    after = rebuild(value.graph)
    result = equivalent(before, after, inputs)
    ok = result.ok and not reply["differs"]
    small = (result.graph, result.graph_after) if result.graph is not None else (before, after)
    mark = (result.first_diverging,) if result.first_diverging else ()
    change = why_larger(before, after)
    message = "" if ok else reply["differs"] if result.ok else f"{change} {result.reason}".strip()
    yield Finding("same", ok, message, before=small[0], after=small[1], mark=mark)
    if case.asks("spared"):
        yield Finding("spared", ok and not change, change)
    if ok:
        yield reply | {"before": before}


def counted_steps(case: Case, value: object) -> Generator[Finding, None, dict | None]:
    """Yield the findings of `first_three`; return what `examined` says, and "before", the model's graph, or None if the
    case is not about the counts."""
    reply = None
    for step in first_three(case, value):
        if isinstance(step, Finding):
            yield step
        else:
            reply = step
    return reply if case.asks("did") or case.asks("cost") else None


_allowed: dict[Case, tuple[int, int] | None] = {}


def examined_case(
    case: Case, compiled: Compiled, before: fx.GraphModule, inputs: Sequence[Any], rounds: int = 0
) -> dict:
    """Return what `examined` says of a compiled model of a case, on the CPU if it is timed. Raises ProcessLostError.

    before, inputs: as the case builds them.
    """
    if case not in _allowed:
        _allowed[case] = allowed(before, inputs)
    return examined(compiled, inputs, before, rounds, _allowed[case], "cpu" if rounds else device())


def broken_in(reply: dict, timed: Sequence[str]) -> str:
    """Return why a reply says that nothing can be built, or has no numbers. Untrusted: a graph may have written it."""
    broken = reply.get("broken")
    if type(broken) is not str or broken:
        return str(broken)[:500]
    if type(reply.get("differs")) is not str:
        return "The process that ran it did not say whether it is the same."
    numbers = [reply.get(name) for name in ("launches", "bytes", "peak")]
    lists = [reply.get(name) for name in timed]
    fits = all(type(n) is int and n >= 0 for n in numbers)
    fits = fits and all(type(ts) is list and ts and all(type(t) is float and t > 0 for t in ts) for ts in lists)
    return "" if fits else "The process that ran it gave no numbers."
