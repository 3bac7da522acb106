"""Matrix products on a mesh of cores: real blocks, right results, and sentences for wrong steps."""

from __future__ import annotations

import numpy as np
import pytest

from passlab.wafer import Machine
from passlab.wafer.matmul import ALGORITHMS, Move, blocks_used, fold, run, shift


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_product_is_the_product(name, n):
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-99, 99, (3 * n, 3 * n)) for _ in range(2))
    result = run(Machine(n, n), ALGORITHMS[name](n), a, b)
    assert (result.c == a @ b).all()
    assert result.work == 27 and len(result.messages) == n


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_a_folded_ring_has_its_neighbours_at_most_two_links_apart(n):
    ring = fold(n)
    assert sorted(ring) == list(range(n))
    assert max(abs(ring[i] - ring[i - 1]) for i in range(n)) <= 2


def test_ways_grow_with_the_mesh_unless_the_ring_is_folded():
    a = np.eye(32)
    ways = {name: run(Machine(16, 16), steps(16), a, a) for name, steps in ALGORITHMS.items()}
    assert {name: item.hops for name, item in ways.items()} == {"summa": 15, "cannon": 15, "shift": 2}
    assert sum(ways["shift"].messages) < min(sum(ways[name].messages) for name in ("summa", "cannon"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda steps: [[], *steps[1:]], "In step 0, core (0, 1) has A[0, 1] and B[0, 1]: not a part of its C."),
        (lambda steps: steps[:-1], "Core (0, 0) never multiplies A[0, 1] and B[1, 0]."),
        (lambda steps: [*steps, []], "In step 3, core (0, 0) multiplies A[0, 1] and B[1, 0] again."),
        (lambda steps: [[Move("A", (0, 0), ((0, 1),))], *steps[1:]], "In step 0, core (0, 0) has no block of A."),
    ],
    ids=["no skew", "too few", "too many", "lost block"],
)
def test_wrong_steps_get_a_sentence(change, told):
    with pytest.raises(ValueError) as error:
        blocks_used(Machine(3, 3), change(shift(3)))
    assert str(error.value) == told


def test_a_core_sends_what_it_has():
    steps = [[Move("A", (0, 0), ((0, 1),))], [Move("A", (0, 0), ((0, 1),))]]
    with pytest.raises(ValueError, match=r"core \(0, 0\) has no block of A"):
        blocks_used(Machine(2, 2), steps)


def test_matrices_must_fit_the_mesh():
    with pytest.raises(ValueError, match="not square matrices in 2 × 2 blocks"):
        run(Machine(2, 2), shift(2), np.eye(4), np.eye(6))
