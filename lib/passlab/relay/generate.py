"""Random Relay modules: how Relay spells what `passlab.tvm.generate` draws.

random_relay(7)                          # the same module in every process
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from passlab.relay import relay, tvm
from passlab.tvm.generate import Builder, Value


def random_relay(seed: int, size: int = 12, features: Sequence[str] | None = None) -> Any:
    """Return a typed Relay module of about `size` calls, the same for the same arguments. features: None for all."""
    return Relay(seed, features).grow(size)


class Relay(Builder):
    new_shape, operators = "newshape", relay

    def start(self, params: list) -> None:
        self.lets: list[tuple[Any, Any]] = []
        for param in params:
            self.input(*param)

    def input(self, name: str, shape: tuple, dtype: str) -> None:
        var = relay.var(name, shape=shape, dtype=dtype)
        self.params.append(var)
        self.values.append(Value(var, shape, dtype, 4.0, computed=False))

    def body(self) -> Any:
        return contextlib.nullcontext()

    def halfway(self) -> None:
        pass

    def constant(self, array: np.ndarray) -> Any:
        return relay.const(array, str(array.dtype))

    def emit(self, expr: Any) -> Any:
        expr = expr.astuple() if isinstance(expr, relay.TupleWrapper) else expr
        if self.on & {"dead"} and self.rng.random() < 0.05:
            var = relay.var(f"bound{len(self.lets)}", type_annotation=self.typed(expr))
            self.lets.append((var, expr))
            return var
        return expr

    def typed(self, expr: Any) -> Any:
        return relay.transform.InferTypeLocal(expr)

    def type(self, expr: Any) -> tuple[tuple[int, ...], str]:
        type = self.typed(expr)
        if isinstance(type, tvm.ir.TupleType):
            return (), "tuple"
        return tuple(int(n) for n in type.shape), type.dtype

    def field(self, expr: Any, index: int) -> Any:
        return relay.TupleGetItem(expr, index)

    def tuple(self, exprs: list) -> Any:
        return relay.Tuple(exprs)

    def unused(self) -> None:
        x = self.pick()
        value = relay.tanh(x.expr)
        self.lets.append((relay.var(f"unused{len(self.lets)}", type_annotation=self.typed(value)), value))

    def finish(self, outputs: list[Value]) -> None:
        exprs = [v.expr for v in outputs]
        body = exprs[0] if len(exprs) == 1 else relay.Tuple(exprs)
        for var, value in reversed(self.lets):
            body = relay.Let(var, value, body)
        self.main = relay.Function(self.params, body)

    def module(self) -> Any:
        return relay.transform.InferType()(tvm.IRModule.from_expr(self.main))

    def conv(self, x: Value, w: Value, layout: str, kernel: int, channels: int, bound: float, **odd: Any) -> Value:
        kernels = "HWIO" if layout == "NHWC" else "OIHW"
        sizes = dict(channels=channels, kernel_size=(kernel, kernel), data_layout=layout, kernel_layout=kernels)
        return self.op("nn.conv2d", x, w, bound=bound, **sizes, **odd)

    def norm(self, x: Value, *of: Value, axis: int, epsilon: float) -> Value:
        call = relay.nn.batch_norm(x.expr, *[v.expr for v in of], axis=axis, epsilon=epsilon)
        x.uses += 1
        return self.keep(self.emit(call[0]), 3 * x.bound)

    def dense(self, x: Value, w: Value, b: Value) -> Value:
        y = self.op("nn.dense", x, w, units=w.shape[0], bound=2 * x.bound)
        return self.op("nn.bias_add", y, b, axis=-1) if self.rng.random() < 0.5 else self.op("add", y, b)

    def gelu(self, x: Value) -> Value:
        """Add GELU in the erf or the tanh form, written out."""
        half, one = self.const(0.5), self.const(1.0)
        if self.rng.random() < 0.5:
            inner = self.op("erf", self.op("multiply", x, self.const(1 / math.sqrt(2))), bound=1.0)
        else:
            cube = self.op("multiply", self.op("multiply", x, x, bound=9.0), x, bound=9.0)
            inside = self.op("add", x, self.op("multiply", cube, self.const(0.044715), bound=1.0), bound=9.0)
            inner = self.op("tanh", self.op("multiply", inside, self.const(math.sqrt(2 / math.pi)), bound=9.0))
        return self.op("multiply", self.op("multiply", x, half), self.op("add", inner, one), bound=x.bound)

    def clip(self, x: Value, low: float, high: float) -> Value:
        return self.op("clip", x, a_min=low, a_max=high)

    def slice(self, x: Value, axis: int, begin: int, end: int, step: int) -> Value:
        return self.op("strided_slice", x, begin=[begin], end=[end], strides=[step], axes=[axis])
