"""Write cases over modules of Relax: a module from a body, and the case around it.

    @case("a relu of a relu", module(..., (4, 8)), did=[most("relax.nn.relu", 1, "…")])
    def relus(emit, x):
        return emit(op.nn.relu(emit(op.nn.relu(x))))

Where the judge is a function of the exercise, a case names its verdicts: `@case("…", module(…), "did", "cost")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import as_decorator
from passlab.relax import relax, tvm
from passlab.tvm.cases import case, expecting, least, most

__all__ = ["case", "expecting", "least", "module", "most", "op"]

op = relax.op


@as_decorator
def module(body: Callable, *types: Any, helper: Callable | None = None) -> Callable[[], tvm.IRModule]:
    """Return a function that builds a module anew at every call.

    Its main has one dataflow block, made by `body(emit, *inputs)`.

    A type is a shape (float32), or (shape, dtype). `emit` binds an expression to a variable; with `leave=True` the
    variable is an output of the block. main returns the body's result, an expression or a tuple; for a list, main
    returns a tuple that is built outside the block, from outputs of the block.
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
    typed = [t if t and isinstance(t[0], tuple) else (t, "float32") for t in types]
    inputs = [relax.Var("xywbuv"[at], relax.TensorType(*pair)) for at, pair in enumerate(typed)]
    with builder.function(name, inputs, private=name != "main"):
        with builder.dataflow():
            result = body(emit, *inputs)
            if not isinstance(result, list):
                result = emit(relax.Tuple(result) if isinstance(result, tuple) else result, leave=True)
        return builder.emit_func_output(relax.Tuple(result) if isinstance(result, list) else result)
