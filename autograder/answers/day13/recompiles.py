"""Hidden cases and answers of day13.recompiles."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day13.recompiles import Call, call, case, expected, sizes, tensor
from passlab.judge import Case

LETTERS = "abcdefghijkl"


def _drawn(rng: random.Random, name: str) -> Case:
    """Return a case with at least three calls that compile and three that do not."""
    while True:
        reads = ["x", *(name for name in ("y", "k", "flag") if rng.random() < 0.6)]
        shapes = {name: rng.choice([(3, 4), (3,), (2, 5, 6)]) for name in "xy"}
        numbers = rng.choice([(2, 3, 4, 5), (0, 1, 2), (2.5, 3.5, 1.0), (2, 2.0, 3, 3.0), (1, 1.0, 2, 7)])
        calls = [_call(rng, shapes, numbers) for _ in range(rng.randint(7, 10))]
        counts = [count for count, _ in expected(reads, calls)]
        if sum(counts) >= 3 and len(counts) - sum(counts) >= 3:
            return case(name, reads, calls)


def _call(rng: random.Random, shapes: dict, numbers: tuple) -> Call:
    arguments = {}
    for name, shape in shapes.items():
        drawn = tuple(size if rng.random() < 0.75 else rng.randint(0, 6) for size in shape)
        dtype = "float32" if rng.random() < 0.9 else rng.choice(("float64", "int64"))
        gradient = dtype != "int64" and rng.random() < 0.05
        other = rng.choice([(), (3,), (4, 4)])
        arguments[name] = tensor(*(drawn if rng.random() < 0.92 else other), dtype=dtype, gradient=gradient)
    arguments["k"] = rng.choice(numbers) if rng.random() < 0.5 else numbers[0]
    arguments["flag"] = rng.random() < 0.8
    return call(rng.random() < 0.93, **arguments)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n = rng.randint(2, 6)
    return [
        case("one call", ["x"], sizes((n, n)), ("valid", "did")),
        case("the same call again", ["x", "k"], [call(x=tensor(n, 3), k=n)] * 4),
        case("sizes vary one after the other", ["x"], sizes((3, 4), (3, 5), (6, 5), (n, n), (7, 3), (2, 2))),
        case("equal sizes are not one symbol", ["x", "y"], [call(x=tensor(a), y=tensor(b)) for a, b in ((3, 3), (4, 4), (5, 6), (n, 9))]),  # noqa: E501
        case("a size that the first version left free", ["x"], [call(x=tensor(3, 4)), call(x=tensor(3, 5)), call(x=tensor(3, 6)), call(x=tensor(3, 9, dtype="int64")), call(x=tensor(3, 8, dtype="int64")), call(x=tensor(2, 8, dtype="int64")), call(x=tensor(7, 8)), call(x=tensor(7, 8, dtype="int64"))]),  # noqa: E501
        case("a size comes back", ["x"], [*sizes((3, 4), (5, 4)), call(x=tensor(5, 4, dtype="float64")), call(x=tensor(6, 4, dtype="float64")), *sizes((3, 4), (7, 4))]),  # noqa: E501
        case("another type learns from the first", ["x"], [*sizes((3,), (4,)), call(x=tensor(4, dtype="int32")), call(x=tensor(9, dtype="int32"))]),  # noqa: E501
        case("the first has a size of one", ["x"], sizes((1, 4), (2, 4), (3, 4), (1, 4), (0, 4), (0, 4), (9, 4), (1, 5), (1, 6), (2, 7))),  # noqa: E501
        case("dimensions of one tensor alone vary", ["x", "y"], [call(x=tensor(*x), y=tensor(y)) for x, y in (((3,), 5), ((3, 4), 5), ((6, n), 5), ((6, n), 8), ((7, 9), 9))]),  # noqa: E501
        case("no size at all", ["x"], sizes((), (n,), (), (8,), (1,), (1,))),
        case("fewer dimensions", ["x"], sizes((3, 4), (3, 5), (6,), (7,), (6, 1), (8, 1), (2, 2))),
        case("numbers 0 and 1 are symbols, too", ["x", "k"], [call(x=tensor(3), k=k) for k in (n, 1, 0, 8, -2)]),
        case("a number that was 1", ["x", "k"], [call(x=tensor(3), k=k) for k in (1, 1, 0, 1, n, 0)]),
        case("numbers of both types", ["x", "k"], [call(x=tensor(3), k=k) for k in (2, 2.0, 3, 3.0, 4, 4.0)]),
        case("numbers of both types, unequal", ["x", "k"], [call(x=tensor(3), k=k) for k in (2, 2.5, 3, 3.5, 2)]),
        case("two numbers", ["x", "k", "m"], [call(x=tensor(3), k=k, m=m) for k, m in ((2, 5), (3, 5), (4, 6), (9, 7), (2, 5))]),  # noqa: E501
        case("flags are never symbols", ["x", "flag"], [call(x=tensor(3), flag=flag) for flag in "abcabd"]),
        case("gradients", ["x"], [call(x=tensor(3)), call(False, x=tensor(3)), call(False, x=tensor(4)), call(x=tensor(4)), call(False, x=tensor(5)), call(x=tensor(6, gradient=True))]),  # noqa: E501
        case("a flag is no number", ["x", "flag"], [call(x=tensor(n, dtype=dtype), flag=flag) for dtype in ("float32", "int64") for flag in (True, False, True)]),  # noqa: E501
        case("equal sizes of one tensor", ["x"], sizes((n, n), (8, 8), (9, 7), (7, 9))),
        case("a size learns from other kinds of tensor", ["x"], [call(x=tensor(3)), call(x=tensor(4, gradient=True)), call(x=tensor(n, gradient=True)), call(False, x=tensor(5)), call(False, x=tensor(9))]),  # noqa: E501
        case("need of a gradient while they are off", ["x"], [call(False, x=tensor(n, gradient=need)) for need in (False, True, False, True)]),  # noqa: E501
        case("eight versions", ["x", "flag"], [call(x=tensor(3), flag=flag) for flag in LETTERS] + [call(x=tensor(3), flag="c"), call(x=tensor(4), flag="c")]),  # noqa: E501
        case("seven versions, and one more", ["x", "flag"], [call(x=tensor(3), flag=flag) for flag in LETTERS[:7]] + sizes((4,), (5,), flag="a") + sizes((5,), flag="b")),  # noqa: E501
        case("what is not read varies", ["y"], [call(x=tensor(a), y=tensor(b), k=k, flag=k > 3) for a, b, k in ((3, 3, 1), (4, 3, 2), (5, 4, 3), (1, 5, 4))]),  # noqa: E501
        case("eight versions with and without gradients", ["x", "flag"], [call(on, x=tensor(3), flag=flag) for on in (True, False) for flag in LETTERS[:5]]),  # noqa: E501
        case("a long run", ["x"], sizes((3, 4), (5, 4), *((rng.randint(2, 9), 4) for _ in range(9)), (3, 6), (2, 7))),
        *(_drawn(rng, f"drawn, {number}") for number in range(10)),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- answers


def _simulate(reads, calls, limit=8, last_only=False, forgets=False):
    """Each version as a dict from what a guard is about to a test of it."""
    versions, history, answer = [], {}, []
    for arguments, gradients in calls:
        facts = {"mode": gradients}
        for name in reads:
            value = arguments[name]
            if isinstance(value, tuple):
                facts[name] = (value[0], value[2], len(value[1]))
                facts |= {(name, number): size for number, size in enumerate(value[1])}
            elif isinstance(value, bool) or not isinstance(value, int | float):
                facts[name] = (type(value), value)
            else:
                facts[name], facts[name, "value"] = type(value), value
        latest = versions[-1:] if last_only else versions
        hit = any(v.keys() == facts.keys() and all(test(facts[key]) for key, test in v.items()) for v in latest)
        compiles = not hit and len(versions) < limit
        for key, fact in facts.items():
            history[key] = [*history.get(key, [])[-1 if forgets else 0 :], fact]
        if compiles:
            versions.append({key: _test(key, fact, history) for key, fact in facts.items()})
        answer.append(int(compiles))
    return answer


def _test(key, fact, history):
    if not isinstance(key, tuple):
        return lambda other: other == fact
    name, part = key
    varied = any(old != fact for old in history[key])
    if part == "value":
        return (lambda other: True) if varied else (lambda other: other == fact)
    varied = varied or len({kind[2] for kind in history[name]}) > 1
    return (lambda other: other > 1) if varied and fact > 1 else (lambda other: other == fact)


@right("each version as tests of facts")
def by_tests(reads, calls):
    return _simulate(reads, calls)


@right("a tuple, and calls that are equal to an earlier one are looked up first")
def looked_up(reads, calls):
    first = {}
    counts = _simulate(reads, calls)
    for number, (arguments, gradients) in enumerate(calls):
        key = repr(([arguments[name] for name in reads], gradients))
        if first.setdefault(key, number) != number:
            counts[number] = 0
    return tuple(counts)


all_dimensions = edited(
    "did", "takes the sizes of all tensors for symbols once the number of dimensions of one varies"
)(("len(seen[place[0]]) > 1", "any(len(seen[name]) > 1 for name in reads if isinstance(arguments[name], tuple))"))


@wrong("spared", "compiles for each call that is unlike all before it: there are no symbols")
def each_new_call(reads, calls):
    keys, counts = [], []
    for arguments, gradients in calls:
        key = repr(([arguments[name] for name in reads], gradients))
        counts.append(int(key not in keys and len(keys) < 8))
        keys += [key] * counts[-1]
    return counts


@wrong("spared", "keeps the newest version alone")
def newest_only(reads, calls):
    return _simulate(reads, calls, last_only=True)


@wrong("spared", "makes symbols of what differs from the call before")
def forgets_the_rest(reads, calls):
    return _simulate(reads, calls, forgets=True)


@wrong("did", "says of each call that it compiles, and so misses none")
def each_call(reads, calls):
    return [1] * len(calls)


@wrong("spared", "knows no limit")
def no_limit(reads, calls):
    return _simulate(reads, calls, limit=10**6)


@wrong("did", "compiles once, with symbols for everything")
def once(reads, calls):
    return [1] + [0] * (len(calls) - 1)


eight_of_each_mode = edited("spared", "keeps eight versions with gradients, and eight without")(
    ("len(versions) < 8", "sum(old[0] is gradients for old, _ in versions) < 8")
)
one_is_a_symbol = edited("did", "makes symbols of the sizes 0 and 1, too")(("number > 1 or len(place) == 1", "True"))
numbers_like_sizes = edited("spared", "treats the numbers 0 and 1 as the sizes 0 and 1")(
    ("number > 1 or len(place) == 1", "number > 1")
)
no_gradients = edited("did", "forgets whether gradients are switched on")(
    ("kinds, numbers = [gradients], {}", "kinds, numbers = [], {}")
)
any_dtype = edited("did", "forgets the dtype")(("(dtype, len(shape), gradient)", "(len(shape), gradient)"))
any_type = edited("did", "forgets that 2 and 2.0 are of different types")(
    ("kinds.append(type(value))", "kinds.append(0)")
)
needs_no_gradient = edited("did", "forgets whether a tensor needs a gradient")(
    ("(dtype, len(shape), gradient)", "(dtype, len(shape))")
)
all_arguments = edited("spared", "guards arguments that the function does not read")(
    ("for name in reads: ...", "for name in arguments: ...")
)
own_dimensions = edited("spared", "makes a symbol of no size when the number of dimensions varies")(
    ("len(seen[place]) > 1 or len(seen[place[0]]) > 1", "len(seen[place]) > 1")
)
flags_as_numbers = edited("did", "takes flags for numbers")(
    ("type(value) in (int, float)", "isinstance(value, (int, float))")
)
no_need_without_gradients = edited("did", "forgets whether a tensor needs a gradient while gradients are off")(
    ("(dtype, len(shape), gradient)", "(dtype, len(shape), gradient and gradients)")
)
each_kind_apart = edited("spared", "lets a size vary only among tensors of the same kind")(
    ("seen[place].add(number)", "seen[place, str(kinds)].add(number)"),
    ("len(seen[place]) > 1 or ...", "len(seen[place, str(kinds)]) > 1 or len(seen[place[0]]) > 1"),
)
equal_sizes_alike = edited("spared", "gives equal sizes of a tensor one symbol")(
    ("(dtype, len(shape), gradient)", "(dtype, [shape.index(size) for size in shape], gradient)")
)
