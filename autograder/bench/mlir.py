"""`make bench`, part mlir: our loops against IREE, in the same run.

Times are the least of some runs, and both sides take turns, since a shared machine slows down whichever runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from autograder.bench.figures import Figure, at_most, not_measured, versus

SIZE = 512


def mlir(largest: int) -> Iterator[Figure | str]:
    """Yield the figures."""
    from passlab.mlir import modules

    if modules.native() is None:
        yield not_measured("all of it", "iree-base-compiler has no package for this system")
        return
    yield from _loops()
    yield from _lesson()


def _lesson() -> Iterator[Figure | str]:
    from nbclient import NotebookClient

    from autograder.authoring import notebooks
    from autograder.authoring.source import ROOT

    path = ROOT / "course/day09_mlir.py"
    yield f"mlir: {path.name}"
    start = time.perf_counter()
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebooks.notebook(path), timeout=600, kernel_name="python3", resources=where).execute()
    yield at_most("lesson 9: from the start of its kernel to the end", time.perf_counter() - start, 60, " s")


_MATMUL = """func.func @main(%a: MAT, %b: MAT, %r: tensor<NxFLOAT>) -> MAT {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : MAT
  %i = linalg.fill ins(%z : f32) outs(%e : MAT) -> MAT
  %m = linalg.matmul ins(%a, %b : MAT, MAT) outs(%i : MAT) -> MAT
  REST
}"""
_REST = """%v = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%m, %r : MAT, tensor<NxFLOAT>) outs(%e : MAT) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    %t = arith.maximumf %s, %z : f32
    linalg.yield %t : f32
  } -> MAT
  return %v : MAT"""


def _loops() -> Iterator[Figure | str]:
    import numpy as np

    from passlab.mlir import parse, pipeline
    from passlab.mlir.lowering import MATMUL, bufferize, lower
    from passlab.mlir.run import run, seconds

    def program(rest: str) -> Any:
        text = _MATMUL.replace("REST", rest).replace("MAT", "tensor<NxNxFLOAT>")
        return parse(text.replace("NxFLOAT", f"{SIZE}xf32").replace("Nx", f"{SIZE}x"))

    random = np.random.default_rng(0)
    inputs = [random.normal(size=size).astype("f") for size in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,))]
    yield f"mlir: loops of a {SIZE}³ matmul"
    alone = program("return %m : MAT")
    ways = {"IREE": alone, "tiled": lower(bufferize(alone), **MATMUL)}
    times = _least(ways, inputs, run, seconds, rounds=6)
    yield versus(f"{SIZE}³ matmul, one core", times, "tiled", "IREE", 0.5)

    whole = bufferize(program(_REST))
    affine = pipeline(whole, "convert-linalg-to-affine-loops")
    ways = {
        "plain": lower(whole, order=(0, 2, 1)),
        "maximally fused": pipeline(affine, "builtin.module(func.func(affine-loop-fusion{maximal=true}))"),
        "tiled": lower(whole, **MATMUL),
    }
    times = _least(ways, inputs, run, seconds, rounds=2)
    for way in ("maximally fused", "tiled"):
        yield versus(f"{SIZE}³ matmul + bias + relu", times, way, "plain")


def _least(ways: dict[str, Any], inputs: list, run: Any, seconds: Any, rounds: int) -> dict[str, float]:
    """Return the least seconds of each way. All compute the same, or this raises AssertionError."""
    import numpy as np

    expected = None
    for module in ways.values():
        (result,) = run(module, *inputs, checks=False)
        expected = result if expected is None else expected
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    times = dict.fromkeys(ways, math.inf)
    for _ in range(rounds):
        for name, module in ways.items():
            times[name] = min(times[name], *seconds(module, *inputs))
    return times
