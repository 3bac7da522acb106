"""Hidden cases and answers of day16.discover."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from autograder.authoring.answers import edited, right, wrong
from passlab.egraph.discover import size
from passlab.exercises.day16.discover import discover_case
from passlab.given.day16.discover import ARITY, P, follows, value, variables
from passlab.judge import Case

#: Operations, variables, and the most operations of a side, for which the smallest laws can be had within the limits.
SMALL = """
    add add,mul add,matmul mul,matmul transpose,add,mul transpose,add,matmul transpose,mul,matmul transpose,neg,add
    transpose,neg,mul transpose,neg,matmul relu,neg,add relu,neg,mul relu,neg,matmul transpose,relu,mul
    transpose,relu,matmul
"""
LARGE = """
    transpose,add transpose,mul relu,add relu,mul neg,matmul transpose,relu,neg
"""


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def one(sets: str, names: str, most: int) -> Case:
        operations = rng.choice(sets.split()).split(",")
        rng.shuffle(operations)
        return discover_case(f"{', '.join(operations)}, {most}", operations, names, most)

    small = [one(part, "x y z", 2) for part in _parts(rng, SMALL.split(), 4)]
    large = [one(part, "x y", 3) for part in _parts(rng, LARGE.split(), 2)]
    names = " ".join(rng.sample("abcdefgh", 3))
    return [
        *small,
        *large,
        discover_case("matrices do not commute", rng.sample(["matmul", "transpose"], 2), names, 3),
        discover_case("signs of products", rng.sample(["neg", "matmul"], 2), names, 3),
        discover_case("differences", ["sub"], names, 2),
        discover_case("an early law follows from later ones", rng.sample(["add", "neg"], 2), names, 2),
        discover_case("no law", ["relu"], names, 3, empty=True),
    ]


def _parts(rng: random.Random, items: Sequence[str], count: int) -> list[str]:
    """Return texts of items, so that each item is in one of the `count` texts."""
    items = rng.sample(items, len(items))
    return [" ".join(items[start::count]) for start in range(count)]


EQUIVALENT = {
    ("laws[::-1]", "laws[::1]"): "in any order, what follows from the rest is left out",
}


# ---------------------------------------------------------------------------------------------------- answers


def _terms(operations, names, most):
    """Return all terms, by adding an operation to those that are there, until nothing is new."""
    terms = dict.fromkeys(names)
    while True:
        grown = dict.fromkeys(terms)
        for name in operations:
            for a in terms:
                new = [(name, a)] if ARITY[name] == 1 else [(name, a, b) for b in terms if size(a) + size(b) < most]
                grown |= dict.fromkeys(term for term in new if size(term) <= most)
        if len(grown) == len(terms):
            return sorted(terms, key=lambda term: (size(term), str(term)))
        terms = grown


@right("collects the terms of each value, tries shorter equations first, and throws out until nothing is left over")
def by_classes(operations, names, most):
    rng = random.Random(7)
    numbers = {name: torch.tensor([[rng.randrange(P) for _ in range(2)] for _ in range(2)]) for name in names}
    classes = {}
    for term in _terms(operations, names, most):
        classes.setdefault(str(value(term, numbers).tolist()), []).append(term)
    equations = [
        (one, term)
        for terms in classes.values()
        for term in terms[:1]
        for one in terms[1:]
        if variables(term) <= variables(one)
    ]
    equations.sort(key=lambda pair: size(pair[0]) + size(pair[1]))
    laws = []
    for pair in equations:
        if not follows(*pair, laws):
            laws.append(pair)
    return _thrown_out(laws)


def _thrown_out(laws):
    number = 0
    while number < len(laws):
        rest = laws[:number] + laws[number + 1 :]
        if follows(*laws[number], rest):
            laws = rest
        else:
            number += 1
    return laws


@right("names variables in the order in which they occur, and tries an equation of each form once")
def by_names(operations, names, most):
    gen = torch.Generator().manual_seed(3)
    numbers = {name: torch.randint(1, P, (2, 4, 4), generator=gen) for name in names}
    best, forms = {}, {}
    for term in _terms(operations, names, most):
        known = best.setdefault(value(term, numbers).numpy().tobytes(), term)
        if known != term and not variables(known) - variables(term):
            order = {}
            forms[_renamed(term, names, order), _renamed(known, names, order)] = None
    laws = []
    for left, other in sorted(forms, key=lambda law: (size(law[0]), size(law[1]))):
        if not follows(left, other, laws):
            laws.append([left, other])
    return _thrown_out(laws)


def _renamed(term, names, order):
    if isinstance(term, str):
        return order.setdefault(term, [*names, term][len(order)])
    return (term[0], *(_renamed(part, names, order) for part in term[1:]))


@wrong("spared", "returns an equation of each form, whether or not it follows from others")
def each_form(operations, names, most):
    gen = torch.Generator().manual_seed(3)
    numbers = {name: torch.randint(1, P, (3, 3), generator=gen) for name in names}
    best, forms = {}, {}
    for term in _terms(operations, names, most):
        known = best.setdefault(value(term, numbers).numpy().tobytes(), term)
        if known != term and not variables(known) - variables(term):
            order = {}
            forms[_renamed(term, names, order), _renamed(known, names, order)] = None
    return list(forms)


scalars = edited("same", "computes with numbers, for which products commute")(("(3, 3)", "(1, 1)"))
bits = edited("same", "computes with zeros and ones")(("torch.randint(P, (3, 3))", "torch.randint(2, (3, 3))"))
as_they_come = edited("spared", "does not look whether early laws follow from later ones")(
    ("for law in laws[::-1]: ...", "pass")
)
smaller = edited("did", "stops one operation early")(("range(1, most + 1)", "range(1, most)"))
loose = edited("valid", "returns equations whose right side has variables of its own")(
    ("variables(right) <= variables(left)", "right is not left")
)
same_variables = edited("did", "leaves out laws whose right side has fewer variables")(
    ("variables(right) <= variables(left)", "variables(right) == variables(left)")
)
to_the_left = edited("did", "builds terms whose last operand is a variable")(
    ("for k in range(count): ...", "for k in [count - 1]: ...")
)
no_variables = edited("did", "leaves out laws whose right side is a variable")(
    ("variables(right) <= variables(left)", "variables(right) <= variables(left) and isinstance(right, tuple)")
)
reversed_sides = edited("valid", "writes the smaller side first")(
    ("laws.append((left, right))", "laws.append((right, left))")
)
in_order = edited("did", "takes operands in one order only")(
    ("[(name, a, b) for a, b in pairs]", "[(name, a, b) for a, b in pairs if str(a) <= str(b)]")
)
