"""One solver for every dataflow analysis.

An analysis is data: a direction, a fact to start with, a way to merge two facts, and a transfer function of blocks. The
solver finds facts that satisfy the equations of all blocks and edges at once (G. A. Kildall, "A Unified Approach to
Global Program Optimization", POPL 1973). It visits a block again only after a fact that the block reads has changed.

Reading order: `Analysis`, `solve`, and the equations of one block, `FixpointState.visit`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.dataflow.cfg import Block, Program, predecessors, successors
from passlab.dataflow.order import loop_heads, reverse_postorder
from passlab.drawing.flow import fact_text

Fact = Any


class NotMonotone(ValueError):
    """A block's input rose in the lattice, and its output fell."""


class DoesNotEnd(ValueError):
    """The facts of a block keep changing."""


@dataclass(frozen=True)
class Analysis:
    """What distinguishes one analysis from another.

    `boundary(program)`: the fact at the entry (forward), or at each return (backward).
    `initial(program)`: the fact of a block before its first visit. Merging with it changes nothing.
    `merge(fact, fact)`: the fact where two edges meet.
    `transfer(block, fact)`: the fact at the other end of a block, as a new object.
    `edge(block, target, fact)`: the fact on the edge to a target; forward only. None: the same as after the block.
    `widen(old, new)`: a fact above both that bounds the number of changes. Used at the heads of loops.
    """

    name: str
    direction: str
    boundary: Callable[[Program], Fact]
    initial: Callable[[Program], Fact]
    merge: Callable[[Fact, Fact], Fact]
    transfer: Callable[[Block, Fact], Fact]
    edge: Callable[[Block, str, Fact], Fact] | None = None
    widen: Callable[[Fact, Fact], Fact] | None = None

    def __post_init__(self) -> None:
        if self.direction not in ("forward", "backward"):
            raise ValueError(f"{self.name}: the direction is {self.direction!r}; it can be 'forward' or 'backward'.")


@dataclass(frozen=True)
class Visit:
    """A visit to a block: the new facts at its start and end, and whether its output changed."""

    block: str
    before: Fact
    after: Fact
    changed: bool


@dataclass
class Solution:
    """The facts at the start and at the end of each block in the order of the text, for either direction.

    `edges`: the fact on each edge. `log`: the visits in order.
    """

    before: dict[str, Fact]
    after: dict[str, Fact]
    edges: dict[tuple[str, str], Fact] = field(default_factory=dict)
    log: list[Visit] = field(default_factory=list)

    @property
    def visits(self) -> int:
        return len(self.log)


def solve(program: Program, analysis: Analysis, order: Sequence[str] | None = None, max_visits: int = 200) -> Solution:
    """Solve by a worklist that returns the waiting block that is first in `order` (default: reverse post-order).

    Raise NotMonotone for an analysis that is not monotone, and DoesNotEnd if a block still changes after `max_visits`
    visits; both name the block.
    """
    state = FixpointState(program, analysis, order, max_visits)
    place = {name: i for i, name in enumerate(state.order)}
    worklist, waiting = list(place.values()), set(place)  # a sorted list is a heap
    while worklist:
        name = state.order[heapq.heappop(worklist)]
        waiting.remove(name)
        if state.visit(name):
            for reader in state.readers[name]:
                if reader in place and reader not in waiting:
                    heapq.heappush(worklist, place[reader])
                    waiting.add(reader)
    return state.solution()


def round_robin(
    program: Program, analysis: Analysis, order: Sequence[str] | None = None, max_visits: int = 200
) -> Solution:
    """Solve by visiting all blocks in `order` until no output changes in a round: the baseline of `solve`."""
    state = FixpointState(program, analysis, order, max_visits)
    while any([state.visit(name) for name in state.order]):
        pass
    return state.solution()


class FixpointState:
    """The current facts of all blocks. The caller chooses the order of the visits.

    `inputs`, `outputs`: the facts at the two ends of each block; backward, its input is at its end.
    """

    def __init__(self, program: Program, analysis: Analysis, order: Sequence[str] | None = None, max_visits: int = 200):
        forward = analysis.direction == "forward"
        self.program, self.analysis, self.max_visits, self.forward = program, analysis, max_visits, forward
        flow = reverse_postorder(program, analysis.direction)
        reachable = set(flow)  # an unreachable block never runs, so no fact flows out of it
        self.order = flow if order is None else [name for name in order if name in reachable]
        self.blocks = {block.name: block for block in program.blocks}
        ahead, behind = successors(program), predecessors(program)
        self.sources, self.readers = (behind, ahead) if forward else (ahead, behind)
        self.starts = {program.entry.name} if forward else {b.name for b in program.blocks if not ahead[b.name]}
        self.boundary, self.initial = analysis.boundary(program), analysis.initial(program)
        self.heads = loop_heads(program, analysis.direction) if analysis.widen else set()
        self.inputs = dict.fromkeys(self.blocks, self.initial)
        self.outputs = dict.fromkeys(self.blocks, self.initial)
        self.visits = dict.fromkeys(self.blocks, 0)
        self.log: list[Visit] = []

    def visit(self, name: str) -> bool:
        """Compute the input and output of a block from its sources; return whether the output changed."""
        analysis = self.analysis
        fact = self.boundary if name in self.starts else self.initial
        for source in self.sources[name]:
            fact = analysis.merge(fact, self.edge_fact(source, name))
        if analysis.widen and name in self.heads and self.visits[name]:
            fact = analysis.widen(self.inputs[name], fact)
        old, new = self.outputs[name], analysis.transfer(self.blocks[name], fact)
        self.inputs[name], self.outputs[name] = fact, new
        self.visits[name] += 1
        if new != old:
            self._check(name, old, new)
        self.log.append(Visit(name, *((fact, new) if self.forward else (new, fact)), new != old))
        return new != old

    def edge_fact(self, source: str, name: str) -> Fact:
        """Return the fact that flows from one block to the next."""
        if self.analysis.edge is None or not self.forward:
            return self.outputs[source]
        return self.analysis.edge(self.blocks[source], name, self.outputs[source])

    def _check(self, name: str, old: Fact, new: Fact) -> None:
        where = f"{self.program.name}, analysis {self.analysis.name}"
        if self.analysis.merge(old, new) != new:
            raise NotMonotone(
                f"{where}: the fact of block {name} went the wrong way{_change(old, new)}. A fact may only move "
                f"towards the merge of the facts before it, so `transfer` or `merge` is not monotone there."
            )
        if self.visits[name] > self.max_visits:
            raise DoesNotEnd(
                f"{where}: after {self.max_visits} visits the fact of block {name} still changes{_change(old, new)}. "
                f"Give the analysis a `widen` that jumps to a fact that holds for all later visits."
            )

    def solution(self) -> Solution:
        before, after = (self.inputs, self.outputs) if self.forward else (self.outputs, self.inputs)
        edges = {
            (block, target): self.edge_fact(block, target) if self.forward else self.outputs[target]
            for block, targets in successors(self.program).items()
            for target in targets
        }
        return Solution(before, after, edges, self.log)


def _change(old: Fact, new: Fact) -> str:
    """Return how a fact changed: both facts or, if one is too long to show, only the differences."""
    texts = fact_text(old), fact_text(new)
    if any(text.endswith("…") for text in texts):
        if isinstance(old, dict) and isinstance(new, dict):
            added, removed = (
                {k: v for k, v in a.items() if k not in b or b[k] != v} for a, b in ((new, old), (old, new))
            )
        elif isinstance(old, set | frozenset) and isinstance(new, set | frozenset):
            added, removed = new - old, old - new
        else:
            added, removed = None, None
        parts = [f"{verb} {fact_text(part)}" for verb, part in (("gains", added), ("loses", removed)) if part]
        if parts:
            return f": it {' and '.join(parts)}"
    return f", from {texts[0]} to {texts[1]}"
