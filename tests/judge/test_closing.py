"""A function that does an exercise cannot be called by an answer to it, and by everybody else all the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

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


@dataclass
class Entry:
    apply: Callable


TABLE = {"bare": lambda: 1, "entry": Entry(lambda: 2)}


def test_all_functions_in_a_dictionary_can_be_closed():
    with Closed(["tests.judge.test_closing.TABLE"]):
        for call in (TABLE["bare"], TABLE["entry"].apply):
            with pytest.raises(RuntimeError, match="TABLE does what"):
                call()
    assert TABLE["bare"]() == 1 and TABLE["entry"].apply() == 2


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


@pytest.fixture
def rare(tmp_path, monkeypatch):
    """The name of a module that was not imported yet, with a function `joined`."""
    (tmp_path / "rarely_used.py").write_text("def joined(names):\n    return ' and '.join(names)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "rarely_used"
    sys.modules.pop("rarely_used", None)


def test_a_module_is_not_imported_to_close_its_function(rare):
    assert judge(exercise(f"{rare}.joined"), lambda arguments: arguments).ok
    assert rare not in sys.modules


def test_a_function_that_the_answer_imports_is_closed_on_the_next_case(rare):
    def answer(_):
        return importlib.import_module(rare).joined(["a", "b"])

    twice = replace(exercise(f"{rare}.joined"), cases=lambda: [Case(name, lambda: ("",)) for name in ("one", "two")])
    result = judge(twice, answer)
    assert not result.points and "rarely_used.joined does what this exercise asks" in result.failure.message


def _made():
    one = 1
    return lambda: one


within = _made()
