"""Write cases over modules of Relax: a module from a body, and the case around it.

@case("a product and its relu", module(..., (4, 8), (8, 8)), "did", "cost")
def layer(emit, x, w):
    return emit(op.nn.relu(emit(op.matmul(x, w))))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case, as_decorator
from passlab.relax import relax, tvm

op = relax.op


@as_decorator
def module(body: Callable, *types: Any, helper: Callable | None = None) -> Callable[[], tvm.IRModule]:
    """Return a function that builds a module anew at every call.

    Its main has one dataflow block, made by `body(emit, *inputs)`.

    A type is a shape (float32), or (shape, dtype). `emit` binds an expression to a variable; with `leave=True` the
    variable is one that the block hands out. What the body returns, an expression or a tuple, is what main returns; a
    list is a tuple that is made outside the block, of variables that it hands out.
    `helper` is the body of a second function, of the first input alone; `emit.helper(x)` calls it.
    """

    def build() -> tvm.IRModule:
        builder = relax.BlockBuilder()
        emit = _Emit(builder)
        if helper is not None:
            emit.helper = _function(builder, emit, "helper", helper, types[:1])
        _function(builder, emit, "main", body, types)
        return builder.get()

    return build


class _Emit:
    def __init__(self, builder: relax.BlockBuilder):
        self.builder = builder

    def __call__(self, value: Any, leave: bool = False) -> relax.Var:
        return self.builder.emit_output(value) if leave else self.builder.emit(value)


def _function(builder: Any, emit: _Emit, name: str, body: Callable, types: tuple) -> Any:
    typed = [t if isinstance(t[0], tuple) else (t, "float32") for t in types]
    inputs = [relax.Var("xywbuv"[at], relax.TensorType(*pair)) for at, pair in enumerate(typed)]
    with builder.function(name, inputs, private=name != "main"):
        with builder.dataflow():
            made = body(emit, *inputs)
            if not isinstance(made, list):
                made = emit(relax.Tuple(made) if isinstance(made, tuple) else made, leave=True)
        return builder.emit_func_output(relax.Tuple(made) if isinstance(made, list) else made)


@as_decorator
def case(name: str, build: Callable[[], tvm.IRModule], *about: str, run: bool = True) -> Case:
    """Return a case about valid, the verdicts named and, where both modules are to be run, same."""
    return Case(name, lambda: (build(),), ("valid", *(["same"] if run else []), *about))
