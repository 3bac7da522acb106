"""Shared parts of the day 7 exercises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.given.day07._shared import plain
from passlab.judge import Case, as_decorator
from passlab.relay import relay, tvm
from passlab.relay.cases import weight
from passlab.tvm.judge import functions, is_primitive


def block(x: relay.Var) -> relay.Expr:
    """Apply convolution, batch norm, relu and a residual add."""
    conv = relay.nn.conv2d(x, weight(4, 4, 3, 3), channels=4, kernel_size=(3, 3), padding=(1, 1))
    scale, mean = weight(4), weight(4, seed=1)
    normal = relay.nn.batch_norm(conv, scale, mean, mean, relay.const(scale.data.numpy() ** 2 + 0.5))[0]
    return relay.nn.relu(normal) + x


def ladder(x: relay.Var) -> relay.Expr:
    """Return a graph in which each value is read twice: as a tree it would have 2 ** 40 leaves."""
    for _ in range(40):
        x = relay.add(relay.nn.relu(x), x)
    return x


def size(module: tvm.IRModule) -> int:
    """Count the calls in all functions, of operators and of functions."""
    calls: list[relay.Call] = []
    for function in functions(module).values():
        relay.analysis.post_order_visit(function, lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    return len(calls)


@tvm.instrument.pass_instrument
class Witness:
    """Record the events of the last context: (name, size of the module) where a run begins, ("", size) at its end."""

    def __init__(self):
        self.events: list[tuple[str, int]] = []

    def enter_pass_ctx(self):
        self.events.clear()

    def run_before_pass(self, module, info):
        self.events.append((plain(info.name), size(module)))

    def run_after_pass(self, module, info):
        self.events.append(("", size(module)))


CONV, RELU, NORM = "nn.conv2d", "nn.relu", "nn.batch_norm"


def named(e: Any, op: str) -> bool:
    """Return whether `e` is a call of the operator `op`."""
    return isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op) and e.op.name == op


def outside(function: relay.Function) -> list[Any]:
    """Return the expressions of a function, operands first, each once, without those inside Primitive functions."""
    values: list[Any] = []
    relay.analysis.post_order_visit(function, values.append)
    hidden: set[Any] = set()
    for e in values:
        if isinstance(e, relay.Function) and is_primitive(e):
            relay.analysis.post_order_visit(e.body, hidden.add)
    return [e for e in values if e not in hidden]


#: Modules are built at level 1: layouts stay, and constants are not folded, which would take a build for each.
LEVEL = 1


def conv(x: relay.Expr, seed: int = 0, channels: int = 4, groups: int = 1, **settings: Any) -> relay.Expr:
    """Return a 3 × 3 convolution with constant weights. `x` has four channels."""
    kernel = weight(channels, 4 // groups, 3, 3, seed=seed)
    settings = {"padding": (1, 1), "channels": channels, "kernel_size": (3, 3), "groups": groups} | settings
    return relay.nn.conv2d(x, kernel, **settings)


SHAPE = (1, 4, 6, 6)


@as_decorator
def clip_case(name: str, build: Callable[[], tvm.IRModule], *about: str, run: bool = True) -> Case:
    """Return a case about these verdicts besides valid, and about same if it is `run` (building takes a second)."""
    return Case(name, lambda: (build(),), ("valid", *(["same"] if run else []), *about))
