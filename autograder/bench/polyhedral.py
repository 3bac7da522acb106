"""`make bench`, part polyhedral: isl schedules, compiled through TensorIR, against the loops as written.

TVM gets a separate process, since a process can hold only one. Candidates take turns, and the least time of each
counts. On a busy machine the second core gains nothing: repeat the part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from autograder.bench.figures import Figure, apart, at_most, versus

ROUNDS = 5


def polyhedral(largest: int) -> Iterator[Figure | str]:
    yield "schedules of isl: starting"
    yield from apart(figures)


def figures() -> Iterator[Figure | str]:
    yield from matmul()
    yield from jacobi()


def matmul() -> Iterator[Figure | str]:
    """Time matmul 1024³ with the reference answer of day10.tile, and with plain rows for comparison."""
    import numpy as np

    from autograder.authoring.answers import reference
    from passlab.polyhedral import PROGRAMS, distribute, interchange, legal, random_arrays

    program, sizes = PROGRAMS["matmul"], {"M": 1024, "N": 1024, "K": 1024}
    rows = interchange(distribute(program.schedule, 2, 2), 2, 3)  # [0 or 1, i, k, j]
    schedule, marks = reference("day10.tile")(program, sizes)
    assert legal(program, schedule)
    arrays = random_arrays(program, sizes)
    candidates = {
        "the naive nest": kernel(program, program.schedule, sizes),
        "i, k, j": kernel(program, rows, sizes),
        "tiled": kernel(program, schedule, sizes, **marks),
    }
    yield "matmul 1024³: timing"
    times, results = least(candidates, arrays, 3)
    expected = arrays["A"] @ arrays["B"]
    off = float(np.abs(results["tiled"]["C"] - expected).max() / expected.max())
    yield at_most("matmul 1024³, tiled: largest difference to NumPy / largest", off, 1e-5, "")
    yield versus("matmul 1024³", times, "tiled", "the naive nest", 15)
    yield versus("matmul 1024³", times, "i, k, j", "the naive nest")


def jacobi() -> Iterator[Figure | str]:
    """Time jacobi: 64 steps over 8 M floats, far more than the caches hold, in two alternating rows."""
    import numpy as np

    from passlab.polyhedral import PROGRAMS, interchange, legal, random_arrays, skew, tile

    program, sizes = PROGRAMS["jacobi1d_two_rows"], {"T": 64, "N": 8_000_000}
    tiles = tile(skew(program.schedule, 1, 0), [0, 1], [32, 32768])
    fronts = interchange(skew(tiles, 1, 0), 0, 1)  # [tile of t + tile of i, tile of t, t, t + i]
    assert legal(program, fronts)
    arrays = random_arrays(program, sizes)
    candidates = {
        "the plain loop": kernel(program, program.schedule, sizes),
        "skewed and tiled": kernel(program, tiles, sizes),
        "skewed, tiled, parallel": kernel(program, fronts, sizes, parallel=[1]),
    }
    yield "jacobi: timing"
    times, results = least(candidates, arrays, ROUNDS)
    same = np.array_equal(results["the plain loop"]["A"], results["skewed, tiled, parallel"]["A"])
    yield Figure("jacobi: equal to the plain loop, bit by bit", str(same), "", "True", same)
    yield versus("jacobi, 64 × 8 M", times, "skewed, tiled, parallel", "the plain loop", 2)
    yield versus("jacobi, 64 × 8 M", times, "skewed and tiled", "the plain loop")


def kernel(program: Any, schedule: Any, sizes: dict, **marks: Any) -> Callable[..., None]:
    from passlab.polyhedral import prim_func
    from passlab.relax import tvm
    from passlab.relax.pipelines import host

    return tvm.compile(prim_func(program, schedule, sizes, **marks), host())["main"]


def least(candidates: dict, arrays: dict, rounds: int) -> tuple[dict[str, float], dict[str, dict]]:
    """Return name → least seconds of a run, and name → arrays after the first run."""
    from passlab.relax import tvm

    times: dict[str, float] = {}
    results = {}
    for _ in range(rounds):
        for name, function in candidates.items():
            tensors = {array: tvm.runtime.tensor(value) for array, value in arrays.items()}
            start = time.perf_counter()
            function(*tensors.values())
            times[name] = min(times.get(name, float("inf")), time.perf_counter() - start)
            results.setdefault(name, {array: tensor.numpy() for array, tensor in tensors.items()})
    return times, results
