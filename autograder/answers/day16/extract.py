"""Hidden cases and answers of day16.extract."""

from __future__ import annotations

import heapq
import itertools
import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day16.extract import Graph, cheapest, cheapest_shared, drawn, extract_case, price
from passlab.judge import Case


def _with_loops(rng: random.Random) -> Graph:
    """Classes that a label without a cost leads round: none of its loops is cheaper than the term beside it."""
    a, b, c, d = rng.sample(range(20), 4)
    nodes = {a: [("pass", b), ("f", d)], b: [("pass", a), ("f", d)], c: [("pass", c), ("pair", a, b)], d: [("x",)]}
    order = rng.sample([a, b, c, d], 4)
    return Graph({name: rng.sample(nodes[name], len(nodes[name])) for name in order}, [c], _prices(rng, "f pair x"))


def _prices(rng: random.Random, labels: str) -> dict[str, int]:
    return {"pass": 0} | {label: rng.randint(1, 5) for label in labels.split()}


def _doubled(rng: random.Random) -> Graph:
    """An operand that occurs twice: one that counts it once takes it."""
    x, twice = rng.randint(3, 6), rng.randint(1, 2)
    nodes = {0: [("add", 1, 1), ("shift", 1)], 1: [("x",)]}
    return Graph(nodes, [0], {"x": x, "add": twice, "shift": twice + x - 1})


def _free(rng: random.Random) -> Graph:
    """Labels without a cost are cheaper than one that costs 1, however many they are."""
    nodes = {0: [("f", 1), ("x",)], 1: [("f", 2)], 2: [("f", 3)], 3: [("y",)]}
    order = rng.sample(sorted(nodes), 4)
    return Graph({name: nodes[name] for name in order}, [0], {"f": 0, "x": 2, "y": rng.choice([0, 1])})


def _chain(rng: random.Random, count: int) -> Graph:
    """Sums of sums: the cost as a tree doubles with each."""
    nodes: dict[int, list[tuple]] = {0: [("x",)]}
    for at in range(1, count):
        nodes[at] = [("add", at - 1, at - 1), ("mul", at - 1, 0)] if rng.random() < 0.5 else [("add", at - 1, at - 1)]
    order = rng.sample(sorted(nodes), count)
    return Graph({name: nodes[name] for name in order}, [count - 1], {"x": 1, "add": rng.randint(0, 1), "mul": 9})


def _root_first(rng: random.Random) -> Graph:
    """A chain that is listed from the root down, so that each sweep prices one more class."""
    names = rng.sample(range(200), 200)
    nodes: dict[int, list[tuple]] = {name: [("f", below)] for name, below in itertools.pairwise(names)}
    return Graph(nodes | {names[-1]: [("x",)]}, names[:1], {"f": 1, "x": 1})


def _beyond_floats() -> Graph:
    """The cheapest tree costs 2⁶⁰ + 1, another one 2⁶⁰ + 2; as floats, they are the same."""
    nodes: dict[int, list[tuple]] = {0: [("x",)]}
    nodes |= {at: [("add", at - 1, at - 1)] for at in range(1, 61)}
    return Graph(nodes | {61: [("dear", 60), ("cheap", 60)]}, [61], {"x": 1, "add": 0, "cheap": 1, "dear": 2})


def _two_sides(rng: random.Random, roots: bool = False) -> Graph:
    """Two parts that are each cheaper alone, and together cheaper with a part in common; as operands or as roots."""
    dear, alone = rng.randint(5, 8), rng.randint(3, 4)  # alone < dear < 2 * alone, with a step of 1 on each way
    dear = min(dear, 2 * alone - 1)
    nodes = {
        1: [("a", 3), ("step", 5)],
        2: [("b", 3), ("step", 5)],
        3: [("x",)],
        5: [("common", 3)],
        0: [("pair", 1, 2)],
    }
    prices = {"a": alone + 1, "b": alone + 1, "step": 1, "common": dear, "x": 1, "pair": 1}
    order = rng.sample(sorted(nodes), 5)
    return Graph({name: nodes[name] for name in order}, [1, 2] if roots else [0], prices, True)


def _share_matters(rng: random.Random, count: int, roots: int = 1) -> Graph:
    """Return a graph in which the cheapest trees are not the cheapest choice with shared parts.

    Most take a solver of integer programs half a second. One that would take it a minute is drawn anew.
    """
    while True:
        graph = drawn(rng, count, True, roots)
        if price(graph, cheapest(graph)[0]) > price(graph, cheapest_shared(graph)):
            _, solution = _solved(graph.classes, graph.roots, graph.cost, node_limit=200)
            if solution.success:
                return graph


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    loops = _with_loops(rng)
    return [
        extract_case("drawn, as trees", drawn(rng, 30)),
        extract_case("drawn, as trees of several roots", drawn(rng, 40, roots=3)),
        extract_case("many classes", drawn(rng, 200)),
        extract_case("loops without a cost", loops),
        extract_case("an operand that occurs twice", _doubled(rng)),
        extract_case("labels without a cost", _free(rng)),
        extract_case("labels without a cost, shared", _free(rng)._replace(shared=True)),
        extract_case("sums of sums", _chain(rng, 70)),
        extract_case("loops without a cost, shared", loops._replace(shared=True)),
        extract_case("a part in common", _two_sides(rng)),
        extract_case("roots with a part in common", _two_sides(rng, roots=True)),
        extract_case("drawn, shared", _share_matters(rng, 12)),
        extract_case("drawn, shared, larger", _share_matters(rng, 25)),
        extract_case("drawn, shared by several roots", _share_matters(rng, 30, roots=3)),
        extract_case("sums of sums, shared", _chain(rng, 50)._replace(shared=True)),
        extract_case("drawn, shared, largest", _share_matters(rng, 50)),
        extract_case("costs beyond 2⁵³", _beyond_floats()),
        extract_case("a chain, the root first", _root_first(rng)),
    ]


EQUIVALENT = {
    ("solver.parameters.num_workers = 1", "solver.parameters.num_workers = 2"): "more workers find the same optimum",
    ("solver.parameters.num_workers = 1", "pass"): "as many workers as there are cores find the same optimum",
    ("model.new_int_var(0, len(classes), '')", "model.new_int_var(1, len(classes), '')"): "enough levels are left",
}


# ---------------------------------------------------------------------------------------------------- answers


@right("settles the cheapest class first, as Knuth did; forbids loops only when one appears")
def by_knuth(classes, roots, cost, shared):
    if shared:
        return _without_loops_later(classes, roots, cost)
    users: dict[int, list] = {}
    waiting, heap, total, choice = {}, [], {}, {}
    for number, nodes in classes.items():
        for node in nodes:
            waiting[number, node] = len(set(node[1:]))
            for operand in set(node[1:]):
                users.setdefault(operand, []).append((number, node))
            if len(node) == 1:
                heapq.heappush(heap, (cost[node[0]], number, node))
    while heap:
        paid, number, node = heapq.heappop(heap)
        if number in total:
            continue
        total[number], choice[number] = paid, node
        for user, one in users.get(number, []):
            waiting[user, one] -= 1
            if not waiting[user, one]:
                paid = cost[one[0]] + sum(total[operand] for operand in one[1:])
                heapq.heappush(heap, (paid, user, one))
    return choice


def _without_loops_later(classes, roots, cost):
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    takes = {(number, node): model.new_bool_var("") for number, nodes in classes.items() for node in nodes}
    level = {number: model.new_int_var(0, len(classes), "") for number in classes}
    for root in roots:
        model.add_bool_or([takes[root, node] for node in classes[root]])
    for (_, node), take in takes.items():
        for operand in node[1:]:
            model.add_bool_or([takes[operand, one] for one in classes[operand]] + [~take])
    model.minimize(sum(cost[node[0]] * take for (_, node), take in takes.items()))
    while True:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.solve(model)
        choice = {number: node for (number, node), take in takes.items() if solver.value(take)}
        loop = _loop(choice, roots)
        if not loop:
            return choice
        for (number, node), take in takes.items():
            for operand in node[1:]:
                if number in loop and operand in loop:
                    model.add(level[operand] < level[number]).only_enforce_if(take)


def _loop(choice, roots):
    """Return the classes of a loop, or []."""

    def visit(number, path):
        if number in path:
            return path[path.index(number) :]
        if number in finished:
            return []
        for operand in choice[number][1:]:
            if loop := visit(operand, [*path, number]):
                return loop
        finished.add(number)
        return []

    finished = set()
    return next((loop for root in roots if (loop := visit(root, []))), [])


@right("one integer program for SciPy, with potentials; trees by sweeps of Bellman and Ford")
def by_milp(classes, roots, cost, shared):
    if not shared:
        total, choice = dict.fromkeys(classes, float("inf")), {}
        for _ in classes:
            for number, nodes in classes.items():
                prices = [cost[node[0]] + sum(total[operand] for operand in node[1:]) for node in nodes]
                if min(prices) < total[number]:
                    total[number], choice[number] = min(prices), nodes[prices.index(min(prices))]
        return choice
    takes, result = _solved(classes, roots, cost)
    # of two that are taken for a class, the one that was put lower leads to no loop
    return _ordered([take for take, value in zip(takes, result.x, strict=False) if value > 0.5])


def _solved(classes, roots, cost, **options):
    """Return the e-nodes of all classes, and what SciPy's integer program says of those that are taken."""
    from scipy.optimize import LinearConstraint, milp

    takes = [(number, node) for number, nodes in classes.items() for node in nodes]
    place = {number: len(takes) + at for at, number in enumerate(classes)}
    n, size = len(classes), len(takes) + len(classes)
    rows, low = [], []

    def at_least(entries, bound):
        row = [0.0] * size
        for at, factor in entries:
            row[at] += factor
        rows.append(row)
        low.append(bound)

    of = {number: [at for at, (owner, _) in enumerate(takes) if owner == number] for number in classes}
    for root in roots:
        at_least([(at, 1) for at in of[root]], 1)
    for at, (number, node) in enumerate(takes):
        for operand in set(node[1:]):
            at_least([(other, 1) for other in of[operand]] + [(at, -1)], 0)
            if operand == number:
                at_least([(at, -1)], 0)
            else:
                at_least([(place[number], 1), (place[operand], -1), (at, -n)], 1 - n)
    prices = [cost[node[0]] for _, node in takes] + [0] * n
    upper = [1] * len(takes) + [n] * n
    limits = LinearConstraint(rows, low)
    return takes, milp(prices, constraints=limits, integrality=[1] * size, bounds=(0, upper), options=options)


def _ordered(chosen):
    choice, changes = {}, True
    while changes:
        changes = False
        for number, node in chosen:
            if number not in choice and all(operand in choice for operand in node[1:]):
                choice[number], changes = node, True
    return choice


@wrong("cost", "takes the cheapest trees, also where shared parts count once")
def as_trees(classes, roots, cost, shared):
    return _sweeps(classes, cost)


def _sweeps(classes, cost, sweeps=None):
    """Return the cheapest trees after some sweeps over all classes, by default as many as there are classes."""
    total, choice = {}, {}
    for _ in range(len(classes) if sweeps is None else sweeps):
        for number, nodes in classes.items():
            for node in nodes:
                if all(operand in total for operand in node[1:]):
                    paid = cost[node[0]] + sum(total[operand] for operand in node[1:])
                    if paid < total.get(number, paid + 1):
                        total[number], choice[number] = paid, node
    return choice


@wrong("cost", "builds each class's best set of parts from the best sets of its operands")
def greedy_sets(classes, roots, cost, shared):
    if not shared:
        return _sweeps(classes, cost)
    parts, choice = {}, {}
    for _ in classes:
        for number, nodes in classes.items():
            for node in nodes:
                if all(operand in parts for operand in node[1:]):
                    one = {number: cost[node[0]]}
                    for operand in node[1:]:
                        one |= parts[operand]
                    below = any(number in parts[operand] for operand in node[1:])
                    if not below and (number not in parts or sum(one.values()) < sum(parts[number].values())):
                        parts[number], choice[number] = one, node
    return choice if all(_is_sound(choice, root) for root in roots) else _sweeps(classes, cost)


def _is_sound(choice, root):
    return not _loop(choice, [root])


@wrong("cost", "chooses for each root by itself")
def root_by_root(classes, roots, cost, shared):
    if not shared:
        return _sweeps(classes, cost)
    choice = {}
    for root in reversed(roots):
        whole = cheapest_shared(Graph(classes, [root], cost, True))
        choice = {**choice, **whole} if not _loop({**choice, **whole}, roots[-1:]) else choice | {}
    return choice if all(root in choice for root in roots) else _sweeps(classes, cost)


loops = edited("valid", "lets the integer program take loops")(
    ("model.add(level[operand] < level[number]).only_enforce_if(take)", "pass")
)
zero_loops = edited("valid", "takes the last of equally cheap e-nodes, which may be a loop without a cost")(
    ("number not in total or price < total[number]", "number not in total or price <= total[number]"),
    (
        "choice[number], total[number] = node, price; changes = True",
        "changes |= number not in total or price < total[number]; choice[number], total[number] = node, price",
    ),
)
one_sweep = edited("did", "goes through the classes once")(("changes = True", "pass"))
once = edited("did", "counts an operand that occurs twice once")(
    ("sum(total[operand] for operand in operands)", "sum(total[operand] for operand in set(operands))")
)
first_price = edited("did", "keeps the first e-node for which all operands have a price")(
    ("number not in total or price < total[number]", "number not in total")
)
number_of_nodes = edited("did", "counts e-nodes, whatever their labels cost")(
    ("cost[label] + sum(total[operand] for operand in operands)", "1 + sum(total[operand] for operand in operands)")
)
label_alone = edited("did", "takes the e-node whose label is cheapest, without its operands")(
    ("cost[label] + sum(total[operand] for operand in operands)", "cost[label]")
)
as_floats = edited("did", "adds costs as floats")(
    (
        "price = cost[label] + sum(total[operand] for operand in operands)",
        "price = float(cost[label] + sum(total[operand] for operand in operands))",
    )
)
one_root = edited("valid", "thinks of the first root only")(("for root in roots: ...", "for root in roots[:1]: ..."))
never_free = edited("did", "lets each label cost at least 1")(
    (
        "cost[label] + sum(total[operand] for operand in operands)",
        "max(1, cost[label]) + sum(total[operand] for operand in operands)",
    )
)


@wrong("valid", "goes through the classes a hundred times, and takes what has a price by then")
def hundred_sweeps(classes, roots, cost, shared):
    if shared:
        return by_knuth(classes, roots, cost, shared)
    total, choice = {}, {}
    for _ in range(100):
        for number, nodes in classes.items():
            for node in nodes:
                paid = cost[node[0]] + sum(total.get(operand, float("inf")) for operand in node[1:])
                if paid < total.get(number, float("inf")):
                    total[number], choice[number] = paid, node
    return choice
