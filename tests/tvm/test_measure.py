"""Kernels, bytes and memory of Relay and Relax modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.flavours import each_flavour

#: x (2×8), weight (4×8): dense, add of a bias (4), relu, reshape to 8, and the sum of that; 4 bytes each.
DENSE = 4 * (2 * 8 + 4 * 8 + 2 * 4)
BIAS = 4 * (2 * 4 + 4 + 2 * 4)
RELU = 4 * (2 * 4 + 2 * 4)
SUM = 4 * (8 + 1)
#: dense, bias and relu are one kernel: what lies between them is not moved
FUSED = 4 * (2 * 8 + 4 * 8 + 4 + 2 * 4)

EXPECTED = {
    "bytes": DENSE + BIAS + RELU + SUM,
    "bytes by kernel": sorted([DENSE, BIAS, RELU, SUM]),
    "bytes, fused": sorted([FUSED, SUM]),
    "operand read twice": 4 * (6 + 6),
    "a tuple": 4 * (6 + 6 + 12),
    "results of a tuple": 4 * (6 + 3 + 3),
    "half": 2 * (6 + 6),
    "calls of its functions": 2 * 4 * (6 + 6),
    "unknown size": "the size of",
    "launches": 2,
    "launches, nothing fused": 4,
    "launches by name": True,
    "launches repr": "2 launches on llvm: ",
    "does not run": "launches: the module does not run on llvm: ",
    "kernels in order": True,
    "cost": [5, 2, DENSE + BIAS + RELU + SUM],
    "passlab.launches": True,
    "allocations": [4, 4 * (8 + 8 + 8 + 1)],
    "allocations, fused": [2, 4 * (8 + 1)],
    "runner": True,
    "runner is timed": ["torch", "tvm"],
    "runner without inputs": "The module takes 1 input;",
    "runner sees new inputs": True,
}


@each_flavour
def test_measured(flavour):
    results = {name: check() for name, check in checks(flavour).items()}
    planned = results.pop("allocations, planned")
    assert planned[0] < EXPECTED["allocations"][0] and planned[1] < EXPECTED["allocations"][1]
    assert results.keys() == EXPECTED.keys()
    wrong = {}
    for name, want in EXPECTED.items():
        if not (want in results[name] if isinstance(want, str) else results[name] == want):
            wrong[name] = results[name]
    assert wrong == {}


# ---------------------------------------------------------------------------------------------------- the checks


def checks(flavour: str) -> dict[str, Callable[[], Any]]:
    import numpy as np
    import torch

    import passlab
    from passlab.tvm import importers, measure

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)

        def forward(self, x):
            return torch.relu(self.linear(x)).reshape(8).sum()

    make = Relay() if flavour == "relay" else Relax()
    x = torch.randn(2, 8)
    net = Net().eval()
    module, fused = make.net(), make.fused(make.net())
    imported = (importers.relay_module if flavour == "relay" else importers.relax_module)(net, x)
    unfused = {"level": 0} if flavour == "relay" else {"pipeline": "none"}
    run = measure.runner(imported)

    def raised(work: Callable) -> str:
        try:
            work()
        except ValueError as error:
            return str(error)
        return "nothing"

    def pair(result: Any) -> list[int]:
        return [result.count, result.bytes]

    def by_name() -> bool:
        result = measure.launches(module, x, **unfused)
        return sum(result.detail.values()) == 4 and any("relu" in name for name in result.detail)

    def in_order() -> bool:
        names = measure.kernels(module, x, **unfused)
        return [part in name for part, name in zip(("dense", "add", "relu", "sum"), names, strict=True)] == [True] * 4

    def cost() -> list[int]:
        result = passlab.cost(module, x)
        return [result.nodes, result.launches, result.bytes]

    def runs() -> bool:
        (out,) = run(x)
        return bool(np.allclose(out.numpy(), net(x).detach().numpy(), 1e-5, 1e-5))

    def new_inputs() -> bool:
        return all(abs(float(run(y)[0].numpy()) - float(net(y))) < 1e-4 for y in (x, x + 1, x))

    return {
        "bytes": lambda: int(measure.bytes_moved(module)),
        "bytes by kernel": lambda: sorted(passlab.bytes_moved(module).detail.values()),
        "bytes, fused": lambda: sorted(measure.bytes_moved(fused).detail.values()),
        **{name: (lambda m=m: int(measure.bytes_moved(m))) for name, m in make.odd().items()},
        "unknown size": lambda: raised(lambda: measure.bytes_moved(make.symbolic())),
        "launches": lambda: int(measure.launches(module)),
        "launches, nothing fused": lambda: int(measure.launches(module, x, **unfused)),
        "launches by name": by_name,
        "launches repr": lambda: repr(measure.launches(module, x)),
        "does not run": lambda: raised(lambda: measure.launches(module, x[:, :3])),
        "kernels in order": in_order,
        "cost": cost,
        "passlab.launches": lambda: repr(passlab.launches(module, x)) == repr(measure.launches(module, x)),
        "allocations": lambda: pair(measure.allocations(module)),
        "allocations, planned": lambda: pair(measure.allocations(module, planned=True)),
        "allocations, fused": lambda: pair(measure.allocations(fused)),
        "runner without inputs": lambda: raised(run),
        "runner": runs,
        "runner is timed": lambda: [r.name for r in passlab.timed({"torch": net, "tvm": run}, x, repeats=2).rows],
        "runner sees new inputs": new_inputs,
    }


class Relay:
    def __init__(self):
        from passlab.relay import relay, tvm

        self.relay, self.tvm = relay, tvm

    def module(self, body: Any, *params: Any) -> Any:
        return self.tvm.IRModule.from_expr(self.relay.Function(list(params), body))

    def net(self) -> Any:
        import numpy as np

        relay, x = self.relay, self.relay.var("x", shape=(2, 8))
        w, b = (relay.const(np.ones(shape, "float32")) for shape in ((4, 8), (4,)))
        return self.module(relay.sum(relay.reshape(relay.nn.relu(relay.add(relay.nn.dense(x, w), b)), (8,))), x)

    def fused(self, module: Any) -> Any:
        transform = self.relay.transform
        return transform.FuseOps(2)(transform.InferType()(module))

    def odd(self) -> dict[str, Any]:
        relay, x, y = self.relay, self.relay.var("x", shape=(2, 3)), self.relay.var("y", shape=(2, 3))
        half = relay.var("x", shape=(2, 3), dtype="float16")
        return {
            "operand read twice": self.module(relay.multiply(x, x), x),
            "a tuple": self.module(relay.concatenate([x, y], 0), x, y),
            "results of a tuple": self.module(relay.split(x, 2, 0).astuple(), x),
            "half": self.module(relay.nn.relu(half), half),
            "calls of its functions": self.two_calls(),
        }

    def two_calls(self) -> Any:
        relay, x, y = self.relay, self.relay.var("x", shape=(2, 3)), self.relay.var("y", shape=(2, 3))
        inner, main = relay.GlobalVar("inner"), relay.GlobalVar("main")
        functions = {
            inner: relay.Function([y], relay.nn.relu(y), relay.TensorType((2, 3))),
            main: relay.Function([x], relay.Call(inner, [relay.Call(inner, [x])])),
        }
        return self.tvm.IRModule(functions)

    def symbolic(self) -> Any:
        x = self.relay.var("x", self.relay.TensorType((self.relay.Any(), 3)))
        return self.module(self.relay.nn.relu(x), x)


class Relax:
    def __init__(self):
        from passlab.relax import relax, tvm

        self.relax, self.tvm = relax, tvm

    def var(self, name: str, *shape: Any, dtype: str = "float32") -> Any:
        return self.relax.Var(name, self.relax.TensorType(list(shape), dtype))

    def module(self, body: Callable, *params: Any) -> Any:
        builder = self.relax.BlockBuilder()
        with builder.function("main", list(params)):
            with builder.dataflow():
                out = builder.emit_output(body(builder.emit))
            builder.emit_func_output(out)
        return builder.get()

    def net(self) -> Any:
        import numpy as np

        relax, op, x = self.relax, self.relax.op, self.var("x", 2, 8)
        # "dense" is this kernel's name: a matmul that reads its weight as it lies in memory
        w, b = (relax.const(np.ones(shape, "float32")) for shape in ((4, 8), (4,)))

        def dense(e: Any) -> Any:
            te = self.tvm.te

            def made(a, c):
                k = te.reduce_axis((0, 8), "k")
                return te.compute((2, 4), lambda i, j: te.sum(a[i, k] * c[j, k], k), "dense")

            return self.builder.call_te(made, x, w, primfunc_name_hint="dense")

        self.builder = relax.BlockBuilder()
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                value = self.builder.emit(dense(None))
                for step in (lambda v: op.add(v, b), op.nn.relu, lambda v: op.reshape(v, (8,)), op.sum):
                    value = self.builder.emit(step(value))
                out = self.builder.emit_output(value)
            self.builder.emit_func_output(out)
        return self.builder.get()

    def fused(self, module: Any) -> Any:
        transform = self.relax.transform
        steps = [transform.LegalizeOps(), transform.RewriteDataflowReshape(), transform.AnnotateTIROpPattern()]
        return self.tvm.transform.Sequential([*steps, transform.FuseOps()])(module)

    def odd(self) -> dict[str, Any]:
        op, x, y = self.relax.op, self.var("x", 2, 3), self.var("y", 2, 3)
        half = self.var("x", 2, 3, dtype="float16")
        return {
            "operand read twice": self.module(lambda e: op.multiply(x, x), x),
            "a tuple": self.module(lambda e: op.concat([x, y], 0), x, y),
            "results of a tuple": self.module(lambda e: op.split(x, 2, 0), x),
            "half": self.module(lambda e: op.nn.relu(half), half),
            "calls of its functions": self.two_calls(),
        }

    def two_calls(self) -> Any:
        relax, x, y = self.relax, self.var("x", 2, 3), self.var("y", 2, 3)
        builder = relax.BlockBuilder()
        with builder.function("inner", [y], private=True):
            builder.emit_func_output(builder.emit(relax.op.nn.relu(y)))
        inner = builder.get().get_global_var("inner")
        with builder.function("main", [x]):
            once = builder.emit(relax.Call(inner, [x]))
            builder.emit_func_output(builder.emit(relax.Call(inner, [once])))
        return builder.get()

    def symbolic(self) -> Any:
        x = self.var("x", self.tvm.tirx.Var("n", "int64"), 3)
        return self.module(lambda e: self.relax.op.nn.relu(x), x)
