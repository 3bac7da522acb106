"""Random Relax modules: how Relax spells what `passlab.tvm.generate` draws.

random_relax(7, size=30, features=("conv", "tuples"))
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from passlab.relax import relax
from passlab.tvm.generate import Builder, Value


def random_relax(seed: int, size: int = 12, features: Sequence[str] | None = None) -> Any:
    """Return a Relax module of about `size` calls, the same for the same arguments. features: None for all."""
    return Relax(seed, features).grow(size)


#: Relax's names where they differ from Relay's, which passlab.tvm.generate uses.
_NAMES = {
    "transpose": "permute_dims",
    "cast": "astype",
    "reverse": "flip",
    "nn.leaky_relu": "nn.leakyrelu",
    "concatenate": "concat",
}


class Relax(Builder):
    new_shape, operators = "shape", relax.op

    def start(self, params: list) -> None:
        self.build = relax.BlockBuilder()
        for param in params:
            self.input(*param)

    def input(self, name: str, shape: tuple, dtype: str) -> None:
        var = relax.Var(name, relax.TensorType(shape, dtype))
        self.params.append(var)
        self.values.append(Value(var, shape, dtype, 4.0, computed=False))

    @contextlib.contextmanager
    def body(self) -> Iterator[None]:
        with self.build.function("main", self.params):
            self.block = self.build.dataflow()
            self.block.__enter__()
            yield

    def halfway(self) -> None:
        if "blocks" not in self.on or self.rng.random() < 0.7:
            return
        inner = [v for v in self.values if isinstance(v.expr, relax.DataflowVar)]
        for value in inner[-5:]:
            value.expr = self.build.emit_output(value.expr)
        self.values = [v for v in self.values if v not in inner[:-5]]
        self.block.__exit__(None, None, None)
        self.block = self.build.dataflow()
        self.block.__enter__()

    def finish(self, outputs: list[Value]) -> None:
        exprs = [v.expr for v in outputs]
        out = self.build.emit_output(exprs[0] if len(exprs) == 1 else relax.Tuple(exprs))
        self.block.__exit__(None, None, None)
        self.build.emit_func_output(out)

    def module(self) -> Any:
        return self.build.get()

    def constant(self, array: np.ndarray) -> Any:
        return relax.const(array, str(array.dtype))

    def operator(self, name: str) -> Callable:
        return super().operator(_NAMES.get(name, name))

    def emit(self, expr: Any) -> Any:
        return self.build.emit(expr)

    def type(self, expr: Any) -> tuple[tuple[int, ...], str]:
        if isinstance(expr.ty, relax.TupleType):
            return (), "tuple"
        return tuple(int(n) for n in expr.ty.shape), str(expr.ty.dtype)

    def field(self, expr: Any, index: int) -> Any:
        return self.build.emit(relax.TupleGetItem(expr, index))

    def tuple(self, exprs: list) -> Any:
        return self.build.emit(relax.Tuple(exprs))

    def unused(self) -> None:
        x = self.pick()
        self.build.emit(self.rng.choice((relax.op.tanh, relax.op.nn.relu))(x.expr))
        if self.rng.random() < 0.5:
            x.expr = self.build.emit(x.expr)  # another name for the same value

    def conv(self, x: Value, w: Value, layout: str, kernel: int, channels: int, bound: float, **odd: Any) -> Value:
        kernels = "HWIO" if layout == "NHWC" else "OIHW"
        return self.op("nn.conv2d", x, w, bound=bound, data_layout=layout, kernel_layout=kernels, **odd)

    def norm(self, x: Value, *of: Value, axis: int, epsilon: float) -> Value:
        call = relax.op.nn.batch_norm(x.expr, *[v.expr for v in of], axis=axis, epsilon=epsilon, training=False)
        x.uses += 1
        return self.keep(self.field(self.emit(call), 0), 3 * x.bound)

    def dense(self, x: Value, w: Value, b: Value) -> Value:
        turned = self.op("transpose", w, axes=self.rng.choice((None, [1, 0])))
        return self.op("add", self.op("matmul", x, turned, bound=2 * x.bound), b)

    def gelu(self, x: Value) -> Value:
        return self.op(self.rng.choice(("nn.gelu", "nn.gelu_tanh")), x)

    def clip(self, x: Value, low: float, high: float) -> Value:
        return self.op("clip", x, min=low, max=high)

    def slice(self, x: Value, axis: int, begin: int, end: int, step: int) -> Value:
        return self.op("strided_slice", x, axes=[axis], begin=[begin], end=[end], strides=[step])
