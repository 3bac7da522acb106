"""Day 7: visible cases of the dense + bias + GELU pattern, and what a composite function must be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from passlab.judge import Case, as_decorator, cases_in
from passlab.judge.expect import Expectation
from passlab.judge.words import plural
from passlab.relay import relay, tvm
from passlab.relay.cases import calls, case, expecting, least, most, number, program, tuple_of, weight
from passlab.tvm.judge import counts, functions, has_composite, is_primitive

NAME = "dense_gelu"


def composites(module: tvm.IRModule) -> list[relay.Call]:
    """Return the calls of functions whose attribute Composite is dense_gelu."""
    calls: list[relay.Call] = []

    def visit(expr: relay.Expr) -> None:
        attrs = expr.op.attrs if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function) else None
        if attrs and "Composite" in attrs and attrs["Composite"] == NAME:
            calls.append(expr)

    for function in functions(module).values():
        relay.analysis.post_order_visit(function, visit)
    return calls


def _misshapen(call: relay.Call) -> str | None:
    """Return what is wrong with one composite function and its call, or None."""
    if not is_primitive(call.op):
        return "relay.build cannot build a function with Composite alone: give it Primitive=1, too."
    if len(call.args) != 3:
        arguments = plural(len(call.args), "argument")
        return f"The function takes {arguments}. It must take x, w and b; constants belong inside it."
    inside: Counter[str] = counts(call.op)
    shape = {"nn.dense": 1, "erf": 1, "multiply": 2}
    if short := next((op for op, n in shape.items() if inside[op] < n), None):
        return f"The function contains {calls(inside[short], short)}; it must contain the whole formula."
    if inside["nn.dense"] > 1 or inside["erf"] > 1:
        return "The function contains more than the formula, which has one dense and one erf."
    return None


def expect_composites(count: int, why: str) -> Expectation:
    """Expect at least `wanted` layers to be calls of a correct composite function."""

    def law(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
        calls = composites(after)
        if len(calls) < count:
            return f"{why} Expected {count} calls of a function with Composite={NAME!r}; found {len(calls)}."
        return next((sentence for call in calls if (sentence := _misshapen(call))), None)

    return law


def expect_no_composites(why: str, allowed: int = 0) -> Expectation:
    """Expect that no layer, or at most `allowed`, became a composite function."""

    def law(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
        calls = composites(after)
        return (
            None
            if len(calls) <= allowed
            else f"{why} You made {len(calls)} calls of {NAME!r}; expected {allowed or 'none'}."
        )

    return law


def dense(x: relay.Expr, seed: int = 0, units: int = 6, inputs: int = 4) -> relay.Expr:
    return relay.nn.dense(x, weight(units, inputs, seed=seed), units=units)


def layer(x: relay.Expr, seed: int = 0, units: int = 6, inputs: int = 4) -> relay.Expr:
    """Return dense and bias_add, as torch's importer writes them."""
    return relay.nn.bias_add(dense(x, seed, units, inputs), weight(units, seed=seed + 50))


def from_torch(
    y: relay.Expr, root: float = 0.5**0.5, half: float = 0.5, slope: float = 0.5, phi_of: relay.Expr | None = None
) -> relay.Expr:
    """Return GELU of y as torch's importer writes it; with other numbers or another operand of erf it is not GELU."""
    inner = y if phi_of is None else phi_of
    return y * (number(half) + relay.erf(inner * number(root)) * number(slope))


def from_onnx(y: relay.Expr, root: float = 2**0.5, one: float = 1.0, half: float = 0.5) -> relay.Expr:
    return y * (relay.erf(y / number(root)) + number(one)) * number(half)


def turned(y: relay.Expr) -> relay.Expr:
    """Return the form of from_torch, with all operands swapped."""
    return (number(0.5) * relay.erf(number(0.5**0.5) * y) + number(0.5)) * y


def turned_onnx(y: relay.Expr) -> relay.Expr:
    return number(0.5) * ((number(1.0) + relay.erf(y / number(2**0.5))) * y)


def by_tanh(y: relay.Expr) -> relay.Expr:
    inner = number(math.sqrt(2 / math.pi)) * (y + number(0.044715) * y * y * y)
    return number(0.5) * y * (number(1.0) + relay.tanh(inner))


MATCHES = "This is gelu(dense(x, w) + b)."


@as_decorator
def spares(name: str, body: Callable, *shapes: tuple[int, ...], why: str, allowed: int = 0) -> Case:
    """Return a case in which at most `allowed` layers may match, and no dense may be computed twice."""
    build = program(body, *shapes)
    count = counts(build())["nn.dense"]
    double = "A dense is now computed twice."
    return case(
        name,
        build,
        run=False,
        spared=[
            expect_no_composites(why, allowed),
            most("nn.dense", count, double),
            least("nn.dense", count, "It is used."),
        ],
    )


@case(
    "from torch", program(..., (2, 4)), did=[expect_composites(2, MATCHES)], spared=[expect_no_composites(MATCHES, 2)]
)
def torch_forms(x: relay.Var) -> relay.Expr:
    return tuple_of(from_torch(layer(x)), turned(weight(6, seed=9) + dense(x, 1)))


@case("from ONNX, two layers", program(..., (2, 4)), did=[expect_composites(2, MATCHES)])
def onnx_forms(x: relay.Var) -> relay.Expr:
    first = from_onnx(dense(x) + weight(6))
    return turned_onnx(layer(first, 1, units=5, inputs=6))


@spares("other formulas", ..., (2, 4), why="These are different functions: compare the constants.")
def constants(x: relay.Var) -> relay.Expr:
    y = [layer(x, seed) for seed in range(4)]
    return tuple_of(from_torch(y[0], root=0.7), from_torch(y[1], half=0.4), from_onnx(y[2], one=1.5), by_tanh(y[3]))


@spares("x and y", ..., (2, 4), why="x * phi(y) is not GELU unless x is y.")
def strangers(x: relay.Var) -> relay.Expr:
    return from_torch(layer(x), phi_of=layer(x, 1))


@spares(
    "readers in the middle",
    ...,
    (2, 4),
    why="An intermediate value is also used outside and would be computed twice.",
)
def readers(x: relay.Var) -> relay.Expr:
    y, z = layer(x), dense(x, 1)
    return tuple_of(from_torch(y), relay.tanh(y), from_onnx(z + weight(6)), z)


@spares("other biases", ..., (2, 4), (6, 4), why="A bias has one number for each unit, along the last axis.")
def biases(x: relay.Var, square: relay.Var) -> relay.Expr:
    residual = dense(x) + weight(2, 6)
    rows = relay.nn.bias_add(dense(square), weight(6), axis=0)
    return tuple_of(from_torch(residual), from_torch(rows), from_torch(dense(x, 1) + weight(1)))


def cases() -> list[Case]:
    return [*cases_in(__name__)]


judge = expecting(kernels=has_composite("dense_gelu"))
