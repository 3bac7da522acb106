"""`make bench`, part mlir: our fusion against MLIR's own, and our loops against IREE, in the same run.

Times are the least of some runs, and both sides take turns, since a shared machine slows down whichever runs.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from autograder.bench.figures import Figure, at_most, not_measured

PART = "mlir"
MODULES, OPERATIONS, SIZE = 200, 1_000, 512
FUSE = "linalg-fuse-elementwise-ops"


def mlir(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: at most this many operations in a module."""
    from passlab.mlir import modules

    if modules.native() is None:
        yield not_measured(PART, "all of it", "iree-base-compiler has no package for this system")
        return
    yield from _same()
    yield from _zoo()
    for name, source in (("chain", _chain), ("mesh", _layers)):
        yield from _fast(name, source(min(OPERATIONS, largest)))
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
    yield at_most(PART, "lesson 9: from the start of its kernel to the end", time.perf_counter() - start, 60, " s")


def _generics(module: Any) -> int:
    return sum(op.name == "linalg.generic" for op in module.walk())


def _remaining(module: Any) -> Counter:
    """Return the maps and the iterators of a module's generics, each with how many have them.

    The operands are in no order: MLIR's pass and ours put those of a producer in different places. Constants and
    operands that no body reads do not count: MLIR's pass also cleans these up.
    """
    from passlab.mlir import pipeline

    found: Counter = Counter()
    for op in pipeline(module, "canonicalize").walk():  # folds bodies
        if op.name == "linalg.generic":
            *maps, writes = op.properties["indexing_maps"].data
            operands = zip(maps, op.operands, op.regions[0].blocks[0].args, strict=False)
            reads = sorted(
                str(map_)
                for map_, value, element in operands
                if any(True for _ in element.uses) and getattr(value.owner, "name", "") != "arith.constant"
            )
            found[tuple(reads), str(writes), str(op.properties["iterator_types"])] += 1
    return found


def _differ(programs: Iterator[Any]) -> tuple[int, list[int]]:
    """Return in how many modules our fusion and MLIR's leave other generics, and the sums of their numbers."""
    from passlab.mlir import pipeline
    from passlab.mlir.fusing import fuse

    differ, sums = 0, [0, 0, 0]
    for module in programs:
        ours, theirs = fuse(module), pipeline(module, FUSE)
        differ += _remaining(ours) != _remaining(theirs)
        sums = [a + _generics(b) for a, b in zip(sums, (module, ours, theirs), strict=True)]
    return differ, sums


def _same() -> Iterator[Figure | str]:
    from passlab.mlir import pipeline
    from passlab.mlir.generate import random_module

    yield f"mlir: {MODULES} random modules"
    # Canonical before, since MLIR's pass also simplifies bodies, after which a generic may be nothing but a copy.
    programs = (pipeline(random_module(seed), "canonicalize, cse") for seed in range(MODULES))
    differ, (before, ours, theirs) = _differ(programs)
    what = f"{MODULES} random modules in which fusion leaves other generics (maps, iterators) than MLIR's"
    yield at_most(PART, what, differ, 0, "", f"{before} generics: ours {ours}, MLIR's {theirs}")


def _zoo() -> Iterator[Figure | str]:
    from passlab import models
    from passlab.mlir import MLIRError, pipeline
    from passlab.mlir.imports import from_torch

    for name, model in models.ZOO.items():
        yield f"mlir: {name}"
        try:
            arrived = from_torch(model.build(), *model.inputs(1)).module
        except (MLIRError, RuntimeError) as error:
            yield not_measured(PART, f"{name}: fusion beside MLIR's", str(error)[:120])
            continue
        programs = iter([pipeline(arrived, "linalg-generalize-named-ops, canonicalize, cse")])
        differ, (before, ours, theirs) = _differ(programs)
        base = f"{before}: {ours}, {theirs}; {'other' if differ else 'the same'} maps and iterators"
        yield at_most(PART, f"{name}: generics beyond MLIR's, by count", abs(ours - theirs), 0, "", base)


def _fast(name: str, source: str) -> Iterator[Figure | str]:
    """Yield our time against MLIR's. Parsing is in neither; our copy of the module is in ours."""
    from iree.compiler import passmanager

    from passlab.mlir import modules, parse
    from passlab.mlir.fusing import fuse

    module = modules.parse(source) if len(source) < modules.BYTES else parse(source)
    ours, theirs = math.inf, math.inf
    for _ in range(3):
        ours = min(ours, _seconds(lambda: fuse(module)))
        held = modules.to_iree(module)
        run = passmanager.PassManager.parse(f"builtin.module({FUSE})", held.context)
        theirs = min(theirs, _seconds(lambda run=run, held=held: run.run(held.operation)))
    base = f"{ours:.3g} s, MLIR's own {theirs:.3g} s"
    yield at_most(PART, f"fusing {_generics(module):,} generics in a {name} of them", ours / theirs, 2, "x", base)


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


_KIND = "tensor<8x16xf32>"


def _generic(result: str, inputs: list[str], body: str) -> str:
    maps = ", ".join(["affine_map<(i, j) -> (i, j)>"] * (len(inputs) + 1))
    types = ", ".join([_KIND] * len(inputs))
    return (
        f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ['parallel', 'parallel']}} "
        f"ins({', '.join(inputs)} : {types}) outs(%e : {_KIND}) {{\n"
        f"^bb0({', '.join(f'%x{k}: f32' for k in range(len(inputs)))}, %o: f32):\n{body}\n"
        f"linalg.yield %y : f32 }} -> {_KIND}"
    ).replace("'", '"')


def _chain(count: int) -> str:
    """Return a chain of additions, which all become one."""
    lines = [_generic("%v0", ["%a", "%b"], "%y = arith.addf %x0, %x1 : f32")]
    lines += [_generic(f"%v{n}", [f"%v{n - 1}", "%b"], "%y = arith.addf %x0, %x1 : f32") for n in range(1, count)]
    return _function(lines, f"%v{count - 1}")


def _layers(count: int) -> str:
    """Stretches of five, each of whose last values is read twice, so that it stays."""
    lines, last = [], "%a"
    for n in range(count):
        inputs = [last, "%b"] if n % 5 else [last, f"%v{n - 2}" if n > 5 else "%b"]
        lines.append(_generic(f"%v{n}", inputs, "%y = arith.mulf %x0, %x1 : f32"))
        last = f"%v{n}"
    return _function(lines, last)


def _function(lines: list[str], returned: str) -> str:
    body = "\n".join(lines)
    head = f"func.func @main(%a: {_KIND}, %b: {_KIND}) -> {_KIND}"
    return f"{head} {{\n%e = tensor.empty() : {_KIND}\n{body}\nreturn {returned} : {_KIND}\n}}"


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
    base = f"tiled {times['tiled'] * 1e3:.3g} ms, IREE {times['IREE'] * 1e3:.3g} ms, one core"
    yield at_most(PART, f"{SIZE}³ matmul: lowered and tiled against IREE", times["tiled"] / times["IREE"], 2, "x", base)

    whole = bufferize(program(_REST))
    affine = pipeline(whole, "convert-linalg-to-affine-loops")
    ways = {
        "plain": lower(whole, order=(0, 2, 1)),
        "maximally fused": pipeline(affine, "builtin.module(func.func(affine-loop-fusion{maximal=true}))"),
        "tiled": lower(whole, **MATMUL),
    }
    times = _least(ways, inputs, run, seconds, rounds=2)
    base = ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in times.items())
    ratio = times["maximally fused"] / times["plain"]
    yield Figure(PART, f"{SIZE}³ matmul + bias + relu: maximal fusion loses", f"{ratio:.3g}x", base, value=ratio)


def _least(ways: dict[str, Any], inputs: list, run: Any, seconds: Any, rounds: int) -> dict[str, float]:
    """Return the least seconds of each way. All compute the same, or this raises AssertionError."""
    import numpy as np

    wanted = None
    for module in ways.values():
        (found,) = run(module, *inputs, checks=False)
        wanted = found if wanted is None else wanted
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    times = dict.fromkeys(ways, math.inf)
    for _ in range(rounds):
        for name, module in ways.items():
            times[name] = min(times[name], *seconds(module, *inputs))
    return times
