"""Day 16, an e-graph that follows commands: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from passlab.egraph import EGraph
from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_list, why_not_of_type

#: ("add", label, *operands), ("union", a, b) or ("same", a, b); a, b and operands are numbers of terms.
Command = tuple[Any, ...]


def egraph_case(name: str, commands: Sequence[Command]) -> Case:
    return Case(name, lambda: (list(commands),))


def cases() -> list[Case]:
    leaves = [("add", "a"), ("add", "b")]
    applied = [("add", "f", 0), ("add", "f", 1), ("add", "g", 2), ("add", "g", 3)]
    double = [
        ("add", "a"),
        ("add", "2"),
        ("add", "mul", 0, 1),
        ("add", "1"),
        ("add", "shl", 0, 3),
    ]
    return [
        egraph_case("two ways to double", [*double, ("same", 2, 4), ("union", 2, 4), ("same", 2, 4)]),
        egraph_case("the same term twice", [*leaves, ("add", "f", 0, 1), ("add", "f", 0, 1), ("add", "f", 1, 0)]),
        egraph_case("congruence", [*leaves, *applied, ("same", 4, 5), ("union", 0, 1), ("same", 4, 5)]),
        egraph_case("added after a union", [*leaves, ("add", "f", 0), ("union", 1, 0), ("add", "f", 1)]),
        egraph_case("a term that contains itself", [("add", "a"), ("add", "f", 0), ("union", 1, 0), ("add", "f", 1)]),
    ]


def expected(commands: Sequence[Command]) -> tuple[list[bool], EGraph, list[int]]:
    """Return the answers to `same`, the graph after all commands, and the number in it of each term."""
    graph, numbers, answers = EGraph(), list[int](), list[bool]()
    for kind, *rest in commands:
        if kind == "add":
            numbers.append(graph.add(rest[0], *(numbers[operand] for operand in rest[1:])))
        elif kind == "union":
            graph.union(numbers[rest[0]], numbers[rest[1]])
        else:
            graph.rebuild()
            one, other = (graph.find(numbers[term]) for term in rest)
            answers.append(one == other)
    graph.rebuild()
    return answers, graph, numbers


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_classes(value: Any) -> str:
    """Return why a value does not have the form of answers and classes, or ""."""
    if reason := why_not_a_list(value, "a pair, the list of answers and the dict of classes", 2):
        return reason
    answers, classes = value
    if reason := why_not_of_type(answers, "as the first part a list of answers", list, tuple):
        return reason
    if not all(type(answer) is bool for answer in answers):
        return f"An answer to `same` is True or False; yours are {shown(answers)}."
    if reason := why_not_of_type(classes, "as the second part a dict from class to its e-nodes", dict):
        return reason
    for name, nodes in classes.items():
        if type(name) is not int:
            return f"A class is called by a whole number; one here is {shown(name)}."
        if not isinstance(nodes, list | tuple | set | frozenset):
            return f"Class {name} has a list of e-nodes; here it is {shown(nodes)}."
        for node in nodes:
            if reason := _why_not_a_node(node, name, classes):
                return reason
    return ""


def _why_not_a_node(node: Any, name: int, classes: dict) -> str:
    if not isinstance(node, list | tuple) or not node or type(node[0]) is not str:
        return f"An e-node is a label and the classes of its operands; one in class {name} is {shown(node)}."
    missing = [operand for operand in node[1:] if type(operand) is not int or operand not in classes]
    if missing:
        return f"Class {name} has the e-node {shown(tuple(node))}, but {shown(missing[0])} is not the name of a class."
    return ""


def placed(commands: Sequence[Command], classes: dict[int, Any]) -> tuple[list[int], str]:
    """Return the class of each term, by its e-node, and a sentence where one is in no class or in two."""
    homes: dict[tuple, list[int]] = {}
    for name, nodes in classes.items():
        for node in dict.fromkeys(map(tuple, nodes)):
            homes.setdefault(node, []).append(name)
    where: list[int] = []
    for kind, *rest in commands:
        if kind == "add":
            node = (rest[0], *(where[operand] for operand in rest[1:]))
            names = homes.get(node, [])
            if not names:
                return where, f"Term {len(where)} is the e-node {node}, with classes as operands; no class has it."
            if len(names) > 1:
                return where, f"The e-node {node} is in the classes {names[0]} and {names[1]}: join them."
            where.append(names[0])
    return where, ""


def wrong_pairs(where: Sequence[int], right: Sequence[int]) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return two terms that are in one class and should not be, and two that should be and are not."""
    joined = apart = None
    first: dict[int, int] = {}
    first_right: dict[int, int] = {}
    for term, (own, other) in enumerate(zip(where, right, strict=True)):
        a, b = first.setdefault(own, term), first_right.setdefault(other, term)
        if right[a] != other:
            joined = joined or (a, term)
        if where[b] != own:
            apart = apart or (b, term)
    return joined, apart


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (commands,) = case.build()
    answers, graph, numbers = expected(commands)
    broken = why_not_classes(value)
    if not broken and len(value[0]) != len(answers):
        broken = f"There are {len(answers)} commands `same`, and you have {len(value[0])} answers."
    yield Finding("valid", not broken, broken)
    if broken:
        return
    questions = [rest for kind, *rest in commands if kind == "same"]
    pairs = zip(questions, answers, value[0], strict=True)
    wrong_yes = wrong_no = ""
    for (a, b), answer, own in pairs:
        if own and not answer:
            wrong_yes = wrong_yes or f"`same` of the terms {a} and {b}: they are not equal at this command."
        if answer and not own:
            wrong_no = wrong_no or f"`same` of the terms {a} and {b}: they are equal by then."
    where, reason = placed(commands, value[1])
    if reason:
        yield Finding("did", False, reason)
        return
    joined, apart = wrong_pairs(where, [graph.find(number) for number in numbers])
    if joined and not wrong_yes:
        wrong_yes = f"The terms {joined[0]} and {joined[1]} are in one class, and nothing makes them equal."
    if apart and not wrong_no:
        wrong_no = f"The terms {apart[0]} and {apart[1]} are equal, and in two classes."
    yield Finding("same", not wrong_yes, wrong_yes)
    yield Finding("did", not wrong_no, wrong_no)
    extra = _extra(commands, where, value[1])
    yield Finding("spared", not extra, extra)


def _extra(commands: Sequence[Command], where: Sequence[int], classes: dict[int, Any]) -> str:
    """Return which e-node is stored twice or belongs to no term, or ""."""
    added = [rest for kind, *rest in commands if kind == "add"]
    nodes = {
        (home, (label, *(where[o] for o in operands))) for home, (label, *operands) in zip(where, added, strict=True)
    }
    for name, members in classes.items():
        if not members:
            return f"Class {name} has no e-node: of the names of a class only one is left."
        for node in members:
            if (name, tuple(node)) not in nodes:
                return f"Class {name} has the e-node {tuple(node)}, which no command added."
        if len(set(map(tuple, members))) < len(members):
            return f"Class {name} has an e-node twice."
    return ""
