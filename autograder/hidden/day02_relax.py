"""Day 2, the same pass in Relax: the cases that learners do not see. Imported where Relax's TVM is held."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from passlab.exercises.cases_day02_relax import IMAGE
from passlab.exercises.cases_day08 import case, module, op
from passlab.judge import Case
from passlab.relax import relax, tvm

Build = Callable[[], tvm.IRModule]


def _drawn(seed: int) -> Build:
    """Products, sigmoids, and products with sigmoids of one's own and of others, at random."""

    def body(e: Any, x: Any, y: Any) -> Any:
        rng = random.Random(seed)
        values = [x, y, e(op.negative(x))]
        for _ in range(8):
            value, other = rng.choice(values[-4:]), rng.choice(values)
            kind = rng.choice("oorgts")
            if kind in "or":
                gate = e(op.sigmoid(value))
                values.append(e(op.multiply(value, gate) if kind == "o" else op.multiply(gate, value)))
                if rng.random() < 0.4:
                    values.append(e(op.add(gate, other)))
            elif kind == "g":
                values.append(e(op.multiply(value, e(op.sigmoid(other)))))
            elif kind == "t":
                values.append(e(op.multiply(value, e(op.tanh(value)))))
            else:
                values.append(e(op.sigmoid(value)))
        return e(op.add(values[-1], e(op.add(values[-2], values[-3]))))

    return lambda: relax.transform.DeadCodeElimination()(module(body, IMAGE, IMAGE)())


def _chain(e: Any, x: Any) -> Any:
    """A sigmoid of a sigmoid: the product of both is a silu of the inner one."""
    inner = e(op.sigmoid(x))
    outer = e(op.sigmoid(inner))
    return e(op.multiply(inner, outer)), e(op.multiply(outer, outer))


def _handed_out(e: Any, x: Any) -> Any:
    """The gate leaves the block, so it is read."""
    gate = e(op.sigmoid(x), leave=True)
    return [e(op.multiply(x, gate), leave=True), gate]


def _symbolic(e: Any, x: Any) -> Any:
    return e(op.multiply(x, e(op.sigmoid(x))))


def _branches() -> tvm.IRModule:
    """A match in one arm of an if, whose gate was made before it; in the other one the gate is of another value."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()

    def arm(body: Callable[[], Any]) -> relax.SeqExpr:
        builder._begin_binding_block()
        result = builder.emit(body())
        return relax.SeqExpr([builder._end_block()], result)

    with builder.function("main", [x, flag]):
        gate = builder.emit(op.sigmoid(x))
        one = arm(lambda: op.multiply(gate, x))
        other = arm(lambda: op.multiply(x, builder.emit(op.sigmoid(builder.emit(op.negative(x))))))
        builder.emit_func_output(builder.emit(relax.If(flag, one, other)))
    return builder.get()


def _gated_layer(e: Any, x: Any, up: Any, gate: Any, down: Any) -> Any:
    """As it stands in many language models, with one more gate behind it that is none of its own value."""
    gated = e(op.matmul(x, gate))
    wide = e(op.multiply(e(op.matmul(x, up)), e(op.multiply(gated, e(op.sigmoid(gated))))))
    return e(op.multiply(e(op.matmul(wide, down)), e(op.sigmoid(x))))


def _helper(e: Any, x: Any) -> Any:
    gate = e(op.sigmoid(x))
    return e(op.add(e(op.multiply(gate, x)), gate))


def _calls_helper(e: Any, x: Any) -> Any:
    return e(op.multiply(e(e.helper(x)), e(op.sigmoid(x))))


def fuse_silu(seed: int) -> list[Case]:
    rng = random.Random(seed)
    all_of_them = ("did", "spared", "cost")
    n = tvm.tirx.Var("n", "int64")
    return [
        case("sigmoids of sigmoids", module(_chain, (5,)), *all_of_them),
        case("a gate that leaves its block", module(_handed_out, (5,)), *all_of_them),
        case("an unknown size, in half precision", module(_symbolic, ((n, 3), "float16")), *all_of_them, run=False),
        case("branches", _branches, *all_of_them, run=False),
        case("a gated layer", module(_gated_layer, (3, 6), (6, 8), (6, 8), (8, 6)), *all_of_them),
        case("a helper's result is no gate", module(_calls_helper, (5,), helper=_helper), *all_of_them, run=False),
        *(case(f"drawn, number {i + 1}", _drawn(rng.randrange(10**6)), *all_of_them, run=not i) for i in range(4)),
    ]
