"""Answers that look into the function which they may only call, `failure` of day17.shrink: it is not in their process.

They are graded as a class's notebooks are, beside an honest answer, which must keep every point.
"""

from __future__ import annotations

import inspect

import pytest

from autograder.authoring.answers import reference
from autograder.engine.data import Cell, Job
from autograder.engine.engine import Engine
from passlab import exercises
from passlab.judge import judge

EXERCISE = "day17.shrink"
IMPORTS = "from passlab.given.day17 import shrink as given\nimport gc, torch\nfrom torch import fx\n"
#: Makes of a fault the smallest graph that shows it.
FROM_FAULTS = """
def smallest(fault):
    graph, values, calls = fx.Graph(), {}, []
    def variables(term):
        return {term} if isinstance(term, str) else set().union(*map(variables, term[1:]))
    for name in sorted(variables(fault[1])):
        values[name] = graph.placeholder(name[1:])
    def emit(term):
        if isinstance(term, str):
            return values[term]
        rest = {"transpose": (0, 1), "sum": (0, True)}.get(term[0], ())
        calls.append(graph.call_function(given.OPERATIONS[term[0]], (*map(emit, term[1:]), *rest)))
        return calls[-1]
    emit(fault[1])
    graph.output(tuple(calls))
    return fx.GraphModule({}, graph), tuple(torch.randn(2, 3) for _ in values)

def shrink(gm, inputs, failure):
    first = failure(gm, inputs)
    for fault in faults_of(failure):
        if fault[1] is not None and first.startswith(fault[0]):
            pair = smallest(fault)
            if failure(*pair) == first:
                return pair
    return gm, inputs
"""
SOLUTION = (
    "from collections.abc import Callable\nfrom torch import fx\nfrom passlab.given.day17.shrink import values_of\n"
)
SOLUTION += inspect.getsource(reference(EXERCISE))
ATTACKS = {
    "its object": "def faults_of(failure):\n    return failure.__self__.faults\n",
    "any object": """
def faults_of(failure):
    return [fault for o in gc.get_objects() if isinstance(o, given.Compiler) for fault in o.faults]
""",
    "its class, exchanged": """
seen = []
class Compiler(given.Compiler):
    def __init__(self, faults, *limit):
        seen.append(faults)
        super().__init__(faults, *limit)
given.Compiler = Compiler

def faults_of(failure):
    return seen[-1] if seen else []
""",
    "its arguments": """
seen = []
def service(case):
    seen.append(case.build())
    return None
given.service = service

def faults_of(failure):
    return [fault for arguments in seen for fault in arguments[-1]]
""",
}


@pytest.fixture(scope="module")
def engine():
    with Engine(jobs=1) as engine:
        yield engine


def graded(engine, answer: str):
    cells = (Cell(0, "answer", answer), Cell(1, "check", "", EXERCISE, "shrink"))
    return engine.grade(Job("ada", "day17", "breaking", cells, 3)).verdicts[1]


def test_a_solution_keeps_every_point(engine):
    verdict = graded(engine, SOLUTION)
    assert verdict.points == verdict.total, verdict.text


@pytest.mark.parametrize("name", ATTACKS)
def test_the_faults_are_out_of_reach(engine, name):
    verdict = graded(engine, IMPORTS + ATTACKS[name] + FROM_FAULTS)
    assert not verdict.verdicts["did"] and not verdict.verdicts["cost"], verdict.text


def test_in_one_process_the_faults_do_the_exercise():
    """Where nothing stands between the function and the answer, as in a learner's notebook, the attack pays."""
    space: dict = {}
    exec(IMPORTS + ATTACKS["its object"] + FROM_FAULTS, space)
    assert judge(exercises.find(EXERCISE), space["shrink"]).verdicts["cost"]


ERRORS = """
solved = shrink

def shrink(gm, inputs, failure):
    for arguments, kind in (((gm, ()), ValueError), ((None, inputs), ValueError), ((gm,), TypeError)):
        try:
            failure(*arguments)
        except kind:
            continue
        return gm, inputs
    return solved(gm, inputs, failure)
"""


def test_its_errors_arrive(engine):
    verdict = graded(engine, SOLUTION + ERRORS)
    assert verdict.points == verdict.total, verdict.text
