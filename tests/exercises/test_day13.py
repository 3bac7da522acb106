"""Day 13: the tables of its judges, held against Dynamo, and sentences for broken answers."""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import time

import pytest
import torch

from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.capture import REASONS, Capture
from passlab.exercises.day13 import breaks, recompiles
from passlab.given.day13.breaks import statements
from tests.support.judged import lost_with


def cases(exercise_id, seed):
    return [*exercises.find(exercise_id).cases(), *hidden_cases(exercise_id, seed)]


@torch.compiler.disable
def closed(x):
    return x * 3


def function_of(source):
    """Return the function of a source; Dynamo finds its lines."""
    file = f"<{hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"time": time, "random": random, "closed": closed, "graph_break": torch._dynamo.graph_break}
    exec(compile(source, file, "exec"), names)
    return names["f"]


@pytest.mark.parametrize("seed", [1])
def test_dynamo_breaks_where_the_judge_says(seed):
    for case in cases("day13.breaks", seed):
        program = Capture(function_of(case.expect))
        with contextlib.redirect_stdout(io.StringIO()):
            program(torch.ones(3, 4), case.build()[1]["k"])
        results = {at.line: at.reason for at in program.breaks}, len(program.graphs)
        assert results == breaks.expected(*case.build()), f"{case.name}\n{case.expect}"


def test_the_reasons_are_those_of_capture():
    assert {*breaks.REASONS, "other"} == set(REASONS)


@pytest.mark.parametrize(
    "line", ["y = x.relu() + 1", "while x:\n        y = x + 1", "x.y = 3", "return x + 1", "y: int = 3"]
)
def test_what_is_not_a_statement_is_named(line):
    with pytest.raises(ValueError, match=r"line 2: .* is not a statement of this language; write one operation"):
        statements(f"def f(x):\n    {line}")


def reader_of(reads):
    """Return a function that reads these arguments, and no others."""
    lines = {
        "x": "r.append(x * 2)",
        "y": "r.append(y + 1)",
        "k": "r.append(r[0] * k)",
        "m": "r.append(r[0] + m)",
        "flag": "r[0] = r[0] + 3 if flag in (True, 'a') else r[0]",
    }
    body = ["r = []", *(lines[name] for name in lines if name in reads), "return r"]
    names: dict = {}
    exec("\n    ".join(["def f(x=None, y=None, k=None, m=None, flag=None):", *body]), names)
    return names["f"]


def real(value):
    if not isinstance(value, tuple):
        return value
    dtype, shape, gradient = value
    return torch.ones(shape, dtype=getattr(torch, dtype), requires_grad=gradient)


@pytest.mark.parametrize("seed", [1, 2])
def test_dynamo_compiles_as_often_as_the_judge_says(seed):
    for case in cases("day13.recompiles", seed):
        reads, calls = case.build()
        program = Capture(reader_of(reads))
        for arguments, gradients in calls:
            with torch.set_grad_enabled(gradients):
                program(**{name: real(value) for name, value in arguments.items()})
        assert program.counts == [count for count, _ in recompiles.expected(reads, calls)], case.name


def test_dynamo_keeps_as_many_versions_as_the_judge_says():
    assert torch._dynamo.config.recompile_limit == recompiles.LIMIT


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ([1, 0, 1, 0, 0, 1], None, ""),
        ((True,) * 6, "valid", "The entry of call 0 must be a number of graphs, 0 or more; it is True."),
        ([1], "valid", "Return a list with a number for each of the 6 calls; got [1], with 1 entry."),
        ([1, 0, 1, 0, -1, 1], "valid", "The entry of call 4 must be a number of graphs, 0 or more; it is -1."),
        ([1, 0, 0, 0, 0, 1], "did", "Call 2 (x = ('float32', (3,), False), k = 5) compiles a graph: no version serves"),
        ([1, 1, 1, 0, 0, 1], "spared", "Call 1 (x = ('float32', (3,), False), k = 2) compiles nothing: version 0"),
        ([1, 0, 1, 0, 0, 2], "spared", "Call 5 (x = ('float32', (3,), False), k = 7.0) compiles a graph: no version"),
    ],
)
def test_what_is_told_of_recompilations(value, verdict, sentence):
    result = lost_with("day13.recompiles", value, "a number")
    assert result is None if verdict is None else (result[0], result[1][: len(sentence)]) == (verdict, sentence)


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (([(3, "builtin")], 2), None, ""),
        ([[[3, "builtin"]], 2], None, ""),
        (None, "valid", "Return a pair, the list of breaks (line, reason) and the number of graphs; got None."),
        (([(3, "builtin")],), "valid", "Return a pair, the list of breaks"),
        ((7, 2), "valid", "The breaks must be a list of (line, reason); they are 7."),
        (([3], 2), "valid", "A break is a pair (line, reason); one here is 3."),
        (([(30, "builtin")], 2), "valid", "The line of a break is a number from 1 to 5; here it is 30."),
        (([(True, "builtin")], 2), "valid", "The line of a break is a number from 1 to 5; here it is True."),
        (([(3, "print")], 2), "valid", "Line 3: 'print' is not a reason. The reasons are branch, number, size,"),
        (([(3, ["x"])], 2), "valid", "Line 3: ['x'] is not a reason."),
        (([(3, "builtin")], -1), "valid", "The number of graphs must be a whole number, 0 or more; it is -1."),
        (([(3, "builtin")], 2.0), "valid", "The number of graphs must be a whole number, 0 or more; it is 2.0."),
        (([], 2), "did", "Capture stops at line 3, `print(y)`: builtin. Your list lacks it."),
        (([(3, "foreign")], 2), "did", "Capture stops at line 3, `print(y)`: builtin. You give the reason foreign."),
        (([(3, "builtin"), (4, "size")], 2), "spared", "Your list has a break at line 4, `z = y + 1` (size). Dynamo"),
        (([(3, "builtin")] * 2, 2), "spared", "Your list has line 3, `print(y)` twice."),
        (([(3, "builtin")], 1), "same", "1 break cuts the function, and Dynamo makes 2 graphs; you say 1."),
    ],
)  # fmt: skip
def test_what_is_told_of_breaks(value, verdict, sentence):
    result = lost_with("day13.breaks", value, "a print between")
    assert result is None if verdict is None else (result[0], result[1][: len(sentence)]) == (verdict, sentence)
