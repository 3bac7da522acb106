"""The matches of a rewrite that are new, found by Python code that is written for it: nested loops over e-nodes.

`passlab.egraph.laws.matches` and `class_of` say the same for any pattern, and are many times slower. For the pattern
("mul", ("add", "?x", "?y"), "?x") and the right side ("mul", "?x", ("add", "?x", "?y")), the code is:

    for number in numbers:
        own = nodes[number]
        for n0 in nodes[number]:
            if n0[0] == L0 and len(n0) == 3:
                for n1 in nodes[n0[1]]:
                    if n1[0] == L1 and len(n1) == 3:
                        v0 = n1[1]
                        v1 = n1[2]
                        if v0 == n0[2]:
                            r0 = known((L1, v0, v1,))
                            r0 = None if r0 is None else find(r0)
                            if (L0, v0, r0,) not in own:
                                yield number, {"?x": v0, "?y": v1}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from passlab.egraph.graph import EGraph

#: Most loops in each other; Python allows 20.
DEEPEST = 18

Pattern = str | tuple[Any, ...]
Search = Callable[[EGraph, Sequence[int]], Iterator[tuple[int, Mapping[str, int]]]]


@lru_cache(maxsize=4096)
def search(left: Pattern, right: Pattern) -> Search | None:
    """Return a function of a rebuilt graph and some of its classes, None for a pattern of more than `DEEPEST` loops.

    It yields the matches of `left` in these classes whose `right` is not in the class that was matched: class, match.
    """
    writer = _Writer()
    writer.match(left, "number")
    if writer.loops > DEEPEST:
        return None
    writer.check(right)
    source = "\n".join(["def search(graph, numbers):", *_HEAD, *writer.lines])
    space: dict[str, Any] = {f"L{at}": label for label, at in writer.labels.items()}
    exec(source, space)
    return space["search"]


_HEAD = (
    "    nodes, find, known = graph.nodes, graph.find, graph.classes.get",
    "    for number in numbers:",
    "        own = nodes[number]",
)


class _Writer:
    """The lines of a function, and what stands in them for labels and variables."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.labels: dict[Hashable, int] = {}
        self.names: dict[str, str] = {}
        self.loops = self.lookups = 0
        self.indent = 8

    def line(self, text: str, deeper: bool = False) -> None:
        self.lines.append(" " * self.indent + text)
        self.indent += 4 * deeper

    def label(self, label: Hashable) -> str:
        return f"L{self.labels.setdefault(label, len(self.labels))}"

    def match(self, pattern: Pattern, place: str) -> None:
        """Write what binds the variables of a pattern, at the class that `place` gives."""
        if isinstance(pattern, str):
            if pattern in self.names:
                self.line(f"if {self.names[pattern]} == {place}:", deeper=True)
            else:
                self.names[pattern] = f"v{len(self.names)}"
                self.line(f"{self.names[pattern]} = {place}")
            return
        label, *operands = pattern
        if not operands:
            self.line(f"if ({self.label(label)},) in nodes[{place}]:", deeper=True)
            return
        node = f"n{self.loops}"
        self.loops += 1
        self.line(f"for {node} in nodes[{place}]:", deeper=True)
        self.line(f"if {node}[0] == {self.label(label)} and len({node}) == {len(pattern)}:", deeper=True)
        for at, operand in enumerate(operands, 1):
            self.match(operand, f"{node}[{at}]")

    def check(self, right: Pattern) -> None:
        """Write what yields the match if the right side is not in the class."""
        if isinstance(right, str):
            self.line(f"if {self.names[right]} != number:", deeper=True)
        else:
            self.line(f"if {self.node(right)} not in own:", deeper=True)
        self.line(f"yield number, {{{', '.join(f'{key!r}: {name}' for key, name in self.names.items())}}}")

    def value(self, pattern: Pattern) -> str:
        """Write what looks up the class of a term, None if there is no such term; return its name."""
        if isinstance(pattern, str):
            return self.names[pattern]
        node, name = self.node(pattern), f"r{self.lookups}"
        self.lookups += 1
        self.line(f"{name} = known({node})")
        self.line(f"{name} = None if {name} is None else find({name})")
        return name

    def node(self, pattern: tuple[Any, ...]) -> str:
        """Return the e-node of a term, after writing what looks up its operands."""
        return f"({', '.join([self.label(pattern[0]), *map(self.value, pattern[1:])])},)"
