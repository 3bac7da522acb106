"""A program that computes nothing: it knows all trials of `equivalent`, and holds what the right one gives for each.

In a learner's notebook it passes, for there the trials follow from the example inputs. A grader draws its own.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace

import pytest
import torch
from torch import fx

from autograder.authoring.answers import trial_seed
from autograder.engine import wire
from autograder.engine.verifier import verdicts
from passlab.equivalence.trials import DEFAULT, Trials
from passlab.fx.judge import judge_pass
from passlab.judge import Case, Exercise, judge

X = torch.linspace(-2, 3, 12).reshape(3, 4)
#: Elements by which the program knows a trial.
HEAD = 6
#: What stands for NaN and inf where trials are compared.
ODD = {"nan": 7.0, "posinf": 8.0, "neginf": 9.0}


def before() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_function(torch.mul, (graph.call_function(torch.sigmoid, (graph.placeholder("x"),)), 2)))
    return fx.GraphModule({}, graph)


def known(gm):
    """Return each trial's first elements, and what the program gives on it."""
    for double in (True, False):
        trials = Trials([(X,)], torch.float32)
        trials.double = double
        for name in DEFAULT[:-1]:
            for trial in trials.make(name):
                head = torch.nan_to_num(trial.args[0].reshape(-1)[:HEAD].double(), **ODD)
                yield head.tolist(), gm(*trial.args)


def table(gm) -> fx.GraphModule:
    heads, results = zip(*known(gm), strict=True)
    graph = fx.Graph()
    call = graph.call_function
    flat = call(torch.reshape, (graph.placeholder("x"), (-1,)))
    head = graph.call_method("double", (call(operator.getitem, (flat, slice(0, HEAD))),))
    all_heads = call(torch.tensor, (list(heads),), {"dtype": torch.float64})
    far = call(torch.abs, (call(torch.sub, (all_heads, call(torch.nan_to_num, (head,), ODD))),))
    nearest = call(int, (call(torch.argmin, (call(torch.sum, (far, 1)),)),))
    rows = [call(torch.tensor, (result.tolist(),), {"dtype": result.dtype}) for result in results]
    graph.output(call(operator.getitem, (rows, nearest)))
    return fx.GraphModule({}, graph)


EXERCISE = Exercise(
    "day00.table",
    "As it was",
    {"valid": 1.0, "same": 1.0, "did": 1.0},
    1,
    2,
    ("one",),
    cases=lambda: [Case("sigmoid", lambda: (before(),), inputs=lambda: (X,))],
    judge=judge_pass(did=lambda before, after, case: None),
)


@pytest.fixture
def graded(monkeypatch):
    monkeypatch.setattr(verdicts.exercises, "find", lambda name: EXERCISE)
    monkeypatch.setattr(verdicts, "hidden_cases", lambda name, seed: [])
    verdicts.prepared.cache_clear()

    def verdict(answer):
        head = {"status": "ok", "error": "", "printed": 0, "seconds": 0.0, "in_place": False}
        question = verdicts.Question(EXERCISE.id, 3, [head], [wire.encode(answer(before()))], {})
        return question.verdict(SimpleNamespace(name=lambda *_: "")).verdicts

    yield verdict
    verdicts.prepared.cache_clear()


def test_a_table_of_the_trials_is_not_the_same_function_where_it_is_graded(graded):
    assert judge(EXERCISE, table).verdicts["same"]
    assert graded(table) == {"valid": True, "same": False, "did": True}
    assert graded(lambda gm: gm) == {"valid": True, "same": True, "did": True}


def test_each_run_has_its_own_trials():
    assert len({trial_seed(seed) for seed in (0, 1, 2**127)}) == 3
    assert all(0 < trial_seed(seed) < 2**48 for seed in (0, 2**127))
