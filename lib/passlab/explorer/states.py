"""The program after each pass of a pipeline, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, equal, fx

from passlab.drawing.boxes import CHANGES, Box, line
from passlab.drawing.difference import diff, match, merged
from passlab.drawing.graphs import draw
from passlab.drawing.picture import Picture
from passlab.explorer import figures, origins, passes, programs
from passlab.explorer.figures import Figures
from passlab.explorer.passes import Pass
from passlab.explorer.programs import Program, Source
from passlab.process.error_text import reason

#: Positions of passes in the list, in the order in which they run.
Key = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A line of a state. `sign`: + − ~ ≠, or "". `origin`: the nodes of the first graph that the node stands for."""

    sign: str
    id: str
    text: str
    changes: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """A program after a pass. `before`: the state that the pass ran on, None for the first.

    `problem`: why the pass failed, or what is wrong with the program. `boxes` are the nodes of both programs, as in a
    picture of their difference, and none after a conversion; `changed` says whether there is any.
    """

    program: Program
    origin: Mapping[str, tuple[str, ...]]
    before: State | None = None
    boxes: tuple[Box, ...] = ()
    problem: str = ""
    changed: bool = True

    @property
    def summary(self) -> str:
        """What the pass did: "2 removed, 1 rewired"."""
        if self.problem or not self.before or not self.changed:
            return self.problem
        if not self.boxes:
            return f"converted to {self.program.graph.ir}"
        count = {change: sum(box.change == change for box in self.boxes) for change in CHANGES if change != "kept"}
        text = ", ".join(f"{number} {change}" for change, number in count.items() if number)
        return text or "the same nodes, with other weights or attributes"

    @property
    def rows(self) -> list[Row]:
        if not self.boxes:
            return [Row("", n.id, line(n), "", self.origin.get(n.id, ())) for n in self.program.graph]
        result = []
        for box in self.boxes:
            node, removed = box.nodes[0], box.change == "removed"
            of = (self.before.origin if removed and self.before else self.origin).get(node.id, ())
            result.append(Row(CHANGES[box.change].sign, node.id, line(node), box.what_changed, of))
        return result

    @cached_property
    def picture(self) -> Picture:
        """The difference to the program before; the program itself if it is the first one, or converted."""
        graph = self.program.graph
        return diff(self.before.program.graph, graph) if self.before and self.boxes else draw(graph)


class States:
    """All states that were asked for. A state and its verdict are computed once, whatever pipeline leads there."""

    def __init__(self, model: Any, inputs: tuple, chosen: Sequence[str | Any] | None):
        self.inputs = inputs
        first = programs.capture(model, inputs)
        self.source: Source = programs.source(first)
        choice = passes.chosen(first.value, chosen or ())
        names = {item.name for item in choice}
        rest = [item for name, item in passes.catalogue(first.value).items() if name not in names]
        #: The passes in the list; the first `on` of them are on.
        self.passes: list[Pass] = [*choice, *rest]
        self.on = len(choice)
        self.first = State(first, {node.id: (node.id,) for node in first.graph}, problem=first.error)
        self._after: dict[tuple[int, int], State] = {}
        self._figures: dict[int, Figures] = {}
        self._verdicts: dict[int, tuple[bool | None, str]] = {}

    def state(self, key: Key) -> State:
        """Return the state after the passes of a key, in its order."""
        if not key:
            return self.first
        before = self.state(key[:-1])
        while before.before and not before.changed:  # the pass before changed nothing: what it was given
            before = before.before
        place = id(before), key[-1]
        if place not in self._after:
            self._after[place] = _next(before, self.passes[key[-1]], self.inputs)
        return self._after[place]

    def figures(self, state: State) -> Figures:
        """Return the cost of a state's program."""
        return self._once(self._figures, state.program, lambda p: figures.figures(p, self.inputs))

    def verdict(self, state: State) -> tuple[bool | None, str]:
        """Return whether a state's program computes what the first one does, and a sentence."""
        compare = figures.compare
        return self._once(self._verdicts, state.program, lambda p: compare(self.first.program, p, self.inputs))

    def lines(self, row: Row) -> list[int]:
        """Return the positions of the lines of source that a row comes from."""
        return list(dict.fromkeys(line for id in row.origin for line in self.source.lines_of.get(id, ())))

    def module(self, row: Row) -> str:
        """Return the path of the module that a row comes from."""
        return next((path for id in row.origin if (path := self.source.module_of.get(id))), "")

    @staticmethod
    def _once(known: dict[int, Any], program: Program, compute: Any) -> Any:
        if id(program) not in known:
            known[id(program)] = compute(program)
        return known[id(program)]


def _next(before: State, item: Pass, inputs: tuple) -> State:
    """Return the state after a pass. A pass that fails leaves the program as it was."""
    old = before.program
    outcome = passes.call(item, programs.duplicate(old.value))
    if outcome.problem:
        return State(old, before.origin, before, problem=outcome.problem, changed=False)
    try:
        new = programs.read(outcome.value, inputs, outcome.weights or old.weights)
    except Exception as error:
        problem = f"What it returned cannot be read: {reason(error) or type(error).__name__}."
        return State(old, before.origin, before, problem=problem, changed=False)
    if new.graph.ir != old.graph.ir:
        return State(new, origins.converted(old, new, inputs, before.origin), before, problem=new.error)
    pairs = match(old.graph, new.graph)
    boxes = merged(old.graph, new.graph, pairs).values()
    if new.error == old.error and all(b.change == "kept" for b in boxes) and _same_rest(old.value, new.value):
        return State(old, before.origin, before, changed=False)
    origin = origins.origins(old.graph, new.graph, pairs, before.origin)
    return State(new, origin, before, tuple(boxes), new.error)


def _same_rest(old: Any, new: Any) -> bool:
    """Return whether two values whose views are equal are equal in what a view does not show: weights, attributes."""
    if not isinstance(old, fx.GraphModule):
        return old is new or str(old) == str(new)
    a, b = dict(old.state_dict()), dict(new.state_dict())
    return all(name in a and _same(a[name], b[name]) for name in b)


def _same(a: Any, b: Any) -> bool:
    return not isinstance(a, Tensor) or (a.shape == b.shape and a.dtype == b.dtype and equal(a, b))
