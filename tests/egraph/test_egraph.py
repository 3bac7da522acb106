"""E-graphs against slow and simple definitions: closure by comparing all pairs, extraction by trying all choices."""

from __future__ import annotations

import itertools
import random

import pytest

from passlab.egraph import Analysis, EGraph, Law, Step, cheapest, cheapest_shared, saturate
from passlab.egraph.laws import matches

COMMUTE = Law("commute", ("add", "?x", "?y"), ("add", "?y", "?x"))
ASSOCIATE = Law("associate", ("add", ("add", "?x", "?y"), "?z"), ("add", "?x", ("add", "?y", "?z")), both=True)
SHIFT = [
    Law("shift", ("mul", "?x", ("2",)), ("shl", "?x", ("1",))),
    Law("regroup", ("div", ("mul", "?x", "?y"), "?z"), ("mul", "?x", ("div", "?y", "?z"))),
    Law("quotient of equals", ("div", ("2",), ("2",)), ("1",)),
    Law("times one", ("mul", "?x", ("1",)), "?x"),
]
HALVED = ("div", ("mul", ("a",), ("2",)), ("2",))


def chain(names, back=False):
    term = (names[0],)
    for name in names[1:]:
        term = ("add", (name,), term) if back else ("add", term, (name,))
    return term


def size(term):
    return 1 + sum(map(size, term[1:]))


def parts(term):
    """Every part of a term, each once."""
    return {term}.union(*map(parts, term[1:]))


@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_saturation_finds_every_order_and_grouping_of_a_sum(n):
    graph, names = EGraph(), [f"v{i}" for i in range(n)]
    root = graph.add_term(chain(names))
    report = saturate(graph, [COMMUTE, ASSOCIATE])
    # a class for each subset of the operands, and an e-node for each way to split one into two that are not empty
    assert report.stop == "saturated" and report.classes == 2**n - 1
    assert report.nodes == 3**n - 2 ** (n + 1) + 1 + n
    assert graph.find(root) == graph.find(graph.add_term(chain(names[::-1], back=True)))


def closed(terms, equal):
    """The classes of all parts of terms: pairs are joined until none of one label has equal operands."""
    every = sorted(set().union(*map(parts, terms)), key=str)
    leader = {term: term for term in every}

    def join(a, b):
        a, b = leader[a], leader[b]
        for term in every:
            if leader[term] == b:
                leader[term] = a
        return a != b

    for a, b in equal:
        join(a, b)
    while any(
        leader[a] != leader[b] and all(leader[x] == leader[y] for x, y in zip(a[1:], b[1:], strict=True)) and join(a, b)
        for a, b in itertools.combinations(every, 2)
        if a[0] == b[0] and len(a) == len(b)
    ):
        pass
    return leader


def drawn(rng, depth):
    if not depth or rng.random() < 0.2:
        return (rng.choice("abc"),)
    return (rng.choice("fg"), *(drawn(rng, depth - 1) for _ in range(rng.choice((1, 2)))))


@pytest.mark.parametrize("seed", range(30))
def test_rebuilding_gives_the_congruence_closure(seed):
    rng = random.Random(seed)
    terms = [drawn(rng, 4) for _ in range(8)]
    every = sorted(set().union(*map(parts, terms)), key=str)
    equal = [(rng.choice(every), rng.choice(every)) for _ in range(4)]
    leader, graph = closed(terms, equal), EGraph()
    for term in terms:
        graph.add_term(term)
    for at, (a, b) in enumerate(equal):
        graph.union(graph.add_term(a), graph.add_term(b), "given")
        if at % 2:  # now and then, so that later unions meet a graph that is in order
            graph.rebuild()
    graph.rebuild()
    number = {term: graph.add_term(term) for term in every}
    for a, b in itertools.combinations(every, 2):
        assert (graph.find(number[a]) == graph.find(number[b])) == (leader[a] == leader[b])
        if leader[a] == leader[b]:
            follows(a, graph.explain(number[a], number[b]), b, [("given", x, y) for x, y in equal])
    canonical = [node for number, nodes in graph.nodes.items() for node in nodes]
    assert len(canonical) == len(set(canonical))
    assert all(graph.find(operand) == operand for node in canonical for operand in node[1:])


def follows(first, steps: list[Step], last, equal):
    """Check that each step replaces one part of the term before it by what one equation says, and the ends."""
    term = first
    for step in steps:
        sides = [(y, x) if step.back else (x, y) for name, x, y in equal if name == step.law]
        assert any(differ_in_one(term, step.term, a, b) for a, b in sides), (term, step)
        term = step.term
    assert term == last


def differ_in_one(before, after, a, b):
    if (before, after) == (a, b):
        return True
    if before[0] != after[0] or len(before) != len(after):
        return False
    changes = [(x, y) for x, y in zip(before[1:], after[1:], strict=True) if x != y]
    return len(changes) == 1 and differ_in_one(*changes[0], a, b)


def test_an_explanation_is_a_chain_of_laws():
    graph = EGraph()
    root = graph.add_term(HALVED)
    assert saturate(graph, SHIFT).stop == "saturated"
    steps = graph.explain(root, graph.add_term(("a",)))
    assert [step.law for step in steps] == ["regroup", "quotient of equals", "times one"]
    assert steps[-1].term == ("a",) and not any(step.back for step in steps)
    back = graph.explain(graph.add_term(("a",)), root)
    assert [step.law for step in back] == [step.law for step in reversed(steps)] and all(step.back for step in back)
    assert back[-1].term == HALVED and graph.explain(root, root) == []
    with pytest.raises(ValueError, match="in two classes"):
        graph.explain(root, graph.add_term(("b",)))


def test_the_order_of_laws_does_not_matter():
    for laws in itertools.permutations(SHIFT):
        graph = EGraph()
        root = graph.add_term(HALVED)
        saturate(graph, laws)
        assert cheapest(graph, root) == (("a",), 1) and len(graph) == 8


def test_a_variable_that_occurs_twice_is_one_class():
    graph = EGraph()
    one, two = graph.add_term(("f", ("a",), ("b",))), graph.add_term(("f", ("a",), ("a",)))
    assert not [*matches(graph, ("f", "?x", "?x"), one)]
    assert [*matches(graph, ("f", "?x", "?x"), two)] == [{"?x": graph.add_term(("a",))}]
    graph.union(graph.add_term(("a",)), graph.add_term(("b",)))
    graph.rebuild()
    assert graph.find(one) == graph.find(two) and len([*matches(graph, ("f", "?x", "?x"), one)]) == 1


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (Law("grows", ("f", "?x"), ("g", "?x", "?y")), "The law grows makes a term with .?y, which its other side"),
        (Law("any", "?x", ("f", "?x")), "The law any matches each term of the graph: .?x is only a variable"),
        (Law("both", ("f", "?x"), "?x", both=True), "The law both matches each term"),
    ],
)
def test_a_law_that_cannot_be_applied_is_refused(law, words):
    with pytest.raises(ValueError, match=words):
        saturate(EGraph(), [law])


def test_limits_end_a_saturation_without_end():
    grow = Law("grow", ("f", "?x"), ("f", ("f", "?x")))
    split = Law("split", ("g", "?x"), ("g", ("h", "?x")))
    graph = EGraph()
    graph.add_term(("f", ("a",)))
    assert saturate(graph, [grow]).stop == "saturated" and len(graph) == 3  # a, f(a), and f of its own class
    graph = EGraph()
    graph.add_term(("g", ("a",)))
    report = saturate(graph, [split], rounds=7)
    assert report.stop == "rounds" and "stopped after 7 rounds" in str(report) and "limit `rounds`" in str(report)
    assert saturate(graph, [split], nodes=20, rounds=1000).stop == "nodes"
    graph = EGraph()
    graph.add_term(chain("abcdefg"))
    report = saturate(graph, [COMMUTE], matches_each=2, rounds=1000)
    assert report.stop == "saturated" and report.applied == {"commute": 6}


class Constants(Analysis):
    """The number that a class is, if its operands are numbers: then the class has it as an e-node, and only that."""

    def make(self, graph, node):
        values = [graph.facts[graph.find(operand)] for operand in node[1:]]
        if not values:
            return int(node[0]) if node[0].isdigit() else None
        return None if None in values else {"add": sum(values), "mul": values[0] * values[-1]}[node[0]]

    def join(self, a, b):
        assert a is None or b is None or a == b
        return b if a is None else a

    def modify(self, graph, number):
        if (value := graph.facts[graph.find(number)]) is not None:
            graph.union(number, graph.add(str(value)), "folded")


def test_an_analysis_folds_constants_also_those_that_a_law_brings_together():
    graph = EGraph(Constants())
    root = graph.add_term(("add", ("add", ("x",), ("2",)), ("mul", ("2",), ("3",))))
    saturate(graph, [COMMUTE, ASSOCIATE])
    term, cost = cheapest(graph, root)
    assert cost == 3 and set(term[1:]) == {("x",), ("8",)}
    assert {step.law for step in graph.explain(root, graph.add_term(term))} <= {"commute", "associate", "folded"}
    late = EGraph(Constants())
    total = late.add_term(("add", ("y",), ("3",)))
    late.union(late.add_term(("y",)), late.add_term(("4",)), "given")
    late.rebuild()
    assert late.find(total) == late.find(late.add_term(("7",)))


def every_choice(graph, roots, shared):
    """The least cost over all choices of one e-node for each class, of those without a cycle."""
    numbers, least = list(graph.nodes), None
    for nodes in itertools.product(*(graph.nodes[number] for number in numbers)):
        choice = dict(zip(numbers, nodes, strict=True))

        def term(number, above=(), choice=choice):
            if number in above:
                raise RecursionError
            label, *operands = choice[number]
            return (label, *(term(operand, (*above, number)) for operand in operands))

        try:
            terms = [term(root) for root in roots]
        except RecursionError:
            continue
        cost = len(set().union(*map(parts, terms))) if shared else sum(map(size, terms))
        least = cost if least is None else min(least, cost)
    return least


@pytest.mark.parametrize("seed", range(25))
def test_extraction_is_the_least_of_all_choices(seed):
    rng, graph = random.Random(seed), EGraph()
    roots = [graph.add_term(drawn(rng, 4)) for _ in range(3)]
    for _ in range(4):
        graph.union(rng.randrange(len(graph.terms)), rng.randrange(len(graph.terms)), "given")
    graph.rebuild()
    numbers = [graph.find(root) for root in roots]
    for number in numbers:
        term, cost = cheapest(graph, number)
        assert cost == size(term) == every_choice(graph, [number], shared=False)
        assert graph.find(graph.add_term(term)) == number
    terms, cost, proved = cheapest_shared(graph, numbers)
    assert proved and cost == len(set().union(*map(parts, terms))) == every_choice(graph, numbers, shared=True)
    assert [graph.find(graph.add_term(term)) for term in terms] == numbers


def test_sharing_changes_which_term_is_cheapest():
    graph = EGraph()
    big = ("f", ("f", ("f", ("x",))))
    root = graph.add_term(("pair", ("g", big), ("h", big)))
    small = graph.add_term(("k", ("p",), ("q",), ("r",)))
    graph.union(graph.add_term(("g", big)), small)  # smaller as a tree, but shares nothing
    graph.rebuild()
    tree, shared = cheapest(graph, root)[0], cheapest_shared(graph, [root])[0][0]
    assert tree[1][0] == "k" and shared[1][0] == "g"
