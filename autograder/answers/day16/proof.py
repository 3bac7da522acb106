"""Hidden cases and answers of day16.proof."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day16.proof import (
    ASSOCIATE,
    COMMUTE,
    DISTRIBUTE,
    DOUBLE,
    NEGATE,
    ONE,
    SWAP,
    Term,
    at,
    drawn,
    drawn_term,
    places,
    proof_case,
    provable,
    rewritten,
    walk,
)
from passlab.judge import Case

EQUIVALENT = {
    ("len(edges[0]) < len(edges[1])", "len(edges[0]) <= len(edges[1])"): "of two equal edges any may grow",
    ("if left: ...", "if True: ..."): "after the last look, it only takes time",
}
CHOOSE = ("choose", ("if", "?c", "?x", "?y"), ("if", ("not", "?c"), "?y", "?x"))


def _three_operands(rng: random.Random) -> Case:
    """A law of three operands, in the third of them."""
    c, x, y, z = ((name,) for name in rng.sample("pqrstuv", 4))
    inner = ("if", c, x, ("neg", y))
    start, end = ("if", z, x, inner), ("if", z, x, ("if", ("not", c), ("neg", y), x))
    return proof_case("three operands", [COMMUTE, CHOOSE, SWAP], start, end, 1)


def _one_of_two(rng: random.Random) -> Case:
    """Of two equal parts only the second changes."""
    part = ("neg", ("neg", drawn_term(rng, 1)))
    label = rng.choice(["pair", "sub"])
    return proof_case("one of two equal parts", [NEGATE, ASSOCIATE], (label, part, part), (label, part, part[1][1]), 1)


def _deep(rng: random.Random) -> Case:
    """The change is at the end of a chain of operands."""
    start, end = ("mul", ("a",), ("b",)), ("mul", ("b",), ("a",))
    for _ in range(5):
        label = rng.choice(["exp", "pair"])
        start, end = ((label, ("c",), part) if label == "pair" else (label, part) for part in (start, end))
    return proof_case("far inside", [SWAP, DOUBLE], start, end, 1)


def _unequal(rng: random.Random) -> Case:
    """What a variable that occurs twice stands for must be the same."""
    x, y = ((name,) for name in rng.sample("abc", 2))
    return proof_case("a variable that occurs twice", [DOUBLE, SWAP], ("add", x, y), ("mul", x, ("2",)), 3)


def _through_one(rng: random.Random) -> Case:
    """A term has to grow before it can shrink."""
    x, y = (drawn_term(rng, 0), drawn_term(rng, 1))
    start, end = ("add", ("mul", x, y), x), ("mul", x, ("add", y, ("1",)))
    return proof_case("larger before it is smaller", [ONE, DISTRIBUTE], start, end, 2)


def _twice_as_large(rng: random.Random) -> Case:
    """The term between two of fifteen labels has twice as many."""
    part = _sum(rng, 7)
    pair = "pair", ("add", "?x", "?x"), ("twice", "?x")
    return proof_case("twice as large in between", [DOUBLE, pair], ("mul", part, ("2",)), ("twice", part), 2)


def _sum(rng: random.Random, leaves: int) -> Term:
    """Return a sum of some leaves, in any form."""
    if leaves == 1:
        return (rng.choice("abc"),)
    at = rng.randint(1, leaves - 1)
    return "add", _sum(rng, at), _sum(rng, leaves - at)


def _other_leaf(rng: random.Random) -> Case:
    """A leaf of a law is no variable: it matches itself alone."""
    x, y = ((name,) for name in rng.sample("abc", 2))
    return proof_case("x · y is not x · 2", [DOUBLE, ONE], ("mul", x, y), ("add", x, x), 3)


def _one_operand(rng: random.Random, name: str, turned: bool) -> Case:
    """A law of one operand does not match a label with two, at either end."""
    x, y = ((name,) for name in rng.sample("abc", 2))
    minus = "−x = neg x", ("sub", "?x"), ("neg", "?x")
    start, end = (("neg", x), ("sub", x, y)) if turned else (("sub", x, y), ("neg", x))
    return proof_case(name, [minus, COMMUTE], start, end, 2)


def _from_right_to_left(rng: random.Random) -> Case:
    """All laws have to be read from right to left."""
    x, y, z = (drawn_term(rng, 0) for _ in range(3))
    start, end = ("add", x, ("add", y, ("add", z, z))), ("add", ("add", x, y), ("mul", z, ("2",)))
    return proof_case("from right to left", [ASSOCIATE, DOUBLE], start, end, 2)


def _growing(rng: random.Random) -> Case:
    """Two laws let a term grow at each of its places, so that few steps lead to very many terms."""
    laws, start = [ONE, NEGATE, COMMUTE, SWAP], _sum(rng, 5)
    while (end := walk(rng, laws, start, 6)) is None:
        start = _sum(rng, 5)
    return proof_case("six steps that may grow anywhere", laws, start, end, 6)


def _alike(rng: random.Random) -> Case:
    """What a variable that occurs twice stands for has the same label, and other operands."""
    x, y = ((name,) for name in rng.sample("abc", 2))
    sum_ = ("add", ("neg", x), ("neg", y))
    return proof_case("a variable for two alike terms", [DOUBLE, SWAP], sum_, ("mul", ("neg", x), ("2",)), 3)


def _elevens(rng: random.Random) -> Case:
    """Without brackets, 1 · 11 and 11 · 1 read the same."""
    x, y = rng.sample([("1",), ("11",)], 2)
    label = rng.choice(["neg", "exp"])
    return proof_case("1 and 11", [SWAP, DOUBLE], (label, ("mul", x, y)), (label, ("mul", y, x)), 1)


def _steps(rng: random.Random, number: int, most: int, **options: int) -> Case:
    name = f"drawn, {number} steps" + ("" if number == most else f" where {most} are allowed")
    return proof_case(name, *drawn(rng, number, **options), most)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    same = drawn_term(rng, 4)
    return [
        _steps(rng, 2, 2),
        _steps(rng, 3, 3, laws=5),
        _steps(rng, 4, 4, laws=6, size=4),
        _steps(rng, 5, 5),
        _steps(rng, 6, 6, laws=6, size=4),
        _three_operands(rng),
        _one_of_two(rng),
        _deep(rng),
        _unequal(rng),
        _through_one(rng),
        _twice_as_large(rng),
        _other_leaf(rng),
        _one_operand(rng, "one label, one operand or two", False),
        _one_operand(rng, "one label, two operands or one", True),
        _from_right_to_left(rng),
        proof_case("the same term", [COMMUTE, ONE], same, same, rng.randint(0, 4)),
        _steps(rng, 1, 0),
        _steps(rng, 3, 2, laws=5),
        _steps(rng, 5, 4),
        _alike(rng),
        _elevens(rng),
        _growing(rng),
        _steps(rng, 2, 5),
        _steps(rng, 3, 4, laws=5),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _near(laws, term):
    """Return step → term one step away."""
    near = {}
    for place in places(term):
        for law in laws:
            for back in (False, True):
                if (part := rewritten(at(term, place), law, back)) is not None:
                    near[law[0], place, back] = at(term, place, part)
    return near


@right("measures distances from the end, half-way, then walks depth first from the start")
def by_distances(laws, start, end, most):
    distance, edge = {end: 0}, [end]
    for far in range(1, most // 2 + 1):
        edge = [one for term in edge for one in _near(laws, term).values() if one not in distance]
        distance |= dict.fromkeys(edge, far)
    depths = {}

    def walk(term, left):
        if distance.get(term, most + 1) == 0:
            return []
        if depths.get(term, -1) >= left or (left <= most // 2 and distance.get(term, most + 1) > left):
            return None
        depths[term] = left
        for step, one in _near(laws, term).items():
            if left and (rest := walk(one, left - 1)) is not None:
                return [step, *rest]
        return None

    return walk(start, most)


@right("notes whence each term came, and grows both ends in turn")
def by_origins(laws, start, end, most):
    origin = [{start: None}, {end: None}]
    edges = [[start], [end]]
    for turn in range(most):
        if origin[0].keys() & origin[1].keys():
            break
        side, edge = turn % 2, []
        for term in edges[side]:
            for step, one in _near(laws, term).items():
                if one not in origin[side]:
                    origin[side][one] = (term, step)
                    edge.append(one)
        edges[side] = edge
    middle = next(iter(sorted(origin[0].keys() & origin[1].keys(), key=str)), None)
    if middle is None:
        return None
    first, rest, term = [], [], middle
    while origin[0][term]:
        term, step = origin[0][term]
        first.append(step)
    term = middle
    while origin[1][term]:
        term, (name, place, back) = origin[1][term]
        rest.append([name, list(place), not back])
    return first[::-1] + rest


@wrong("cost", "follows the newest term first, and so makes detours")
def newest_first(laws, start, end, most):
    if not provable(laws, start, end, most):
        return None
    chains, stack = {start: []}, [start]
    while stack and end not in chains:
        term = stack.pop()
        for step, one in _near(laws, term).items():
            if one not in chains and len(chains[term]) < 2 * most and len(chains) < 2000:
                chains[one] = [*chains[term], step]
                stack.append(one)
    return chains[end] if end in chains else by_origins(laws, start, end, most)


@wrong("valid", "looks from the start alone")
def from_one_end(laws, start, end, most):
    chains, edge = {start: []}, [start]
    for _ in range(most):
        following = []
        for term in edge:
            for step, one in _near(laws, term).items():
                if one not in chains:
                    chains[one] = [*chains[term], step]
                    following.append(one)
        if end in chains:
            break
        edge = following
    return chains.get(end)


@wrong("did", "takes terms for the same that are spelled alike without brackets")
def spelled(laws, start, end, most):
    def text(term):
        return term[0] + "".join(map(text, term[1:]))

    first = by_origins(laws, start, end, most)
    return first if start == end or text(start) != text(end) else None


@wrong("did", "looks for a chain of exactly as many steps as are allowed")
def exactly(laws, start, end, most):
    shorter = start != end and provable(laws, start, end, most - 1)
    return None if shorter else by_origins(laws, start, end, most)


@wrong("spared", "looks for a chain of any length")
def any_length(laws, start, end, most):
    if not provable(laws, start, end, min(most + 1, 6)):
        return None
    return by_origins(laws, start, end, most + 1)


free = edited("spared", "lets a variable stand for two terms")(
    ("binding.setdefault(pattern, term) == term", "bool(binding.setdefault(pattern, term))")
)
labels_alone = edited("spared", "lets a variable stand for two terms of one label")(
    ("binding.setdefault(pattern, term) == term", "binding.setdefault(pattern, term)[0] == term[0]")
)
any_leaf = edited("spared", "lets the leaf of a law stand for any leaf")(
    (
        "(pattern[0], len(pattern)) != (term[0], len(term))",
        "len(pattern) != len(term) or (pattern[0] != term[0] and len(pattern) > 1)",
    )
)
any_arity = edited("spared", "looks at labels, and not at how many operands they have")(
    ("(pattern[0], len(pattern)) != (term[0], len(term))", "pattern[0] != term[0]"),
    ("zip(pattern[1:], term[1:], strict=True)", "zip(pattern[1:], term[1:], strict=False)"),
)
small_terms = edited("did", "leaves out terms that are larger than both ends can be")(
    ("new not in known", "new not in known and str(new).count('(') <= 15")
)
whole = edited("did", "applies laws to the whole term only")(("for i, operand in enumerate(term[1:]): ...", "pass"))
first_only = edited("did", "looks into the first operand only")(("enumerate(term[1:])", "enumerate(term[1:2])"))
one_way = edited("did", "reads laws from left to right only")(
    ("((False, left, right), (True, right, left))", "((False, left, right),)")
)
not_turned = edited("did", "does not turn the laws of the second half round")(
    ("(name, place, not back)", "(name, place, back)")
)
not_reversed = edited("did", "leaves the second half in its order")(("rest[::-1]", "rest"))
inside_out = edited("did", "writes places from the inside out")(("(i, *place)", "(*place, i)"))
too_short = edited("did", "stops one step early")(("range(most, -1, -1)", "range(most, 0, -1)"))
nothing = edited("spared", "returns an empty chain where there is none")(("return None", "return []"))
