"""Day 16, laws applied up to a limit: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from passlab.egraph import EGraph, laws
from passlab.exercises.day16.egraph import wrong_pairs
from passlab.exercises.day16.proof import Pattern, Term, text
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import is_number, why_not_a_list

#: Left and right side.
Pair = tuple[Pattern, Pattern]
A, B, C, ONE, TWO = ("a",), ("b",), ("c",), ("1",), ("2",)
COMMUTE: Pair = (("add", "?x", "?y"), ("add", "?y", "?x"))
SWAP: Pair = (("mul", "?x", "?y"), ("mul", "?y", "?x"))
ASSOCIATE: Pair = (("add", ("add", "?x", "?y"), "?z"), ("add", "?x", ("add", "?y", "?z")))
SHIFT: Pair = (("mul", "?x", TWO), ("shl", "?x", ONE))
REGROUP: Pair = (("div", ("mul", "?x", "?y"), "?z"), ("mul", "?x", ("div", "?y", "?z")))
QUOTIENT: Pair = (("div", TWO, TWO), ONE)
UNIT: Pair = (("mul", "?x", ONE), "?x")
DOUBLE: Pair = (("mul", "?x", TWO), ("add", "?x", "?x"))
UNDOUBLE: Pair = (DOUBLE[1], DOUBLE[0])
CANCEL: Pair = (("sub", "?x", "?x"), ("0",))
GROW: Pair = (("mul", "?x", "?y"), ("mul", ("add", "?x", "?x"), ("div", "?y", TWO)))


def saturate_case(name: str, terms: Sequence[Term], pairs: Sequence[Pair], nodes: int, rounds: int) -> Case:
    return Case(name, lambda: (list(terms), list(pairs), nodes, rounds))


def cases() -> list[Case]:
    halved = [("div", ("mul", A, TWO), TWO), A, TWO]
    sums = [("add", ("add", A, B), C), ("add", C, ("add", B, A)), ("add", A, A)]
    return [
        saturate_case("(a · 2) / 2", halved, [SHIFT, REGROUP, QUOTIENT, UNIT], 50, 10),
        saturate_case("one variable, twice", [("sub", A, A), ("sub", A, B), ("0",)], [CANCEL], 50, 10),
        saturate_case("orders of a sum", sums, [COMMUTE, ASSOCIATE], 100, 10),
        saturate_case("without end, by rounds", [("mul", A, B), ("mul", B, A)], [GROW, SWAP], 1000, 2),
        saturate_case("without end, by e-nodes", [("mul", A, B)], [GROW], 12, 100),
    ]


def expected(terms: Sequence[Term], pairs: Sequence[Pair], nodes: int, rounds: int) -> tuple[str, int, int, list[int]]:
    """Return why it stops, after how many rounds, the e-nodes, and the class of each term."""
    graph = EGraph()
    numbers = [graph.add_term(term) for term in terms]
    some = [laws.Law(f"law {number}", left, right) for number, (left, right) in enumerate(pairs)]
    report = laws.saturate(graph, some, nodes=nodes, rounds=rounds, matches_each=10**9)
    return report.stop, report.rounds, report.nodes, [graph.find(number) for number in numbers]


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_a_report(value: Any, terms: int) -> str:
    """Return why a value is not a stop, two numbers and a class for each term, or ""."""
    if reason := why_not_a_list(value, "(stop, rounds, e-nodes, classes)", 4):
        return reason
    stop, rounds, nodes, classes = value
    if not isinstance(stop, str) or stop not in ("saturated", "nodes", "rounds"):
        return f'The first part is "saturated", "nodes" or "rounds"; here it is {shown(stop)}.'
    for name, number in (("rounds", rounds), ("e-nodes", nodes)):
        if type(number) is not int:
            return f"The number of {name} is a whole number; here it is {shown(number)}."
    if not isinstance(classes, list | tuple) or len(classes) != terms:
        return f"The last part is a list of {terms} classes, one for each term; here it is {shown(classes)}."
    if not all(is_number(name) for name in classes):
        return f"A class is called by a whole number; the list here is {shown(classes)}."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    terms, pairs, nodes_most, rounds_most = case.build()
    broken = why_not_a_report(value, len(terms))
    yield Finding("valid", not broken, broken)
    if broken:
        return
    stop, rounds, nodes, right = expected(terms, pairs, nodes_most, rounds_most)
    joined, apart = (
        pair and " and ".join(text(terms[number]) for number in pair) for pair in wrong_pairs(value[3], right)
    )
    reason = joined and f"{joined} are in one class; no law made them equal in {rounds} rounds."
    yield Finding("same", not joined, reason or "")
    reason = apart and f"{apart} are equal after {rounds} rounds; you have them in two classes."
    yield Finding("did", not apart, reason or "")
    wrong = ""
    if value[0] != stop:
        wrong = f'Saturation stops with "{stop}" after round {rounds}; yours says "{value[0]}" after {value[1]}.'
    elif value[1] != rounds:
        wrong = f'It stops with "{stop}" after round {rounds}; yours after round {value[1]}.'
    yield Finding("spared", not wrong, wrong)
    message = "" if value[2] == nodes else f"After round {rounds} there are {nodes} e-nodes; you have {value[2]}."
    yield Finding("cost", not message, message)
