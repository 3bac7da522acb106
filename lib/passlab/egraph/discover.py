"""Laws found by evaluation: all small terms are evaluated in a finite field, and those that agree are laws.

    for finding in discover(operations=2):
        print(finding.law.name, finding.proof.verdict)

Of the laws that are true, one is kept only if it does not follow from those before it: both sides are put into an
e-graph, and saturation with the laws so far must not bring them together.

Sources: "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", Zhihao Jia and
others, SOSP 2019 (enumeration and fingerprints); "Rewrite Rule Inference Using Equality Saturation", Chandrakana Nandi
and others, OOPSLA 2021 (leaving out what follows).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from passlab.egraph.graph import EGraph, Term
from passlab.egraph.laws import Law, saturate, variables
from passlab.proving import Proof
from passlab.proving.field import Field, P, product
from passlab.proving.laws import prove_terms

#: Name of a function of square matrices → what it does in the field. Of relu only the name is known.
FUNCTIONS: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "transpose": (1, lambda a: a.mT),
    "relu": (1, lambda a: Field(0).unknown("relu", a)),
    "neg": (1, lambda a: -a % P),
    "add": (2, lambda a, b: (a + b) % P),
    "sub": (2, lambda a, b: (a - b) % P),
    "mul": (2, lambda a, b: a * b % P),
    "matmul": (2, product),
}
#: How many graph substitutions TASO found and kept, of up to four operators (section 4 of the paper).
TASO = 743
_SIGN = {"add": "+", "sub": "−", "mul": "·", "truediv": "/", "div": "/", "matmul": "@"}


class Finding(NamedTuple):
    """A law, and what is known of it in float32."""

    law: Law
    proof: Proof


class Enumeration(NamedTuple):
    """All terms of up to some operations, smallest first, and a fingerprint of each: its value in the field."""

    terms: list[Term | str]
    prints: list[bytes]


def enumerate_terms(functions: Sequence[str], names: Sequence[str], operations: int, seed: int = 0) -> Enumeration:
    """Return all terms over variables and functions, of up to `operations` operations. Raise KeyError for others."""
    gen = torch.Generator().manual_seed(seed)
    terms: list[list[Term | str]] = [list(names)]
    values = [torch.randint(1, P, (len(names), 3, 3), generator=gen)]
    for count in range(1, operations + 1):
        level: list[Term | str] = []
        results: list[Tensor] = []
        for name in functions:
            arity, function = FUNCTIONS[name]
            if arity == 1:
                level += [(name, term) for term in terms[count - 1]]
                results.append(function(values[count - 1]))
                continue
            for left in range(count):
                right = count - 1 - left
                level += [(name, a, b) for a, b in itertools.product(terms[left], terms[right])]
                a = values[left].repeat_interleave(len(values[right]), 0)
                results.append(function(a, values[right].repeat(len(values[left]), 1, 1)))
        terms.append(level)
        values.append(torch.cat(results))
    prints = [value.numpy().tobytes() for value in torch.cat(values)]
    return Enumeration([term for level in terms for term in level], prints)


def candidates(enumeration: Enumeration) -> list[tuple[Term | str, Term | str]]:
    """Return pairs of terms with one fingerprint, the larger first, smallest pairs first, each up to its names."""
    first: dict[bytes, Term | str] = {}
    pairs: dict[tuple, None] = {}
    for term, fingerprint in zip(enumeration.terms, enumeration.prints, strict=True):
        least = first.setdefault(fingerprint, term)
        if least is not term and variables(least) <= variables(term):
            pairs[_renamed(term, least)] = None
    return sorted(pairs, key=lambda pair: (size(pair[0]) + size(pair[1]), size(pair[0])))


def discover(
    functions: Sequence[str] = ("transpose", "add", "mul", "matmul"),
    names: Sequence[str] = ("?x", "?y", "?z"),
    operations: int = 3,
    *,
    nodes: int = 3_000,
    rounds: int = 4,
    seed: int = 0,
) -> list[Finding]:
    """Return laws of up to `operations` operations on each side, of which none follows from the others.

    nodes, rounds: limits of each saturation; where they are reached, a law that follows may be kept.
    """
    laws: list[Law] = []
    for left, right in candidates(enumerate_terms(functions, names, operations, seed)):
        if not follows(left, right, laws, nodes, rounds):
            laws.append(law_of(left, right))
    for law in reversed(list(laws)):  # an early law may follow from later ones
        rest = [other for other in laws if other is not law]
        if follows(law.left, law.right, rest, nodes, rounds):
            laws = rest
    return [Finding(law, prove_terms(law.left, law.right, shape=(3, 3), tests=False)) for law in laws]


def follows(left: Term | str, right: Term | str, laws: Sequence[Law], nodes: int = 3_000, rounds: int = 4) -> bool:
    """Return whether laws make two terms equal, within limits."""
    graph = EGraph()
    one, other = (graph.add_term(_constants(side)) for side in (left, right))
    for _ in range(rounds):
        if graph.find(one) == graph.find(other):
            return True
        if saturate(graph, laws, nodes=nodes, rounds=1).stop != "rounds":
            break
    return graph.find(one) == graph.find(other)


def law_of(left: Term | str, right: Term | str) -> Law:
    """Return a law with its text for a name; it is applied in both directions, where both sides have all variables."""
    both = not isinstance(right, str) and variables(left) == variables(right)
    return Law(f"{text(left)} = {text(right)}", left, right, both=both)


def size(term: Term | str) -> int:
    """Return how many functions a term applies."""
    return 0 if isinstance(term, str) else 1 + sum(map(size, term[1:]))


def text(term: Term | str) -> str:
    """Return a term as one writes it: "(x + y) @ z"."""
    if isinstance(term, str):
        return term.removeprefix("?")
    name, *parts = term
    if not parts:
        return str(name)
    if name in _SIGN:
        grouped = [f"({text(part)})" if part[0] in _SIGN else text(part) for part in parts]
        return f" {_SIGN[name]} ".join(grouped)
    if name == "transpose":
        return f"{text(parts[0])}ᵀ" if size(parts[0]) == 0 else f"({text(parts[0])})ᵀ"
    return f"{name}({', '.join(map(text, parts))})"


def same_form(law: Law, other: Law) -> bool:
    """Return whether two laws differ only by the names of their variables, or by which side is the left one."""
    return _renamed(law.left, law.right) in (_renamed(other.left, other.right), _renamed(other.right, other.left))


def _constants(term: Term | str) -> Term:
    """Return a pattern as a term: its variables become constants."""
    return (term,) if isinstance(term, str) else (term[0], *map(_constants, term[1:]))


def _renamed(*terms: Term | str) -> tuple[Term | str, ...]:
    """Return terms with their variables named x, y, z, … in the order in which they occur."""
    names: dict[str, str] = {}

    def one(term: Term | str) -> Term | str:
        if isinstance(term, str):
            return names.setdefault(term, f"?{'xyzuvw'[len(names)]}")
        return (term[0], *map(one, term[1:]))

    return tuple(map(one, terms))


_X, _Y, _Z = "?x", "?y", "?z"
#: What TASO's authors state of transposition, +, · and @. From their properties of all operators (Table 2) they prove
#: what TASO finds.
PROPERTIES = (
    law_of(("add", _X, _Y), ("add", _Y, _X)),
    law_of(("add", _X, ("add", _Y, _Z)), ("add", ("add", _X, _Y), _Z)),
    law_of(("mul", _X, _Y), ("mul", _Y, _X)),
    law_of(("mul", _X, ("mul", _Y, _Z)), ("mul", ("mul", _X, _Y), _Z)),
    law_of(("mul", ("add", _X, _Y), _Z), ("add", ("mul", _X, _Z), ("mul", _Y, _Z))),
    law_of(("matmul", _X, ("matmul", _Y, _Z)), ("matmul", ("matmul", _X, _Y), _Z)),
    law_of(("matmul", _X, ("add", _Y, _Z)), ("add", ("matmul", _X, _Y), ("matmul", _X, _Z))),
    law_of(("transpose", ("transpose", _X)), _X),
    law_of(("transpose", ("add", _X, _Y)), ("add", ("transpose", _X), ("transpose", _Y))),
    law_of(("transpose", ("mul", _X, _Y)), ("mul", ("transpose", _X), ("transpose", _Y))),
    law_of(("transpose", ("matmul", _X, _Y)), ("matmul", ("transpose", _Y), ("transpose", _X))),
)
