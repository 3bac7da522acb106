"""E-graphs: sets of equal terms, in which what terms share is stored once.

    graph = EGraph()
    root = graph.add_term(("div", ("mul", ("a",), ("2",)), ("2",)))

A term is a tuple: what it applies (anything hashable), then its operands, which are terms. The terms of an e-graph have
numbers. Equal ones are in one class, and an e-node is a term whose operands are classes. Four parts keep that small:

- union-find: `find` names the class of a term.
- hash-consing: `add` returns the number of a term that is there.
- congruence: if a = b, then f(a) = f(b). `rebuild` restores that after `union`, for many unions at once.
- a proof forest: each union leaves an edge with its reason. `explain` reads the edges on the way between two terms.

Sources: "egg: Fast and Extensible Equality Saturation", Max Willsey and others, POPL 2021 (rebuilding, analyses);
"Proof-Producing Congruence Closure", Robert Nieuwenhuis and Albert Oliveras, RTA 2005 (the forest).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

#: What is applied, then the operands: numbers of terms in an e-node, terms in a term.
Node = tuple[Any, ...]
Term = tuple[Any, ...]

CONGRUENCE = "congruence"


class Step(NamedTuple):
    """One rewrite of a whole term. `law`: the one that was applied somewhere in it, from right to left if `back`."""

    term: Term
    law: str
    back: bool


class Analysis:
    """What is known of each class, from its e-nodes: a fact of a semilattice, such as a type or a constant."""

    def make(self, graph: EGraph, node: Node) -> Any:
        """Return what one e-node tells; `graph.facts[graph.find(child)]` has what is known of its operands."""
        return None

    def join(self, a: Any, b: Any) -> Any:
        """Return what is known of a class, of whose members `a` and `b` are known."""
        return a

    def modify(self, graph: EGraph, number: int) -> None:
        """Change the graph by what is known of a class, for instance add the constant that it is."""


class EGraph:
    """Classes of equal terms. See the module.

    `terms`: number → the e-node as it was added. `nodes`: class → its e-nodes, whose operands are classes after
    `rebuild`. `facts`: class → what the analysis knows. `classes`: e-node whose operands are classes → its class, which
    `find` makes current.
    """

    def __init__(self, analysis: Analysis | None = None):
        self.analysis = analysis or Analysis()
        self.terms: list[Node] = []
        self.nodes: dict[int, dict[Node, None]] = {}
        self.facts: dict[int, Any] = {}
        self._leader: list[int] = []
        self._numbers: dict[Node, int] = {}  # of each e-node as it was added
        self.classes: dict[Node, int] = {}  # of each e-node whose operands are classes
        self._uses: dict[int, list[int]] = {}  # class → terms with an operand in it
        self._edge: list[tuple[int, str, bool] | None] = []  # the proof forest: number → (next, law, back)
        self._unions: list[int] = []  # classes whose uses may have become equal
        self._changes: list[int] = []  # classes of which more is known

    def __len__(self) -> int:
        """Return the number of e-nodes."""
        return sum(map(len, self.nodes.values()))

    def find(self, number: int) -> int:
        """Return the class of a term: the number of one of its members."""
        leader = self._leader
        while leader[number] != number:
            leader[number] = number = leader[leader[number]]
        return number

    def add_term(self, term: Term) -> int:
        """Return the number of a term, after adding it and what it applies something to."""
        return self.add(term[0], *map(self.add_term, term[1:]))

    def add(self, label: Hashable, *operands: int) -> int:
        """Return the number of an e-node, given the numbers of its operands."""
        node = (label, *operands)
        if (number := self._numbers.get(node)) is not None:
            return number
        number = self._numbers[node] = len(self.terms)
        self.terms.append(node)
        self._edge.append(None)
        canonical = self._canonical(node)
        if canonical in self.classes:  # the same with other names of its operands
            self._leader.append(self.find(self.classes[canonical]))
            self._link(number, self.classes[canonical], CONGRUENCE, False)
            return number
        self._leader.append(number)
        self.nodes[number], self._uses[number], self.classes[canonical] = {canonical: None}, [], number
        for operand in canonical[1:]:
            self._uses[operand].append(number)
        self.facts[number] = self.analysis.make(self, canonical)
        self.analysis.modify(self, number)
        return number

    def lookup(self, label: Hashable, *operands: int) -> int | None:
        """Return the class of an e-node, None if there is no such e-node."""
        number = self.classes.get((label, *map(self.find, operands)))
        return None if number is None else self.find(number)

    def union(self, a: int, b: int, law: str = "", back: bool = False) -> bool:
        """Put two terms into one class; return whether they were in two. law: why they are equal."""
        one, other = self.find(a), self.find(b)
        if one == other:
            return False
        self._link(a, b, law, back)
        if len(self._uses[one]) + len(self.nodes[one]) < len(self._uses[other]) + len(self.nodes[other]):
            one, other = other, one
        self._leader[other] = one
        self.nodes[one] |= self.nodes.pop(other)
        self._uses[one] += self._uses.pop(other)
        self._unions.append(one)
        before, fact = self.facts[one], self.facts.pop(other)
        self.facts[one] = self.analysis.join(before, fact)
        if self.facts[one] != before or self.facts[one] != fact:
            self._changes.append(one)
        self.analysis.modify(self, one)
        return True

    def rebuild(self) -> None:
        """Restore congruence: terms of one label whose operands are equal become equal, and those that use them."""
        touched = set()
        while self._unions or self._changes:
            unions, self._unions = {self.find(number) for number in self._unions}, []
            for number in unions:
                self._repair(number)
            touched |= unions
            changes, self._changes = {self.find(number) for number in self._changes}, []
            for number in changes:
                self._learn(number)
        joined = {self.find(number) for number in touched}
        users = {self.find(user) for number in joined for user in self._uses[number]}
        for number in joined | users:
            self.nodes[number] = {self._canonical(node): None for node in self.nodes[number]}

    def _repair(self, number: int) -> None:
        """Give the users of a class their new names; where two have become one e-node, join their classes."""
        number = self.find(number)
        users = self._uses[number] = list(dict.fromkeys(self._uses[number]))
        for user in list(users):
            self.union(user, self.classes.setdefault(self._canonical(self.terms[user]), user), CONGRUENCE)

    def _learn(self, number: int) -> None:
        """Tell the users of a class what is known of it."""
        for user in list(self._uses[self.find(number)]):
            place = self.find(user)
            fact = self.analysis.join(self.facts[place], self.analysis.make(self, self._canonical(self.terms[user])))
            if fact != self.facts[place]:
                self.facts[place] = fact
                self._changes.append(place)
                self.analysis.modify(self, place)

    def _canonical(self, node: Node) -> Node:
        return (node[0], *map(self.find, node[1:]))

    # ------------------------------------------------------------------------------------------------- explanations

    def term(self, number: int) -> Term:
        """Return a term as it was added."""
        label, *operands = self.terms[number]
        return (label, *map(self.term, operands))

    def explain(self, a: int, b: int) -> list[Step]:
        """Return why two terms are equal: rewrites of whole terms, from the first to the second.

        Raise ValueError if they are not in one class.
        """
        if self.find(a) != self.find(b):
            raise ValueError(f"The terms {self.term(a)} and {self.term(b)} are in two classes.")
        return list(self._steps(a, b))

    def _steps(self, a: int, b: int) -> Iterator[Step]:
        for one, other, law, back in self._path(a, b):
            if law != CONGRUENCE:
                yield Step(self.term(other), law, back)
                continue
            label, *operands = self.terms[one]
            parts = [self.term(operand) for operand in operands]
            for place, (old, new) in enumerate(zip(operands, self.terms[other][1:], strict=True)):
                for step in self._steps(old, new):
                    parts[place] = step.term
                    yield Step((label, *parts), step.law, step.back)

    def _link(self, a: int, b: int, law: str, back: bool) -> None:
        """Let an edge lead from `a` to `b`, after turning the edges from `a` to the root of its tree around."""
        edge: tuple[int, str, bool] | None = (b, law, back)
        number = a
        while edge is not None:
            self._edge[number], edge = edge, self._edge[number]
            if edge is not None:
                number, edge = edge[0], (number, edge[1], not edge[2])

    def _path(self, a: int, b: int) -> list[tuple[int, int, str, bool]]:
        """Return the edges of the forest from one term to another."""
        from_a, from_b = self._ascent(a), self._ascent(b)
        while from_a and from_b and from_a[-1] == from_b[-1]:
            from_a.pop()
            from_b.pop()
        down = [(other, one, law, not back) for one, other, law, back in reversed(from_b)]
        return from_a + down

    def _ascent(self, number: int) -> list[tuple[int, int, str, bool]]:
        edges = []
        while (edge := self._edge[number]) is not None:
            edges.append((number, *edge))
            number = edge[0]
        return edges
