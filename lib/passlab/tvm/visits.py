"""The visitor that the readers of Relay and Relax share: see `passlab.graph.assemble.walk`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import count
from typing import Any, ClassVar

import tvm

from passlab.graph.assemble import Builder
from passlab.tvm.dialect import current_dialect

#: Calls are inlined until the graph has this many nodes.
_MOST = 100_000


class Visits:
    """Adds the nodes of a function. Its generators are visits: they return the id of the node that computes the value.

    A subclass adds type(e), name(variable), add(e, op, kind, inputs, name, attrs), and `other`, the visit of the
    expressions that `how` lacks.
    """

    ir: str
    sigil: str  # begins the names of variables in the IR's text
    unnamed: str  # begins the names of values that have none
    how: ClassVar[dict[Any, Callable[..., Generator]]]

    def __init__(self, name: str, functions: dict[str, Any]):
        self.build = Builder(name, self.ir)
        self.functions = functions
        self.ids: dict[Any, str] = {}  # expression → id of the node that makes its value
        self.inside: set[Any] = set()  # functions that are being inlined
        self.numbers, self.constants = count(), count()
        self.key = current_dialect().key

    def enter(self, function: Any) -> Generator:
        for parameter in function.params:
            self.variable(parameter)
        self.inside.add(self.key(function))
        result = yield self.visit(function.body)
        self.build.outputs = [result]
        return result

    def visit(self, e: Any, name: str = "") -> Generator:
        """Return the id of the node that computes the value of `e`; `name`: its variable."""
        key = self.key(e)
        if key not in self.ids:
            rule = next((rule for base, rule in self.how.items() if isinstance(e, base)), type(self).other)
            self.ids[key] = yield rule(self, e, name)
        return self.ids[key]

    def fresh(self) -> str:
        return f"{self.unnamed}{next(self.numbers)}"

    def variable(self, e: Any, inputs: Iterable[str] = ()) -> None:
        name = self.name(e)
        id = self.build.add(name, "Var", "data", inputs, self.type(e), self.sigil + name, ours=True)
        self.ids[self.key(e)] = id

    def free(self, e: Any, name: str) -> Generator:
        """Add a variable that is not defined before its use."""
        return self.build.missing(self.name(e))
        yield

    def item(self, e: Any, name: str) -> Generator:
        value = yield self.visit(e.tuple_value)
        return self.add(e, "TupleGetItem", "shape", [value], name, {"index": e.index})

    def choice(self, e: Any, name: str) -> Generator:
        inputs, name = [(yield self.visit(e.cond))], name or self.fresh()
        for arm, branch in (("then", e.true_branch), ("else", e.false_branch)):
            inputs.append((yield self.block(f"{name}:{arm}", branch)))
        return self.add(e, "If", "control", inputs, name)

    def function(self, e: Any, name: str) -> Generator:
        name = name or self.fresh()
        result = yield self.block(name, e.body, e.params)
        return self.add(e, "Function", "control", [result], name)

    def block(self, name: str, body: Any, variables: Any = (), inputs: Iterable[str] = ()) -> Generator:
        outer, self.build.block = self.build.block, name
        for variable in variables:
            self.variable(variable, inputs)
        result = yield self.visit(body)
        self.build.block = outer
        return result

    def may_inline(self, function: Any) -> bool:
        return self.key(function) not in self.inside and len(self.build.nodes) < _MOST

    def inline(self, function: Any, operands: list[str]) -> Generator:
        known = set(self.ids)
        for parameter, operand in zip(function.params, operands, strict=True):
            self.ids[self.key(parameter)] = operand
        self.inside.add(self.key(function))
        result = yield self.visit(function.body)
        self.inside.remove(self.key(function))
        for key in set(self.ids) - known:  # the next call of it computes anew
            del self.ids[key]
        return result


def element(dtype: str) -> tuple[str, float | None]:
    """Return the dtype, and the bytes of one element."""
    dtype = str(dtype)
    if dtype == "bool":
        return dtype, 1
    try:
        parsed = tvm.DataType(dtype)
    except (ValueError, tvm.TVMError):
        return dtype, None
    return dtype, parsed.bits * parsed.lanes / 8
