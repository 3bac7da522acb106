"""Cases as decorated functions."""

from __future__ import annotations

import random
import sys
import types

import pytest

from passlab.judge import Case, as_decorator, cases_in, drawn


@as_decorator
def program(body, *shapes):
    return body, shapes


@as_decorator
def case(name, build, *rest, why=None):
    return Case(name, lambda: (build, *rest), expect=why)


def double(x):
    return 2 * x


def test_a_call_without_a_gap_is_an_ordinary_call():
    assert program(double, 3) == (double, (3,))
    assert case("plain", 1, 2).build() == (1, 2)


def test_the_function_below_stands_where_the_dots_are():
    assert case("direct", ..., 5)(double).build() == (double, 5)
    assert case("nested", program(..., 2, 3), 5)(double).build() == ((double, (2, 3)), 5)
    assert case("by keyword", 1, why=program(..., 4))(double).expect == (double, (4,))


def test_one_call_decorates_several_functions():
    unfinished = case("twice", ...)
    first, second = unfinished(double), unfinished(str)
    assert (first.build(), second.build()) == ((double,), (str,))


@pytest.fixture
def module():
    """Return a module that Python knows by its name."""
    module = types.ModuleType("cases_of_a_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_cases_are_found_in_the_order_of_their_definition(module):
    module.later, module.other, module.first = case("b", 1), 7, case("a", 1)
    assert [c.name for c in cases_in(module.__name__)] == ["b", "a"]


def test_drawn_cases_are_at_their_place_and_share_one_generator(module):
    @drawn
    def numbers(rng):
        return [case(f"{rng.randrange(10**9)}", 1)]

    module.first, module.one, module.written, module.two = case("first", 1), numbers, case("written", 1), numbers
    rng = random.Random(5)
    one, two = (f"{rng.randrange(10**9)}" for _ in range(2))
    assert [c.name for c in cases_in(module.__name__, 5)] == ["first", one, "written", two]
    assert cases_in(module.__name__, 6)[1].name != one


def test_visible_cases_are_not_drawn(module):
    module.numbers = drawn(lambda rng: [case("a", 1)])
    with pytest.raises(ValueError, match="cases_of_a_test draws cases, and no seed is given"):
        cases_in(module.__name__)
