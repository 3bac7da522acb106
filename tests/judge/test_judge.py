"""The judge: every way an answer can misbehave has its own sentence, and points follow from the verdicts."""

import contextlib
import sys
import time
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import fx, nn

from autograder.authoring import answers
from autograder.engine import wire
from passlab import exercises
from passlab.fx.judge import judge_pass, rebuild, why_not_valid
from passlab.judge import Case, Exercise, Finding, conclude, judge, plain_numbers, run
from passlab.process import clock

Pair = namedtuple("Pair", ["a", "b"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y):
        return torch.relu(self.linear(x)) + y, x - y


def traced():
    torch.manual_seed(0)
    gm = fx.symbolic_trace(Net().eval())
    gm.meta["inputs"] = (torch.ones(2, 4), torch.ones(2, 4))
    return gm


def node(gm, name):
    return next(n for n in gm.graph.nodes if n.name == name)


def no_relu(before, after, case):
    left = [n.name for n in after.graph.nodes if n.target is torch.relu]
    return f"{left[0]} is still a relu." if left else None


def exercise(**changes):
    arguments = {
        "id": "day00.relu",
        "title": "Replace relu by clamp",
        "points": {"valid": 1, "same": 2, "did": 3},
        "difficulty": 1,
        "minutes": 1,
        "hints": ("a", "b", "c"),
        "cases": lambda: [Case("two outputs", lambda: (traced(),))],
        "judge": judge_pass(did=no_relu),
    }
    return Exercise(**(arguments | changes))


def good(gm):
    for n in list(gm.graph.nodes):
        if n.target is torch.relu:
            with gm.graph.inserting_after(n):
                new = gm.graph.call_function(torch.clamp_min, (n.args[0], 0.0))
            n.replace_all_uses_with(new)
            gm.graph.erase_node(n)
    return gm


def test_a_right_answer_earns_every_point_and_a_stub_none():
    result = judge(exercise(), good)
    assert (result.points, result.verdicts) == (6, {"valid": True, "same": True, "did": True})

    def stub(gm):
        raise NotImplementedError()

    result = judge(exercise(), stub)
    assert (result.points, result.attempted) == (0, False)


def test_doing_nothing_earns_nothing_though_the_meaning_is_kept():
    result = judge(exercise(), lambda gm: gm)
    assert result.verdicts["same"] and not result.verdicts["did"]
    assert result.points == 0


def test_knowing_the_visible_cases_by_heart_earns_nothing():
    visible, hidden = (Case(name, lambda: (traced(),)) for name in ("visible", "hidden"))
    answers = iter((good, lambda gm: gm) * 2 + (good, good))

    def next_answer(gm):
        return next(answers)(gm)

    assert judge(exercise(), next_answer, [visible, hidden]).points == 3, "valid and same, where both count alike"
    result = judge(exercise(), next_answer, [visible, hidden], visible=1)
    assert result.verdicts == {"valid": True, "same": True, "did": False} and result.points == 0
    assert result.notes[-1].startswith("No law counts as long as “complete” is lost on every hidden case")
    assert judge(exercise(), next_answer, [visible, hidden], visible=1).ok


def test_where_no_hidden_case_is_about_it_complete_counts_on_the_visible_ones():
    cases = [Case("visible", lambda: (traced(),)), Case("hidden", lambda: (traced(),), ("same",))]
    swapped = iter((good, good))
    assert judge(exercise(), lambda gm: next(swapped)(gm), cases, visible=1).ok


def test_a_verdict_that_a_case_is_not_about_can_be_lost_there_but_not_earned():
    nothing_to_do = Case("nothing to do", lambda: (good(traced()),), about=("same",))
    result = judge(exercise(cases=lambda: [nothing_to_do]), lambda gm: gm)
    assert result.verdicts == {"valid": False, "same": True, "did": False}
    assert result.points == 0


def test_a_forgotten_recompile_is_no_error():
    assert judge(exercise(), good).ok
    gm = good(traced())
    assert "clamp" not in gm.code and "clamp" in rebuild(gm).code


def erased_but_used(gm):
    n = node(gm, "relu")
    n._remove_from_list()
    return gm


def foreign(gm):
    other = traced()
    node(gm, "add").args = (node(other, "relu"), node(gm, "y"))
    return gm


def cycle(gm):
    node(gm, "relu").args = (node(gm, "add"),)
    return gm


def too_early(gm):
    node(gm, "sub").append(node(gm, "relu"))
    return gm


def lost_input(gm):
    node(gm, "add").args = (node(gm, "relu"), node(gm, "relu"))
    node(gm, "sub").args = (node(gm, "x"), node(gm, "x"))
    gm.graph.erase_node(node(gm, "y"))
    return gm


def lost_output(gm):
    node(gm, "output").args = ((node(gm, "add"),),)
    return gm


def missing_module(gm):
    node(gm, "linear").target = "dense"
    return gm


def wrong_arity(gm):
    gm = good(gm)
    node(gm, "add").args = (node(gm, "y"),)
    return gm


BROKEN = {
    "returned None": lambda gm: None,
    "returned a Graph.": lambda gm: gm.graph,
    "returned str, not": lambda gm: "gm",
    "still uses relu, which is no longer in the graph": erased_but_used,
    "uses relu, which belongs to another graph": foreign,
    "depends on itself through add": cycle,
    "uses relu before it is defined": too_early,
    "took (x, y) and now takes (x)": lost_input,
    "returned 2 values and now returns 1 value": lost_output,
    "operands of node add do not fit add: missing a required argument: 'b'": wrong_arity,
    "refers to 'dense', which the module does not have": missing_module,
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_graph_is_named_in_one_sentence(sentence):
    result = judge(exercise(), BROKEN[sentence])
    assert not result.verdicts["valid"] and result.points == 0
    assert sentence in result.failure.message


def nan_everywhere(gm):
    gm = good(gm)
    out = node(gm, "add")
    with gm.graph.inserting_after(out):
        new = gm.graph.call_function(torch.mul, (out, float("nan")))
    out.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    return gm


def test_nan_everywhere_breaks_same():
    result = judge(exercise(), nan_everywhere)
    assert result.verdicts == {"valid": True, "same": False, "did": True}
    assert "NaN everywhere" in result.failure.message


def raises(gm):
    return gm.no_such_thing


def forever(gm):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)


def recursive(gm):
    return recursive(gm)


def leaves(gm):
    sys.exit(3)


MISBEHAVED = {
    "raises AttributeError": (raises, "It raised AttributeError"),
    "never ends": (forever, "used up its 0.2 s"),
    "calls itself": (recursive, "RecursionError"),
    "exits": (leaves, "It raised SystemExit: 3"),
}


@pytest.mark.parametrize("name", MISBEHAVED)
def test_whatever_an_answer_does_comes_back_as_a_sentence(name):
    answer, sentence = MISBEHAVED[name]
    result = judge(exercise(seconds=0.2), answer)
    assert result.points == 0 and sentence in result.failure.message


def test_100_megabytes_of_prints_are_counted_and_not_shown(capfd):
    def chatty(gm):
        for _ in range(100):
            print("x" * 1_000_000)
        return good(gm)

    result = judge(exercise(), chatty)
    assert result.ok and "100,000,000 characters or more" in " ".join(result.notes)
    assert capfd.readouterr().out == ""


def test_editing_the_given_graph_is_said_and_judged_against_an_untouched_copy():
    assert "compares with its own copy" in " ".join(judge(exercise(), good).notes)
    assert judge(exercise(), lambda gm: good(fx.GraphModule(gm, gm.graph))).notes == []


def test_a_call_instead_of_the_function_is_explained():
    assert "expects your function itself, without a call; got Net" in judge(exercise(), traced()).failure.message


def test_run_brings_back_warnings_and_output_nowhere(capfd):
    def noisy(gm):
        import warnings

        warnings.warn("careful", stacklevel=1)
        print("hello", file=sys.stderr)
        return gm

    outcome = run(exercise(), noisy, exercise().cases()[0])
    assert outcome.status == "ok" and outcome.in_place and outcome.printed == len("hello\n")
    assert capfd.readouterr() == ("", "")


def test_points_must_name_did():
    with pytest.raises(ValueError, match="must name 'did'"):
        exercise(points={"same": 1})


def test_validate_accepts_what_tracing_makes():
    assert not why_not_valid(traced(), traced())


def test_findings_carry_the_case_they_came_from():
    result = judge(exercise(judge=lambda case, value: [Finding("did", False, "no")]), good)
    assert result.failure.case == "two outputs"


def test_a_value_on_which_the_judge_breaks_is_a_sentence():
    def breaks(case, value):
        yield Finding("valid", True)
        raise IndexError("tuple index out of range")

    result = judge(exercise(judge=breaks), good)
    assert result.points == 0 and not result.verdicts["valid"]
    assert "could not read the returned value (IndexError" in result.failure.message


def busy(gm):
    while True:
        pass


def starved(gm):
    """Work as on a machine where others have nine tenths of the processor."""
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pause = time.process_time() + 0.01
        while time.process_time() < pause:
            pass
        time.sleep(0.1)
    return gm


def sleeps(gm):
    time.sleep(60)
    return gm


def test_the_limit_is_on_cpu_time_so_that_other_programs_cost_an_answer_nothing(monkeypatch):
    monkeypatch.setattr(clock, "PATIENCE", 1)
    monkeypatch.setattr(clock, "LONGEST", 1000)  # where other tests have most of the rest, too, it still works
    timed = exercise(seconds=0.5)  # by the clock it takes four times as long
    assert run(timed, starved, timed.cases()[0]).status == "ok"
    start = time.process_time()
    assert run(timed, busy, timed.cases()[0]).status == "timeout"
    assert time.process_time() - start >= 0.25  # the timer counts whole ticks: on a busy machine it is early


def test_an_answer_that_waits_is_stopped_by_the_clock(monkeypatch):
    monkeypatch.setattr(clock, "PATIENCE", 2)
    timed = exercise(seconds=0.2)
    assert run(timed, sleeps, timed.cases()[0]).status == "timeout"


def as_tvm_raises(message):
    """An answer whose error has passed through a compiler: its frame is the last one, and its message has its place."""
    namespace = {}
    source = f"def inside():\n    raise ValueError({message!r})\n"
    exec(compile(source, "/project/src/ir/op.cc", "exec"), namespace)
    return lambda gm: namespace["inside"]()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[10:51:21] /tmp/tvm/src/ir/module.cc:164: No such thing", ": No such thing (line "),
        (
            "contains free variables: [Var(z, ty=TensorType([2]))]",
            ": nothing defines z; make it a parameter, or bind it",
        ),
        ('Traceback (most recent call last):\n  File "base.h"\nValueError: a rank of 2', ": a rank of 2 (line "),
    ],
)
def test_a_compilers_error_is_told_with_the_learners_own_line(said, told):
    of_tvm = replace(exercise(), flavour="relax")
    error = run(of_tvm, as_tvm_raises(said), of_tvm.cases()[0]).error
    assert error.startswith("It raised ValueError" + told) and "of <lambda>)" in error and ".cc" not in error


def unbuildable():
    raise ValueError("high <= 0")


def test_a_case_that_cannot_be_built_is_left_out_and_costs_nothing():
    cases = [Case("broken", unbuildable), Case("sound", lambda: (traced(),))]
    result = judge(exercise(), good, cases)
    assert result.ok and result.unbuilt == ["broken"] and "1 case of the course could not be built" in result.notes[0]
    assert not judge(exercise(), lambda gm: gm, cases).ok, "the other case still counts"
    assert not judge(exercise(), lambda gm: unbuildable(), cases).points, "what an answer raises is its own"


def test_verdicts_that_only_unbuildable_cases_are_about_are_given_but_not_to_a_stub():
    cases = [Case("sound", lambda: (traced(),), ("valid", "did")), Case("broken", unbuildable, ("same",))]

    def stub(gm):
        raise NotImplementedError

    assert judge(exercise(), good, cases).ok
    assert not judge(exercise(), stub, cases[::-1]).attempted
    assert not judge(exercise(), stub, cases[::-1]).points


def test_nothing_is_earned_where_no_case_can_be_built():
    def stub(gm):
        raise NotImplementedError

    cases = [Case("broken", unbuildable), Case("broken, too", unbuildable, ("same", "did"))]
    for answer in (good, stub, lambda gm: gm):
        result = judge(exercise(), answer, cases)
        assert not result.points and not any(result.verdicts.values())
        assert result.unbuilt == ["broken", "broken, too"] and "nothing was judged" in result.notes[0]
    nothing = conclude(exercise(), [], [], unbuilt=cases)
    assert not nothing.points and nothing.unbuilt == ["broken", "broken, too"]


@pytest.mark.parametrize(
    "arguments, plain",
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        ([1, (np.int32(2), {"a": np.int64(3), np.int8(4): {np.uint8(5)}})], [1, (2, {"a": 3, 4: {5}})]),
        (OrderedDict(a=np.int64(3), b=[np.int8(4)]), {"a": 3, "b": [4]}),
        (defaultdict(int, {"a": np.int64(3)}), {"a": 3}),
        (Pair(np.int64(3), 4), (3, 4)),
    ],
)
def test_numpys_numbers_reach_the_judge_as_pythons(arguments, plain):
    def types(value):
        if isinstance(value, dict):
            return [(types(k), types(v)) for k, v in value.items()]
        return [types(v) for v in value] if isinstance(value, list | tuple | set) else type(value)

    value = run(exercise(), lambda gm: arguments, exercise().cases()[0]).value
    assert value == plain and types(value) == types(plain)
    assert types(wire.decode(wire.encode(arguments))) == types(plain), "as in grading"


def test_a_value_without_numpys_numbers_is_the_answers_own_object():
    knot = [1]
    knot.append(knot)
    for value in ([1, (2, "x")], {"a": [True]}, knot):
        assert plain_numbers(value) is value


@pytest.mark.parametrize("exercise_id", ["day01.count-kinds", "day05.coalescing", "day06.constants", "day06.ranges"])
def test_the_references_numbers_may_be_numpys(exercise_id):
    def numpys(value):
        if type(value) in (int, float):
            return np.asarray(value)[()]
        if type(value) is dict:
            return {numpys(k): numpys(v) for k, v in value.items()}
        return type(value)(map(numpys, value)) if type(value) in (list, tuple, set, frozenset) else value

    reference = answers.reference(exercise_id)
    result = judge(exercises.find(exercise_id), lambda *args: numpys(reference(*args)))
    assert result.ok, result.failure
