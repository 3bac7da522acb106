"""Day 8, exercise 4: cases and judge of a scheduled matmul. Everything is built and timed by the judge itself."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from passlab.exercises._tensorir import FOREIGN, host_target
from passlab.judge import Case, Finding
from passlab.measure import seconds
from passlab.tvm import builds

#: Speedup over the naive loop nest: what counts as a schedule at all, and what is required.
SOME, ENOUGH = 2.5, 8.0
#: The required share of the speed of torch.matmul on the same cores.
SHARE = 0.08
#: Another program may take a core in the middle of a measurement: only several failures in a row are one.
ROUNDS = 3


@dataclass(frozen=True)
class Sizes:
    """C (n×m) = A (n×k) · B (k×m). `timed`: the case asks how fast it is."""

    n: int
    m: int
    k: int
    timed: bool = False


def schedule_case(n: int, m: int, k: int, timed: bool = False) -> Case:
    about = ("valid", "same", "did", "cost") if timed else ("valid", "same")
    return Case(f"{n} × {k} by {k} × {m}", lambda: (n, m, k), about, expect=Sizes(n, m, k, timed))


def cases() -> list[Case]:
    return [
        schedule_case(256, 256, 256, timed=True),
        schedule_case(97, 131, 53),
        schedule_case(1, 7, 3),
        schedule_case(64, 40, 257),
    ]


def naive(n: int, m: int, k: int) -> Any:
    """Return the loop nest as in a textbook."""
    from passlab.relax import tvm

    te = tvm.te
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "r")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")])


def judge(case: Case, value: object) -> Iterator[Finding]:
    sizes: Sizes = case.expect
    module, broken = _module(value, sizes)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    rng = np.random.default_rng(sizes.n)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((sizes.n, sizes.k), (sizes.k, sizes.m)))
    built = _run(module, a, b, 5 if sizes.timed else 0)
    wrong = built.error or _difference(built.outputs[0][0], a, b)
    yield Finding("same", not wrong, wrong or "")
    if wrong or not sizes.timed:
        return
    mine, plain, blas = _times(module, built, a, b)
    seen = f"Your kernel takes {seconds(mine)}, the naive loop nest {seconds(plain)}, torch.matmul {seconds(blas)}"
    yield Finding(
        "did", plain / mine >= SOME, f"{seen}: it must be at least {SOME:g} times as fast to count as a schedule."
    )
    short = ""
    if plain / mine < ENOUGH:
        short = f"{seen}: {plain / mine:.1f} times as fast as the naive nest; at least {ENOUGH:g} times is required."
    elif blas / mine < SHARE:
        short = f"{seen}: {blas / mine:.0%} of torch's speed; at least {SHARE:.0%} is required."
    yield Finding("cost", not short, short)


def _module(value: Any, sizes: Sizes) -> tuple[Any, str | None]:
    """Return the kernel as a module with main, or None; and what is wrong with it, or None."""
    from passlab.relax import tvm

    if isinstance(value, tvm.s_tir.Schedule):
        return None, "Your function returned a Schedule. Return its module: `schedule.mod`."
    if not isinstance(value, tvm.IRModule):
        return (
            None,
            f"Return an IRModule with the scheduled PrimFunc (`schedule.mod`); yours is {type(value).__name__}.",
        )
    functions = list(value.functions.values())
    if len(functions) != 1 or not isinstance(functions[0], tvm.tirx.PrimFunc):
        return None, f"The module must hold one PrimFunc and nothing else; it holds {len(functions)} functions."
    function = functions[0]
    expected = [(sizes.n, sizes.k), (sizes.k, sizes.m), (sizes.n, sizes.m)]
    types = [parameter.ty for parameter in function.params]
    found = [tuple(getattr(size, "value", None) for size in getattr(t, "shape", ())) for t in types]
    if found != expected or any(str(getattr(t, "dtype", "")) != "float32" for t in types):
        shapes = ", ".join(map(str, found))
        return (
            None,
            f"The parameters must be A, B and C, float32 of shapes {', '.join(map(str, expected))}; got {shapes}.",
        )
    try:
        text = function.script()
    except Exception as error:
        return None, f"TVM cannot print the kernel: {str(error).strip().splitlines()[-1][:200]}"
    if foreign := [name for name in FOREIGN if name in text]:
        return None, f"The kernel calls code from elsewhere ({foreign[0]}). Write the loops yourself."
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), None


def _run(module: Any, a: np.ndarray, b: np.ndarray, repeats: int) -> builds.Built:
    return builds.run_module(module, [(a, b)], target=host_target(), repeats=repeats, seconds=15)


def _difference(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> str | None:
    """Return where C is not A · B, or None. The bound is that of float32 sums in any order."""
    want = a.astype(np.float64) @ b
    bound = 4 * np.finfo(np.float32).eps * math.sqrt(a.shape[1]) * (np.abs(a).astype(np.float64) @ np.abs(b) + 1)
    off = ~(np.abs(c - want) <= bound)
    if not off.any():
        return None
    i, j = map(int, np.argwhere(off)[0])
    never = " It was never written." if np.isnan(c[i, j]) else ""
    many = f"{int(off.sum())} of {off.size} elements are wrong"
    return f"C[{i}, {j}] is {c[i, j]:.6g}; expected {want[i, j]:.6g}; {many}.{never}"


def _times(module: Any, first: builds.Built, a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Return the least times of the kernel, the naive one and torch; repeat until the kernel is fast enough."""
    import torch

    from passlab.relax import tvm

    left, right = torch.from_numpy(a), torch.from_numpy(b)
    textbook = naive(a.shape[0], b.shape[1], a.shape[1])
    plain_module = tvm.IRModule({"main": textbook.with_attr("global_symbol", "main")})
    mine, plain, blas = min(first.times), math.inf, math.inf
    for again in range(ROUNDS):
        if again:
            mine = min(mine, *_run(module, a, b, 10).times)
        plain = min(plain, *_run(plain_module, a, b, 3).times)
        for _ in range(10):
            start = time.perf_counter()
            torch.matmul(left, right)
            blas = min(blas, time.perf_counter() - start)
        if plain / mine >= ENOUGH and blas / mine >= SHARE:
            break
    return mine, plain, blas
