"""A function that does an exercise cannot be called by an answer to it, and by everybody else all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from passlab import judge as judging
from passlab.judge import Case, Exercise, Finding, judge, listed
from passlab.judge.guards import Closed, reopen

taken_earlier = listed


def exercise(*closed: str) -> Exercise:
    return Exercise(
        id="day00.closed",
        title="Closed",
        points={"did": 1},
        difficulty=1,
        minutes=1,
        hints=(),
        cases=lambda: [Case("a list", lambda: (listed(["a", "b"]),))],
        judge=lambda case, value: [Finding("did", value == listed(["a", "b"]), f"got {value}")],
        closed=closed,
    )


@pytest.mark.parametrize("call", [lambda _: taken_earlier(["a", "b"]), lambda _: judging.words.listed(["a", "b"])])
def test_a_closed_function_raises_under_each_of_its_names(call):
    assert judge(exercise(), call).ok
    result = judge(exercise("passlab.judge.listed"), call)
    assert not result.points
    assert "passlab.judge.listed does what this exercise asks" in result.failure.message


def test_the_cases_and_the_judge_may_call_it():
    assert judge(exercise("passlab.judge.listed"), lambda arguments: arguments).ok


def test_the_grader_s_own_code_around_an_answer_may_call_it():
    def call(answer, case):
        with reopen():
            arguments = listed(["a", "b"])
        return answer(arguments)

    closed = replace(exercise("passlab.judge.listed"), call=call)
    assert judge(closed, lambda arguments: arguments).ok
    assert not judge(closed, lambda _: listed(["a", "b"])).points
    with reopen():
        assert listed(["a"]) == "a"


def test_it_is_open_again_after_an_answer_that_raised():
    judge(exercise("passlab.judge.listed"), lambda _: 1 / 0)
    assert taken_earlier(["a"]) == "a"


def test_functions_with_a_closure_and_classes_can_be_closed():
    with Closed(["tests.judge.test_closing.within", "passlab.judge.Case"]):
        with pytest.raises(RuntimeError, match="within does what"):
            within()
        with pytest.raises(RuntimeError, match="Case does what"):
            Case("", tuple)
    assert within() == 1 and Case("", tuple).name == ""


def test_a_method_that_is_not_written_in_python_is_closed_in_its_class():
    import islpy as isl

    points, name = isl.Set("{ [i] : 0 <= i < 3 }"), "islpy.Set.lexmin"
    with Closed([name]):
        with pytest.raises(RuntimeError, match=f"{name} does what this exercise asks"):
            points.lexmin()
        with reopen():
            assert points.lexmin() == isl.Set("{ [0] }")
        with pytest.raises(RuntimeError):
            points.lexmin()
    assert points.lexmin() == isl.Set("{ [0] }")


def test_a_function_that_is_not_written_in_python_is_named():
    with pytest.raises(ValueError, match=r"math\.floor cannot be closed"):
        Closed(["math.floor"])


def _made():
    one = 1
    return lambda: one


within = _made()
