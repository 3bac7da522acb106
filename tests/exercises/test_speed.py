"""How the judges of speed look: on inputs that nobody knows, at every output, and again where a kernel seems slow."""

from __future__ import annotations

import math

import numpy as np

from passlab.exercises import _speed
from passlab.tvm.builds import Built


def looks(*found: tuple[tuple[float, ...], str]):
    """A function that gives these one after the other: the times of a build, and what is wrong with it."""
    rest = iter(found)
    return lambda: (lambda times, wrong: (Built([], times=times), wrong))(*next(rest))


def test_a_fast_kernel_is_looked_at_once_and_its_median_counts():
    built, wrong, least = _speed.fastest(looks(((3.0, 0.0, 1.0), "")), enough=1.0)
    assert (built.times, wrong, least) == ((3.0, 0.0, 1.0), "", 1.0)


def test_a_slow_one_is_looked_at_again_and_its_better_median_counts():
    assert _speed.fastest(looks(((3.0,), ""), ((1.0,), "")), enough=1.0)[2] == 1.0
    slow = [((seconds,), "") for seconds in (3.0, 2.0, 4.0, 5.0)]
    assert len(slow) == _speed.LOOKS and _speed.fastest(looks(*slow), enough=1.0)[2] == 2.0


def test_one_that_is_far_too_slow_twice_is_not_looked_at_again():
    assert _speed.fastest(looks(((9.0,), ""), ((4.1,), "")), enough=1.0)[2] == 4.1
    assert _speed.fastest(looks(((9.0,), ""), ((3.9,), ""), ((0.5,), "")), enough=1.0)[2] == 0.5


def test_a_wrong_output_counts_at_every_look():
    assert _speed.fastest(looks(((0.1,), "wrong")), enough=1.0)[1:] == ("wrong", math.inf)
    assert _speed.fastest(looks(((3.0,), ""), ((0.1,), "wrong")), enough=1.0)[1:] == ("wrong", math.inf)


def test_no_inputs_come_again_unless_a_seed_says_so():
    one, other = (_speed.drawn([(3, 4), (5,)], runs=4) for _ in range(2))
    assert [part.shape for part in one[0]] == [(3, 4), (5,)] and one[0][0].dtype == np.float32
    assert len({part.tobytes() for given in (*one, *other) for part in given}) == 16
    same, again = (_speed.drawn([(3,)], runs=1, seed=5) for _ in range(2))
    assert np.array_equal(same[0][0], again[0][0])


def test_a_kernel_that_keeps_its_sums_in_registers_moves_few_numbers(apart):
    found = apart("day08.schedule", traffic)
    few = {"reference", "as_in_the_lesson", "on_one_core", "packed"}
    assert {name for name, moved in found.items() if moved <= 0.5} == few
    assert round(found["as_in_the_lesson"], 4) == (4 + 16) / (4 * 16)
    assert found["order_alone"] > 3  # a number of B, and a sum loaded and stored again
    assert found["untouched"] == 4 and found["a wide local tile"] > 2


# ---------------------------------------------------------------------------------------------------- There


def traffic() -> dict[str, float]:
    """What each known kernel moves for a product."""
    from autograder.answers.day08 import schedule as bank
    from autograder.authoring import answers
    from passlab.exercises.day08.schedule import _traffic

    names = "as_in_the_lesson on_one_core packed untouched only_parallel order_alone vectors_alone only_unrolled"
    kernels = {name: getattr(bank, name) for name in names.split()}
    kernels |= {"reference": answers.reference("day08.schedule"), "a wide local tile": _wide}
    return {name: _traffic(answer(128, 128, 64)["main"]) for name, answer in kernels.items()}


def _wide(n: int, m: int, k: int):
    """All sums are in a local buffer, which no registers hold: each of them is loaded and stored for every product."""
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(naive(n, m, k))
    block = schedule.get_sblock("C")
    schedule.cache_write(block, 0, "local")
    i, j, r = schedule.get_loops(block)
    schedule.reorder(r, i, j)
    return schedule.mod
