"""Hidden cases and answers of day05.reuse."""

from __future__ import annotations

import math
import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05.reuse import bytes_case, count_case, drawn, row
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    size, late = 8 * rng.randint(2, 40), rng.randrange(60)
    slim, wide = rng.randint(5, 20), rng.randint(200, 400)

    def later(rows: list[dict]) -> list[dict]:
        """The same program, later and in another order."""
        rows = [one | {"lower": one["lower"] + late, "upper": one["upper"] + late} for one in rows]
        rng.shuffle(rows)
        return rows

    def count(name: str, *rows: dict) -> Case:
        return count_case(name, later(list(rows)))

    def last(one: int, *operands: str, **options: str) -> dict:
        return row("end", one, one + 1, size, *operands, kind="output", **options)

    def value(name: str, lower: int, upper: int, *operands: str, **options: str) -> dict:
        return row(name, lower, upper, size, *operands, **options)

    chain = [value(f"t{i}", i, i + 2, *[f"t{i - 1}"][: i > 0]) for i in range(6)]
    grown = [row("a", 0, 1, slim), row("b", 1, 3, wide), row("c", 2, 3, slim + 30), row("d", 3, 4, wide)]
    kept = [row("a", 0, 1, wide), row("b", 1, 3, slim), row("c", 2, 4, slim + 30), row("d", 4, 5, wide)]
    sizes = {
        "a small value first": (wide, slim, slim, wide),
        "a large value first": (slim, wide, wide, slim),
        "small and large": (wide, slim, wide, slim),
        "large and small": (slim, wide, slim, wide),
        "nearer to the smaller one": (wide, slim, (wide + slim) // 2 - 5, slim),
        "the larger one grows": (wide, slim, wide + 9, slim),
        "the larger one grows, and is the second": (slim, wide, wide + 9, slim),
    }
    return [
        count("in place all along", *chain),
        count("nothing may run in place", *[one | {"elementwise": []} for one in chain]),
        count("the operand is needed later", value("a", 0, 4), value("b", 1, 3, "a"), last(2, "b"), value("c", 3, 4)),
        count("the operand is of the caller", value("x", 0, 2, kind="input"), value("a", 1, 3, "x"), last(2, "a", "x")),
        count("another dtype", value("a", 0, 2), value("b", 1, 3, "a", dtype="int32"), last(2, "b")),
        count("another size", row("a", 0, 2, size + 1), value("b", 1, 3, "a"), last(2, "b")),
        count("the second operand", row("a", 0, 3, 8), value("b", 1, 3), last(2, "a", "b")),
        count("an operand twice", value("a", 0, 2), last(1, "a", "a")),
        count(
            "two operands end",
            value("a", 0, 3),
            value("b", 1, 3),
            value("c", 2, 4, "a", "b"),
            value("d", 3, 5),
            last(4),
        ),
        count("a view lives longer", value("a", 0, 2), value("v", 1, 4, view_of="a"), value("b", 2, 4), last(3)),
        count("an owner lives longer", value("a", 0, 5), value("v", 1, 2, view_of="a"), value("b", 3, 5), last(4)),
        count(
            "a view of a view",
            *(value("a", 0, 2), value("v", 1, 3, view_of="a"), value("w", 2, 6, view_of="v")),
            *(value("b", 3, 5), value("c", 4, 6), last(5, "w", "b")),
        ),
        count("the operand has a view", value("a", 0, 3), value("v", 1, 3, view_of="a"), last(2, "a", "v")),
        count("a view, long gone", value("a", 0, 4), value("v", 1, 2, view_of="a"), value("b", 2, 3), last(3, "a")),
        count("a view of a part, long gone", value("a", 0, 3), row("v", 1, 2, 8, view_of="a"), last(2, "a")),
        count(
            "a view as another dtype, long gone",
            *(value("a", 0, 3), value("v", 1, 2, view_of="a", dtype="int32"), last(2, "a")),
        ),
        count("the operand is a view", value("a", 0, 2), value("v", 1, 3, view_of="a"), last(2, "v")),
        count(
            "a view of a view, in place",
            *(
                value("a", 0, 4),
                value("v", 1, 3, view_of="a"),
                value("w", 2, 4, view_of="v"),
                last(3, "a"),
            ),
        ),
        count("a view of the caller's", value("x", 0, 2, kind="input"), value("v", 1, 3, view_of="x"), last(2, "v")),
        count("returned early", value("y", 0, 1, kind="output"), value("a", 1, 3), value("b", 2, 4, "a"), last(3, "b")),
        count("returned, and read last", value("y", 0, 2, kind="output"), last(1, "y")),
        count(
            "a view is returned",
            *(value("a", 0, 2), value("v", 1, 2, view_of="a", kind="output"), value("b", 2, 4), last(3, "b")),
        ),
        count(
            "a view of a view is returned",
            *(value("a", 0, 2), value("v", 1, 3, view_of="a"), value("w", 2, 3, view_of="v", kind="output")),
            *(value("b", 3, 5), last(4, "b")),
        ),
        count("an output takes a free slot", value("a", 0, 2), value("b", 1, 3), last(2)),
        count("a result that nothing reads", value("a", 0, 1), value("b", 1, 2), value("c", 2, 3), last(3)),
        *[
            bytes_case(name, later([row("a", 0, 2, a), row("b", 1, 2, b), row("c", 2, 4, c), row("d", 3, 4, d)]))
            for name, (a, b, c, d) in sizes.items()
        ],
        bytes_case("a slot that grew", later(grown)),
        bytes_case("a slot that held a larger value", later(kept)),
        bytes_case("none", []),
        *[bytes_case(f"{n} values of many sizes", drawn(rng, n, (slim, 50, 100, wide), False)) for n in (30, 60)],
        *[count_case(f"drawn, {n} steps", drawn(rng, n, (size, 2 * size))) for n in (20, 30, 60, 90)],
    ]


EQUIVALENT = {
    ('owner["name"], 0', 'owner["name"], 1'): "a value is live in one step at least, so it ends at 1 or later",
    ("width.append(0)", "width.append(1)"): "a value has at least one byte",
    ("busy_until.append(0)", "busy_until.append(1)"): "it is set before it is looked at",
}

# ---------------------------------------------------------------------------------------------------- answers


def _facts(values):
    """Owner → end of need; name → owner; owners with views."""
    named = {v["name"]: v for v in values}

    def owner(name):
        base = named[name]["view_of"]
        return name if base is None else owner(base)

    ends = {}
    for v in values:
        end = math.inf if v["kind"] == "output" else v["upper"]
        ends.setdefault(owner(v["name"]), []).append(end)
    return {name: max(times) for name, times in ends.items()}, {n for n, times in ends.items() if len(times) > 1}


def _own(values):
    return sorted((v for v in values if v["kind"] != "input" and v["view_of"] is None), key=lambda v: v["lower"])


def _takes(named, ends, viewed, new, name):
    old = named[name]
    return (
        old["kind"] == "value"
        and old["view_of"] is None
        and name not in viewed
        and ends[name] - 1 == new["lower"]
        and (old["size"], old["dtype"]) == (new["size"], new["dtype"])
    )


@right("runs in place wherever it may, even if a free slot fits better; keeps the values of each slot as a list")
def in_place_first(values):
    named = {v["name"]: v for v in values}
    ends, viewed = _facts(values)
    slots = []
    for new in _own(values):
        over = [n for n in new["elementwise"] if _takes(named, ends, viewed, new, n)]
        free = [s for s in slots if s[-1] in over] or [s for s in slots if ends[s[-1]] <= new["lower"]]

        def wide(s):
            return max(named[n]["size"] for n in s)

        fits = [s for s in free if wide(s) >= new["size"]]
        if fits:
            min(fits, key=wide).append(new["name"])
        elif free:
            max(free, key=wide).append(new["name"])
        else:
            slots.append([new["name"]])
    return {n: number for number, s in enumerate(slots) for n in s}


@right("walks through time: gives back what ended, and keeps free slots in a list sorted by size; numbers them by tens")
def pools(values):
    named = {v["name"]: v for v in values}
    ends, viewed = _facts(values)
    free, busy, slot, count = [], [], {}, 0
    for new in _own(values):
        for name, size in [one for one in busy if ends[one[0]] <= new["lower"]]:
            busy.remove((name, size))
            free.append((size, slot[name]))
        for name, size in list(busy):
            if name in new["elementwise"] and _takes(named, ends, viewed, new, name):
                busy.remove((name, size))
                free.append((size, slot[name]))
                break
        free.sort()
        chosen = next((one for one in free if one[0] >= new["size"]), free[-1] if free else None)
        if chosen is None:
            count += 10
            chosen = (0, count)
        else:
            free.remove(chosen)
        slot[new["name"]] = chosen[1]
        busy.append((new["name"], max(chosen[0], new["size"])))
    return slot


@wrong("did", "gives every value a slot of its own")
def each_its_own(values):
    return {v["name"]: number for number, v in enumerate(_own(values))}


@wrong("valid", "gives slots to inputs and views, too")
def everything(values):
    return {v["name"]: number for number, v in enumerate(values)}


_CHOICE = '(width[number] < value["size"], abs(width[number] - value["size"]))'

never_in_place = edited("did", "never runs in place")(("free.append(slot[name])", "pass"))
as_listed = edited("same", "takes the values as they are listed")(
    ('sorted(own, key=lambda value: value["lower"])', "own")
)
early = edited("same", "lets the result of any step take over what ends in that step")(("end <= ...", "end <= ... + 1"))
outputs_end = edited("spared", "hands the slot of an output on after its last reader")(
    ('math.inf if value["kind"] == "output" else value["upper"]', 'value["upper"]')
)
no_views = edited("spared", "forgets that a view needs the memory that it looks at")(
    ('max(needed_until.get(owner["name"], 0), end)', 'end if owner is value else needed_until.get(owner["name"], 0)')
)
one_step = edited("spared", "follows one view, but not a view of a view")(
    ('while owner["view_of"] is not None: ...', 'if owner["view_of"] is not None: ...')
)
viewed_in_place = edited("spared", "runs in place in what has a view")(("name not in viewed and alike", "alike"))
any_dtype = edited("spared", "runs in place if the size is the same, whatever the dtype")(
    ('("size", "dtype")', '("size",)')
)
whole_views = edited("spared", "runs in place in what has a view, if that is a view of a part")(
    ('viewed.add(owner["name"])', 'value["size"] < owner["size"] or viewed.add(owner["name"])')
)
views_of_one_dtype = edited("spared", "runs in place in what has a view, if that has another dtype")(
    ('viewed.add(owner["name"])', 'value["dtype"] != owner["dtype"] or viewed.add(owner["name"])')
)
latest_width = edited("cost", "a slot is as large as its latest value")(
    ('max(width[best], value["size"])', 'value["size"]')
)
any_free = edited("cost", "takes the first free slot")((_CHOICE, "number"))
nearest = edited("cost", "opens a new slot if none that is free is large enough: fewer bytes for now, but more slots")(
    ("if not free: ...", 'free = [number for number in free if width[number] >= value["size"]]\nif not free: ...')
)
