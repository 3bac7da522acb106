"""Day 16, the chain of laws from one term to another: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from passlab.judge import Case, Finding, plural, shown
from passlab.judge.forms import why_not_a_list

#: A label and terms; in a pattern, a text that begins with "?" is a variable.
Term = tuple[Any, ...]
Pattern = str | tuple[Any, ...]
#: Name, left and right side.
Law = tuple[str, Pattern, Pattern]
#: Name of a law, the operands that lead to where it is applied, and whether it is read from right to left.
Step = tuple[str, tuple[int, ...], bool]

COMMUTE = ("x + y = y + x", ("add", "?x", "?y"), ("add", "?y", "?x"))
SWAP = ("x · y = y · x", ("mul", "?x", "?y"), ("mul", "?y", "?x"))
ASSOCIATE = ("(x + y) + z = x + (y + z)", ("add", ("add", "?x", "?y"), "?z"), ("add", "?x", ("add", "?y", "?z")))
DISTRIBUTE = (
    "x · (y + z) = x · y + x · z",
    ("mul", "?x", ("add", "?y", "?z")),
    ("add", ("mul", "?x", "?y"), ("mul", "?x", "?z")),
)
DOUBLE = ("x · 2 = x + x", ("mul", "?x", ("2",)), ("add", "?x", "?x"))
ONE = ("x · 1 = x", ("mul", "?x", ("1",)), "?x")
NEGATE = ("−(−x) = x", ("neg", ("neg", "?x")), "?x")
MINUS = ("x − y = x + −y", ("sub", "?x", "?y"), ("add", "?x", ("neg", "?y")))
LAWS: list[Law] = [COMMUTE, SWAP, ASSOCIATE, DISTRIBUTE, DOUBLE, ONE, NEGATE, MINUS]


def proof_case(name: str, laws: Sequence[Law], start: Term, end: Term, most: int) -> Case:
    """Return a case with a chain; one without decides `spared` alone. See `provable`.

    A chain of no steps does not decide `did`: nothing is done there.
    """
    holds = provable(laws, start, end, most)
    about = ("valid", "did", "cost") if holds else ("valid", "spared")
    if start == end:
        about = ("valid", "cost")
    return Case(name, lambda: (list(laws), start, end, most), about, expect=holds)


def cases() -> list[Case]:
    a, b, c, two, one = (("a",), ("b",), ("c",), ("2",), ("1",))
    sums = ("sub", a, ("add", ("add", a, b), c)), ("sub", a, ("add", ("add", c, b), a))
    product = ("add", a, ("mul", a, b)), ("mul", a, ("add", b, one))
    return [
        proof_case("x + x", [DOUBLE, SWAP], ("mul", two, a), ("add", a, a), 2),
        proof_case("inside", [ASSOCIATE, COMMUTE], *sums, 3),
        proof_case("a side that is a variable", [ONE, DISTRIBUTE, COMMUTE], *product, 3),
        proof_case("nothing to do", [SWAP], ("mul", a, b), ("mul", a, b), 0),
        proof_case("not with these laws", [COMMUTE, SWAP, DOUBLE], ("sub", a, b), ("sub", b, a), 4),
    ]


# ---------------------------------------------------------------------------------------------------- applying laws


def match(pattern: Pattern, term: Term, binding: dict[str, Term]) -> bool:
    """Return whether a pattern matches a term, adding to what its variables stand for."""
    if isinstance(pattern, str):
        return binding.setdefault(pattern, term) == term
    if pattern[0] != term[0] or len(pattern) != len(term):
        return False
    return all(match(part, operand, binding) for part, operand in zip(pattern[1:], term[1:], strict=True))


def filled(pattern: Pattern, binding: dict[str, Term]) -> Term:
    """Return a pattern with terms for its variables."""
    if isinstance(pattern, str):
        return binding[pattern]
    return (pattern[0], *(filled(part, binding) for part in pattern[1:]))


def rewritten(term: Term, law: Law, back: bool) -> Term | None:
    """Return what a law makes of a whole term, None if it does not match."""
    _, left, right = law
    before, after = (right, left) if back else (left, right)
    binding: dict[str, Term] = {}
    return filled(after, binding) if match(before, term, binding) else None


def at(term: Term, place: Sequence[int], new: Term | None = None) -> Term:
    """Return the part of a term at a place, or, given a `new` one, the term with that in its place."""
    if not place:
        return term if new is None else new
    part = at(term[1 + place[0]], place[1:], new)
    return part if new is None else (*term[: 1 + place[0]], part, *term[2 + place[0] :])


def places(term: Term, place: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield all places of a term."""
    yield place
    for number, operand in enumerate(term[1:]):
        yield from places(operand, (*place, number))


#: Term → the terms that are one step away, for one list of laws.
Known = dict[Term, tuple[Term, ...]]


def neighbours(laws: Sequence[Law], term: Term, known: Known | None = None) -> tuple[Term, ...]:
    """Return the terms that are one step away; since a step can be read backwards, those from which it is one step.

    known: those of terms and parts so far; most parts occur in many terms. The new ones are added.
    """
    known = {} if known is None else known
    if term not in known:
        whole = (rewritten(term, law, back) for law in laws for back in (False, True))
        near = dict.fromkeys(new for new in whole if new is not None)
        for number, operand in enumerate(term[1:], 1):
            before, after = term[:number], term[number + 1 :]
            near |= dict.fromkeys((*before, new, *after) for new in neighbours(laws, operand, known))
        known[term] = tuple(near)
    return known[term]


def provable(laws: Sequence[Law], start: Term, end: Term, most: int) -> bool:
    """Return whether at most `most` steps lead from one term to another: a search from both ends."""
    sides, edges = [{start}, {end}], [{start}, {end}]
    known: Known = {}
    for _ in range(most):
        if sides[0] & sides[1]:
            break
        one = int(len(edges[1]) < len(edges[0]))
        edges[one] = {near for term in edges[one] for near in neighbours(laws, term, known)} - sides[one]
        sides[one] |= edges[one]
    return bool(sides[0] & sides[1])


# ------------------------------------------------------------------------------------------------------------- drawing


def drawn_term(rng: random.Random, size: int) -> Term:
    """Return a term of `size` functions."""
    if not size:
        return (rng.choice("abc12"),)
    if size > 1 and rng.random() < 0.2:
        return ("neg", drawn_term(rng, size - 1))
    left = rng.randrange(size)
    return (rng.choice(["add", "add", "mul", "sub"]), drawn_term(rng, left), drawn_term(rng, size - 1 - left))


def walk(rng: random.Random, laws: Sequence[Law], start: Term, steps: int) -> Term | None:
    """Return a term that is exactly `steps` steps away, or None if the walk ends before."""
    term = start
    for _ in range(steps):
        near = [one for one in neighbours(laws, term) if len(list(places(one))) <= 11]
        if not near:
            return None
        term = rng.choice(near)
    return term if not provable(laws, start, term, steps - 1) else None


def drawn(rng: random.Random, steps: int, laws: int = 4, size: int = 3) -> tuple[list[Law], Term, Term]:
    """Return laws, and two terms exactly `steps` steps apart."""
    while True:
        some = rng.sample(LAWS, laws)
        start = drawn_term(rng, size)
        end = walk(rng, some, start, steps)
        if end is not None:
            return some, start, end


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_steps(value: Any, laws: Sequence[Law]) -> str:
    """Return why a value is not a list of steps, or ""."""
    if reason := why_not_a_list(value, "a list of steps, or None where there is no chain"):
        return reason
    names = [name for name, *_ in laws]
    for step in value:
        if not isinstance(step, list | tuple) or len(step) != 3:
            return f"A step is (name of a law, place, back); one here is {shown(step)}."
        name, place, back = step
        if not isinstance(name, str) or name not in names:
            return f"{shown(name)} is not the name of a law."
        if not isinstance(place, list | tuple) or not all(type(part) is int for part in place):
            return f"A place is a tuple of the numbers of operands; one here is {shown(place)}."
        if type(back) is not bool:
            return f"The third part of a step is True or False; one here is {shown(back)}."
    return ""


def followed(laws: Sequence[Law], start: Term, steps: Sequence[Step]) -> tuple[Term, str]:
    """Return the term to which a chain leads, and which of its steps cannot be made, or ""."""
    by_name = {law[0]: law for law in laws}
    term = start
    for number, (name, place, back) in enumerate(steps, 1):
        if tuple(place) not in set(places(term)):
            return term, f"Step {number}: {text(term)} has no place {tuple(place)}."
        part = at(term, place)
        new = rewritten(part, by_name[name], back)
        if new is None:
            way = "from right to left" if back else "from left to right"
            return term, f"Step {number}: the law {name}, read {way}, does not match {text(part)} in {text(term)}."
        term = at(term, place, new)
    return term, ""


def text(term: Term) -> str:
    """Return a term as one calls functions."""
    return f"{term[0]}({', '.join(map(text, term[1:]))})" if len(term) > 1 else str(term[0])


def judge(case: Case, value: Any) -> Iterator[Finding]:
    laws, start, end, most = case.build()
    broken = "" if value is None else why_not_steps(value, laws)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    if not case.expect:
        steps = "" if value is None else plural(len(value), "step")
        message = f"No chain of at most {plural(most, 'step')} leads to {text(end)}: return None. You have {steps}."
        yield Finding("spared", value is None, message if steps else "")
        return
    if value is None:
        message = (
            f"There is a chain from {text(start)} to {text(end)}, of at most {plural(most, 'step')}; you have none."
        )
        yield Finding("did", False, message)
        return
    last, reason = followed(laws, start, value)
    if not reason and last != end:
        reason = f"The chain ends with {text(last)}, not with {text(end)}."
    yield Finding("did", not reason, reason)
    if not reason:
        length = f"Your chain has {plural(len(value), 'step')}; at most {most} were allowed."
        yield Finding("cost", len(value) <= most, "" if len(value) <= most else length)
