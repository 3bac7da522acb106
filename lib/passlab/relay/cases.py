"""Write cases over modules of Relay: a program, and the expectations of a pass over it.

    @case("two equal products", program(..., (2, 3), (2, 3)), did=[most("multiply", 1, "…")])
    def products(x, y):
        return x * y + x * y

An expectation is a function (before, after) → None, or a message that says what is wrong.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from passlab.judge import as_decorator
from passlab.judge.expect import Expectation
from passlab.relay import relay, tvm
from passlab.tvm.cases import calls, case, expecting, least, most

__all__ = [
    "attributes_kept",
    "calls",
    "case",
    "expecting",
    "field",
    "least",
    "let",
    "lets",
    "most",
    "number",
    "program",
    "tuple_of",
    "typed",
    "weight",
]

# ---------------------------------------------------------------------------------------------------- programs


def typed(function: relay.Function) -> tvm.IRModule:
    """Return a typed module with the function as its `main`."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


@as_decorator
def program(body: Callable, *shapes: tuple[int, ...], **attributes: Any) -> Callable[[], tvm.IRModule]:
    """Return a function that makes a new module of main(x, …) = body(x, …) at every call.

    The inputs, float32 of these shapes, have the names of `body`'s parameters; `attributes` become those of main.
    """

    def build() -> tvm.IRModule:
        global _numbers
        _numbers = itertools.count()
        inputs = [
            relay.var(name, shape=size) for name, size in zip(inspect.signature(body).parameters, shapes, strict=True)
        ]
        function = relay.Function(inputs, body(*inputs))
        for name, value in attributes.items():
            function = function.with_attr(name, value)
        return typed(function)

    return build


def number(value: float, dtype: str = "float32") -> relay.Constant:
    return relay.const(value, dtype)


def weight(*shape: int, seed: int = 0) -> relay.Constant:
    """Return a constant of normal random numbers, the same for the same shape and seed."""
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


_numbers = itertools.count()  # for the names of let variables


def let(value: relay.Expr, body: Callable[[relay.Var], relay.Expr]) -> relay.Let:
    """Return `let v = value; body(v)`, with a new v."""
    var = relay.var(f"v{next(_numbers)}")
    return relay.Let(var, value, body(var))


def tuple_of(*fields: relay.Expr) -> relay.Tuple:
    return relay.Tuple(list(fields))


def field(value: relay.Expr, index: int) -> relay.TupleGetItem:
    return relay.TupleGetItem(value, index)


# ---------------------------------------------------------------------------------------------------- expectations


def lets(limit: int, why: str) -> Expectation:
    """Expect at most `limit` variables bound by let, in all functions."""

    def law(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
        bound: list[str] = []
        for function in after.functions.values():
            relay.analysis.post_order_visit(
                function, lambda e: bound.append(f"%{e.var.name_hint}") if isinstance(e, relay.Let) else None
            )
        return (
            None if len(bound) <= limit else f"{why} Still bound: {', '.join(bound[:5])}; {limit or 'none'} should be."
        )

    return law


def attributes_kept(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
    """Expect every function to keep its attributes."""
    for var, function in before.functions.items():
        same = next((f for v, f in after.functions.items() if v.name_hint == var.name_hint), None)
        if same is None:
            return f"The function @{var.name_hint} was removed."
        attributes = set(same.attrs.keys()) if same.attrs else set()
        missing = sorted(set(function.attrs.keys() if function.attrs else ()) - attributes)
        if missing:
            return (
                f"The function @{var.name_hint} has lost its attribute {missing[0]!r}: make the new one with "
                f"func.attrs, or with relay.function.FunctionWithFields."
            )
    return None
