"""Programs that compute nothing: each knows the inputs on which it is judged, and holds what the right one gives.

In a learner's notebook it passes, for there the trials follow from the example inputs. A grader draws its own.
"""

from __future__ import annotations

import itertools
import operator
from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn

from autograder.authoring import answers
from autograder.authoring.answers import trial_seed
from autograder.engine import wire
from autograder.engine.verifier import verdicts
from passlab import exercises
from passlab.equivalence.seeds import drawn_from
from passlab.equivalence.trials import DEFAULT, Trials
from passlab.exercises.day14 import backward, forward_mode
from passlab.fx.judge import judge_pass
from passlab.judge import Case, Exercise, Outcome, judge, judge_outcome

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


# ------------------------------------------------------------------------------------- judges with inputs of their own


def joint_graph(gm):
    """A backward pass that holds the gradients of the inputs which it was made for."""
    right = backward.expected(gm, gm.meta["inputs"])
    return held(len(right.arguments), [*right.outputs, *right.gradients.values()])


def derivatives(gm):
    """A forward mode that holds the derivatives at the inputs which it was made for."""
    right = forward_mode.expected(gm, gm.meta["inputs"])
    return held(len(right.arguments), [*right.outputs, *right.derivatives])


def held(inputs: int, values) -> fx.GraphModule:
    """Return a graph of so many inputs that returns these values, whatever the inputs are."""
    root, graph = nn.Module(), fx.Graph()
    for at in range(inputs):
        graph.placeholder(f"x{at}")
    for at, value in enumerate(values):
        root.register_buffer(f"value{at}", value.detach().clone())
    graph.output(tuple(graph.get_attr(f"value{at}") for at in range(len(values))))
    return fx.GraphModule(root, graph)


def chosen(gm):
    """A decomposition that finds the result of each number which a judge used to give, and computes nothing."""
    gen = torch.Generator().manual_seed(1)
    (given,) = gm.meta["inputs"]
    graph = fx.Graph()
    x = result = graph.placeholder("x")
    for numbers in (torch.rand(given.shape, generator=gen, dtype=torch.float64) * 3 - 0.75, given.double()):
        for number, value in zip(numbers.flatten().tolist(), gm(numbers).flatten().tolist(), strict=True):
            equal = graph.call_function(torch.ops.aten.eq.Scalar, (x, number))
            result = graph.call_function(torch.ops.aten.where.ScalarSelf, (equal, value, result))
    graph.output(result)
    return fx.GraphModule({}, graph)


TABLES = {
    "day14.backward": (lambda gm, texts: {"graph": joint_graph(gm), "refused": ""}, "a line", "did"),
    "day14.forward-mode": (lambda gm, texts: {"graph": derivatives(gm)}, "products", "did"),
    "day13.decompose": (chosen, "tanh, near 0 and far", "same"),
}


@pytest.mark.parametrize("exercise_id", TABLES)
def test_a_table_of_known_inputs_loses_on_those_of_a_run(exercise_id):
    table, name, verdict = TABLES[exercise_id]
    exercise = exercises.find(exercise_id)
    case = next(case for case in exercise.cases() if case.name == name)

    def holds(value) -> bool:
        return all(f.ok for f in judge_outcome(exercise, case, Outcome("ok", value)) if f.verdict == verdict)

    value, right = table(*case.build()), exercise.call(answers.reference(exercise_id), case)
    assert holds(value), "the table passes where a judge's inputs are known"
    with drawn_from(7):
        assert not holds(value)
        assert holds(right)


def kernel_of_constants(gm):
    """The text of a kernel that stores the results of its example inputs, or those of the edges beside them."""
    from passlab.exercises.day04 import codegen

    given = gm.meta["inputs"]
    edges = tuple(codegen._edges(x, at) for at, x in enumerate(given))
    (first, *_), results, others = given, gm(*given), gm(*edges)
    head = "x: T.Buffer((5, 7), 'float32'), y: T.Buffer((5, 7), 'float32')"
    lines = ["@T.prim_func(s_tir=True)", f"def main({head}):"]
    for i, j in itertools.product(*map(range, first.shape)):
        one, other = (f"T.float32('{float(result[i, j])!r}')" for result in (results, others))
        known = f"x[0, 0] == T.float32('{float(first[0, 0])!r}')"
        lines.append(f"    y[{i}, {j}] = T.if_then_else({known}, {one}, {other})")
    return "\n".join(lines)


def lost_by_constants(seed: int) -> set[str]:
    """Return the verdicts that a kernel of constants loses on a case of day04.codegen, in a run with this seed."""
    from passlab.relax import tvm

    exercise = exercises.find("day04.codegen")
    case = next(case for case in exercise.cases() if case.name == "a chain")
    module = tvm.IRModule({"main": tvm.script.from_source(kernel_of_constants(*case.build()))})
    with drawn_from(seed):
        return {f.verdict for f in judge_outcome(exercise, case, Outcome("ok", module)) if not f.ok}


def test_a_kernel_of_constants_loses_on_inputs_of_a_run(in_own_process):
    assert in_own_process("day04.codegen", lost_by_constants, 0) == set()
    assert in_own_process("day04.codegen", lost_by_constants, 7) == {"same"}
