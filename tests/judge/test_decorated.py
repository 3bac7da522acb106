"""Cases as decorated functions."""

from __future__ import annotations

import sys
import types

from passlab.judge import Case, as_decorator, cases_in


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


def test_cases_are_found_in_the_order_of_their_definition():
    module = types.ModuleType("cases_of_a_test")
    module.later, module.other, module.first = case("b", 1), 7, case("a", 1)
    sys.modules[module.__name__] = module
    try:
        assert [c.name for c in cases_in(module.__name__)] == ["b", "a"]
    finally:
        del sys.modules[module.__name__]
