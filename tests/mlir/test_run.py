"""Modules of MLIR run by IREE, as C and by xDSL's interpreter: all as NumPy computes, and errors are sentences."""

import math
import shutil

import numpy as np
import pytest

from passlab.mlir import MLIRError, parse, pipeline
from passlab.mlir.run import run, run_all, seconds
from tests.support.flavours import python

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

BUFFERS = "one-shot-bufferize{bufferize-function-boundaries=1}"
MAPS = "affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1, d0)>"


def elementwise(kind, body):
    """A module of a ?×? and a ? array to the transposed result of a body on %x and %y."""
    tensor, row = f"tensor<?x?x{kind}>", f"tensor<?x{kind}>"
    return parse(f"""
        func.func @main(%a: {tensor}, %b: {row}, %e: {tensor}) -> {tensor} {{
          %r = linalg.generic {{indexing_maps = [{MAPS}], iterator_types = ["parallel", "parallel"]}}
            ins(%a, %b : {tensor}, {row}) outs(%e : {tensor}) {{
          ^bb0(%x: {kind}, %y: {kind}, %o: {kind}):
            {body}
            linalg.yield %z : {kind}
          }} -> {tensor}
          return %r : {tensor}
        }}""")


CASES = {
    "f32": ("float32", "%z = arith.mulf %x, %y : f32", lambda x, y: x * y),
    "f64": ("float64", "%m = arith.addf %x, %y : f64\n%z = math.exp %m : f64", lambda x, y: np.exp(x + y)),
    "i8": ("int8", "%z = arith.muli %x, %y : i8", lambda x, y: x * y),
    "i32": ("int32", "%z = arith.subi %x, %y : i32", lambda x, y: x - y),
    "i64": ("int64", "%z = arith.muli %x, %y : i64", lambda x, y: x * y),
    "i1": ("bool", "%z = arith.xori %x, %y : i1", np.logical_xor),
}


@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (0, 4)], ids=str)
@pytest.mark.parametrize("kind", CASES)
def test_all_ways_compute_what_numpy_does(kind, shape):
    dtype, body, expected = CASES[kind]
    random = np.random.default_rng(1)
    x, y = ((random.normal(size=size) * 60).astype(dtype) for size in (shape, shape[1:]))
    module, out = elementwise(kind, body), np.zeros(shape[::-1], dtype)
    want = expected(x, y).T
    results = {"iree": run(module, x, y, out)[0]} if 0 not in shape else {}  # IREE's runtime takes no empty tensors
    results["c"] = run(pipeline(module, BUFFERS), x, y, out)[0]
    if kind != "i1":
        results["interpreter"] = run(module, x, y, out, by="interpreter")[0]
    for way, value in results.items():
        assert value.dtype == dtype and value.shape == want.shape, way
        np.testing.assert_allclose(value, want, rtol=1e-6, err_msg=way)


#: Operation on integers, or floats → what NumPy says.
OPERATIONS = {
    "divsi": lambda x, y: np.trunc(x / y),
    "remsi": np.fmod,
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda x, y: -np.floor_divide(-x, y),
    "maxsi": np.maximum,
    "minui": lambda x, y: np.minimum(x.view("u4"), y.view("u4")),
    "divui": lambda x, y: x.view("u4") // y.view("u4"),
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "remf": np.fmod,
    "cmpi slt,": np.less,
    "cmpi ugt,": lambda x, y: x.view("u4") > y.view("u4"),
    "cmpf one,": lambda x, y: (x != y) & ~np.isnan(x) & ~np.isnan(y),
    "cmpf ult,": lambda x, y: ~(x >= y),
    "cmpf ord,": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
}


def test_operations_on_numbers_in_c():
    """All in one program: a function that returns each result."""
    floats = np.array([1.5, -2.25, np.nan, np.inf, -0.0, 3.0], "f")
    numbers = np.array([7, -7, 3, -3, 2**31 - 1, -1], "i4")
    pairs = [(a, b) for a in range(6) for b in range(6)]
    lines, kinds = [], []
    for at, name in enumerate(OPERATIONS):
        kind = "f32" if name.split()[0].endswith("f") else "i32"
        kinds.append("i1" if name.startswith("cmp") else kind)
        lines.append(f"%v{at} = arith.{name} %{kind[0]}, %{kind[0]}2 : {kind}")
    returned = ", ".join(f"%v{at}" for at in range(len(kinds)))
    module = parse(f"""
        func.func @main(%f: f32, %f2: f32, %i: i32, %i2: i32) -> ({", ".join(kinds)}) {{
          {chr(10).join(lines)}
          return {returned} : {", ".join(kinds)}
        }}""")
    result = run_all(module, [(floats[a], floats[b], numbers[a], numbers[b]) for a, b in pairs], by="c")
    with np.errstate(all="ignore"):
        for at, (name, expected) in enumerate(OPERATIONS.items()):
            row = floats if name.split()[0].endswith("f") else numbers
            x, y = (np.array([row[pair[side]] for pair in pairs]) for side in (0, 1))
            actual = np.array([values[at] for values in result])
            np.testing.assert_array_equal(actual, np.asarray(expected(x, y)).astype(actual.dtype), err_msg=name)


MATMUL = """
    func.func @main(%a: tensor<7x5xf32>, %b: tensor<5x3xf32>, %c: tensor<7x3xf32>) -> tensor<7x3xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<7x5xf32>, tensor<5x3xf32>) outs(%c : tensor<7x3xf32>) -> tensor<7x3xf32>
      return %r : tensor<7x3xf32>
    }"""
LOWERINGS = {
    "buffers": "",
    "loops": "convert-linalg-to-loops",
    "parallel": "convert-linalg-to-parallel-loops",
    "affine": "convert-linalg-to-affine-loops",
    "tiled": "convert-linalg-to-affine-loops, affine-loop-tile{tile-size=2}, affine-parallelize",
    "unrolled": "builtin.module(func.func(convert-linalg-to-affine-loops, affine-loop-unroll{unroll-factor=2}))",
    "scf": "convert-linalg-to-affine-loops, lower-affine, canonicalize",
    "jumps": "convert-linalg-to-loops, convert-scf-to-cf",
}


@pytest.mark.parametrize("way", LOWERINGS)
@pytest.mark.parametrize("checks", [True, False])
def test_every_lowering_of_a_matmul_runs(way, checks):
    random = np.random.default_rng(2)
    a, b, c = (random.normal(size=size).astype("f") for size in ((7, 5), (5, 3), (7, 3)))
    module = pipeline(parse(MATMUL), BUFFERS)
    lowered = pipeline(module, LOWERINGS[way]) if LOWERINGS[way] else module
    copy = c.copy()
    np.testing.assert_allclose(run(lowered, a, b, c, checks=checks)[0], a @ b + c, rtol=1e-5)
    assert (c == copy).all()  # the caller's arrays stay


def test_numbers_and_several_results():
    module = parse("""
        func.func @main(%i: index, %x: f32, %b: i1) -> (index, f32, i1, f64) {
          %j = arith.addi %i, %i : index
          %y = arith.addf %x, %x : f32
          %t = arith.constant true
          %n = arith.addi %b, %t : i1
          %h = arith.constant 0x7FF0000000000000 : f64
          return %j, %y, %n, %h : index, f32, i1, f64
        }""")
    for by in ("iree", "c"):
        result = run(module, 21, 0.5, True, by=by)
        assert [value.dtype.name for value in result] == ["int64", "float32", "bool", "float64"]
        assert [value.item() for value in result] == [42, 1.0, False, math.inf]


def test_a_function_without_results_returns_its_buffers():
    module = parse("""
        func.func @main(%m: memref<3xi32>, %k: i32) {
          %one = arith.constant 1 : index
          memref.store %k, %m[%one] : memref<3xi32>
          return
        }""")
    (result,) = run(module, np.arange(3, dtype="i4"), 9)
    assert result.tolist() == [0, 9, 2]


def test_views_calls_and_loops_with_values():
    module = parse("""
        func.func private @row(%m: memref<?x?xf32>, %i: index) -> memref<?xf32, strided<[1], offset: ?>> {
          %c1 = arith.constant 1 : index
          %n = memref.dim %m, %c1 : memref<?x?xf32>
          %s = memref.subview %m[%i, 0] [1, %n] [1, 1]
            : memref<?x?xf32> to memref<?xf32, strided<[1], offset: ?>>
          return %s : memref<?xf32, strided<[1], offset: ?>>
        }
        func.func @main(%m: memref<?x?xf32>, %i: index) -> (f32, f32) {
          %r = func.call @row(%m, %i) : (memref<?x?xf32>, index) -> memref<?xf32, strided<[1], offset: ?>>
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %z = arith.constant 0.0 : f32
          %n = memref.dim %r, %c0 : memref<?xf32, strided<[1], offset: ?>>
          %s:2 = scf.for %k = %c0 to %n step %c1 iter_args(%last = %z, %sum = %z) -> (f32, f32) {
            %v = memref.load %r[%k] : memref<?xf32, strided<[1], offset: ?>>
            %t = arith.addf %sum, %v : f32
            scf.yield %sum, %t : f32, f32
          }
          return %s#0, %s#1 : f32, f32
        }""")
    x = np.arange(12, dtype="f").reshape(3, 4)
    before, total = run(module, x, 2)
    assert total == x[2].sum() and before == x[2, :3].sum()  # the two change places at once


def test_a_module_is_built_once_for_many_inputs():
    module = elementwise("f32", CASES["f32"][1])
    many = [(np.full((2, n), 3, "f"), np.arange(n, dtype="f"), np.zeros((n, 2), "f")) for n in (1, 4, 6)]
    for (x, y, _), (item,) in zip(many, run_all(module, many), strict=True):
        np.testing.assert_array_equal(item, (x * y).T)
    assert len(seconds(module, *many[0], repeats=3)) == 3


STORE = """func.func @main(%m: memref<4x4xf32>, %i: index) {
  %x = arith.constant 1.0 : f32
  memref.store %x, %m[%i, %i] : memref<4x4xf32>
  return
}"""
FREED = """func.func @main(%m: memref<4x4xf32>, %i: index) {
  %x = arith.constant 1.0 : f32
  %b = memref.alloc() : memref<4xf32>
  memref.dealloc %b : memref<4xf32>
  memref.DOES
  return
}"""
ENDLESS = """func.func @main(%m: memref<4x4xf32>, %i: index) {
  %t = arith.constant true
  scf.while : () -> () { scf.condition(%t) } do { scf.yield }
  return
}"""
ERRORS = {
    STORE: (4, r"memref.store \(line 4, `memref.store %x, %m\[%i, %i\] .*`\) writes \[4, 4\] of a buffer of 4×4\."),
    FREED.replace("DOES", "store %x, %b[%i] : memref<4xf32>"): (0, r"\(line 6, .* writes a buffer that was freed"),
    FREED.replace("DOES", "dealloc %b : memref<4xf32>"): (0, r"\(line 6, .* frees a buffer that was freed"),
    FREED.replace("DOES", "dealloc %m : memref<4x4xf32>"): (0, r"frees a buffer that it did not allocate"),
    ENDLESS: (0, r"was still running after 2 s"),
}


@pytest.mark.parametrize("at", range(len(ERRORS)))
def test_what_a_program_does_wrong_is_a_sentence(at):
    source, (index, message) = list(ERRORS.items())[at]
    with pytest.raises(MLIRError, match=message):
        run(parse(source), np.zeros((4, 4), "f"), index, seconds=2)


def test_a_crash_costs_only_the_run():
    with pytest.raises(MLIRError, match="ended its process while it ran"):
        run(parse(STORE), np.zeros((4, 4), "f"), 2**40, checks=False)
    assert run(parse(STORE), np.zeros((4, 4), "f"), 2, checks=False)[0][2, 2] == 1


def test_what_nothing_can_lower_is_named():
    poison = parse(
        "func.func @main() -> tensor<4xf32> {\n  %b = ub.poison : tensor<4xf32>\n  return %b : tensor<4xf32>\n}"
    )
    with pytest.raises(MLIRError, match=r"IREE cannot lower ub.poison \(line 3, `%b = ub.poison : tensor<4xf32>`\)"):
        run(poison)
    with pytest.raises(MLIRError, match="bufferize"):
        run(parse(MATMUL), *(np.zeros(size, "f") for size in ((7, 5), (5, 3), (7, 3))), by="c")


def test_arrays_that_do_not_fit_are_named():
    module = parse(MATMUL)
    a, b, c = (np.zeros(size, "f") for size in ((7, 5), (5, 3), (7, 3)))
    with pytest.raises(MLIRError, match="takes 3 arguments; got 2"):
        run(module, a, b)
    with pytest.raises(MLIRError, match="Argument 2 of @main is a tensor of 5×3 float32; got 3×5 float32"):
        run(module, a, b.T, c)
    with pytest.raises(MLIRError, match="7×5 float32; got 7×5 float64"):
        run(module, a.astype("d"), b, c)
    with pytest.raises(MLIRError, match="no function @other; it has @main"):
        run(module, function="other")


LOADED = """
import os, sys
from passlab.mlir import executors, modules
executors.loader()
before = set(sys.modules)
module = modules.parse(executors.smallest())
modules.verify(module)
tasks = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 1
print(tasks, sorted(set(sys.modules) - before), "xdsl.dialects.affine" in before)
"""


def test_children_of_the_server_inherit_what_a_first_module_loads():
    """It forks for every request, so that it has one thread, and no child imports a dialect for itself."""
    assert python(LOADED, OPENBLAS_NUM_THREADS="1") == "1 [] True"
