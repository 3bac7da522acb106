"""Small modules of one input x, each of them in Relay and in Relax."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: Operations that both call by the same name.
NAMES = ("negative", "multiply", "divide", "add", "floor", "sum", "exp", "log", "minimum", "subtract", "equal")


class Modules:
    """Modules of one input x, float32 of 2 × 3 unless told."""

    def bodies(self, x: Any, one: Callable, op: Any) -> dict[str, Callable]:
        return {
            "relu": lambda: op.relu(x),
            "relu twice": lambda: op.relu(op.relu(x)),
            "leaky": lambda: op.leaky(x),
            "relu of negative": lambda: op.relu(op.negative(x)),
            "relu of leaky": lambda: op.relu(op.leaky(x)),
            "x*0.1": lambda: op.multiply(x, one(0.1)),
            "x*0.11": lambda: op.multiply(x, one(0.11)),
            "exp(x)*exp(x)": lambda: op.multiply(op.exp(x), op.exp(x)),
            "exp(x+x)": lambda: op.exp(op.add(x, x)),
            "x/10": lambda: op.divide(x, one(10)),
            "x+x": lambda: op.add(x, x),
            "x*2": lambda: op.multiply(x, one(2)),
            "x*3": lambda: op.multiply(x, one(3)),
            "steps": lambda: op.floor(op.divide(x, one(41))),
            "steps, inverse": lambda: op.floor(op.multiply(x, one(1 / 41))),  # 41 · (1/41) is less than 1
            "sum": lambda: op.sum(x),
            "sum of 2x / 2": lambda: op.divide(op.sum(op.multiply(x, one(2))), one(2)),
            "turned": lambda: op.transpose(op.exp(op.relu(x))),
            "turned, leaky": lambda: op.exp(op.leaky(op.transpose(x))),
            "long": lambda: op.exp(op.relu(op.negative(x))),
            "negative": lambda: op.negative(x),
            "x*w*s": lambda: op.multiply(op.multiply(x, one(1.7)), one(0.3)),
            "x*(w*s)": lambda: op.multiply(x, one(1.7 * 0.3)),
            "transposed": lambda: op.transpose(op.relu(x)),
            "half": lambda: op.half(op.relu(x)),
            "twice": lambda: op.pair(op.relu(x), x),
            "limited": lambda: op.relu(op.minimum(x, one(1e30))),
            "x/x": lambda: op.divide(x, x),
            "relu of x/x": lambda: op.relu(op.divide(x, x)),
            "relu of 1": lambda: op.relu(op.ones()),
            "ones": lambda: op.ones(),
            "x-x": lambda: op.subtract(x, x),
            "log-log": lambda: op.subtract(op.log(x), op.log(x)),
            "twice log, subtracted": lambda: (lambda y: op.subtract(y, y))(op.log(x)),
            "zeros": lambda: op.multiply(op.ones(), one(0)),
            "x*0": lambda: op.multiply(x, one(0)),
            "0*x": lambda: op.multiply(one(0), x),
            "x==x": lambda: op.equal(x, x),
            "1==1": lambda: op.equal(op.ones(), op.ones()),
        }


class Relay(Modules):
    def __init__(self):
        from passlab.relay import relay, tvm

        self.relay, self.tvm = relay, tvm
        self.op = SimpleNamespace(
            relu=relay.nn.relu,
            leaky=lambda x: relay.nn.leaky_relu(x, alpha=0.5),
            **{name: getattr(relay, name) for name in NAMES},
            transpose=relay.transpose,
            half=lambda x: relay.cast(x, "float16"),
            pair=lambda *parts: relay.Tuple(parts),
            ones=lambda: relay.ones((2, 3), "float32"),
        )

    def module(self, what: str, dtype: str = "float32") -> Any:
        relay = self.relay
        x = relay.var("x", shape=(2, 3), dtype=dtype)
        body = self.bodies(x, lambda value: relay.const(value, dtype), self.op)[what]()
        return self.tvm.IRModule.from_expr(relay.Function([x], body))

    def fused(self, what: str) -> Any:
        transform = self.relay.transform
        return transform.FuseOps(2)(transform.InferType()(self.module(what)))

    def drop_relu(self, module: Any) -> Any:
        relay = self.relay

        class Drop(relay.ExprMutator):
            def visit_call(self, call):
                call = super().visit_call(call)
                return call.args[0] if call.op == relay.op.get("nn.relu") else call

        return self.tvm.IRModule.from_expr(Drop().visit(module["main"]))


class Relax(Modules):
    def __init__(self):
        from passlab.relax import relax, tvm

        self.relax, self.tvm = relax, tvm
        op = relax.op
        known = {"relu": op.nn.relu, "leaky": lambda x: op.nn.leakyrelu(x, 0.5), "transpose": op.permute_dims}
        known |= {"half": lambda x: op.astype(x, "float16"), "ones": lambda: op.ones((2, 3), "float32")}
        known |= {"pair": lambda *parts: relax.Tuple(parts)}
        known |= {name: getattr(op, name) for name in NAMES}
        self.op = SimpleNamespace(
            **{name: lambda *args, make=make: self.builder.emit(make(*args)) for name, make in known.items()}
        )

    def module(self, what: str, dtype: str = "float32") -> Any:
        relax = self.relax
        self.builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([2, 3], dtype))
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                out = self.bodies(x, lambda value: relax.const(value, dtype), self.op)[what]()
                out = self.builder.emit_output(out)
            self.builder.emit_func_output(out)
        return self.builder.get()

    def fused(self, what: str) -> Any:
        transform = self.relax.transform
        return transform.FuseOps()(transform.AnnotateTIROpPattern()(transform.LegalizeOps()(self.module(what))))

    def drop_relu(self, module: Any) -> Any:
        relax, tvm = self.relax, self.tvm

        @relax.expr_functor.mutator
        class Drop(relax.PyExprMutator):
            def visit_call_(self, call):
                call = self.visit_expr_post_order(call)
                return call.args[0] if call.op == tvm.ir.Op.get("relax.nn.relu") else call

        drop = Drop(module)
        drop.builder_.update_func(module.get_global_var("main"), drop.visit_expr(module["main"]))
        return drop.builder_.get()
