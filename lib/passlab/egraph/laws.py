"""Laws, where they match in an e-graph, and applying them until nothing is new: equality saturation.

    report = saturate(graph, [Law("x · 2 = x + x", ("mul", "?x", ("2",)), ("add", "?x", "?x"))])

A pattern is a term in which a text that begins with "?" stands for any class, the same one wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from passlab.egraph.graph import EGraph
from passlab.egraph.search import search

#: A variable, or a label and patterns of its operands.
Pattern = str | tuple[Any, ...]
#: Variable → class.
Match = Mapping[str, int]


class Law(NamedTuple):
    """Two patterns that mean the same, if `when(graph, match)` holds. `both`: it is applied in both directions."""

    name: str
    left: Pattern
    right: Pattern
    when: Callable[[EGraph, Match], bool] | None = None
    both: bool = False


def variables(pattern: Pattern) -> set[str]:
    """Return the variables of a pattern."""
    return {pattern} if isinstance(pattern, str) else set().union(*map(variables, pattern[1:]))


class Rewrite(NamedTuple):
    """A law in one direction: its `left` becomes its `right`, which are those of the law turned round if `back`."""

    law: Law
    back: bool
    left: tuple[Any, ...]
    right: Pattern


def checked(laws: Sequence[Law]) -> list[Rewrite]:
    """Return the rewrites of all laws.

    Raise ValueError for a law that makes a term of a variable that nothing binds, or that matches any term.
    """
    rewrites = []
    for law in laws:
        for back in (False, True)[: 1 + law.both]:
            left, right = (law.right, law.left) if back else (law.left, law.right)
            if isinstance(left, str):
                raise ValueError(
                    f"The law {law.name} matches each term of the graph: {left} is only a variable. Write it the other "
                    "way round, without both=True."
                )
            if loose := variables(right) - variables(left):
                names = ", ".join(sorted(loose))
                raise ValueError(
                    f"The law {law.name} makes a term with {names}, which its other side does not bind: use only "
                    "variables of both sides there."
                )
            rewrites.append(Rewrite(law, back, left, right))
    return rewrites


def matches(
    graph: EGraph, pattern: Pattern, number: int, match: dict[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Yield each way in which a pattern matches a class. The graph must be rebuilt."""
    match = match or {}
    number = graph.find(number)
    if isinstance(pattern, str):
        if match.get(pattern, number) == number:
            yield {**match, pattern: number}
        return
    label, *operands = pattern
    for node in graph.nodes[number]:
        if node[0] == label and len(node) == len(pattern):
            yield from _matches_all(graph, operands, node[1:], match)


def _matches_all(
    graph: EGraph, patterns: Sequence[Pattern], numbers: Sequence, match: dict
) -> Iterator[dict[str, int]]:
    if not patterns:
        yield match
        return
    for first in matches(graph, patterns[0], numbers[0], match):
        yield from _matches_all(graph, patterns[1:], numbers[1:], first)


def instance(graph: EGraph, pattern: Pattern, match: Match) -> int:
    """Return the number of a pattern's term for a match, after adding it."""
    if isinstance(pattern, str):
        return match[pattern]
    label, *parts = pattern
    return graph.add(label, *[match[part] if isinstance(part, str) else instance(graph, part, match) for part in parts])


def class_of(graph: EGraph, pattern: Pattern, match: Match) -> int | None:
    """Return the class of a pattern's term for a match, None if the graph has no such term."""
    if isinstance(pattern, str):
        return graph.find(match[pattern])
    label, *parts = pattern
    operands: list[int] = []
    for part in parts:
        number = match[part] if isinstance(part, str) else class_of(graph, part, match)
        if number is None:
            return None
        operands.append(number)
    return graph.lookup(label, *operands)


def new_matches(graph: EGraph, left: Pattern, right: Pattern, numbers: Sequence[int]) -> Iterator[tuple[int, Match]]:
    """Yield class and match for the matches of `left` in these classes that do not have `right` yet. See `search`."""
    for number in numbers:
        for match in matches(graph, left, number):
            if class_of(graph, right, match) != number:
                yield number, match


def _to_apply(graph: EGraph, rewrite: Rewrite, numbers: Sequence[int]) -> Iterator[tuple[int, Match]]:
    """Return the matches in these classes at which a rewrite may be applied and is not yet in the graph."""
    fast = search(rewrite.left, rewrite.right)
    new = fast(graph, numbers) if fast else new_matches(graph, rewrite.left, rewrite.right, numbers)
    when = rewrite.law.when
    return new if when is None else ((number, match) for number, match in new if when(graph, match))


@dataclass
class Report:
    """What saturation did. `stop`: "saturated", or which limit was reached: "nodes", "rounds" or "matches".

    `applied`: law → how many unions it made.
    """

    stop: str = ""
    rounds: int = 0
    nodes: int = 0
    classes: int = 0
    applied: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        about = f"after {self.rounds} rounds: {self.nodes:,} e-nodes in {self.classes:,} classes"
        if self.stop == "saturated":
            return f"saturated {about}"
        limit = {"matches": "matches_each"}.get(self.stop, self.stop)
        return f"stopped {about}, by the limit `{limit}` of saturate: raise it, or leave out the laws that grow most"


def _by_label(graph: EGraph) -> dict[Any, list[int]]:
    """Return the label of an e-node → the classes that have an e-node with it."""
    places: dict[Any, list[int]] = {}
    for number, members in graph.nodes.items():
        for label in {node[0] for node in members}:
            places.setdefault(label, []).append(number)
    return places


def saturate(
    graph: EGraph, laws: Sequence[Law], *, nodes: int = 50_000, rounds: int = 30, matches_each: int = 20_000
) -> Report:
    """Apply laws until they make nothing new, or to a limit.

    In a round all laws are matched against the graph as it is, then all matches are applied: so the order of laws does
    not matter. nodes: most e-nodes; a law that has more than `matches_each` matches in a round is not applied to the
    rest of them.
    """
    rewrites, report = checked(laws), Report(applied=dict.fromkeys([law.name for law in laws], 0))
    graph.rebuild()
    while not report.stop:
        report.rounds += 1
        pending, cut = [], False
        places = _by_label(graph)
        for rewrite in rewrites:
            for count, (number, match) in enumerate(_to_apply(graph, rewrite, places.get(rewrite.left[0], ()))):
                if count == matches_each:
                    cut = True
                    break
                pending.append((rewrite, number, match))
        unions = 0
        for (law, back, left, right), number, match in pending:
            if class_of(graph, right, match) == graph.find(number):  # by a match that was applied before this one
                continue
            one, other = instance(graph, left, match), instance(graph, right, match)
            union = graph.union(one, other, law.name, back)
            report.applied[law.name] += union
            unions += union
            if len(graph.terms) > 4 * nodes:
                break
        graph.rebuild()
        if len(graph) > nodes or len(graph.terms) > 4 * nodes:
            report.stop = "nodes"
        elif not unions:
            report.stop = "matches" if cut else "saturated"
        elif report.rounds == rounds:
            report.stop = "rounds"
    report.nodes, report.classes = len(graph), len(graph.nodes)
    return report
