"""Day 8, exercise 4: cases and judge of a scheduled matmul. Everything is built and timed by the judge itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from passlab.building.requests import Built
from passlab.equivalence.seeds import own_seed
from passlab.exercises._speed import drawn, first_wrong, pace
from passlab.exercises._tensorir import foreign, why_not_one_kernel
from passlab.judge import Case, Finding
from passlab.measure import seconds
from passlab.relax.cpu import host
from passlab.tvm import builds

#: The required speedup over the naive loop nest, and over the nest in the order i, r, j: rows of B, but no tiles.
NAIVE, ROWS = 8.0, 1.4
#: No vector may have more numbers. Registers hold 4 to 16; TVM takes much longer ones apart, number by number.
LANES = 64
#: A kernel that reads and writes at most TRAFFIC numbers in memory for a product, and keeps at most SUMS sums in
#: registers, need not be faster than the rows: how much it gains there depends on the width of the machine's vectors.
TRAFFIC, SUMS = 0.5, 512


@dataclass(frozen=True)
class Sizes:
    """C (n×m) = A (n×k) · B (k×m). `timed`: the case asks how fast it is."""

    n: int
    m: int
    k: int
    timed: bool = False


def schedule_case(n: int, m: int, k: int, timed: bool = False) -> Case:
    about = ("valid", "same", "did", "cost") if timed else ("valid", "same", "cost")
    return Case(f"{n} × {k} by {k} × {m}", lambda: (n, m, k), about, expect=Sizes(n, m, k, timed))


def cases() -> list[Case]:
    return [
        schedule_case(320, 320, 320, timed=True),
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


def by_rows(n: int, m: int, k: int) -> Any:
    """Return the nest in the order i, r, j, in which all loads and stores are along rows."""
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(naive(n, m, k))
    block = schedule.get_sblock("C")
    i, j, r = schedule.get_loops(block)
    schedule.reorder(i, r, j)
    schedule.decompose_reduction(block, r)
    return schedule.mod["main"]


def judge(case: Case, value: object) -> Iterator[Finding]:
    sizes: Sizes = case.expect
    module, broken = _module(value, sizes)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    if not sizes.timed:
        wrong = _compared(module, drawn(_shapes(sizes), 1, seed=own_seed(sizes.n)))[1]
        yield Finding("same", not wrong, wrong)
        long = _why_too_long(module["main"])
        yield Finding("cost", not long, long)
        return
    frugal = _traffic(module["main"], sizes.n * sizes.m * sizes.k) <= TRAFFIC
    nests = [_alone(nest(sizes.n, sizes.m, sizes.k)) for nest in (naive, *(() if frugal else (by_rows,)))]
    _, wrong, took, ratios = pace(
        lambda: _compared(module, drawn(_shapes(sizes)), timed=True, beside=nests), (NAIVE, ROWS)[: len(nests)]
    )
    yield Finding("same", not wrong, wrong)
    if wrong:
        return
    times = f"On one thread your kernel takes {seconds(took)}, the naive loop nest {seconds(took * ratios[0])}"
    slow = "" if ratios[0] >= NAIVE else f"{times}: {ratios[0]:.1f} times as fast; {NAIVE:g} times is required."
    yield Finding("did", not slow, slow)
    short = _why_too_long(module["main"])
    if not short and not frugal and ratios[1] < ROWS:
        short = (
            f"{times}, the loops in the order i, r, j {seconds(took * ratios[1])}: {ratios[1]:.1f} times as fast as "
            f"these; at least {ROWS:g} times is required. Which numbers are loaded or stored again that a register "
            "could keep?"
        )
    short = short or slow
    yield Finding("cost", not short, short)


def _why_too_long(function: Any) -> str:
    """Return why a kernel's longest vector is too long, or ""."""
    longest = max(_vectors(function), default=1)
    if longest <= LANES:
        return ""
    return (
        f"A loop of {longest} turns is one vector, but a register of this machine holds {_lanes()} numbers. Longer "
        f"vectors are taken apart, and can be slower than none. Split the loop first: at most {LANES} are allowed."
    )


def _vectors(function: Any) -> list[int]:
    """Return the lengths of a kernel's vectors: of loops, and of ramps written by hand."""
    from passlab.relax import tvm

    loops = _every(tvm.tirx.For, function.body)
    vectors = [int(loop.extent) for loop in loops if int(loop.kind) == tvm.tirx.ForKind.VECTORIZED]
    return vectors + [int(ramp.lanes) for ramp in _every(tvm.tirx.Ramp, function.body)]


def _every(kind: type, node: Any) -> list[Any]:
    """Return all nodes of a kind in a statement or an expression."""
    import tvm_ffi

    parts: list[Any] = []
    tvm_ffi.structural_walk(node, (kind, parts.append), order="post")
    return parts


def _traffic(function: Any, products: int) -> float:
    """Return how many numbers in memory a kernel reads and writes for each product that it adds to a sum.

    Inside the loop over the sum, what an access does not depend on is loaded once: a row of A for all columns of a
    tile. Sums in a small local buffer stay in registers meanwhile. Infinite where the blocks that add up do not turn
    once for each of the products: then others compute them.
    """
    from passlab.tvm.tensorir import blocks

    costs = [(_block_traffic(loops, realized), loops) for loops, realized in blocks(function.body)]
    sums = [(cost, math.prod(map(_turns, loops))) for cost, loops in costs if cost is not None]
    if not all(math.isfinite(turns) for _, turns in sums) or sum(turns for _, turns in sums) < products:
        return math.inf
    return max(cost for cost, _ in sums)


def _block_traffic(loops: tuple, realized: Any) -> float | None:
    """Return the traffic of a block that adds up, None for another one."""
    from passlab.relax import tvm

    store = realized.block.body
    if not isinstance(store, tvm.tirx.BufferStore):
        return math.inf
    loads = _every(tvm.ir.TensorLoad, store.value)
    others = [load for load in loads if not load.source.same_as(store.buffer)]
    if len(others) == len(loads):
        return None
    values = {axis.var: value for axis, value in zip(realized.block.iter_vars, realized.iter_values, strict=True)}
    turns = [(loop.loop_var, _turns(loop)) for loop in loops]

    def reached(access: Any, turns: list) -> float:
        """Return how many numbers an access reaches in some loops."""
        used = {var for at in access.indices for name in _every(tvm.ir.Var, at) for var in _variables(values, name)}
        return math.prod(extent for variable, extent in turns if variable in used)

    over = [at for at, turn in enumerate(turns) if turn[1] > 1 and reached(store, [turn]) == 1]
    if not over:
        return None
    inner = turns[over[-1] + 1 :]
    in_registers = store.buffer.scope() == "local" and reached(store, turns[over[0] :]) <= SUMS
    accesses = others if in_registers else [store, store, *others]  # a sum is loaded, and stored again
    return sum(reached(access, inner) for access in accesses) / math.prod(extent for _, extent in inner)


def _turns(loop: Any) -> float:
    """Return how often a loop turns; infinity if that is not a number."""
    return getattr(loop.extent, "value", math.inf)


def _variables(values: dict, name: Any) -> list[Any]:
    """Return the loop variables behind a variable of a block."""
    from passlab.relax import tvm

    return _every(tvm.ir.Var, values[name]) if name in values else [name]


def _lanes() -> int:
    """Return how many float32 numbers a register of this machine holds."""
    from passlab.relax import tvm

    return tvm.target.codegen.llvm_get_vector_width(host()) // 32


def _module(value: Any, sizes: Sizes) -> tuple[Any, str | None]:
    """Return the kernel as a module with main, or None; and what is wrong with it, or None."""
    from passlab.relax import tvm

    if isinstance(value, tvm.s_tir.Schedule):
        return None, "Your function returned a Schedule. Return its module: `schedule.mod`."
    if reason := why_not_one_kernel(value, "an IRModule with the scheduled PrimFunc (`schedule.mod`)"):
        return None, reason
    (function,) = value.functions.values()
    expected = [(sizes.n, sizes.k), (sizes.k, sizes.m), (sizes.n, sizes.m)]
    types = [parameter.ty for parameter in function.params]
    actual = [tuple(getattr(size, "value", None) for size in getattr(t, "shape", ())) for t in types]
    if actual != expected or any(str(getattr(t, "dtype", "")) != "float32" for t in types):
        shapes = ", ".join(map(str, actual))
        return (
            None,
            f"The parameters must be A, B and C, float32 of shapes {', '.join(map(str, expected))}; got {shapes}.",
        )
    try:
        text = function.script()
    except Exception as error:
        return None, f"TVM cannot print the kernel: {str(error).strip().splitlines()[-1][:200]}"
    if name := foreign(text):
        return None, f"The kernel calls code from elsewhere ({name}). Write the loops yourself."
    return _alone(function), None


def _alone(function: Any) -> Any:
    from passlab.relax import tvm

    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _compared(module: Any, inputs: Sequence[tuple], **options: Any) -> tuple[Built, str]:
    """Return the build of a kernel, and which of its outputs is wrong, or ""."""
    built = builds.run_module(module, inputs, target=str(host()), threads=1, seconds=30, **options)
    return built, first_wrong(built, inputs, lambda outputs, ab: _difference(*outputs, *ab))


def _shapes(sizes: Sizes) -> tuple:
    return (sizes.n, sizes.k), (sizes.k, sizes.m)


def _difference(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> str | None:
    """Return where C is not A · B, or None. The bound is that of float32 sums in any order."""
    want = a.astype(np.float64) @ b
    bound = 4 * np.finfo(np.float32).eps * math.sqrt(a.shape[1]) * (np.abs(a).astype(np.float64) @ np.abs(b) + 1)
    off = ~(np.abs(c - want) <= bound)
    if not off.any():
        return None
    i, j = map(int, np.argwhere(off)[0])
    never = " It was never written." if np.isnan(c[i, j]) else ""
    share = f"{int(off.sum())} of {off.size} elements are wrong"
    return f"C[{i}, {j}] is {c[i, j]:.6g}; expected {want[i, j]:.6g}; {share}.{never}"
