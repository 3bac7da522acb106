"""Hidden cases and answers of day11.place."""

from __future__ import annotations

import math
import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day11.place import MEMORY, SHAPES, each, op, place_case, plain
from passlab.judge import Case


def cores_needed(operations, memory: int) -> int:
    """Return how many cores the operations take at least, whole ones packed without a gap."""
    whole = [each(o, 1, 1) for o in operations]
    large = [o for o, size in zip(operations, whole, strict=True) if size > memory]
    shapes = [(p, q) for p in range(1, 20) for q in range(1, 20)]
    wide = sum(min(p * q for p, q in shapes if each(o, p, q) <= memory) for o in large)
    return wide + math.ceil(sum(size for size in whole if size <= memory) / memory)


def grid(rng: random.Random, cores: float) -> tuple[int, int]:
    """Return a grid, not a square, of at least `cores` cores."""
    rows = max(3, round(math.sqrt(cores * rng.uniform(0.5, 0.8))))
    return rows, max(rows + 1, math.ceil(cores / rows))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    gpt, net = plain("gpt", rng.randrange(2**31)), plain("resnet", rng.randrange(2**31))
    mlp, unet = plain("mlp", rng.randrange(2**31)), plain("unet", rng.randrange(2**31))
    size = rng.randint(60, 99) * 10
    halves = [op(f"half {i}", rng.randint(45, 50) * size // 100) for i in range(8)]
    whole = [op(f"full {i}", size) for i in range(rng.randint(5, 7))]
    # a window of almost 3 cores needs 3 columns, however many rows there are; turned round it does not fit
    flat = [op("flat", 0, int(2.9 * size), 0), op("a", size // 2), op("b", size // 2)]
    steep = [op("steep", 0, 0, int(2.9 * size)), op("a", size // 2), op("b", size // 2)]
    odd = [op("odd", 2 * size - 1, 1, 1), op("tiny", 1)]  # halves are rounded up, and then do not fit
    # four cores in a column hold it, six in 2 × 3, and no row is wide enough
    bulky = [op("bulky", 32 * size // 10, 0, 8 * size // 10), *(op(f"full {i}", size) for i in range(8))]
    # each leaves room for the other only if it takes all three cores, or the one that comes second does
    long = [op(f"long {i}", 12 * size // 10) for i in range(2)]
    # neither rows nor columns hold it, two by two cores do
    square = [op("square", 32 * size // 10, 2 * size // 10, 2 * size // 10)]
    # the two fill their cores to the last byte, so the small one needs the only core that is left
    pair = [
        op("tall", 0, size // 2, 2 * (size - size // 2)),
        op("wide", 0, 2 * (size - size // 2), size // 2),
        op("small", 9),
    ]
    last = [*SHAPES[2:], SHAPES[1], SHAPES[0]]
    small = [op(f"s{i}", rng.randint(size // 10, size // 4), rng.randint(0, 20), rng.randint(0, 20)) for i in range(24)]
    return [
        place_case("one operation, one core", [op("only", size - 20, 10, 10)], 1, 1, "did", size),
        place_case("each fills a core", whole, 2, 4, "did", size),
        place_case("a wide window", flat, 2, 4, "did", size),
        place_case("a tall result", steep, 4, 2, "did", size),
        place_case("a share is rounded up", odd, 2, 3, "did", size),
        # one more than two cores hold: three are needed, if each share is rounded up by itself
        place_case("weights are rounded up", [op("odd", 2 * size + 1)], 1, 3, "did", size),
        place_case("a window is rounded up", [op("odd", 0, 2 * size + 1)], 1, 3, "did", size),
        place_case("a result is rounded up", [op("odd", 0, 0, 2 * size + 1)], 3, 1, "did", size),
        place_case("each share is rounded up", [op("odd", size + 1, size - 1)], 1, 3, "did", size),
        place_case("a byte too many", [op("a", size // 2), op("b", size // 2 + 1)], 1, 2, "did", size),
        place_case("nothing to hold", [op("view"), op("add", 0, 8, 8)], 2, 2, "did", size),
        place_case("pairs on a full grid", halves, 1, 4, "cost", size),
        place_case("a shape with few cores", bulky, 4, 3, "cost", size),
        place_case("a square", square, 2, 2, "did", size),
        place_case("cores in part for two", long, 1, 3, "cost", size),
        place_case("two to the last byte", pair, 2, 3, "did", size),
        place_case("large ones named last", last, 2, 3, "cost", 1000),
        place_case("many small ones", small, 3, 3, "cost", size),
        place_case("an MLP", mlp, 3, 5, "did", MEMORY // 4),
        place_case("a GPT block, with room", gpt, *grid(rng, 2.5 * cores_needed(gpt, MEMORY) + 20), "did"),
        place_case("a GPT block, tight", gpt, *grid(rng, 1.5 * cores_needed(gpt, MEMORY) + 2), "cost"),
        place_case("a U-Net, tight", unet, *grid(rng, 1.4 * cores_needed(unet, MEMORY // 4) + 2), "cost", MEMORY // 4),
        place_case("a small ResNet, tight", net, *grid(rng, 1.25 * cores_needed(net, MEMORY) + 2), "cost"),
    ]


EQUIVALENT = {
    ("load(o, 1, 1)", "load(o, 1, 2)"): "another measure of how large an operation is",
    ("load(o, 1, 1)", "load(o, 2, 1)"): "another measure of how large an operation is",
    ("free.get(core, -1)", "free.get(core, -2)"): "a shape of several cores holds something on each of them",
    ("free.get(core, -1)", "free.get(core, (1))"): "a shape of several cores holds something on each of them",
}


# ---------------------------------------------------------------------------------------------------- answers


def _load(o, p, q):
    return -(-o["weights"] // (p * q)) - (-o["window"] // q) - (-o["result"] // p)


def _shapes(o, rows, columns, memory, load=_load):
    return sorted(
        ((p, q) for p in range(1, rows + 1) for q in range(1, columns + 1) if load(o, p, q) <= memory),
        key=lambda shape: (shape[0] * shape[1], abs(shape[0] - shape[1])),
    )


def _first_fit(operations, rows, columns, memory, load=_load, share=True, order=None):
    """Each operation in turn at the first place where its smallest possible shape fits."""
    free, places = [[memory] * columns for _ in range(rows)], {}
    options = {o["name"]: _shapes(o, rows, columns, memory, load) for o in operations}
    turn = order or (lambda o: (-math.prod(options[o["name"]][0]), -load(o, 1, 1)))
    for o in sorted(operations, key=turn):
        shapes = [(1, 1)] if load(o, 1, 1) <= memory else options[o["name"]]
        for p, q in shapes:
            size = load(o, p, q)
            corners = [(r, c) for r in range(rows - p + 1) for c in range(columns - q + 1)]
            pairs = [
                (r, c)
                for r, c in corners
                if all(
                    free[r + i][c + j] >= size and (share or free[r + i][c + j] == memory)
                    for i in range(p)
                    for j in range(q)
                )
            ]
            if pairs:
                r, c = places[o["name"]] = pairs[0]
                places[o["name"]] = (r, c, p, q)
                for i in range(p):
                    for j in range(q):
                        free[r + i][c + j] -= size
                break
        else:
            places[o["name"]] = (0, 0, *shapes[0])
    return places


@right("numbers of cores in lists; the operation with most bytes goes first; a tuple for each place")
def first_fit(operations, rows, columns, memory):
    return _first_fit(operations, rows, columns, memory)


@right("tries several orders and shapes, and takes the first plan that holds; from the far corner, lists for places")
def several_orders(operations, rows, columns, memory):
    import random

    rng, best = random.Random(0), None
    for _ in range(30):
        noise = {o["name"]: rng.uniform(0.9, 1.1) for o in operations}
        plan = _first_fit(operations, rows, columns, memory, order=lambda o, n=noise: -_load(o, 1, 1) * n[o["name"]])
        best = best or plan
        load = {}
        for o in operations:
            r, c, p, q = plan[o["name"]]
            for core in [(r + i, c + j) for i in range(p) for j in range(q)]:
                load[core] = load.get(core, 0) + _load(o, p, q)
        if max(load.values()) <= memory:
            best = plan
            break
    return {name: [rows - r - p, columns - c - q, p, q] for name, (r, c, p, q) in best.items()}


@wrong("did", "cuts everything evenly: the window and the result, too, by the number of cores")
def evenly(operations, rows, columns, memory):
    def load(o, p, q):
        return -(-(o["weights"] + o["window"] + o["result"]) // (p * q))

    return _first_fit(operations, rows, columns, memory, load)


@wrong("did", "counts the weights alone")
def weights_only(operations, rows, columns, memory):
    return _first_fit(operations, rows, columns, memory, lambda o, p, q: -(-o["weights"] // (p * q)))


@wrong("did", "window by rows and result by columns: the two are mixed up")
def turned(operations, rows, columns, memory):
    def load(o, p, q):
        return -(-o["weights"] // (p * q)) - (-o["window"] // p) - (-o["result"] // q)

    return _first_fit(operations, rows, columns, memory, load)


@wrong("did", "shares are rounded down")
def rounded_down(operations, rows, columns, memory):
    return _first_fit(
        operations, rows, columns, memory, lambda o, p, q: o["weights"] // (p * q) + o["window"] // q + o["result"] // p
    )


a_byte_more = edited("did", "fills cores with a byte more than they hold")(("memory", "memory + 1"))


@wrong("did", "cuts the window by the number of cores")
def window_by_cores(operations, rows, columns, memory):
    def load(o, p, q):
        return -(-o["weights"] // (p * q)) - (-o["window"] // (p * q)) - (-o["result"] // p)

    return _first_fit(operations, rows, columns, memory, load)


@wrong("did", "cuts the result by the number of cores")
def result_by_cores(operations, rows, columns, memory):
    def load(o, p, q):
        return -(-o["weights"] // (p * q)) - (-o["window"] // q) - (-o["result"] // (p * q))

    return _first_fit(operations, rows, columns, memory, load)


@wrong("did", "rectangles of one row or one column only")
def strips(operations, rows, columns, memory):
    def load(o, p, q):
        return _load(o, p, q) if 1 in (p, q) else memory + 1

    return _first_fit(operations, rows, columns, memory, load)


@wrong("cost", "places operations in the order in which they are given")
def in_order(operations, rows, columns, memory):
    return _first_fit(operations, rows, columns, memory, order=lambda o: 0)


cut_apart = edited("valid", "cores of an operation that is cut hold no other")(
    ("free[core] -= ...", "free[core] = free[core] - load(operation, 1, 1) if place[2:] == (1, 1) else -1")
)


@wrong("cost", "no core holds two operations")
def never_shared(operations, rows, columns, memory):
    return _first_fit(operations, rows, columns, memory, share=False)


@wrong("did", "all rectangles begin in the same corner")
def one_corner(operations, rows, columns, memory):
    return {o["name"]: (0, 0, *(_shapes(o, rows, columns, memory) or [(1, 1)])[0]) for o in operations}


@wrong("spared", "spreads small operations over whole rows, so that every core has little")
def spread(operations, rows, columns, memory):
    plan = _first_fit(operations, rows, columns, memory)
    for o in operations:
        if plan[o["name"]][2:] == (1, 1) and columns > 1:
            return plan | {o["name"]: (plan[o["name"]][0], 0, 1, columns)}
    return plan


@wrong("valid", "leaves out operations without weights")
def without_views(operations, rows, columns, memory):
    plan = _first_fit(operations, rows, columns, memory)
    return {o["name"]: plan[o["name"]] for o in operations if o["weights"]}


@wrong("valid", "places are (column, row): right only on a square")
def swapped(operations, rows, columns, memory):
    return {name: (c, r, q, p) for name, (r, c, p, q) in _first_fit(operations, rows, columns, memory).items()}


@wrong("valid", "the last two numbers are taken for the last row and column")
def ends(operations, rows, columns, memory):
    plan = _first_fit(operations, rows, columns, memory)
    return {name: (r, c, r + p - 1, c + q - 1) for name, (r, c, p, q) in plan.items()}
