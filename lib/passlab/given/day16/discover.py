"""Day 16, discover: operations on square matrices of a finite field, and what follows from laws.

A term is a variable, "?x", or the name of an operation and terms: ("add", "?x", ("neg", "?y")).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from passlab.egraph import Law
from passlab.egraph.discover import FUNCTIONS, text
from passlab.egraph.discover import follows as follows_from
from passlab.egraph.laws import variables
from passlab.proving.field import P

__all__ = ["ARITY", "P", "follows", "value", "variables"]

Term = str | tuple[Any, ...]
#: Name of an operation → how many operands it has.
ARITY: dict[str, int] = {name: arity for name, (arity, _) in FUNCTIONS.items()}
#: Limits of `follows`: e-nodes, and rounds of saturation.
NODES, ROUNDS = 1_000, 3


def value(term: Term, numbers: Mapping[str, Tensor]) -> Tensor:
    """Return what a term gives for matrices of the field: whole numbers from 0 to P - 1, (..., n, n).

    `mul` multiplies element by element, `matmul` as matrices do. Of `relu` only the name is known: it is some function
    of each element.
    """
    if isinstance(term, str):
        return numbers[term]
    name, *operands = term
    return FUNCTIONS[name][1](*(value(operand, numbers) for operand in operands))


def follows(
    left: Term, right: Term, laws: Sequence[tuple[Term, Term]], nodes: int = NODES, rounds: int = ROUNDS
) -> bool:
    """Return whether laws make two terms equal: saturation, within limits, brings them together.

    A law is a pair of terms. It is read from left to right, and also from right to left if both sides have the same
    variables and the right one is not a variable alone.
    """
    return follows_from(left, right, rewrites(laws), nodes, rounds)


def rewrites(laws: Sequence[tuple[Term, Term]]) -> list[Law]:
    """Return pairs of terms as the laws of the e-graph."""
    return [Law(f"{text(left)} = {text(right)}", left, right, both=_both(left, right)) for left, right in laws]


def _both(left: Term, right: Term) -> bool:
    return not isinstance(right, str) and variables(left) == variables(right)


def constants(term: Term) -> tuple[Any, ...]:
    """Return a term whose variables are leaves."""
    return (term,) if isinstance(term, str) else (term[0], *map(constants, term[1:]))
