"""Caches and warps: against a simulation in a few lines, against cachegrind, and their pictures."""

from __future__ import annotations

import random

import numpy as np
import pytest

from passlab.drawing.cachelines import sweep, warp
from passlab.drawing.usage import over_time, tradeoff
from passlab.memory import cachegrind
from passlab.memory.cache import Cache, Nest, hits, misses, touched, transactions

MATMUL = Nest("C[i][j] += A[i][k] * B[k][j]", dict.fromkeys("ijk", 24), {name: (24, 24) for name in "ABC"})


def simulated(addresses, size, cache):
    """Whether each access hits, one after the other."""
    sets, results = {}, []
    for at in addresses:
        hit = True
        for line in range(at // cache.line, (at + size - 1) // cache.line + 1):
            lines = sets.setdefault(line % cache.sets, [])
            if line in lines:
                lines.remove(line)
            else:
                hit = False
                del lines[: max(0, len(lines) - cache.ways + 1)]
            lines.append(line)
        results.append(hit)
    return results


@pytest.mark.parametrize("seed", range(60))
def test_hits_are_those_of_a_simulation(seed):
    rng = random.Random(seed)
    cache = Cache(2 ** rng.randint(0, 3), rng.randint(1, 4), 2 ** rng.randint(3, 5))
    addresses = [rng.randint(0, 300) for _ in range(rng.randint(0, 200))]
    size = rng.choice([1, 4, 8])
    assert hits(addresses, size, cache).tolist() == simulated(addresses, size, cache)


@pytest.mark.parametrize("order", ["ijk", "ikj", "jki"])
def test_a_nest_touches_what_its_loops_touch(order):
    size, page, shape = MATMUL.size, Nest.PAGE, 24
    start = {"A": 0, "B": 2 * page, "C": 4 * page}  # 24 · 24 · 8 bytes take two pages
    expected = []
    for turns in np.ndindex(24, 24, 24):
        at = dict(zip(order, turns, strict=True))
        for name, row, column in (("A", "i", "k"), ("B", "k", "j"), ("C", "i", "j"), ("C", "i", "j")):
            expected.append(start[name] + size * (shape * at[row] + at[column]))
    assert MATMUL.addresses(order).tolist() == expected


def test_subscripts_may_be_sums():
    nest = Nest("B[i][j] = A[i-1][j+2]", {"i": (1, 3), "j": 2}, {"A": (3, 4), "B": (3, 4)}, size=4)
    assert nest.addresses("ij").tolist() == [8, 4096 + 16, 12, 4096 + 20, 24, 4096 + 32, 28, 4096 + 36]
    with pytest.raises(ValueError, match="The order names i; the loops are i, j"):
        nest.addresses("i")
    assert Nest("A[i] /= B[i]", {"i": 1}, {"A": (1,), "B": (1,)}).addresses("i").tolist() == [4096, 0, 0]


def test_transactions_of_a_warp():
    assert transactions([4 * lane for lane in range(32)])[:2] == ([0, 1, 2, 3], [0])
    assert transactions([30, None], 4)[:2] == ([0, 1], [0])
    nothing = transactions([None] * 32)
    assert nothing == ([], [], 0.0)
    assert transactions([0] * 32).used == 4 / 32
    assert touched([0, 64], 130, 32) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: transactions([0] * 33), "A warp has 32 lanes; there are 33 addresses"),
        (lambda: transactions([0, -4]), "Lane 1 loads address -4"),
        (lambda: Cache(sets=0), "sets must be at least 1; got 0"),
        (lambda: Cache(line=0), "line must be at least 1; got 0"),
        (lambda: cachegrind.counted(MATMUL, "ijk", Cache(sets=3)), "sets is a power of two; got 3"),
        (lambda: Cache(ways=0), "at least one way; got 0"),
        (lambda: misses([0, -4], 4, Cache()), "Access 1 is to address -4: addresses start at 0"),
        (lambda: misses([0], 100, Cache()), "An access has 1 to 64 bytes, the length of a line; got 100"),
        (lambda: Nest("A[i] + 1", {"i": 2}, {"A": (2,)}), "is not a statement"),
        (lambda: Nest("A[i] = A[2*i]", {"i": 2}, {"A": (4,)}), r"A\[2\*i\]: '2\*i' is not a sum of loops and numbers"),
        (lambda: Nest("A[i] = A[k]", {"i": 2}, {"A": (4,)}), "'k' is not a sum of loops and numbers; the loops are i"),
        (lambda: Nest("A[i] = B[i]", {"i": 2}, {"A": (4,)}), r"B\[i\] is not an access: the arrays are A"),
        (lambda: Nest("A[i] = 1", {"i": 2}, {"A": (4, 4)}), r"A\[i\]: A has the shape \(4, 4\)"),
        (lambda: warp([None] * 32), "No lane is active"),
        (lambda: sweep([(0, 0)], [], (1, 1), 8), "For 1 access there must be as many hits or misses; there are 0"),
        (lambda: sweep([(0, 2)], [True], (1, 2), 8), "is outside of a matrix of 1 × 2"),
        (lambda: over_time({}), "There is no curve to draw"),
        (lambda: tradeoff({"a": []}), "There is no point to draw"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_predicted_misses_are_those_of_cachegrind():
    if reason := cachegrind.missing():
        with pytest.raises(RuntimeError, match="was not found: install it"):
            cachegrind.counted(MATMUL, "ijk", Cache())
        assert reason
        return
    cache = Cache(sets=4, ways=2, line=64)
    for order in ("ijk", "jki"):
        expected = misses(MATMUL.addresses(order), MATMUL.size, cache)
        assert cachegrind.counted(MATMUL, order, cache) == pytest.approx(expected, rel=0.02)
    fills = Nest("B[i][j] = A[j][i]", {"i": 40, "j": 60}, {"A": (60, 40), "B": (40, 60)})  # the cache, from end to end
    assert cachegrind.counted(fills, "ij", Cache()) == pytest.approx(600, rel=0.02)


def test_without_valgrind_there_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert cachegrind.missing().startswith("cc and valgrind was not found: install it")
    for call in (cachegrind.counted, lambda *a: cachegrind.seconds(*a[:2])):
        with pytest.raises(RuntimeError, match="was not found: install it"):
            call(MATMUL, "ijk", Cache())


def test_pictures_draw_and_tell(tmp_path):
    load = warp([4 * lane for lane in range(32)], title="neighbours")
    assert "neighbours: 4 sectors in 1 line, 100% of the bytes in use" in load.text
    assert "byte     32  ████████  lanes 8–15" in load.text and "<svg" in load.svg
    assert "1 sector in 1 line" in warp([0] * 32).text
    assert "and 32 more sectors" not in warp([64 * lane for lane in range(32)]).text
    cells = [(i, j) for i in range(2) for j in range(4)]
    matrix = sweep(cells, [j % 2 == 1 for _, j in cells], (2, 4), 2)
    assert "4 of 8 accesses miss" in matrix.text and "█·█·" in matrix.text and "<svg" in matrix.svg
    steps = over_time({"before": [1, 8, 2], "after": [4, 4], "empty": []}, {"budget": 4})
    assert "before  ▁█▂  peak 8 B" in steps.text and "budget  4 B" in steps.text and "<svg" in steps.svg
    assert "<svg" in tradeoff({"best": [(8, 3.0), (4, 5.0)], "greedy": [(4, 6.0)]}, 2.0).svg
    assert load.save(tmp_path / "warp.png").stat().st_size > 1000
