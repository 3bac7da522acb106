"""One solver for every dataflow analysis.

An analysis is data: a direction, a fact to start with, a way to merge two facts, and what a block does to a fact. The
solver looks for facts that agree with all blocks and edges at once (G. A. Kildall, "A Unified Approach to Global
Program Optimization", POPL 1973), and visits a block again only after a fact that it depends on has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from passlab.dataflow.cfg import Block, Program, predecessors, successors
from passlab.dataflow.order import loop_heads, reverse_postorder
from passlab.drawing.flow import fact_text

Fact = Any


class NotMonotone(ValueError):
    """A fact went back: more was known of a block's input, and less of its output."""


class DoesNotEnd(ValueError):
    """The facts of a block change without end."""


@dataclass(frozen=True)
class Analysis:
    """What distinguishes one analysis from another.

    `boundary(program)`: the fact at the entry (forward), or at each return (backward).
    `initial(program)`: the fact of a block that no fact has reached yet. Merging with it changes nothing.
    `merge(fact, fact)`: what is known where two edges meet.
    `transfer(block, fact)`: what is known at the other end of a block. It returns a new fact.
    `edge(block, target, fact)`: what is known on the edge to a target; forward only. None: the same as after the block.
    `widen(old, new)`: a fact above both, chosen so that facts cannot rise for ever. It is used at the heads of loops.
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
    """A visit to a block: the facts at its start and its end after it, and whether its result changed."""

    block: str
    before: Fact
    after: Fact
    changed: bool


@dataclass
class Solution:
    """The facts at the start and at the end of each block, in the order of the text whichever way they flow.

    `edges`: the fact on each edge. `log`: the visits, one after the other.
    """

    before: dict[str, Fact]
    after: dict[str, Fact]
    edges: dict[tuple[str, str], Fact] = field(default_factory=dict)
    log: list[Visit] = field(default_factory=list)

    @property
    def visits(self) -> int:
        return len(self.log)


def solve(program: Program, analysis: Analysis, order: Sequence[str] | None = None, most: int = 200) -> Solution:
    """Solve by a worklist that always visits the first waiting block of `order` (default: reverse post-order).

    Raise NotMonotone or DoesNotEnd for an analysis that is broken; both name the block. `most`: visits to one block.
    """
    state = Replay(program, analysis, order, most)
    place = {name: i for i, name in enumerate(state.order)}
    waiting = bytearray(b"\1") * len(state.order)  # 1 where the block of that place waits
    here = 0
    while (here := waiting.find(1, here)) >= 0:
        waiting[here] = 0
        name = state.order[here]
        if state.visit(name):
            for reader in state.readers[name]:
                if (there := place.get(reader)) is not None:
                    waiting[there] = 1
                    here = min(here, there)
    return state.solution()


def round_robin(program: Program, analysis: Analysis, order: Sequence[str] | None = None, most: int = 200) -> Solution:
    """Solve by visiting all blocks in `order` until a whole round changes nothing: the baseline of `solve`."""
    state = Replay(program, analysis, order, most)
    while sum([state.visit(name) for name in state.order]):
        pass
    return state.solution()


class Replay:
    """The facts while they are being found, visit by visit, whoever chooses the visits.

    `came`, `went`: where a block's fact comes in and goes out.
    """

    def __init__(self, program: Program, analysis: Analysis, order: Sequence[str] | None = None, most: int = 200):
        forward = analysis.direction == "forward"
        self.program, self.analysis, self.most, self.forward = program, analysis, most, forward
        flow = reverse_postorder(program, analysis.direction)
        reached = set(flow)
        # Blocks that nothing leads to run never: no fact flows out of them.
        self.order = flow if order is None else [name for name in order if name in reached]
        self.blocks = {block.name: block for block in program.blocks}
        ahead, behind = successors(program), predecessors(program)
        self.sources, self.readers = (behind, ahead) if forward else (ahead, behind)
        self.starts = {program.entry.name} if forward else {b.name for b in program.blocks if not ahead[b.name]}
        self.boundary, self.nothing = analysis.boundary(program), analysis.initial(program)
        self.heads = loop_heads(program, analysis.direction) if analysis.widen else set()
        self.came = dict.fromkeys(self.blocks, self.nothing)
        self.went = dict.fromkeys(self.blocks, self.nothing)
        self.count = dict.fromkeys(self.blocks, 0)
        self.log: list[Visit] = []

    def visit(self, name: str) -> bool:
        """Compute the facts of a block anew; return whether the one that others read has changed."""
        analysis = self.analysis
        fact = self.boundary if name in self.starts else self.nothing
        for source in self.sources[name]:
            fact = analysis.merge(fact, self.along(source, name))
        if name in self.heads and self.count[name]:
            fact = analysis.widen(self.came[name], fact)  # type: ignore[misc]
        old, new = self.went[name], analysis.transfer(self.blocks[name], fact)
        self.came[name], self.went[name] = fact, new
        self.count[name] += 1
        changed = new != old
        if changed:
            self._check(name, old, new)
        self.log.append(Visit(name, *((fact, new) if self.forward else (new, fact)), changed))
        return changed

    def along(self, source: str, name: str) -> Fact:
        """Return the fact that flows from a block to the next."""
        if self.analysis.edge is None or not self.forward:
            return self.went[source]
        return self.analysis.edge(self.blocks[source], name, self.went[source])

    def _check(self, name: str, old: Fact, new: Fact) -> None:
        what = f"{self.program.name}, analysis {self.analysis.name}"
        if self.analysis.merge(old, new) != new:
            raise NotMonotone(
                f"{what}: the fact of block {name} went the wrong way{_change(old, new)}. Facts may "
                f"only go towards what they become by merging, so `transfer` or `merge` is not monotone there."
            )
        if self.count[name] > self.most:
            raise DoesNotEnd(
                f"{what}: after {self.most} visits the fact of block {name} still changes{_change(old, new)}. "
                f"Give the analysis a `widen` that jumps to a fact that holds for all later visits."
            )

    def solution(self) -> Solution:
        before, after = (self.came, self.went) if self.forward else (self.went, self.came)
        edges = dict(self._edges())
        return Solution(before, after, edges, self.log)

    def _edges(self) -> Iterator[tuple[tuple[str, str], Fact]]:
        for block in self.program.blocks:
            for target in block.terminator.targets:
                there = self.along(block.name, target) if self.forward else self.went[target]
                yield (block.name, target), there


def _change(old: Fact, new: Fact) -> str:
    """Return how a fact changed: both facts or, if they are too long to be shown, what one has and the other lacks."""
    texts = fact_text(old), fact_text(new)
    if not any(text.endswith("…") for text in texts):
        return f", from {texts[0]} to {texts[1]}"
    if isinstance(old, dict) and isinstance(new, dict):
        added, lost = ({k: v for k, v in a.items() if k not in b or b[k] != v} for a, b in ((new, old), (old, new)))
    elif isinstance(old, set | frozenset) and isinstance(new, set | frozenset):
        added, lost = new - old, old - new
    else:
        return f", from {texts[0]} to {texts[1]}"
    parts = [f"{word} {fact_text(part)}" for word, part in (("gains", added), ("loses", lost)) if part]
    return f": it {' and '.join(parts)}"
