"""Day 1, reading a Relay module: visible cases and the judge. Imported where Relay's TVM is held."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from passlab import models
from passlab.judge import Case, Finding, plural, times
from passlab.judge.forms import why_not_a_dict
from passlab.judge.words import shown
from passlab.relay import relay, tvm
from passlab.tvm.importers import relay_module

ENTRIES = ("operators", "readers", "parameters", "constants")


def typed(body: Any, *parameters: Any, fused: bool = False) -> tvm.IRModule:
    """Return main(*parameters) = body, with types; `fused`: after FuseOps."""
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(parameters), body)))
    return relay.transform.FuseOps(2)(module) if fused else module


def reads(e: Any) -> list[Any]:
    """Return the operands of an expression."""
    if isinstance(e, relay.Call):
        return list(e.args)
    if isinstance(e, relay.Tuple):
        return list(e.fields)
    return [e.tuple_value] if isinstance(e, relay.TupleGetItem) else []


def size(type: tvm.ir.Type) -> int:
    """Return the size of a tensor, or of all tensors of a tuple, in bytes."""
    if isinstance(type, tvm.ir.TupleType):
        return sum(map(size, type.fields))
    return math.prod(int(dim) for dim in type.shape) * np.dtype(type.dtype).itemsize


def contents(module: tvm.IRModule) -> dict[str, Any]:
    """Return the right answer."""
    main, calls = module["main"], []
    relay.analysis.post_order_visit(main, calls.append)
    readers = {p.name_hint: sum(any(p.same_as(r) for r in reads(e)) for e in calls) for p in main.params}
    for parameter in main.params:
        readers[parameter.name_hint] += main.body.same_as(parameter)
    return {
        "operators": Counter(e.op.name for e in calls if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)),
        "readers": readers,
        "parameters": {p.name_hint: size(p.checked_type) for p in main.params},
        "constants": sum(e.data.numpy().nbytes for e in calls if isinstance(e, relay.Constant)),
    }


def case(name: str, build: Callable[[], tvm.IRModule]) -> Case:
    return Case(name, lambda: (build(),))


class _Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


def _linear() -> tvm.IRModule:
    return relay_module(_Linear().eval(), torch.zeros(2, 4), bind=False)[0]


def residual() -> tvm.IRModule:
    net = models.ZOO["residual"]
    return relay_module(net.build(), *net.inputs())


def shared() -> tvm.IRModule:
    """Return a result that is read three times, an operand that is used twice, a tuple, and an unused input."""
    x, y, idle = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3)), relay.var("idle", shape=(5,), dtype="int8")
    half = relay.const(np.full((3,), 0.5, "float32"))
    once = relay.tanh(relay.multiply(x, half))
    both = relay.concatenate([once, y, y], axis=1)
    return typed(relay.Tuple([relay.multiply(once, once), relay.add(relay.multiply(x, x), half), both]), x, y, idle)


def ladder(rungs: int) -> tvm.IRModule:
    """Return a ladder: each rung reads the one below twice."""
    x = e = relay.var("x", shape=(3,), dtype="float64")
    for _ in range(rungs):
        e = relay.add(relay.sin(e), relay.cos(e))
    return typed(e, x)


def fused() -> tvm.IRModule:
    """Return a fused module: functions inside main, one of whose parameters has the same name as an input of main."""
    x, p0 = relay.var("x", shape=(2, 4), dtype="float16"), relay.var("p0", shape=(4, 4), dtype="float16")
    dense = relay.nn.relu(relay.nn.dense(x, p0))
    return typed(relay.nn.softmax(relay.exp(relay.sum(dense, axis=1, keepdims=True)) * dense), x, p0, fused=True)


def cases() -> list[Case]:
    return [
        case("a linear layer and a relu", _linear),
        case("a residual block", residual),
        case("shared values", shared),
        case("a ladder", lambda: ladder(8)),
        case("after fusion", fused),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `did`: nothing is missing or misread. `spared`: nothing is invented or counted twice."""
    module = case.build()[0]
    expected = contents(module)
    broken = _why_not_contents(value, expected)
    yield Finding("valid", not broken, broken, before=module)
    if broken:
        return
    shortage, excess = _differences(value, expected)
    yield Finding("did", shortage is None, shortage or "", before=module)
    yield Finding("spared", excess is None, excess or "", before=module)


def _why_not_contents(value: Any, expected: dict[str, Any]) -> str:
    """Return why an answer has another form than its text says."""

    def each(entry: str, part: Any) -> str:
        if entry == "constants":
            return "" if type(part) is int else f"The bytes of constants must be an int; it is {shown(part)}."
        names = part if entry == "operators" and isinstance(part, dict) else expected[entry]
        form = f"the entry {entry!r} as a dict from names to ints"
        return why_not_a_dict(
            part, form, names, f"entry in {entry!r}", "a parameter of main", partial(why_not_a_count, entry)
        )

    def why_not_a_count(entry: str, name: Any, n: Any) -> str:
        fits = isinstance(name, str) and type(n) is int
        return "" if fits else f"A count in {entry!r} must be an int; that of {shown(name)} is {shown(n)}."

    entries = {key: value[key] for key in ENTRIES if key in value} if isinstance(value, dict) else value
    form = f"a dict with the entries {', '.join(ENTRIES)}"
    return why_not_a_dict(entries, form, ENTRIES, "entry", "an entry", each, label="The answer: {}")


def _differences(value: dict[str, Any], expected: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the first count that is too small (or, for bytes, wrong), and the first that is too large."""
    shortages, excesses = [], []
    for name in sorted({*value["operators"], *expected["operators"]}):
        actual, want = value["operators"].get(name, 0), expected["operators"].get(name, 0)
        sentence = f"{name} is called {times(want)}; your count is {actual}."
        (shortages if actual < want else excesses if actual > want else []).append(sentence)
    for name, want in expected["readers"].items():
        actual = value["readers"][name]
        sentence = f"The parameter {name} is read by {plural(want, 'expression')}; your count is {actual}."
        (shortages if actual < want else excesses if actual > want else []).append(sentence)
    for name, want in expected["parameters"].items():
        if (actual := value["parameters"][name]) != want:
            shortages.append(f"The parameter {name} takes {want:,} bytes; your answer is {actual:,}.")
    actual, want = value["constants"], expected["constants"]
    sentence = f"The constants take {want:,} bytes together; your answer is {actual:,}."
    (shortages if actual < want else excesses if actual > want else []).append(sentence)
    return next(iter(shortages), None), next(iter(excesses), None)
