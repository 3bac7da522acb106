"""Day 10: loop nests as kernels of TVM, run and compared, for the exercises that generate or reorder loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from passlab import polyhedral
from passlab.building.requests import Built
from passlab.drawing.lattice import spell
from passlab.equivalence.seeds import own_seed
from passlab.exercises._tensorir import foreign
from passlab.judge import Finding
from passlab.polyhedral import tensor_ir
from passlab.relax.cpu import host
from passlab.tvm import builds

Sizes = Mapping[str, int]

#: How often all loops of a function may turn. Those of right answers turn some thousand times.
TURNS = 20_000_000


@dataclass(frozen=True)
class Nest:
    """Loops as text, a schedule for them as isl text, and sizes."""

    source: str
    schedule: str
    sizes: Sizes

    @property
    def program(self) -> polyhedral.Program:
        return polyhedral.parse(self.source)


def kernel(value: Any, program: polyhedral.Program, sizes: Sizes) -> tuple[Any, str | None]:
    """Return the one function of a module, or None; and what is wrong with it, or None."""
    from passlab.relax import tvm

    if isinstance(value, tvm.s_tir.Schedule):
        return None, "Your function returned a Schedule. Return its module: `schedule.mod`."
    if not isinstance(value, tvm.IRModule):
        return (
            None,
            f"Return TensorIR; your function returned {'None' if value is None else f'a {type(value).__name__}'}.",
        )
    functions = list(value.functions.values())
    if len(functions) != 1 or not isinstance(functions[0], tvm.tirx.PrimFunc):
        return None, f"The module must hold one PrimFunc and nothing else; it holds {len(functions)} functions."
    (function,) = functions
    expected = list(program.shapes(sizes).values())
    shapes = [tuple(getattr(size, "value", None) for size in getattr(p.ty, "shape", ())) for p in function.params]
    if shapes != expected or any(str(getattr(p.ty, "dtype", "")) != "float32" for p in function.params):
        right, actual = (", ".join(map(str, each)) for each in (expected, shapes))
        return None, f"The parameters must be float32 arrays of shapes {right}; got {actual}."
    try:
        text = function.script()
    except Exception as error:
        return None, f"TVM cannot print the function: {str(error).strip().splitlines()[-1][:200]}"
    if name := foreign(text):
        return None, f"The function calls code from elsewhere ({name}). Write the loops yourself."
    if not tvm.s_tir.analysis.verify_well_formed(function, False):
        return None, "The function is not well-formed: a variable is used where no loop defines it, or defined twice."
    if shift := next(filter(None, map(_how_shifted, _for_loops(function.body))), None):
        return None, (
            f"{shift}. Let it begin at 0 and count iterations: TVM 0.27 (CanonicalizeLoop) miscompiles nested loops "
            "that do not."
        )
    return function, None


def _for_loops(node: Any) -> Iterator[Any]:
    """Yield the loops of a statement."""
    match type(node).__name__:
        case "For":
            yield node
            inside = [node.body]
        case "SeqStmt":
            inside = list(node.seq)
        case "IfThenElse":
            inside = [part for part in (node.then_case, node.else_case) if part is not None]
        case "SBlockRealize":
            inside = [node.block.body]
        case "AttrStmt":
            inside = [node.body]
        case _:
            inside = []
    for part in inside:
        yield from _for_loops(part)


def _how_shifted(loop: Any) -> str:
    """Return what is wrong with a loop that does not begin at 0, or whose step is not 1, or ""."""
    start = "" if getattr(loop.min, "value", None) == 0 else f"begins at {loop.min}"
    step = "" if loop.step is None or getattr(loop.step, "value", None) == 1 else f"has a step, {loop.step}"
    shifts = " and ".join(filter(None, (start, step)))
    return shifts and f"The loop over {loop.loop_var.name} {shifts}"


def _unordered(function: Any) -> str | None:
    """Return which loop runs its iterations at once, or None."""
    from passlab.relax import tvm

    kinds = tvm.tirx.ForKind
    for loop in _for_loops(function.body):
        if loop.kind not in (kinds.SERIAL, kinds.UNROLLED):
            kind = kinds(loop.kind).name.lower()
            return f"The loop over {loop.loop_var.name} is {kind}: its iterations run at once. Make it serial."
    return None


def run(
    function: Any, runs: Sequence[Mapping[str, np.ndarray]], timed: bool = False, beside: Sequence[Any] = ()
) -> Built:
    """Run a function that changes its arrays, once on those of each run. The outputs are all arrays as it leaves them.

    beside: functions of the same arrays to time it with; see `builds.run_module`.
    """
    inputs, others = [tuple(arrays.values()) for arrays in runs], [_with_copies(other) for other in beside]
    options = {
        "target": str(host()),
        "threads": 1,
        "timed": timed,
        "beside": others,
        "seconds": 10 * (1 + len(others)),
    }
    return builds.run_module(_with_copies(function), inputs, **options)


def _with_copies(function: Any) -> Any:
    """Return the function with a second parameter for each one, into which it copies the first at the end."""
    from passlab.relax import tvm

    tir, s_tir = tvm.tirx, tvm.s_tir
    outputs, copies = [], []
    for parameter in function.params:
        shape = [int(size) for size in parameter.ty.shape]
        output = tir.decl_buffer(shape, "float32", f"{parameter.name}_out", layout=None)
        at = [tir.Var(f"e{axis}", "int32") for axis in range(len(shape))]
        copy = tir.BufferStore(output, tir.BufferLoad(parameter, at), at)
        for variable, size in reversed(list(zip(at, shape, strict=True))):
            copy = tir.For(variable, 0, size, tir.ForKind.SERIAL, copy)
        outputs.append(output)
        copies.append(copy)
    root = s_tir.SBlock([], [], [], "root", tir.SeqStmt([function.body, *copies]))
    both = tir.PrimFunc([*function.params, *outputs], s_tir.SBlockRealize([], True, root))
    return tvm.IRModule({"main": both.with_attrs({"global_symbol": "main", "tirx.noalias": True, "s_tir": True})})


def difference(built: Built, expected: Sequence[Mapping[str, np.ndarray]]) -> str:
    """Return why there are no outputs, or where the arrays after one of the runs differ from those expected, or ""."""
    pairs = zip(expected, built.outputs, strict=not built.error)
    return built.error or next(filter(None, (_difference(outputs, arrays) for arrays, outputs in pairs)), "")


def _difference(outputs: list[np.ndarray], arrays: Mapping[str, np.ndarray]) -> str | None:
    for (name, expected), actual in zip(arrays.items(), outputs, strict=True):
        off = ~np.isclose(actual, expected, rtol=1e-4, atol=1e-5)
        if off.any():
            at = tuple(map(int, np.argwhere(off)[0]))
            where = f"{name}[{', '.join(map(str, at))}]"
            share = f"{int(off.sum())} of {off.size} elements of {name} are wrong"
            return f"{where} is {actual[at]:.6g}; expected {expected[at]:.6g}; {share}."
    return None


def other_order(function: Any, expected: list[tuple[str, tuple[int, ...]]]) -> str | None:
    """Return where a function visits the wrong iterations, or visits them in the wrong order, or None."""
    if unordered := _unordered(function):
        return unordered
    try:
        visits = polyhedral.visits(function, most=2 * len(expected), turns=TURNS)
    except tensor_ir.TooMany as error:
        return f"{error} There should be {len(expected):,} iterations: which loop runs too often?"
    except ValueError as error:
        return str(error)
    if visits == expected:
        return None
    if missing := sorted(set(expected) - set(visits)):
        return f"{spell(missing[0])} never runs; {len(missing)} of {len(expected)} iterations are missing."
    if extra := sorted(set(visits) - set(expected)):
        return f"{spell(extra[0])} runs but is not in the domain; there are {len(extra)} such iterations."
    if len(visits) > len(expected):
        repeated = next(iteration for iteration in visits if visits.count(iteration) > 1)
        return f"{spell(repeated)} runs {visits.count(repeated)} times; each iteration must run once."
    place = next(n for n, (a, b) in enumerate(zip(visits, expected, strict=True)) if a != b)
    right, iteration = spell(expected[place]), spell(visits[place])
    return f"Iteration number {place} in time, counted from 0, should be {right}; it is {iteration}."


def same(function: Any, nest: Nest) -> Finding:
    """Return whether a function leaves all arrays as the loops of its nest do."""
    arrays = polyhedral.random_arrays(nest.program, nest.sizes, own_seed(0))
    wrong = difference(run(function, [arrays]), [polyhedral.reference(nest.program, nest.sizes, arrays)])
    return Finding("same", not wrong, wrong)
