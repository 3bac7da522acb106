"""The sentences on values that do not have the form an exercise asks for."""

from __future__ import annotations

import doctest

import pytest

from passlab.judge import forms


def test_the_examples_of_the_module_hold():
    result = doctest.testmod(forms)
    assert result.attempted > 10 and result.failed == 0


class Mute:
    def __repr__(self):
        raise RuntimeError


VALUES = (Mute(), [Mute()], {Mute(): 1}, 10**5000, {1, 2}, (), "text", b"bytes", float("nan"))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_sentence_is_found_for_any_value(value):
    assert forms.why_not_groups([[value]], "names", lambda name: forms.why_not_a_name(name, ["a"])).endswith(".")
    assert forms.why_not_a_list(value, "a pair", 2).startswith("Return a pair; got ")
    assert forms.why_not_a_dict(value, "a dict", ["a"], "slot", "a value")


@pytest.mark.parametrize(
    ("value", "number"), [(1, True), (-0.5, True), (True, False), ("1", False), (float("inf"), False), (10**400, True)]
)
def test_numbers_are_finite_and_not_bools(value, number):
    assert forms.is_number(value) is number


def test_what_fits_gets_no_sentence():
    assert forms.why_not_a_list([1, 2], "a pair", 2) == "" == forms.why_not_a_dict({"a": 0}, "a dict", "a", "slot", "a")
    assert forms.why_not_groups([{"a"}, ["b"]], "names", lambda name: "", every="ab") == ""
