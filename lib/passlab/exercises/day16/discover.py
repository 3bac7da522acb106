"""Day 16, laws found by evaluation: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch

from passlab.egraph.discover import candidates, enumerate_terms, size, text
from passlab.egraph.graph import EGraph
from passlab.egraph.laws import saturate, variables
from passlab.given.day16.discover import ARITY, P, Term, constants, follows, rewrites, value
from passlab.judge import Case, Finding, plural, shown
from passlab.judge.forms import why_not_a_list

Pair = tuple[Term, Term]
#: Limits for `follows` where it is asked whether laws are complete: more than those of the exercise's own.
NODES, ROUNDS = 4_000, 6
#: Limits where all terms are in one graph.
ALL_NODES, ALL_ROUNDS = 10_000, 3
#: How many laws are looked at; no case has as many.
MOST = 60
#: Draws of numbers on which a law must hold.
DRAWS = 3


def discover_case(name: str, operations: Sequence[str], names: str, most: int, empty: bool = False) -> Case:
    """Return a case of some operations, variables ("x y") and at most `most` operations on a side.

    empty: there are no laws, so that the case does not decide `did`.
    """
    marked = [f"?{one}" for one in names.split()]
    about = ("valid", "same", "spared") if empty else ("valid", "same", "did", "spared")
    return Case(name, lambda: (list(operations), list(marked), most), about)


def cases() -> list[Case]:
    return [
        discover_case("a product", ["mul"], "x y z", 2),
        discover_case("matrices, transposed", ["transpose", "matmul"], "x y", 3),
        discover_case("signs", ["neg", "mul"], "x y z", 2),
        discover_case("sums and products", ["add", "mul"], "x y z", 2),
    ]


@cache
def basis(operations: tuple[str, ...], names: tuple[str, ...], most: int) -> list[Pair]:
    """Return laws of which all true equations follow, and none from the others."""
    laws: list[Pair] = []
    own = dict(zip(("?x", "?y", "?z"), names, strict=False))  # candidates have these names
    pairs = candidates(enumerate_terms(operations, names, most))
    for left, right in (map(partial(_named, own), pair) for pair in pairs):
        if not follows(left, right, laws):
            laws.append((left, right))
    for law in reversed(list(laws)):
        rest = [other for other in laws if other is not law]
        if follows(*law, rest):
            laws = rest
    return laws


def _named(names: dict[str, str], term: Term) -> Term:
    """Return a term with other names for its variables."""
    return names[term] if isinstance(term, str) else (term[0], *(_named(names, part) for part in term[1:]))


def equation(law: Pair) -> str:
    """Return a law as one writes it."""
    return f"{text(law[0])} = {text(law[1])}"


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_a_term(term: Any, operations: Sequence[str], names: Sequence[str]) -> str:
    """Return why a value is not a term over some operations and variables, or ""."""
    if isinstance(term, str):
        return "" if term in names else f"{shown(term)} is not one of the variables {', '.join(names)}."
    if not isinstance(term, tuple) or not term or not isinstance(term[0], str):
        return f"A term is a variable, or a tuple of an operation and terms; one here is {shown(term)}."
    name, *operands = term
    if name not in operations:
        return f"{shown(name)} is not one of the operations {', '.join(operations)}."
    if len(operands) != ARITY[name]:
        return f"{name} has {plural(ARITY[name], 'operand')}; in {shown(term)} it has {len(operands)}."
    return next(filter(None, (why_not_a_term(operand, operations, names) for operand in operands)), "")


def _tuples(term: Any) -> Any:
    return tuple(map(_tuples, term)) if isinstance(term, list | tuple) else term


def why_not_laws(laws: Any, operations: Sequence[str], names: Sequence[str], most: int) -> str:
    """Return why a value is not a list of laws, or ""."""
    if reason := why_not_a_list(laws, "a list of laws"):
        return reason
    for law in laws:
        if not isinstance(law, list | tuple) or len(law) != 2:
            return f"A law is a pair of terms; one here is {shown(law)}."
        left, right = map(_tuples, law)
        for side in (left, right):
            if reason := why_not_a_term(side, operations, names):
                return reason
            if size(side) > most:
                return f"{text(side)} has {size(side)} operations; at most {most} were asked for."
        if isinstance(left, str):
            return f"The left side of {equation((left, right))} is a variable alone: it would match any term."
        if loose := variables(right) - variables(left):
            name = sorted(loose)[0].lstrip("?")
            return f"The left side of {equation((left, right))} does not say what {name} is."
    return ""


@cache
def _numbers(names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return random matrices of the field, some of a few draws."""
    gen = torch.Generator().manual_seed(16)
    return {name: torch.randint(P, (DRAWS, 3, 3), generator=gen) for name in names}


def is_true(law: Pair, names: Sequence[str]) -> bool:
    """Return whether a law holds for random matrices of the field; for a false one the chance is below 1 in 10⁹."""
    left, right = (value(side, _numbers(tuple(names))) for side in law)
    return bool((left == right).all())


def judge(case: Case, value: Any) -> Iterator[Finding]:
    operations, names, most = case.build()
    broken = why_not_laws(value, operations, names, most)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    laws: list[Pair] = [(_tuples(left), _tuples(right)) for left, right in value]
    wrong = [law for law in laws if not is_true(law, names)]
    yield Finding("same", not wrong, f"{equation(wrong[0])} is not true." if wrong else "")
    true = [law for law in laws if law not in wrong]
    missing = why_incomplete(true[:MOST], operations, names, most)
    if case.asks("did"):
        yield Finding("did", not missing, missing)
    several = why_not_minimal(true[:MOST])
    if not several and len(true) > MOST:
        several = f"You have {len(true)} laws; at most {MOST} are read."
    yield Finding("spared", not several, several)


def why_incomplete(laws: Sequence[Pair], operations: Sequence[str], names: Sequence[str], most: int) -> str:
    """Return a true law that does not follow from others, or ""."""
    every = basis(tuple(operations), tuple(names), most)
    left_out = [law for law in every if law not in laws and not follows(*law, laws, NODES, ROUNDS)]
    if left_out:
        left_out = _apart(laws, left_out, enumerate_terms(operations, names, most).terms)
    if not left_out:
        return ""
    return f"{equation(left_out[0])} is true, and does not follow from your {plural(len(laws), 'law')}."


def _apart(laws: Sequence[Pair], pairs: Sequence[Pair], terms: Sequence[Term]) -> list[Pair]:
    """Return the pairs that laws do not bring together in the e-graph of all terms: one may be the way to another."""
    graph = EGraph()
    numbers = {term: graph.add_term(constants(term)) for term in terms}
    saturate(graph, rewrites(laws), nodes=ALL_NODES, rounds=ALL_ROUNDS)
    return [pair for pair in pairs if len({graph.find(numbers[side]) for side in pair}) > 1]


def why_not_minimal(laws: Sequence[Pair]) -> str:
    """Return which law follows from the others, or ""."""
    for number, law in enumerate(laws):
        if follows(*law, [*laws[:number], *laws[number + 1 :]]):
            return f"{equation(law)} follows from your other laws."
    return ""
