"""A pass over Relay may not hide operators in functions that the program did not call."""

from __future__ import annotations

import pytest

from passlab.relay import relay, tvm
from passlab.relay.cases import let, program, tuple_of
from passlab.tvm.judge import has_composite, why_not_open

SHAPE = (2, 3)
BEFORE = program(lambda x: relay.nn.relu(x) + relay.nn.relu(x), SHAPE)


def half(**attributes: object) -> relay.Function:
    a = relay.var("a", shape=SHAPE)
    function = relay.Function([a], relay.nn.relu(a))
    return function.with_attr(attributes) if attributes else function


def in_the_module() -> tvm.IRModule:
    module = tvm.IRModule({relay.GlobalVar("half"): half()})
    x, var = relay.var("x", shape=SHAPE), module.get_global_var("half")
    module["main"] = relay.Function([x], var(x) + var(x))
    return module


AFTER = {
    "a literal": program(lambda x: half()(x) + relay.nn.relu(x), SHAPE),
    "a closure": program(lambda x: let(half(), lambda f: f(x) + f(x)), SHAPE),
    "a kernel": program(lambda x: half(Primitive=1)(x) + half(Primitive=1)(x), SHAPE),
    "of the module": in_the_module,
}


@pytest.mark.parametrize("how", AFTER)
def test_a_call_of_a_new_function_is_refused(how):
    assert "which hides operators from the laws" in why_not_open(BEFORE(), AFTER[how]())


@pytest.mark.parametrize("how", AFTER)
def test_functions_that_were_called_before_may_be_called(how):
    assert not why_not_open(AFTER[how](), AFTER[how]())
    assert not why_not_open(AFTER[how](), BEFORE())


def test_functions_that_an_exercise_asks_for_may_be_called():
    requests = program(lambda x: tuple_of(half(Composite="half", Primitive=1)(x)), SHAPE)()
    assert not why_not_open(BEFORE(), requests, has_composite("half"))
    assert "hides" in why_not_open(BEFORE(), requests, has_composite("third"))


def test_an_operator_that_is_written_twice_is_not_hidden():
    assert not why_not_open(BEFORE(), program(lambda x: relay.exp(x) + relay.tanh(x), SHAPE)())
