"""Hidden cases and answers of day05.layout."""

from __future__ import annotations

import random
from itertools import product

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05.layout import LAYOUTS, drawn, on_graph, on_tree
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    seeds = [rng.randrange(2**32) for _ in range(12)]
    star = {"hub": dict.fromkeys(LAYOUTS, 10.0)} | {
        f"leaf{i}": {"NCHW": 9.0 if i < 4 else 12.0, "NHWC": 12.0 if i < 4 else 8.0} for i in range(9)
    }
    spokes = [("hub", f"leaf{i}", 1000) for i in range(9)]
    into = [(b, a, nbytes) for a, b, nbytes in spokes]
    way = {f"op{i}": {"NCHW": 10.0, "NHWC": 10.0} for i in range(40)} | {
        "op0": {"NCHW": 1.0}, "op39": {"NHWC": 1.0}
    }  # fmt: skip
    line = [(f"op{i}", f"op{i + 1}", 1000 * (1 if i == 27 else 9)) for i in range(39)]
    two = {"a": {"NCHW": 1.0, "NHWC": 6.0}, "b": {"NCHW": 9.0, "NHWC": 1.0}}
    named = {"a": {"rows": 1.0, "columns": 6.0}, "b": {"rows": 9.0, "columns": 1.0}}
    readers = {"a": {"NCHW": 1.0, "NHWC": 6.0}, "b": {"NHWC": 1.0}, "c": {"NHWC": 1.0}}

    def both_ways() -> tuple:
        return two, [("a", "b", 1000), ("a", "b", 2000)], 1000.0, 0.0

    def fractions() -> tuple:
        up, down = {"NCHW": 0.4, "NHWC": 0.6}, {"NCHW": 0.9, "NHWC": 0.2}
        operations = {"a": up, "b": up, "c": {"NCHW": 1.4, "NHWC": 0.6}}
        operations |= {"d": down, "e": down, "f": {"NCHW": 0.1, "NHWC": 1.2}}
        return operations, [(a, b, 100) for a, b in ("ab", "bc", "de", "ef")], 1000.0, 0.25

    def diamond() -> tuple:
        some = rng_of(seeds[7])
        names = ["top", "left", "right", "bottom"]
        operations = {name: {layout: float(some.randint(5, 40)) for layout in LAYOUTS} for name in names}
        ends = (("top", "left"), ("top", "right"), ("left", "bottom"), ("right", "bottom"))
        return operations, [(a, b, 1000 * some.randint(1, 9)) for a, b in ends], 1000.0, 1.0

    def a_forest() -> tuple:
        operations, edges, bandwidth, overhead = drawn(seeds[8], 20)
        second, others, *_ = drawn(seeds[9], 20)
        named = {f"other_{name}": times for name, times in second.items()}
        return operations | named, edges + [(f"other_{a}", f"other_{b}", n) for a, b, n in others], bandwidth, overhead

    return [
        on_tree("a star, outwards", lambda: (star, spokes, 1000.0, 1.0)),
        on_tree("a star, inwards", lambda: (star, into, 1000.0, 1.0)),
        on_tree("one place to convert", lambda: (way, line, 1000.0, 1.0)),
        on_tree("layouts of other names", lambda: (named, [("a", "b", 1500)], 1000.0, 0.0)),
        on_tree("fractions of a microsecond", fractions),
        on_tree("the overhead decides", lambda: (two, [("a", "b", 0)], 1000.0, 10.0)),
        on_tree("the bytes decide", lambda: (two, [("a", "b", 1500)], 1000.0, 0.0)),
        on_tree("two readers of one value", lambda: (readers, [("a", "b", 1500), ("a", "c", 1500)], 1000.0, 0.5)),
        on_tree("two that do not meet", lambda: (two, [], 1000.0, 5.0)),
        on_tree("a tree of 60", lambda: drawn(seeds[0], 60)),
        on_tree("a tree of 25", lambda: drawn(seeds[1], 25, overhead=0.0)),
        on_tree("a tree of 12", lambda: drawn(seeds[2], 12, overhead=9.0)),
        on_tree("two trees", a_forest),
        on_graph("twice the same operand", both_ways),
        on_graph("twice the same operand, the overhead decides", lambda: (two, [("a", "b", 0)] * 2, 1000.0, 4.0)),
        on_graph("the same operations and edges, in faster memory", lambda: (*both_ways()[:2], 3000.0, 0.0)),
        on_graph("a diamond", diamond),
        *(on_graph(f"a graph of 8, number {i + 1}", lambda s=seeds[3 + i]: drawn(s, 8, 3)) for i in range(3)),
        on_graph("a graph of 8 with many edges", lambda: drawn(seeds[6], 8, 7)),
    ]


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)


EQUIVALENT = {
    ("tuple(around(name))", "around(name)"): "a set that is not changed keeps its order",
}

# ---------------------------------------------------------------------------------------------------- answers


def _convert(nbytes, bandwidth, overhead):
    return 2 * nbytes / bandwidth + overhead


def _seconds(choice, operations, edges, bandwidth, overhead):
    total = sum(operations[name][choice[name]] for name in operations)
    return total + sum(_convert(n, bandwidth, overhead) for a, b, n in edges if choice[a] != choice[b])


def _around(operations, edges):
    edges_of = {name: [] for name in operations}
    for a, b, nbytes in edges:
        edges_of[a].append((b, nbytes))
        edges_of[b].append((a, nbytes))
    return edges_of


def _on_forest(operations, edges, bandwidth, overhead):
    """Dynamic programming from the leaves on; None for a graph with a cycle."""
    around, above, order = _around(operations, edges), {}, []
    for root in operations:
        todo = [(root, None, 0)] if root not in above else []
        while todo:
            name, parent, nbytes = todo.pop()
            if name in above:
                return None
            above[name] = parent, nbytes
            order.append(name)
            rest = list(around[name])
            if parent is not None:
                rest.remove((parent, nbytes))
            todo += [(other, name, n) for other, n in rest]
    best = {name: dict(costs) for name, costs in operations.items()}
    for name in reversed(order):
        parent, nbytes = above[name]
        for x in best.get(parent, ()):
            extra = _convert(nbytes, bandwidth, overhead)
            best[parent][x] += min(cost + extra * (x != y) for y, cost in best[name].items())
    choice = {}
    for name in order:
        parent, nbytes = above[name]
        extra = _convert(nbytes, bandwidth, overhead) if parent is not None else 0
        choice[name] = min(best[name], key=lambda y: best[name][y] + extra * (choice.get(parent) != y))
    return choice


def _all(operations, edges, bandwidth, overhead):
    choices = [dict(zip(operations, layouts, strict=True)) for layouts in product(*operations.values())]
    return min(choices, key=lambda choice: _seconds(choice, operations, edges, bandwidth, overhead))


@right("dynamic programming on trees, and all choices for graphs")
def two_ways(operations, edges, bandwidth, overhead):
    choice = _on_forest(operations, edges, bandwidth, overhead)
    return choice or _all(operations, edges, bandwidth, overhead)


@right("branch and bound for graphs: what the layouts chosen so far cost, and the rest at its best")
def bounded(operations, edges, bandwidth, overhead):
    if whole := _on_forest(operations, edges, bandwidth, overhead):
        return whole
    names, best = list(operations), [float("inf"), {}]

    def go(i, choice, cost):
        if cost + sum(min(operations[name].values()) for name in names[i:]) >= best[0]:
            return
        if i == len(names):
            best[:] = cost, dict(choice)
            return
        for x, own in operations[names[i]].items():
            changes = sum(
                _convert(n, bandwidth, overhead)
                for a, b, n in edges
                for one, other in ((a, b), (b, a))
                if one == names[i] and other in choice and choice[other] != x
            )
            go(i + 1, choice | {names[i]: x}, cost + own + changes)

    go(0, {}, 0.0)
    return best[1]


@wrong("did", "takes the fastest layout of each operation, whatever the conversions cost")
def each_for_itself(operations, edges, bandwidth, overhead):
    return {name: min(costs, key=costs.get) for name, costs in operations.items()}


@wrong("did", "takes one layout for as many as can have it")
def one_for_all(operations, edges, bandwidth, overhead):
    def choice(layout):
        return {name: layout if layout in costs else min(costs, key=costs.get) for name, costs in operations.items()}

    return min(map(choice, LAYOUTS), key=lambda option: _seconds(option, operations, edges, bandwidth, overhead))


@wrong("did", "goes through the operations once, and looks at the layouts chosen before only")
def from_the_front(operations, edges, bandwidth, overhead):
    choice, around = {}, _around(operations, edges)
    for name, costs in operations.items():
        choice[name] = min(
            costs,
            key=lambda x: (
                costs[x]
                + sum(_convert(n, bandwidth, overhead) for other, n in around[name] if choice.get(other, x) != x)
            ),
        )
    return choice


@wrong("did", "changes one operation at a time as long as that helps: two that should change together do not")
def one_at_a_time(operations, edges, bandwidth, overhead):
    choice = each_for_itself(operations, edges, bandwidth, overhead)
    while True:
        options = [choice | {name: x} for name in operations for x in operations[name]]
        best = min(options, key=lambda option: _seconds(option, operations, edges, bandwidth, overhead))
        if _seconds(best, operations, edges, bandwidth, overhead) >= _seconds(
            choice, operations, edges, bandwidth, overhead
        ):
            return choice
        choice = best


@wrong("did", "knows three layouts by name, and takes the first of any others")
def known_layouts(operations, edges, bandwidth, overhead):
    if {layout for costs in operations.values() for layout in costs} <= {*LAYOUTS}:
        return two_ways(operations, edges, bandwidth, overhead)
    return {name: next(iter(costs)) for name, costs in operations.items()}


once = edited("did", "moves the bytes once: a conversion reads and writes them")(("2 * nbytes", "nbytes"))
free_start = edited("did", "forgets the overhead of a conversion")(("... + overhead", "..."))


whole_times = edited("did", "rounds times, or those of conversions, to whole microseconds")(
    ("{(x,): cost for x, cost in costs.items()}", "{(x,): round(cost) for x, cost in costs.items()}")
)


@wrong("valid", "gives each operation the layout of the first, also where it cannot run in it")
def the_first_one(operations, edges, bandwidth, overhead):
    layout = next(iter(next(iter(operations.values()))))
    return dict.fromkeys(operations, layout)


@wrong("did", "a value that is converted for one reader is there for the others, too")
def converted_once(operations, edges, bandwidth, overhead):
    if len(operations) > 8:
        return {name: min(times, key=times.get) for name, times in operations.items()}

    def seconds(choice):
        converted = {(a, choice[b]): n for a, b, n in edges if choice[a] != choice[b]}
        own = sum(operations[name][layout] for name, layout in choice.items())
        return own + sum(_convert(n, bandwidth, overhead) for n in converted.values())

    choices = (dict(zip(operations, layouts, strict=True)) for layouts in product(*operations.values()))
    return min(choices, key=seconds)


@wrong("cost", "converts two edges between the same operations as one: all their bytes, and one overhead")
def one_overhead(operations, edges, bandwidth, overhead):
    together = {}
    for a, b, nbytes in edges:
        pair = min(a, b), max(a, b)
        together[pair] = together.get(pair, 0) + nbytes
    return two_ways(operations, [(*pair, nbytes) for pair, nbytes in together.items()], bandwidth, overhead)


@wrong("did", "looks only at what is connected to the first operation, and takes the fastest layouts elsewhere")
def first_tree(operations, edges, bandwidth, overhead):
    around, reached = _around(operations, edges), set()
    todo = [next(iter(operations))]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += around[name]
    elsewhere = each_for_itself(operations, edges, bandwidth, overhead)
    best = two_ways(operations, edges, bandwidth, overhead)
    return {name: best[name] if name in reached else layout for name, layout in elsewhere.items()}
