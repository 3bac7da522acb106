"""Modules for test_builds, built and run: python tests/tvm/build_checks.py relax

Prints JSON: name → what came of it. One process uses one TVM, hence the script.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np
import torch

from passlab.building import requests
from passlab.building.arrays import as_torch
from passlab.tvm import builds
from passlab.tvm.builds import Packed, run_module

FLAVOUR = sys.argv[1]
ONES = np.ones(4, "float32")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool")


def told(built, want=None) -> dict:
    """What came of a module; `right`: do the outputs equal those, to the last bit of their shape and type?"""
    actual = [[as_torch(array) for array in arrays] for arrays in built.outputs]
    return {
        "error": built.error,
        "stage": built.stage,
        "kernels": built.kernels,
        "allocations": built.allocations,
        "times": len(built.times),
        "beside": [len(other.times) for other in built.beside],
        "beside kernels": [len(other.kernels) for other in built.beside],
        "beside alike": all(
            np.allclose(one, other, equal_nan=True)
            for neighbour in built.beside
            for ours, theirs in zip(built.outputs, neighbour.outputs, strict=True)
            for one, other in zip(ours, theirs, strict=True)
        ),
        "right": want is not None
        and len(actual) == len(want)
        and all(
            len(a) == len(b)
            and all(
                x.dtype == y.dtype and x.shape == y.shape and torch.allclose(x, y, equal_nan=True)
                for x, y in zip(a, b, strict=True)
            )
            for a, b in zip(actual, want, strict=True)
        ),
    }


def relu_of_sum(x, y):
    return [torch.relu(x + y), x - y]


def common(make, two, dtyped) -> dict:
    """What both flavours must do. make(): a module of `relu_of_sum` with two kernels at least, unfused; two: its
    inputs; dtyped(dtype): x + x, or logical and."""
    results = {}
    other = [tuple(2 * x for x in two)]
    results["equals torch"] = told(run_module(make(), [two]), [relu_of_sum(*two)])
    results["built once, run twice"] = told(
        run_module(make(), [two, *other], repeats=3), [relu_of_sum(*i) for i in [two, *other]]
    )
    results["timed, each run"] = told(
        run_module(make(), [two, *other], timed=True, beside=[make(), make()]),
        [relu_of_sum(*i) for i in [two, *other]],
    )
    results["as data"] = told(run_module(builds.packed(make()), [two]), [relu_of_sum(*two)])
    for dtype in DTYPES:
        x = torch.tensor([0, 1, 2, 3]).to(getattr(torch, dtype))
        results[f"of {dtype}"] = told(run_module(dtyped(dtype), [(x,)]), [[x if dtype == "bool" else x + x]])
    results["too few inputs"] = told(run_module(make(), [two[:1]]))
    results["another shape"] = told(run_module(make(), [(two[0][:, :2], two[1])]))
    results["another type"] = told(run_module(make(), [(two[0].double(), two[1])]))
    results["no such function"] = told(run_module(make(), [two], function="other"))
    results["no such target"] = told(run_module(make(), [two], target="abacus"))
    results["no module"] = told(run_module(Packed(FLAVOUR, '{"nodes": 7}'), [()]))
    return results


def killed(make, two) -> dict:
    """The helper itself is killed: the next request has another."""
    process = requests.helper(FLAVOUR)
    os.kill(process.pid, signal.SIGKILL)
    return told(run_module(make(), [two]), [relu_of_sum(*two)]) | {"another": requests.helper(FLAVOUR) is not process}


def at_once(make, two) -> dict:
    """Four threads ask at once, one of them for a module that never ends."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        requests = [pool.submit(run_module, make(), [two]) for _ in range(3)]
        endless = pool.submit(lambda: run_module(ENDLESS(), [(ONES,)], seconds=2))
        results = [told(one.result(), [relu_of_sum(*two)])["right"] for one in requests]
    return {"right": all(results), "error": endless.result().error}


def forked(make, two) -> dict:
    """A fork asks the same helper, and its end does not end it."""
    pid = os.fork()
    if pid == 0:
        sys.exit(0 if told(run_module(make(), [two]), [relu_of_sum(*two)])["right"] else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return told(run_module(make(), [two]), [relu_of_sum(*two)]) | {"code": code}


def interrupted() -> dict:
    """Interrupt the waiting caller: no process goes on working."""
    from passlab.judge import OutOfTime, TimeLimit

    helper = requests.helper(FLAVOUR).pid
    try:
        with TimeLimit(0.25):
            run_module(ENDLESS(), [(ONES,)])
    except OutOfTime:
        pass
    until = time.monotonic() + 600
    while time.monotonic() < until and children(helper):
        time.sleep(0.05)
    return {"left": children(helper)}


def children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as result:
        return result.read().split()


# Relax


def relax_module(shapes, emit, dtype="float32"):
    from passlab.relax import relax

    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{at}", relax.TensorType(shape, dtype)) for at, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            value = emit(builder, *params)
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def tir_module(line, size=4):
    import tvm.script

    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(({size},), "float32"), B: T.Buffer(({size},), "float32")):
        for i in range({size}):
            with T.sblock("b"):
                v = T.axis.spatial({size}, i)
                {line}
""")


def relax_endless():
    return tir_module("for j in range(1000000000000): B[v] = B[v] * A[v] + T.float32(1)")


def relax_checks() -> dict:
    from passlab.relax import relax, tvm

    op, two = relax.op, (torch.randn(3, 4), torch.randn(3, 4))
    n = tvm.tirx.Var("n", "int64")

    def make(rows=3):
        def emit(builder, x, y):
            value = builder.emit(op.nn.relu(builder.emit(op.add(x, y))))
            return relax.Tuple([value, relax.Tuple([builder.emit(op.subtract(x, y))])])

        return relax_module([(rows, 4), (rows, 4)], emit)

    def dtyped(dtype):
        return relax_module([(4,)], lambda _, x: op.logical_and(x, x) if dtype == "bool" else op.add(x, x), dtype)

    def ill_typed():
        x, y = (relax.Var(name, relax.TensorType([size], "float32")) for name, size in (("x", 4), ("y", 5)))
        return tvm.IRModule({"main": relax.Function([x], y, ret_ty=y.ty).with_attr("global_symbol", "main")})

    def named(kernel):
        module = relax.transform.LegalizeOps()(relax_module([(4,)], lambda _, x: op.nn.relu(x)))
        function = module["relu"].with_attr("global_symbol", kernel)
        x = relax.Var("x", relax.TensorType([4], "float32"))
        builder = relax.BlockBuilder()
        var = builder.add_func(function, kernel)
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(relax.call_tir(var, [x], out_ty=x.ty)))
        return builder.get()

    results = common(make, two, dtyped)
    results["not fused"] = told(run_module(make(), [two], pipeline="none"), [relu_of_sum(*two)])
    sizes = [tuple(torch.randn(rows, 4) for _ in "xy") for rows in (1, 5, 3)]
    results["symbolic"] = told(run_module(make(n), sizes), [relu_of_sum(*pair) for pair in sizes])
    results["a shape and a number"] = told(
        run_module(relax_module([(n, 4)], lambda _, x: relax.Tuple([x, relax.ShapeExpr([n, 2])])), [(two[0],)]),
        [[two[0], torch.tensor([3, 2])]],
    )
    results["parameters by name"] = told(run_module(make(), [two[:1]], params={"x1": two[1]}), [relu_of_sum(*two)])
    results["TIR"] = told(
        run_module(tir_module("B[v] = A[v] * T.float32(3)"), [(ONES,)], repeats=2), [[torch.full((4,), 3.0)]]
    )
    gap = torch.tensor([torch.nan, 2.0, torch.nan, 2.0])
    results["TIR that leaves gaps"] = told(
        run_module(tir_module("if v % 2 == 1: B[v] = A[v] * T.float32(2)"), [(ONES,)]), [[gap]]
    )
    for name in ("shape_func", "shape_func_of_mine"):
        results[f"a kernel called {name}"] = told(run_module(named(name), [(ONES,)]), [[torch.ones(4)]])
    results["out of bounds"] = told(run_module(tir_module("B[v + 1000000000] = A[v]"), [(ONES,)]))
    results["abort"] = told(run_module(tir_module('T.evaluate(T.call_extern("int32", "abort"))'), [(ONES,)]))
    results["exit"] = told(run_module(tir_module('T.evaluate(T.call_extern("int32", "exit", 0))'), [(ONES,)]))
    results["endless"] = told(run_module(relax_endless(), [(ONES,)], seconds=2))
    results["memory"] = told(run_module(relax_module([(4,)], lambda _, x: op.zeros((2**33,), "float32")), [(ONES,)]))
    results["ill-typed"] = told(run_module(ill_typed(), [(ONES,)]))
    results["after all of that"] = told(run_module(make(), [two]), [relu_of_sum(*two)])
    return results | more(make, two)


# Relay


def relay_module(shapes, emit, dtype="float32"):
    from passlab.relay import relay, tvm

    params = [relay.var(f"x{at}", shape=shape, dtype=dtype) for at, shape in enumerate(shapes)]
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, emit(*params))))


def relay_endless():
    from passlab.relay import relay, tvm

    main, x = relay.GlobalVar("main"), relay.var("x", shape=(4,))
    return tvm.IRModule({main: relay.Function([x], relay.Call(main, [relay.add(x, x)]), relay.TensorType((4,)))})


def relay_checks() -> dict:
    from passlab.relay import relay, tvm

    two = (torch.randn(3, 4), torch.randn(3, 4))

    def both(x, y):
        return relay.Tuple([relay.nn.relu(relay.add(x, y)), relay.subtract(x, y)])

    def make(rows=3):
        return relay_module([(rows, 4), (rows, 4)], both)

    def dtyped(dtype):
        if dtype == "bool":
            return relay_module([(4,)], lambda x: relay.logical_and(x, x), dtype)
        return relay_module([(4,)], lambda x: relay.add(x, x), dtype)

    def too_deep():
        """A chain so long that TVM, which walks it by calls within calls, runs out of stack."""
        x = chain = relay.var("x", shape=(4,))
        for _ in range(20_000):
            chain = relay.nn.relu(chain)
        return tvm.IRModule.from_expr(relay.Function([x], chain))

    def same_names():
        x, y, unused = (relay.var("x", shape=(3, 4)) for _ in range(3))
        return tvm.IRModule.from_expr(relay.Function([x, unused, y], both(x, y)))

    def branch():
        condition, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(3, 4))
        return tvm.IRModule.from_expr(relay.Function([condition, x], relay.If(condition, relay.add(x, x), x)))

    results = common(make, two, dtyped)
    results["not fused"] = told(run_module(make(), [two], level=0), [relu_of_sum(*two)])
    sizes = [tuple(torch.randn(rows, 4) for _ in "xy") for rows in (2, 5, 3)]
    results["symbolic"] = told(run_module(make(relay.Any()), sizes), [relu_of_sum(*pair) for pair in sizes])
    results["a branch"] = told(
        run_module(branch(), [(np.array(True), two[0]), (np.array(False), two[0])]), [[2 * two[0]], [two[0]]]
    )
    results["one name for all"] = told(run_module(same_names(), [(two[0], two[0], two[1])]), [relu_of_sum(*two)])
    results["parameters by name"] = told(run_module(make(), [two[:1]], params={"x1": two[1]}), [relu_of_sum(*two)])
    results["too deep"] = told(run_module(too_deep(), [(ONES,)]))
    results["endless"] = told(run_module(relay_endless(), [(ONES,)], seconds=2))
    large = relay_module([(4,)], lambda x: relay.add(relay.broadcast_to(x, (2**33, 4)), x))
    results["memory"] = told(run_module(large, [(ONES,)]))
    x = relay.var("x", shape=(4,))
    ill_typed = tvm.IRModule.from_expr(relay.Function([x], relay.add(x, relay.const(np.ones(3, "float32")))))
    results["ill-typed"] = told(run_module(ill_typed, [(ONES,)]))
    results["after all of that"] = told(run_module(make(), [two]), [relu_of_sum(*two)])
    return results | more(make, two)


def more(make, two) -> dict:
    results = {"interrupted": interrupted(), "at once": at_once(make, two), "forked": forked(make, two)}
    results["killed"] = killed(make, two)
    results["targets"] = builds.targets()
    process = requests.helper(FLAVOUR)
    with open(f"/proc/{process.pid}/status") as status:
        results["threads"] = next(int(line.split()[1]) for line in status if line.startswith("Threads"))
    results["helper"] = process.pid
    return results


ENDLESS = relax_endless if FLAVOUR == "relax" else relay_endless

if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(relax_checks() if FLAVOUR == "relax" else relay_checks()))
