"""Hidden cases and answers of day16.saturate."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.egraph import EGraph
from passlab.exercises.day16.proof import drawn_term
from passlab.exercises.day16.saturate import (
    ASSOCIATE,
    CANCEL,
    COMMUTE,
    DOUBLE,
    GROW,
    QUOTIENT,
    REGROUP,
    SHIFT,
    SWAP,
    UNDOUBLE,
    UNIT,
    Pair,
    Term,
    expected,
    saturate_case,
)
from passlab.judge import Case

NEGATED: Pair = (("neg", ("neg", "?x")), "?x")
FACTOR: Pair = (("add", ("mul", "?x", "?y"), ("mul", "?x", "?z")), ("mul", "?x", ("add", "?y", "?z")))
LAWS = [COMMUTE, SWAP, ASSOCIATE, DOUBLE, UNDOUBLE, UNIT, NEGATED, FACTOR, CANCEL]


def _leaves(rng: random.Random, count: int) -> list[Term]:
    return [(name,) for name in rng.sample("abcdpqrs", count)]


def _drawn(rng: random.Random, stop: str) -> Case:
    """Return terms and laws that stop in one way, after more than one round; some terms become equal, others do not."""
    while True:
        terms = [drawn_term(rng, size) for size in (4, 3, 3, 2, 1, 1, 0, 0)]
        laws, most, rounds = rng.sample(LAWS, 5), rng.randint(20, 120), rng.randint(2, 6)
        end, count, _, classes = expected(terms, laws, most, rounds)
        if end == stop and count > 1 and len(set(terms)) > len(set(classes)) > 1:
            return saturate_case(f"drawn, stops with {stop}", terms, laws, most, rounds)


def _limit(rng: random.Random, excess: int) -> Case:
    """The limit is just reached, or just passed."""
    a, b = _leaves(rng, 2)
    terms, laws = [("mul", a, b)], [GROW]
    rounds = rng.randint(2, 4)
    _, _, nodes, _ = expected(terms, laws, 10_000, rounds)
    name = "as many e-nodes as are allowed" if excess == 0 else "one e-node too many"
    return saturate_case(name, terms, laws, nodes - excess, rounds + 3 * (excess > 0))


def _nested(rng: random.Random) -> Case:
    """A match goes through e-nodes that another law puts into a class."""
    x, y = _leaves(rng, 2)
    terms = [("div", ("mul", ("mul", x, y), ("2",)), ("2",)), ("mul", x, y), ("div", x, ("2",)), x]
    return saturate_case("laws that need each other", terms, [UNIT, QUOTIENT, REGROUP, SHIFT], 100, 10)


def _twice(rng: random.Random) -> Case:
    """A variable that occurs twice stands for one class, of terms that are equal only after a round."""
    x, y = _leaves(rng, 2)
    terms = [("sub", ("neg", ("neg", x)), x), ("sub", x, x), ("sub", x, y), ("0",)]
    return saturate_case("equal after a round", terms, [CANCEL, NEGATED], 100, 10)


def _apart(rng: random.Random) -> Case:
    """A variable that occurs far apart in a pattern."""
    x, y, z = _leaves(rng, 3)
    terms = [("add", ("mul", x, y), ("mul", x, z)), ("add", ("mul", x, y), ("mul", z, y)), ("mul", x, ("add", y, z))]
    return saturate_case("a factor in two places", terms, [FACTOR], 100, 10)


def _arity(rng: random.Random) -> Case:
    """A label with one operand, and with two."""
    x, y = _leaves(rng, 2)
    terms = [("sub", x), ("sub", x, y), ("sub", ("sub", x)), x]
    minus: Pair = (("sub", ("sub", "?x")), "?x")
    return saturate_case("one label, one operand or two", terms, [minus, CANCEL], 100, 10)


def _three(rng: random.Random) -> Case:
    c, x, y = _leaves(rng, 3)
    alike: Pair = (("where", "?c", "?x", "?x"), "?x")
    terms = [("where", c, x, x), ("where", c, x, y), ("where", c, ("where", c, y, y), y), x, y]
    return saturate_case("three operands", terms, [alike], 100, 10)


def _early(rng: random.Random) -> Case:
    """Nothing matches: one round."""
    x, y = _leaves(rng, 2)
    return saturate_case("nothing matches", [("sub", x, y), x], [CANCEL, UNIT], 100, rng.randint(1, 5))


def _last(rng: random.Random) -> Case:
    """The round that finds nothing new is also the last one that is allowed."""
    x, _ = _leaves(rng, 2)
    return saturate_case("saturated in the last round", [("mul", x, ("1",)), x], [UNIT], 100, 2)


def _large_at_first(rng: random.Random) -> Case:
    """Nothing new, and more e-nodes than are allowed: the nodes are looked at first."""
    x, y, z = _leaves(rng, 3)
    terms = [("add", x, y), ("add", ("add", x, y), z)]
    return saturate_case("nothing new, and too many e-nodes", terms, [CANCEL], rng.randint(2, 4), 10)


def _shrinks(rng: random.Random) -> Case:
    """The rebuild joins e-nodes, so that there are no longer too many."""
    x, y = _leaves(rng, 2)
    law: Pair = (x, y)
    terms = [("neg", x), ("neg", y), ("abs", ("neg", x)), ("abs", ("neg", y))]
    return saturate_case("fewer e-nodes after the rebuild", terms, [law], 4, rng.randint(3, 9))


def _one_round(rng: random.Random) -> Case:
    x, y = _leaves(rng, 2)
    terms = [("div", ("mul", x, ("2",)), ("2",)), x, ("shl", ("shl", x, ("1",)), ("1",)), ("mul", y, ("2",))]
    return saturate_case("one round", terms, [SHIFT, REGROUP, QUOTIENT, UNIT], 100, 1)


def _leaf(rng: random.Random) -> Case:
    """A label with one operand, and with none."""
    x, y = _leaves(rng, 2)
    terms = [("neg", ("inf",)), ("neg", ("inf", x)), ("neg", y), ("low",)]
    return saturate_case("one label, one operand or none", terms, [(("neg", ("inf",)), ("low",))], 100, 10)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        *(_drawn(rng, stop) for stop in ("saturated", "nodes", "rounds")),
        _drawn(rng, "saturated"),
        _limit(rng, 0),
        _limit(rng, 1),
        _nested(rng),
        _twice(rng),
        _apart(rng),
        _arity(rng),
        _three(rng),
        _early(rng),
        _last(rng),
        _one_round(rng),
        _large_at_first(rng),
        _shrinks(rng),
        saturate_case("no laws", [("neg", ("a",)), ("a",)], [], 100, 3),
        _leaf(rng),
        saturate_case("no terms", [], [COMMUTE], 100, 3),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@right("matches with a stack of pairs that are still to be matched, and adds right sides from the inside out")
def by_stack(terms, laws, most, rounds):
    graph = EGraph()
    numbers = [graph.add_term(term) for term in terms]
    for count in range(1, rounds + 1):
        pending = []
        for left, right_side in laws:
            for number in list(graph.nodes):
                states = [([(left, number)], {})]
                while states:
                    todo, binding = states.pop()
                    if not todo:
                        pending.append((number, right_side, binding))
                        continue
                    (pattern, place), *rest = todo
                    if isinstance(pattern, str):
                        if binding.get(pattern, place) == place:
                            states.append((rest, binding | {pattern: place}))
                        continue
                    for node in graph.nodes[place]:
                        if node[0] == pattern[0] and len(node) == len(pattern):
                            states.append(([*zip(pattern[1:], node[1:], strict=True), *rest], binding))
        changes = [graph.union(number, _added(graph, right_side, binding)) for number, right_side, binding in pending]
        graph.rebuild()
        if len(graph) > most:
            return "nodes", count, len(graph), [graph.find(number) for number in numbers]
        if not any(changes):
            return "saturated", count, len(graph), [graph.find(number) for number in numbers]
    return "rounds", rounds, len(graph), [graph.find(number) for number in numbers]


def _added(graph, pattern, binding):
    if isinstance(pattern, str):
        return binding[pattern]
    return graph.add(pattern[0], *[_added(graph, part, binding) for part in pattern[1:]])


@right("tries each law on each e-node; rebuilds after each law, too, and matches on a copy of the graph")
def on_a_copy(terms, laws, most, rounds):
    graph, count, stop = EGraph(), 0, ""
    numbers = [graph.add_term(term) for term in terms]
    while not stop:
        count += 1
        nodes = {name: list(members) for name, members in graph.nodes.items()}
        joined = 0
        for left, right_side in laws[::-1]:
            for name in nodes:
                for binding in _bindings(nodes, left, name):
                    joined += graph.union(_added(graph, right_side, binding), name)
            graph.rebuild()
        stop = "nodes" if len(graph) > most else "" if joined else "saturated"
        stop = stop or ("rounds" if count >= rounds else "")
    return [stop, count, len(graph), [graph.find(number) for number in numbers]]


def _bindings(nodes, pattern, name):
    if isinstance(pattern, str):
        return [{pattern: name}]
    results = []
    for node in nodes[name]:
        if node[0] != pattern[0] or len(node) != len(pattern):
            continue
        merged = [{}]
        for part, operand in zip(pattern[1:], node[1:], strict=True):
            matches = _bindings(nodes, part, operand)
            merged = [a | b for a in merged for b in matches if all(a[key] == b[key] for key in a.keys() & b.keys())]
        results += merged
    return results


any_leaf = edited("same", "takes a label without operands for all terms of that label")(
    (
        "label == pattern[0] and len(operands) == len(pattern) - 1",
        "label == pattern[0] and len(pattern) in (1, len(operands) + 1)",
    ),
    ("zip(pattern[1:], operands, strict=True)", "zip(pattern[1:], operands)"),
)
no_round = edited("spared", "runs no round if there are no terms")(
    ("graph = EGraph()", "if not terms:\n    return 'saturated', 0, 0, []\ngraph = EGraph()")
)
free = edited("same", "lets a variable stand for two classes")(("binding.get(pattern, number) == number", "True"))
first_only = edited("did", "takes the first e-node of a class only")(
    ("graph.nodes[number]", "list(graph.nodes[number])[:1]")
)
any_label = edited("same", "does not look at labels")(
    ("label == pattern[0] and len(operands) == len(pattern) - 1", "len(operands) == len(pattern) - 1")
)
only_roots = edited("did", "matches only the classes of the terms")(
    ("for number in graph.nodes: ...", "for number in set(map(graph.find, numbers)): ...")
)
one_round = edited("did", "stops after one round")(("count == rounds", "True"))
one_more = edited("spared", "allows one round too many")(("count == rounds", "count > rounds"))
exactly = edited("spared", "stops at as many e-nodes as are allowed")(("len(graph) > most", "len(graph) >= most"))
saturated_first = edited("spared", "asks whether anything was new before it counts e-nodes")(
    ("len(graph) > most", "unions and len(graph) > most")
)
before_rebuild = edited("spared", "counts e-nodes before the rebuild")(
    ("graph.rebuild()", "size = len(graph)\ngraph.rebuild()"), ("len(graph) > most", "size > most")
)
rounds_first = edited("spared", "takes the last round for the reason, even if it found nothing new")(
    ("unions == 0", "unions == 0 and count < rounds")
)
one_match = edited("did", "takes one match of each law in a class")(
    ("pending.append((number, right, binding))", "pending.append((number, right, binding))\nbreak")
)
growth = edited("cost", "counts classes, not e-nodes")(
    (
        "return stop, count, len(graph), ...",
        "return stop, count, len(graph.nodes), [graph.find(number) for number in numbers]",
    )
)


@wrong("spared", "applies each law before it matches the next one")
def at_once(terms, laws, most, rounds):
    graph, count, stop = EGraph(), 0, ""
    numbers = [graph.add_term(term) for term in terms]
    while not stop:
        count += 1
        joined = 0
        for left, right_side in laws:
            nodes = {name: list(members) for name, members in graph.nodes.items()}
            for name in nodes:
                for binding in _bindings(nodes, left, name):
                    joined += graph.union(_added(graph, right_side, binding), name)
            graph.rebuild()
        stop = "nodes" if len(graph) > most else "saturated" if not joined else "rounds" if count == rounds else ""
    return stop, count, len(graph), [graph.find(number) for number in numbers]
