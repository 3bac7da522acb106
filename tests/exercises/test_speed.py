"""How the judges of speed look: on unknown inputs, at every output, and again where a kernel seems slow."""

from __future__ import annotations

import math

import numpy as np

from passlab.building.requests import Built
from passlab.exercises import _speed


def looks(*result: tuple[tuple[float, ...], tuple[float, ...], str]):
    """A function that gives these one after the other: times of a build, of what is beside it, and what is wrong."""
    rest = iter(result)
    return lambda: (lambda times, beside, wrong: (Built([], times=times, beside=(Built([], times=beside),)), wrong))(
        *next(rest)
    )


def test_a_fast_kernel_is_looked_at_once_and_its_shortest_run_counts():
    built, wrong, seconds, ratios = _speed.pace(looks(((3.0, 1.0, 2.0), (6.0, 4.0, 2.0), "")), [2.0])
    assert (built.times, wrong, seconds, ratios) == ((3.0, 1.0, 2.0), "", 1.0, (2.0,))


def test_other_programs_that_disturb_most_runs_do_not_decide():
    disturbed = ((1.0, 2.0, 2.0, 2.0), (4.0, 4.4, 4.4, 4.4), "")  # half as much time again, or twice, for cold caches
    assert _speed.pace(looks(disturbed), [4.0]).ratios == (4.0,)
    first = ((2.0,) * 4, (4.0, 5.0, 5.0, 6.0), "")  # the build's shortest run is in one look, the other's in the next
    assert _speed.pace(looks(first, ((1.0,) * 4, (5.0,) * 4, "")), [4.0]).ratios == (4.0,)


def test_a_slow_one_is_looked_at_again_and_all_looks_count():
    assert _speed.pace(looks(((2.0,), (3.0,), ""), ((1.0,), (2.0,), "")), [2.0]).ratios == (2.0,)
    slow = [((1.0,), (ratio,), "") for ratio in (1.2, 1.6, 1.4, 9.0)]
    assert len(slow) == _speed.LOOKS + 1 and _speed.pace(looks(*slow), [2.0]).ratios == (1.2,)


def test_one_that_is_far_too_slow_is_not_looked_at_again():
    assert _speed.pace(looks(((1.0,), (0.9,), "")), [2.0]).ratios == (0.9,)


def test_on_a_busy_machine_a_look_that_is_far_too_slow_does_not_decide():
    busy = ((4.0,) * 4, (2.0, 2.0, 4.0, 4.0), "")
    quiet = ((1.0,) * 4, (2.0,) * 4, "")
    assert _speed.pace(looks(busy, busy, busy, busy, quiet), [2.0]).ratios == (2.0,)
    alone = ((6.0, 6.0, 3.0, 3.0), (2.0,) * 4, "")  # only the runs of the build were disturbed
    assert _speed.pace(looks(alone, quiet), [2.0]).ratios == (2.0,)
    assert _speed.pace(looks(*[busy] * _speed.BUSY_LOOKS), [2.0]).ratios == (0.5,)  # and then it is slow


def test_the_worst_of_several_ratios_decides():
    def both(own, first, second):
        return Built([], times=(own,), beside=tuple(Built([], times=(time,)) for time in (first, second))), ""

    rest = iter([(1.2, 2.4, 1.5), (1.0, 2.0, 1.4)])
    assert _speed.pace(lambda: both(*next(rest)), [2.0, 1.4]).ratios == (2.0, 1.4)


def test_a_wrong_output_counts_at_every_look():
    assert _speed.pace(looks(((0.1,), (9.0,), "wrong")), [2.0])[1:] == ("wrong", 0.0, ())
    assert _speed.pace(looks(((2.0,), (3.0,), ""), ((0.1,), (9.0,), "wrong")), [2.0])[1:] == ("wrong", 0.0, ())


def test_no_inputs_come_again_unless_a_seed_says_so():
    one, other = (_speed.drawn([(3, 4), (5,)], runs=4) for _ in range(2))
    assert [part.shape for part in one[0]] == [(3, 4), (5,)] and one[0][0].dtype == np.float32
    assert len({part.tobytes() for arguments in (*one, *other) for part in arguments}) == 16
    same, again = (_speed.drawn([(3,)], runs=1, seed=5) for _ in range(2))
    assert np.array_equal(same[0][0], again[0][0])


def test_a_kernel_that_keeps_its_sums_in_registers_moves_few_numbers(in_own_process):
    result = in_own_process("day08.schedule", traffic)
    few = {"reference", "as_in_the_lesson", "on_one_core", "packed"}
    assert {name for name, moved in result.items() if moved <= 0.5} == few
    assert round(result["as_in_the_lesson"], 4) == (4 + 16) / (4 * 16)
    assert result["one_reorder"] > 3  # a number of B, and a sum loaded and stored again
    assert result["untouched"] == 4 and result["a wide local tile"] > 2
    assert result["the work is elsewhere"] == math.inf  # and a small block, which moves little, adds up something else


# ---------------------------------------------------------------------------------------------------- There


def traffic() -> dict[str, float]:
    """What each known kernel moves for a product."""
    from autograder.answers.day08 import schedule as bank
    from autograder.authoring import answers
    from passlab.exercises.day08.schedule import _traffic

    names = "as_in_the_lesson on_one_core packed untouched one_reorder"
    kernels = {name: getattr(bank, name) for name in names.split()}
    kernels |= {"reference": answers.reference("day08.schedule"), "a wide local tile": _wide}
    kernels |= {"the work is elsewhere": _elsewhere}
    return {name: _traffic(answer(128, 128, 64)["main"], 128 * 128 * 64) for name, answer in kernels.items()}


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


def _elsewhere(n: int, m: int, k: int):
    """The product is in plain loops, beside a block with sums in registers that C does not need."""
    from passlab.relax import tvm

    text = f"""
@T.prim_func(s_tir=True, check_well_formed=False)
def main(A: T.Buffer(({n}, {k}), "float32"), B: T.Buffer(({k}, {m}), "float32"), C: T.Buffer(({n}, {m}), "float32")):
    few = T.sblock_alloc_buffer((64,), "float32", scope="local")
    for r, j in T.grid(2, 64):
        with T.sblock("few"):
            vr, vj = T.axis.remap("RS", [r, j])
            with T.init():
                few[vj] = T.float32(0)
            few[vj] = few[vj] + A[0, vr]
    for i, r, j in T.grid({n}, {k}, {m}):
        C[i, j] = C[i, j] + A[i, r] * B[r, j]
"""
    return tvm.IRModule({"main": tvm.script.from_source(text)})
