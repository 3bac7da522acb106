"""Hidden cases and answers of day16.laws."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import torch

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day16.laws import FLOAT, INT, PAIR, X, Y, laws_case, some, weakest
from passlab.given.day16.laws import every, value
from passlab.judge import Case

EQUIVALENT = {
    ("range(len(masks) + 1)", "range(len(masks) + 2)"): "there is no choice of more than all",
    ("where.sum() > most", "where.sum() >= most"): "of preconditions that admit as many inputs any will do",
    ("list(names)", "names"): "a tuple will do",
}


class Law(NamedTuple):
    name: str
    left: Any
    right: Any
    table: dict[str, Any]
    dtype: torch.dtype


_HALF = [
    ("x · 0 = 0", ("mul", X, 0), 0),
    ("x + 0 = x", ("add", X, 0), X),
    ("x − x = 0", ("sub", X, X), 0),
    ("x / x = 1", ("truediv", X, X), 1),
    ("√(x · x) = |x|", ("sqrt", ("mul", X, X)), ("abs", X)),
    ("0 − x = −x", ("sub", 0, X), ("neg", X)),
    ("x · 64 / 64 = x", ("truediv", ("mul", X, 64), 64), X),
    ("|x| = x", ("abs", X), X),
    ("x / 4 = x · 0.25", ("truediv", X, 4), ("mul", X, 0.25)),
    ("(x + 1) − 1 = x", ("sub", ("add", X, 1), 1), X),
    ("(x · 3) · 5 = x · 15", ("mul", ("mul", X, 3), 5), ("mul", X, 15)),
    ("−(−x) = x", ("neg", ("neg", X)), X),
]
_BYTE = [
    ("(x << 1) >> 1 = x", ("rshift", ("lshift", X, 1), 1), X),
    ("|x| = x", ("abs", X), X),
    ("relu(−x) = 0", ("relu", ("neg", X)), 0),
    ("max(−x, x) = |x|", ("maximum", ("neg", X), X), ("abs", X)),
    ("x · 2 = x << 1", ("mul", X, 2), ("lshift", X, 1)),
    ("relu(x · 2) = relu x · 2", ("relu", ("mul", X, 2)), ("mul", ("relu", X), 2)),
]
_PAIR = [
    ("max(x, y) = y", ("maximum", X, Y), Y),
    ("relu(x + y) = x + y", ("relu", ("add", X, Y)), ("add", X, Y)),
    ("relu(y − x) = y − x", ("relu", ("sub", Y, X)), ("sub", Y, X)),
    ("max(x, y) + min(x, y) = x + y", ("add", ("maximum", X, Y), ("minimum", X, Y)), ("add", X, Y)),
    ("|x · y| = |x| · |y|", ("abs", ("mul", X, Y)), ("mul", ("abs", X), ("abs", Y))),
    ("relu(x) + relu(y) = relu(x + y)", ("add", ("relu", X), ("relu", Y)), ("relu", ("add", X, Y))),
]
LAWS = [
    *(Law(*law, FLOAT, torch.float16) for law in _HALF),
    *(Law(*law, INT, torch.int8) for law in _BYTE),
    *(Law(*law, PAIR, torch.int8) for law in _PAIR),
]


def _drawn(rng: random.Random, holds: bool, number: int) -> Case:
    """Return a law that holds under some of the conditions, but not always; or one that does not."""
    while True:
        law = rng.choice(LAWS)
        conditions = some(law.table, *rng.sample(sorted(law.table), rng.randint(3, 5)))
        names = [X, Y] if law.table is PAIR else [X]
        numbers = every(law.dtype, *names)
        most = weakest(law.left, law.right, conditions, numbers)
        if (most is not None) == holds and most != len(numbers[X]):
            return _case(law, conditions, f"drawn {number}")


def _case(law: Law, conditions: dict[str, Any], name: str = "") -> Case:
    return laws_case(name or law.name, law.left, law.right, conditions, law.dtype)


def _named(text: str, rng: random.Random, *names: str, kind: str = "", title: str = "") -> Case:
    law = next(law for law in LAWS if law.name == text and (not kind or str(law.dtype).endswith(kind)))
    return _case(law, some(law.table, *rng.sample(names, len(names))), title)


def _one_input(rng: random.Random) -> Case:
    """A law that is wrong for a single number, of which a condition excludes many."""
    number = rng.choice([3, 5, 7, 11])
    left = ("maximum", X, ("add", X, ("eq", X, number)))
    conditions = {"x ≥ 0": ("le", 0, X), "x is another": ("ne", X, number), "x is less": ("lt", X, number)}
    return laws_case("wrong for one number", left, X, conditions, torch.int8)


def _all_six() -> Case:
    """A law that is wrong for six numbers, of which each condition excludes one."""
    wrong_there = ("mul", ("lt", 0, X), ("lt", X, 7))
    conditions = {f"x ≠ {number}": ("ne", X, number) for number in range(1, 7)}
    return laws_case("six conditions, and all are needed", ("add", X, wrong_there), X, conditions, torch.int8)


def _infinite(rng: random.Random) -> Case:
    """A law of which one side is ∞ where the other is NaN."""
    above = ("sub", ("maximum", ("abs", X), 65504), 65504)
    conditions = some(FLOAT, *rng.sample(["x is finite", "x is not ∞", "x is not NaN"], 3))
    return laws_case("NaN and ∞", ("sub", X, X), above, conditions, torch.float16)


def _only_nan(rng: random.Random) -> Case:
    """A law that is wrong for NaN alone."""
    conditions = some(FLOAT, *rng.sample(["x is finite", "x is not NaN", "x > 0"], 3))
    return laws_case("only NaN is wrong", ("mul", 1, ("eq", X, X)), 1, conditions, torch.float16)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    finite, nan, plus = "x is finite", "x is not NaN", "the sign of x is +"
    return [
        *(_drawn(rng, True, number) for number in range(3)),
        *(_drawn(rng, False, number) for number in range(3, 6)),
        _named("x / 4 = x · 0.25", rng, finite, "x > 0", title="always"),
        _named("x + 0 = x", rng, finite, "x is not 0", "x > 0", plus, title="only −0 is wrong"),
        _named("x − x = 0", rng, finite, "x is not ∞", plus, nan, title="two ways to be finite"),
        _named("(x << 1) >> 1 = x", rng, "x ≥ −64", "x ≤ 63", "x ≥ 0", "x ≠ 1", title="two are needed"),
        _named(
            "relu(x + y) = x + y", rng, "x ≥ 0", "y ≥ 0", "x ≤ 63", "y ≤ 63", "x ≤ y", title="nearly all are needed"
        ),
        _named("max(−x, x) = |x|", rng, "x > −128", "x ≥ 0", "x ≤ 63", title="always, although −x may wrap around"),
        _named("(x + 1) − 1 = x", rng, finite, plus, "x is not 0", "x < 128", title="rounding"),
        _named("max(x, y) = y", rng, "x ≥ 0", "y ≥ 0", title="an input that satisfies the conditions"),
        _named("x · 0 = 0", rng, nan, plus, title="an infinite input"),
        _named("x + 0 = x", rng, nan, "x is not ∞", title="−0"),
        laws_case(
            "NaN with another sign",
            ("neg", X),
            ("mul", X, -1),
            some(FLOAT, *rng.sample([nan, finite, plus], 2)),
            torch.float16,
        ),
        _one_input(rng),
        laws_case("no conditions", ("abs", X), X, {}, torch.int8),
        _all_six(),
        _infinite(rng),
        _only_nan(rng),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@right("adds a bit for each condition, and looks up which sets of bits some wrong input has")
def by_bits(left, right, conditions, numbers):
    one, other = value(left, numbers), value(right, numbers)
    if one.dtype == torch.float16:
        bits = [torch.where(side.isnan(), 0x7E00, side.contiguous().view(torch.int16)) for side in (one, other)]
        wrong = bits[0] != bits[1]
    else:
        wrong = one != other
    names = list(conditions)
    code = torch.zeros(len(one), dtype=torch.int64)
    for bit, name in enumerate(names):
        code += value(conditions[name], numbers).long() << bit
    bad = set(code[wrong].tolist())
    counts = code.bincount(minlength=1 << len(names)).tolist()
    best = max(
        (
            (sum(n for at, n in enumerate(counts) if at & chosen == chosen), chosen)
            for chosen in range(1 << len(names))
            if not any(at & chosen == chosen for at in bad)
        ),
        default=None,
    )
    if best:
        return [True, [name for bit, name in enumerate(names) if best[1] >> bit & 1]]
    places = (wrong & (code == (1 << len(names)) - 1)).nonzero().flatten()
    return [False, {name: part[places[-1]].item() for name, part in numbers.items()}]


@right("begins with all conditions, and leaves them out one by one in every way that is still enough")
def by_leaving_out(left, right, conditions, numbers):
    one, other = value(left, numbers), value(right, numbers)
    equal = (one == other) & (torch.signbit(one) == torch.signbit(other)) | (one != one) & (other != other)
    masks = {name: value(term, numbers) for name, term in conditions.items()}

    def where(names):
        return torch.stack([torch.ones_like(equal), *(masks[name] for name in names)]).all(0)

    full = frozenset(masks)
    if not equal[where(full)].all():
        at = int((where(full) & ~equal).int().argmax())
        return False, {
            name: float(part[at]) if part.is_floating_point() else int(part[at]) for name, part in numbers.items()
        }
    sufficient, todo = {full}, [full]
    while todo:
        names = todo.pop()
        for name in names:
            fewer = names - {name}
            if fewer not in sufficient and equal[where(fewer)].all():
                sufficient.add(fewer)
                todo.append(fewer)
    return True, sorted(max(sufficient, key=lambda names: int(where(names).sum())))


zeros_alike = edited("same", "takes 0.0 and −0.0 for the same")(
    ("(one == other) & (one.signbit() == other.signbit())", "one == other")
)
nan_differs = edited("did", "takes a NaN for another NaN")(("same |= one.isnan() & other.isnan()", "pass"))
nan_has_a_sign = edited("did", "takes a NaN for another NaN if its sign differs")(
    ("same |= one.isnan() & other.isnan()", "same |= one.isnan() & other.isnan() & (one.signbit() == other.signbit())")
)
not_finite = edited("same", "takes ∞ and NaN for the same")(
    ("same |= one.isnan() & other.isnan()", "same |= ~one.isfinite() & ~other.isfinite()")
)
nan_does_not_count = edited("same", "does not count NaN among the inputs")(
    (
        "same |= one.isnan() & other.isnan()",
        "same |= (one.isnan() & other.isnan()) | torch.stack([part.isnan() for part in numbers.values()]).any(0)",
    )
)
up_to_five = edited("same", "tries five conditions at most")(("range(len(masks) + 1)", "range(min(len(masks), 5) + 1)"))
strongest = edited("did", "takes the precondition with the fewest inputs")(
    ("where.sum() > most", "(best is None or where.sum() < most)")
)
fewest_names = edited("did", "takes the fewest conditions that are enough")(("where.sum() > most", "best is None"))
one_condition = edited("did", "tries one condition at a time")(
    ("range(len(masks) + 1)", "range(min(len(masks), 1) + 1)")
)
never_none = edited("did", "takes at least one condition")(
    ("range(len(masks) + 1)", "range(min(len(masks), 1), len(masks) + 1)")
)
any_input = edited("spared", "shows an input that does not satisfy the conditions")(
    ("(where & ~same).nonzero()", "(~same).nonzero()")
)
no_counterexample = edited("spared", "shows an input that satisfies the conditions, but for which the law holds")(
    ("(where & ~same).nonzero()", "where.nonzero()")
)


@wrong("same", "tries a few hundred numbers of ordinary size")
def few(left, right, conditions, numbers):
    where = torch.ones(len(numbers[X]), dtype=torch.bool)
    for part in numbers.values():
        where &= (part.abs() < 32) & (part == part) & (part != 0)
    return by_bits(left, right, conditions, {name: part[where] for name, part in numbers.items()})
