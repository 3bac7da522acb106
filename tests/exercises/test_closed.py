"""A library's function that does an exercise, or makes it one line, is closed while an answer runs."""

from __future__ import annotations

import pytest

from passlab.exercises import days, is_core, of_day
from tests.support import doers

#: Exercises of the flavour torch with closed functions: whoever closes one function closes the others that do it.
CLOSED = [e.id for day in days() for e in of_day(day) if e.closed and e.flavour == "torch" and not is_core(e.id)]


@pytest.mark.parametrize("exercise_id", CLOSED)
def test_no_other_function_does_the_exercise(exercise_id):
    assert doers.apart(exercise_id) == []


def test_functions_that_do_an_exercise_are_found():
    """liveness is one function, or two of which one takes what the other returns."""
    lines = doers.apart("day05.liveness", "memory")
    assert any("memory.liveness.liveness(" in line for line in lines)
    assert any("liveness.ranges(passlab.memory.storages.recorded(" in line for line in lines)
