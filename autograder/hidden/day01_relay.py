"""Day 1, reading a Relay module: the cases that learners do not see. Imported where Relay's TVM is held."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from passlab import models
from passlab.exercises.cases_day01_relay import case, ladder, typed
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.generate import random_relay
from passlab.tvm.importers import relay_module


def _zoo(name: str, bind: bool, fuse: bool = False) -> Callable[[], tvm.IRModule]:
    def build() -> tvm.IRModule:
        net = models.ZOO[name]
        made = relay_module(net.build(), *net.inputs(), bind=bind)
        module = made if bind else made[0]
        return relay.transform.FuseOps(2)(module) if fuse else module

    return build


def _generated(seed: int, size: int) -> Callable[[], tvm.IRModule]:
    return lambda: relay.transform.InferType()(random_relay(seed, size, ("pointwise", "diamond", "tuples", "outputs")))


def _returned() -> tvm.IRModule:
    """An input that main hands out as it came, and items of a tuple."""
    flags, x = relay.var("flags", shape=(7,), dtype="bool"), relay.var("x", shape=(4, 6), dtype="int16")
    parts = relay.split(x, 2, axis=1)
    table = relay.const(np.arange(3, dtype="int64"))
    return typed(relay.Tuple([flags, parts[0], parts[1], parts[0], table, table]), flags, x)


def _identity() -> tvm.IRModule:
    x, other = relay.var("x", shape=(3, 3)), relay.var("other", shape=(1,))
    return typed(x, x, other)


def _names() -> tvm.IRModule:
    """Functions whose parameters are named like main's, and operators that are called in two places."""
    x, y = relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))
    inner = [relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))]
    one = relay.Function(inner, relay.add(relay.add(inner[0], inner[0]), inner[1]))
    one = one.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return typed(relay.add(one(y, y), relay.nn.relu(x)), x, y)


def read_relay(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        case("a parameter is returned", _returned),
        case("nothing but a parameter", _identity),
        case("names that mislead", _names),
        case("a longer ladder", lambda: ladder(14)),
        case("a convolutional network", _zoo("convnet", bind=True)),
        case("attention, weights as parameters", _zoo("attention", bind=False)),
        case("a network after fusion", _zoo("residual", bind=True, fuse=True)),
        *(case(f"generated {i}", _generated(rng.randrange(10**6), rng.randint(8, 16))) for i in range(3)),
    ]
