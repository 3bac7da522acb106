"""Hidden cases and answers of day10.domains.

Most wrong answers are the reference with a misunderstanding in one place.
"""

from __future__ import annotations

import random

import islpy as isl

from autograder.authoring.answers import edited, reference, right, wrong
from passlab import polyhedral
from passlab.exercises.day10._isl import OPERATIONS, judged_within
from passlab.exercises.day10.domains import domains_case, judge, loop, nest, statement, when
from passlab.given.day10._isl import as_text
from passlab.given.day10.domains import Nest, as_python
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    cut, stride = rng.choice((2, 3, 5)), rng.choice((4, 5, 7))
    strided = loop("j", "i", "M", statement("S", "A[i, j]", f"A[i, j - {cut}]"), step=stride)
    falling = loop("j", "i", "0", statement("S", "A[j]", "A[i]"), step=-cut)
    below = when("i != 0", loop("j", "0", "i", statement("T", "A[i]", "A[j]")))
    guarded = when(f"i % {cut} == 0 or i > {stride}", statement("S", "A[i]"), below)
    deepest = statement("Deep", "s[]", "s[]", "A[i + j, k - i]")
    deep = loop("j", "i + 1", "N", loop("k", "max(i, j - 3)", f"min(N, j + {cut})", deepest))
    parts = {
        "two loops over the same name": nest(
            "N",
            loop("i", "0", "N", statement("S", "A[i]", "B[i]")),
            loop("i", "0", "N - 1", statement("T", "C[i]", "A[i + 1]")),
        ),
        "strides inside strides": nest("N M", loop("i", "1", "N", strided, step=cut)),
        "down by more than one": nest("N", loop("i", "N - 1", "-1", falling, step=-1)),
        "guards in each other": nest("N", loop("i", "0", "N", guarded, statement("U", "B[i]", "A[i]"))),
        "deep and shallow": nest(
            "N",
            statement("First", "s[]"),
            loop("i", "0", "N", deep, statement("Between", "B[i]", "s[]")),
            statement("Last", "r[]", "s[]", "B[0]"),
        ),
    }
    parts |= {
        "below zero": nest(
            "N",
            loop(
                "i",
                f"-N - {cut}",
                "N",
                when(f"i % {cut} == 1", statement("S", "A[i]", "A[-i]")),
                loop("j", "i", f"-{stride}", statement("T", "B[i, j]", "B[i, -j]"), step=-2),
                step=stride,
            ),
        ),
        "from one below zero down": nest("", loop("i", "-1", "-20", statement("S", "A[i]", "A[i + 1]"), step=-cut)),
    }
    parts["several writes, and four statements in a row"] = nest(
        "N",
        loop(
            "i",
            "0",
            "N",
            {"statement": "Both", "writes": ["A[i]", "B[i + 1]"], "reads": ["B[i]"]},
            statement("Next", "C[i]", "A[i]"),
            {"statement": "Three", "writes": ["B[i]", "A[i - 1]", "D[i]"], "reads": ["C[i]"]},
            statement("Last", "C[i]", "D[i]"),
        ),
    )
    parts |= {f"drawn, number {i + 1}": drawn(rng) for i in range(4)}
    answer = reference("day10.domains")
    return [domains_case(name, one, **as_text(answer(one))) for name, one in parts.items()]


def drawn(rng: random.Random) -> Nest:
    """Return a nest at random of which every statement runs, and which is not too hard for isl.

    Where all relations are restricted to the domain, as is right and natural, the judge needs more steps of isl: for
    one nest of 300, more than an answer may take. So this must take a quarter of them at most.
    """
    answer = reference("day10.domains")
    while True:
        one = _drawn(rng)
        parts = answer(one)
        case = domains_case("", one, **as_text(parts))
        running = parts["domain"].get_set_list().n_set()
        if running == len(_names(one["body"])) and judged_within(
            OPERATIONS // 4, judge, case, as_text(restricted(one))
        ):
            return one


def _names(body: list[dict]) -> list[str]:
    return [name for item in body for name in ([item["statement"]] if "statement" in item else _names(item["body"]))]


def _drawn(rng: random.Random) -> Nest:
    """Return two or three statements in loops up to three deep, with bounds, steps and guards at random."""
    left = list("STU"[: rng.randint(2, 3)])

    def subscript(iterators: list[str]) -> str:
        terms = [
            f"{rng.choice(('', '2*', '-'))}{name}"
            for name in rng.sample(iterators, min(len(iterators), rng.randint(1, 2)))
        ]
        return " + ".join([*terms, str(rng.randint(0, 3))])

    def cell(iterators: list[str]) -> str:
        return f"{rng.choice('ABC')}[{subscript(iterators)}, {subscript(iterators)}]"

    def block(iterators: list[str]) -> list[dict]:
        body: list[dict] = []
        while left and (not body or rng.random() < 0.6):
            kind = rng.choice(("loop", "loop", "if", "statement")) if iterators else "loop"
            if kind == "statement" or (kind == "loop" and len(iterators) == 3):
                body.append(statement(left.pop(0), cell(iterators), cell(iterators), cell(iterators)))
            elif kind == "if":
                name = rng.choice(iterators)
                test = rng.choice(
                    (f"{name} % 3 != 1", f"{name} > 2", f"{' + '.join(iterators)} < N", f"{name} == 1 or N > 7")
                )
                body.append(when(test, *block(iterators)))
            else:
                name = "ijk"[len(iterators)]
                inner = [f"{iterators[-1]} + 1", f"max(0, {iterators[-1]} - 2)"] if iterators else []
                start, stop = (
                    rng.choice(["0", "1", "-N", *inner]),
                    rng.choice(["N", "M", f"min(N, {rng.randint(4, 9)})"]),
                )
                step = rng.choice((1, 1, 2, 3, -1, -2))
                if step < 0:
                    start, stop = f"{stop} - 1", f"{start} - 1"
                body.append(loop(name, start, stop, *block([*iterators, name]), step=step))
        return body

    body: list[dict] = []
    while left:
        body += block([])
    return nest("N M", *body)


EQUIVALENT = {
    (
        '... if step > 0 else f"{start} >= {i} > {stop}"',
        '... if step >= 0 else f"{start} >= {i} > {stop}"',
    ): "a step is not 0",
    ('i if step > 0 else f"-{i}"', 'i if step >= 0 else f"-{i}"'): "a step is not 0",
}

# ---------------------------------------------------------------------------------------------------- answers


def bounds(i, start, stop, step):
    """Return the condition under which a loop runs: from start to before stop, at start, start + step, …"""
    inside = f"{start} <= {i} < {stop}" if step > 0 else f"{stop} < {i} <= {start}"
    return f"{inside} and ({i} - ({start})) % {abs(step)} = 0"


def _walk(nest, bounds=bounds, turn=lambda i, start, step: i if step > 0 else f"-{i}"):
    """Return (item, iterators, conditions, time) of each statement."""

    def walk(body, iterators, conditions, time):
        for place, item in enumerate(body):
            times = [*time, str(place)]
            if "statement" in item:
                yield item, iterators, conditions, times
            elif "if" in item:
                test = f"({item['if'].replace('==', '=')})"
                yield from walk(item["body"], iterators, [*conditions, test], times)
            else:
                i, (start, stop, step) = item["loop"], item["range"]
                within = [*conditions, f"({bounds(i, start, stop, step)})"]
                yield from walk(item["body"], [*iterators, i], within, [*times, turn(i, start, step)])

    return walk(nest["body"], [], [], [])


def _texts(nest, **options):
    """Return the four parts as text."""
    pieces = {"domain": [], "reads": [], "writes": [], "schedule": []}
    statements = list(_walk(nest, **options))
    length = max(len(time) for *_, time in statements)
    for item, iterators, conditions, time in statements:
        instance = f"{item['statement']}[{', '.join(iterators)}]"
        time = time + ["0"] * (length - len(time))
        pieces["domain"].append(f"{instance} : {' and '.join(conditions) or 'true'}")
        pieces["reads"] += [f"{instance} -> {cell}" for cell in item["reads"]]
        pieces["writes"] += [f"{instance} -> {cell}" for cell in item["writes"]]
        pieces["schedule"].append(f"{instance} -> [{', '.join(time)}]")
    return {part: f"[{', '.join(nest['parameters'])}] -> {{ {'; '.join(all_)} }}" for part, all_ in pieces.items()}


def _objects(nest, **options):
    texts = _texts(nest, **options)
    return {part: (isl.UnionSet if part == "domain" else isl.UnionMap)(text) for part, text in texts.items()}


@right("writes each part as one text, and leaves reading it to the judge")
def as_texts(nest):
    return _texts(nest)


@right("counts the turns of each loop: i = start + step · turn, and the turn is the time")
def by_turns(nest):
    def bounds(i, start, stop, step):
        return f"exists (turn : turn >= 0 and {i} = {start} + {step}*turn) and {i} {'<' if step > 0 else '>'} {stop}"

    def turn(i, start, step):
        return f"floor(({i} - ({start}))/{step})" if step > 0 else f"floor((({start}) - {i})/{-step})"

    return _objects(nest, bounds=bounds, turn=turn)


@right("restricts everything to the domain, and starts the times at 100")
def restricted(nest):
    parts = {name: part.coalesce() for name, part in _objects(nest).items()}
    for name in ("reads", "writes", "schedule"):
        parts[name] = parts[name].intersect_domain(parts["domain"])
    length = parts["schedule"].get_map_list().get_at(0).dim(isl.dim_type.out)
    names = [f"t{k}" for k in range(length)]
    later = isl.UnionMap(f"{{ [{', '.join(names)}] -> [{', '.join(f'{name} + 100' for name in names)}] }}")
    return parts | {"schedule": parts["schedule"].apply_range(later)}


@wrong("spared", "takes the end of a range for its last value")
def inclusive(nest):
    def bounds_with_stop(i, start, stop, step):
        return bounds(i, start, f"{stop} + {1 if step > 0 else -1}", step)

    return _objects(nest, bounds=bounds_with_stop)


no_steps = edited("spared", "a step is for speed: every iteration between start and stop runs")(
    ('f"({i} - ({start})) % {abs(step)} = 0"', 'f"({i} - ({start})) % 1 = 0"')
)
strides_from_zero = edited("did", "strides from 0 instead of from the loop's start")(
    ('f"({i} - ({start})) % {abs(step)} = 0"', 'f"{i} % {abs(step)} = 0"')
)
no_guards = edited("spared", "a guard decides at run time: no part of the domain")(
    ("[*conditions, condition], times", "conditions, times")
)
only_upwards = edited("did", "a loop whose start is above its stop never runs")(
    ('... if step > 0 else f"{start} >= {i} > {stop}"', "...")
)
one_size = edited("did", "N is 10, as in the test at hand")(
    ("...(conditions)", '...([*conditions, *(f"{name} = 10" for name in nest["parameters"])])')
)
every_write_reads = edited("spared", "what is written is read first, as if every statement were +=")(
    ('item["reads"]', 'item["reads"] + item["writes"]')
)
first_write = edited("did", "a statement is an assignment: it writes one cell")(
    ('item["writes"]', 'item["writes"][:1]')
)
three_places = edited("same", "a body has a start, a middle and an end")(("str(place)", "str(min(place, 2))"))
iterators_alone = edited("same", "the iterators are the time: statements of one body run at once")(
    ("[*time, str(place)]", "time")
)


@wrong("valid", "lets the library take the loops apart")
def by_the_library(nest):
    program = polyhedral.parse(as_python(nest))
    return {part: getattr(program, part) for part in ("domain", "reads", "writes", "schedule")}


@wrong("valid", "returns a list of statements, each with its own sets")
def per_statement(nest):
    return [_objects({**nest, "body": [item]}) for item in nest["body"]]
