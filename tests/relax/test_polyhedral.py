"""Schedules of loop nests, built and run by TVM."""

from __future__ import annotations

import numpy as np
import pytest

from passlab.polyhedral import (
    PROGRAMS,
    compiled,
    distribute,
    interchange,
    order,
    prim_func,
    random_arrays,
    reference,
    skew,
    tile,
    visits,
)
from passlab.relax import tvm
from passlab.tvm import builds

SIZES = {"R": 3, "T": 5}


def wavefront():
    tiles = tile(skew(PROGRAMS["jacobi1d"].schedule, 1, 0), [0, 1], [2, 16])
    return interchange(skew(tiles, 1, 0), 0, 1)


def found(name, schedule, sizes, **marks) -> dict:
    """Compare what the compiled function computes, and its order of iterations, with the source and the schedule."""
    program = PROGRAMS[name]
    arrays = random_arrays(program, sizes)
    if name in ("lu", "trisolve"):
        arrays["A" if name == "lu" else "L"] += 10 * np.eye(sizes["N"], dtype="float32")
    want, actual = reference(program, sizes, arrays), compiled(program, schedule, sizes, arrays, **marks)()
    function = prim_func(program, schedule, sizes, **marks)
    return {
        "equal": all(np.allclose(want[array], actual[array], rtol=1e-4) for array in arrays),
        "changed": any(not np.array_equal(want[array], arrays[array]) for array in arrays),
        "order": visits(function) == order(program, schedule, sizes),
        "marks": sorted({word for word in ("parallel", "vectorized", "unroll") if f"T.{word}(" in function.script()}),
    }


def sizes_of(name) -> dict:
    return {parameter: SIZES.get(parameter, 7) for parameter in PROGRAMS[name].parameters}


@pytest.fixture(scope="module")
def built() -> dict:
    """Name → what came of it."""
    results = {name: found(name, program.schedule, sizes_of(name)) for name, program in PROGRAMS.items()}
    nests = distribute(PROGRAMS["matmul"].schedule, 2, 2)
    register = interchange(interchange(tile(tile(nests, [1, 2, 3], [8, 16, 4]), [4, 5], [2, 8]), 6, 8), 7, 8)
    marks = {"parallel": [1], "unroll": [7], "vectorize": [8]}
    results["matmul tiled"] = found("matmul", register, {"M": 16, "N": 32, "K": 8}, **marks)
    results["matmul tiled, cut off"] = found("matmul", register, {"M": 13, "N": 35, "K": 7}, **marks)
    cut_off = prim_func(PROGRAMS["matmul"], register, {"M": 13, "N": 35, "K": 7}, vectorize=[8]).script()
    results["whole tiles"] = {"vectors of 8": "T.vectorized(8)" in cut_off, "others": cut_off.count("T.vectorized(")}
    results["wavefront"] = found("jacobi1d", wavefront(), {"T": 6, "N": 40}, parallel=[1])
    rows = tile(wavefront(), [3], [4])
    results["wavefront, vectors"] = found("jacobi1d", rows, {"T": 6, "N": 40}, vectorize=[4])
    columns = interchange(tile(skew(skew(PROGRAMS["jacobi2d"].schedule, 1, 0), 2, 0), [0, 1, 2], [2, 4, 4]), 4, 5)
    results["jacobi2d tiled"] = found("jacobi2d", columns, {"T": 4, "N": 9})
    results["steps"] = found("copy", "{ S[i, j] -> [-2i, 3j] }", {"N": 5})

    program, sizes = PROGRAMS["two_loops"], {"N": 6}
    arrays = random_arrays(program, sizes)
    ran = builds.run_module(
        prim_func(program, program.schedule, sizes, dtype="float64"),
        [[array.astype("float64") for array in arrays.values()]],
    )
    results["through builds"] = {"error": ran.error}

    schedule = tvm.s_tir.Schedule(prim_func(PROGRAMS["matmul"], nests, {"M": 8, "N": 8, "K": 8}))
    block = schedule.get_sblock("T")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 4])
    schedule.reorder(outer, i, k, inner)
    own = interchange(interchange(tile(nests, [2], [4]), 1, 2), 3, 4)
    ran = [instance for instance in visits(schedule.mod["main"]) if instance[0] == "T"]
    own = [instance for instance in order(PROGRAMS["matmul"], own, {"M": 8, "N": 8, "K": 8}) if instance[0] == "T"]
    results["TVM's primitives"] = {"order": ran == own, "instances": len(ran)}

    jacobi = tvm.s_tir.Schedule(prim_func(PROGRAMS["jacobi1d"], PROGRAMS["jacobi1d"].schedule, {"T": 4, "N": 8}))
    try:
        jacobi.reorder(*reversed(jacobi.get_loops(jacobi.get_sblock("S"))))
        results["TVM on jacobi"] = {"refused": False}
    except tvm.s_tir.schedule.ScheduleError:
        results["TVM on jacobi"] = {"refused": True}

    variable = tvm.tirx.Var("n", "int32")
    loop = tvm.tirx.For(tvm.tirx.Var("i", "int32"), 0, variable, tvm.tirx.ForKind.SERIAL, tvm.tirx.Evaluate(0))
    try:
        visits(tvm.tirx.PrimFunc([variable], loop))
    except ValueError as error:
        results["unknown bound"] = {"said": str(error)}
    return results


MARKED = {
    "matmul tiled": ["parallel", "unroll", "vectorized"],
    "matmul tiled, cut off": ["parallel", "unroll", "vectorized"],
    "wavefront": ["parallel"],
    "wavefront, vectors": ["vectorized"],
    "jacobi2d tiled": [],
    "steps": [],
}


@pytest.mark.parametrize("name", [*PROGRAMS, *MARKED])
def test_tensor_ir_computes_the_same_and_visits_in_order(built, name):
    assert built[name] == {"equal": True, "changed": True, "order": True, "marks": MARKED.get(name, [])}


def test_tensor_ir_elsewhere(built):
    result = built
    assert result["whole tiles"] == {"vectors of 8": True, "others": 2}
    assert result["through builds"] == {"error": ""}
    assert result["TVM's primitives"] == {"order": True, "instances": 512}
    assert result["TVM on jacobi"] == {"refused": True}
    assert result["unknown bound"] == {"said": "The variable n has no value before the function runs."}
