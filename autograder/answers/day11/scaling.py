"""Hidden cases and answers of day11.scaling."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day11.scaling import expected, grids
from passlab.judge import Case
from passlab.wafer.scaling import Stencil


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    twos = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]

    def drawn(name, fits, draw) -> Case:
        while True:
            stencil, columns, block, sides, ramp = draw()
            if fits(expected(stencil, columns, block, sides, ramp), sides):
                return grids(name, stencil, columns, block, sides, ramp)

    def any_task(columns=512, sides=twos):
        stencil = Stencil(rng.randint(1, 40), rng.randint(1, 400), rng.randint(0, 6))
        return stencil, columns, rng.randint(1, 5), sides, rng.randint(0, 4)

    def of(key, why):
        return lambda values, sides: values[key] is not None and values[key][1] == why

    def rises_and_falls(values, sides):
        times = [values["strong"][p] for p in sides]
        rises = next((i for i in range(len(sides) - 1) if times[i + 1] > times[i]), -1)
        return values["fastest"] > sides[rises]

    def many_sums():
        return Stencil(rng.randint(1, 2), rng.randint(1, 3), rng.randint(40, 300)), 60, 2, [1, 2, 3, 4, 5, 6], 2

    return [
        drawn("sums bend strong scaling", of("strong bend", "sums"), any_task),
        drawn("halos bend strong scaling", of("strong bend", "halo"), lambda: (Stencil(1, rng.randint(200, 400), rng.randint(0, 1)), 16, 3, [1, 2, 4, 8, 16], 2)),  # noqa: E501
        drawn("sums bend weak scaling", of("weak bend", "sums"), any_task),
        drawn("halos bend weak scaling", of("weak bend", "halo"), lambda: (Stencil(rng.randint(1, 3), rng.randint(100, 300), 1), 64, 1, [1, 2, 4, 8], 2)),  # noqa: E501
        drawn("the fastest is not the largest", lambda values, sides: values["fastest"] < sides[-1], lambda: (Stencil(rng.randint(1, 5), rng.randint(4, 20), 4), 512, 2, twos, 2)),  # noqa: E501
        drawn("strong scaling never bends", lambda values, sides: values["strong bend"] is None, lambda: any_task(48, [1, 2, 3, 6])),  # noqa: E501
        drawn("weak scaling never bends", lambda values, sides: values["weak bend"] is None, lambda: (Stencil(rng.randint(20, 40), 300, 1), 64, 4, [1, 2, 4], 3)),  # noqa: E501
        drawn("slower, and faster again", rises_and_falls, many_sums),
        grids("odd sides", Stencil(6, 12, 3), 45, 2, [1, 3, 5, 9, 15, 45], 1),
        grids("one side", Stencil(6, 12, 3), 4, 2, [1]),
        grids("two sides are as fast", Stencil(4, 1, 2), 8, 1, [1, 2, 4, 8], rng.randint(0, 3)),
        grids("an efficiency of one half, strong", Stencil(2, 6, 3), 8, 2, [1, 2, 4, 8], 2),
        grids("an efficiency of one half, weak", Stencil(2, 5, 1), 8, 3, [1, 2, 4, 8], 1),
        grids("a cycle below one half, weak", Stencil(7, 1, 0), 8, 1, [1, 2, 4, 8], 1),
        grids("one core is the fastest", Stencil(1, 1, rng.randint(20, 40)), 8, 1, [1, 2, 4, 8], rng.randint(0, 3)),
        grids("halo and sums alike, strong", Stencil(2, 6, 2), 8, 1, [1, 2, 4, 8], 1),
        grids("halo and sums alike, weak", Stencil(1, 3, 1), 8, 2, [1, 2, 4, 8], 2),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- answers


@right("efficiencies in lists; the bend is searched among them")
def listed(stencil, columns, block, sides, ramp):
    def times(blocks):
        values = []
        for p, b in zip(sides, blocks, strict=True):
            middle = p // 2 + 1
            alone = p == 1
            values.append(
                (
                    stencil.work * stencil.depth * b**2,
                    0 if alone else 4 * b * stencil.depth + 2 * ramp + 2,
                    0 if alone else stencil.sums * (4 * middle + 8 * ramp + 6),
                )
            )
        return values

    answer = {}
    for name, blocks in (("strong", [columns // p for p in sides]), ("weak", [block] * len(sides))):
        parts = times(blocks)
        totals = [sum(part) for part in parts]
        cores = [p * p if name == "strong" else 1 for p in sides]
        low = [i for i in range(len(sides)) if 2 * totals[0] < cores[i] * totals[i]]
        answer[name] = dict(zip(sides, totals, strict=True))
        answer[f"{name} bend"] = (sides[low[0]], ("halo", "sums")[parts[low[0]][2] > parts[low[0]][1]]) if low else None
    answer["fastest"] = sorted(sides, key=lambda p: (answer["strong"][p], p))[0]
    return answer


@right("numbers as floats, the bend as a list")
def as_floats(stencil, columns, block, sides, ramp):
    values = listed(stencil, columns, block, sides, ramp)
    for name in ("strong", "weak"):
        values[name] = {p: float(cycles) for p, cycles in values[name].items()}
        values[f"{name} bend"] = values[f"{name} bend"] and list(values[f"{name} bend"])
    return values


whole = edited("same", "divides the columns among p cores, not p × p")(
    ("parts(columns // p, p)", "parts(columns // p**0.5, p)")
)
lone_halo = edited("same", "one core sends halos, too")(("p == 1", "p == 0"))
one_side = edited("same", "sends one side")(("4 * b * stencil.depth", "b * stencil.depth"))
no_way_back = edited("same", "sums along rows alone, or does not send the sum back")(
    ("... + (1 + half + 2 * ramp)", "...")
)
weak_as_strong = edited("did", "judges weak scaling as strong")(
    ("bend(weak, lambda p: 1)", "bend(weak, lambda p: p * p)")
)
strong_as_weak = edited("did", "forgets the number of cores in the efficiency, or takes p for it")(
    ("bend(strong, lambda p: p * p)", "bend(strong, lambda p: 1)")
)
largest = edited("did", "the largest grid is the fastest")(("min(sides, key=lambda p: sum(strong[p]))", "sides[-1]"))
first_minimum = edited("did", "the fastest grid is the last before the first that is slower")(
    (
        "min(sides, key=lambda p: sum(strong[p]))",
        "next((p for p, q in zip(sides, sides[1:]) if sum(strong[q]) >= sum(strong[p])), sides[-1])",
    )
)
several = edited("did", "takes one core for slower than several")(
    ("min(sides, key=lambda p: sum(strong[p]))", "min(sides[1:] or sides, key=lambda p: sum(strong[p]))")
)
whole_half = edited("did", "rounds half of the cycles down before it compares")(
    ("0.5 * cores(p) * sum(table[p])", "cores(p) * sum(table[p]) // 2")
)
always_sums = edited("cost", "blames the sums for everything")(
    ('"halo" if table[p][1] >= table[p][2] else "sums"', '"sums"')
)
always_halo = edited("cost", "blames the halos for everything")(
    ('"halo" if table[p][1] >= table[p][2] else "sums"', '"halo"')
)
sums_of_equals = edited("cost", "blames the sums where both take the same")(("... >= table[p][2]", "... > table[p][2]"))


@wrong("did", "the curve bends where it is slowest against one core: the last side")
def at_the_end(stencil, columns, block, sides, ramp):
    values = listed(stencil, columns, block, sides, ramp)
    for name in ("strong bend", "weak bend"):
        values[name] = values[name] and (sides[-1], values[name][1])
    return values
