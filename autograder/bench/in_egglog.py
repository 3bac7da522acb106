"""Equality saturation by egglog: terms and laws of the course as a program in egglog's language, and what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from passlab.egraph import EGraph, Law, cheapest, saturate


class Size(NamedTuple):
    """What saturation makes of a term: e-nodes, and how many e-nodes the smallest tree has."""

    nodes: int
    cost: int

    def __str__(self) -> str:
        return f"{self.nodes:,} e-nodes, smallest tree {self.cost}"


def ours(term: tuple[Any, ...], laws: Sequence[Law], rounds: int) -> Size:
    """Saturate a term with the course's e-graph."""
    graph = EGraph()
    root = graph.add_term(term)
    saturate(graph, laws, nodes=10**6, rounds=rounds, matches_each=10**7)
    return Size(len(graph), cheapest(graph, root)[1])


def egglog(term: tuple[Any, ...], laws: Sequence[Law], rounds: int) -> Size:
    """Saturate a term with egglog. Raise ImportError where it is not installed."""
    from egglog.bindings import EGraph

    graph = EGraph()
    *_, sizes, best = graph.run_program(*graph.parse_program(program(term, laws, rounds)))
    return Size(sum(size for _, size in sizes.sizes), best.cost)


def program(term: tuple[Any, ...], laws: Sequence[Law], rounds: int) -> str:
    """Return the program that saturates a term, prints the sizes of its tables, and extracts the smallest tree."""
    sides = [side for law in laws for side in (law.left, law.right)]
    labels = sorted(set().union(*map(_labels, [term, *sides])))
    calls = " ".join(f"({_name(label)}{' T' * arity})" for label, arity in labels)
    return "\n".join(
        [
            f"(datatype T (leaf String :cost 0) {calls})",  # the text of a leaf costs 1 in egglog
            *(f"({'birewrite' if law.both else 'rewrite'} {_text(law.left)} {_text(law.right)})" for law in laws),
            f"(let $root {_text(term)})",
            f"(run {rounds})",
            "(print-size)",
            "(extract $root)",
        ]
    )


def _labels(pattern: Any) -> set[tuple[str, int]]:
    """Return what a pattern applies, each with its number of operands."""
    if isinstance(pattern, str) or len(pattern) == 1:
        return set()
    return {(str(pattern[0]), len(pattern) - 1)}.union(*map(_labels, pattern[1:]))


def _text(pattern: Any) -> str:
    if isinstance(pattern, str):
        return pattern.removeprefix("?")
    label, *parts = pattern
    return f"({_name(label)} {' '.join(map(_text, parts))})" if parts else f'(leaf "{label}")'


def _name(label: Any) -> str:
    """Return a name that egglog has not taken: it knows `neg` and others as functions of numbers."""
    return f"{label}_of"
