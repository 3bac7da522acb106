"""Relay's implementation of `passlab.tvm.dialect`. An expression is a graph without names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.building.parameters import Parameter
from passlab.graph.assemble import walk
from passlab.relay import reader, relay, tvm
from passlab.tvm.dialect import CANCELS, ZEROS, CallValues, Node, numbered
from passlab.tvm.modules import callee_name, functions, is_function, is_primitive

NAME = "relay"
Function, Tuple = relay.Function, relay.Tuple
BARE = {"level": 0}
#: Operators that call their first operand.
_INDIRECT = ("call_lowered", "vm.")


def read(value: Any) -> Any:
    return reader.read(value)


def typed(module: Any) -> Any:
    if is_function(module):
        return relay.transform.InferType()(tvm.IRModule.from_expr(module))["main"]
    return relay.transform.InferType()(module)


def type_of(expr: Any) -> Any:
    try:
        return expr.checked_type
    except ValueError:  # not inferred yet; a parameter still has its declared type
        return getattr(expr, "type_annotation", None)


def dtypes(type_: Any) -> Iterator[str]:
    if isinstance(type_, relay.TupleType):
        for field in type_.fields:
            yield from dtypes(field)
    elif dtype := getattr(type_, "dtype", None):
        yield str(dtype)


def key(expr: Any) -> Any:
    return expr.handle.value


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name_hint, type_of(p)) for p in function.params]


def result(function: Any) -> Any:
    return function.ret_type


def examples(function: Any, odd: int) -> Iterator[Parameter]:
    for name, type_ in parameters(function):
        if not isinstance(type_, relay.TensorType):
            raise ValueError(f"The parameter {name} is {type_}, not a tensor of known rank: give inputs.")
        free = [isinstance(size, tvm.tir.Any) for size in type_.shape]
        shape = tuple(odd if any_ else int(size) for size, any_ in zip(type_.shape, free, strict=True))
        yield Parameter(name, shape, str(type_.dtype), any(free))


def nodes(name: str, function: Any) -> Iterator[Node]:
    exprs: list[Any] = []
    relay.analysis.post_order_visit(function, exprs.append)
    for expr in exprs:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            yield Node(expr.op.name, expr, None, name)


def function_calls(function: Any) -> Iterator[Any]:
    exprs: list[Any] = []
    relay.analysis.post_order_visit(function, exprs.append)
    for expr in exprs:
        if isinstance(expr, relay.Call) and not isinstance(expr.op, tvm.ir.Op):
            yield expr.op
        elif isinstance(expr, relay.Call) and expr.op.name.startswith(_INDIRECT):
            yield expr.args[0]


def bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the lets around the body: the only place where Relay names values."""
    body = function.body
    while isinstance(body, relay.Let):
        yield body.var, body.value
        body = body.body


def groups(name: str, function: Any) -> Iterator[tuple[str, ...]]:
    inside: set[int] = set()
    exprs: list[Any] = []
    relay.analysis.post_order_visit(function, exprs.append)
    for expr in exprs:
        if is_function(expr) and is_primitive(expr):
            fused = list(nodes(name, expr))
            inside |= {hash(node.expr) for node in fused}
            yield tuple(node.name for node in fused)
    yield from ((node.name,) for node in nodes(name, function) if hash(node.expr) not in inside)


def consumers(function: Any) -> dict[Any, list[Any]]:
    readers: dict[Any, list[Any]] = {p: [] for p in function.params}
    exprs: list[Any] = []
    relay.analysis.post_order_visit(function, exprs.append)
    for expr in exprs:
        for part in dict.fromkeys(parts_of(expr)):
            readers.setdefault(part, []).append(expr)
        readers.setdefault(expr, [])
    readers.pop(function, None)
    readers[function.body] = [None if reader == function else reader for reader in readers[function.body]]
    return readers


def parts_of(expr: Any) -> list[Any]:
    """Return the direct operands of an expression, without parameters and operators."""
    if isinstance(expr, relay.Call):
        return [*([] if isinstance(expr.op, tvm.ir.Op) else [expr.op]), *expr.args]
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Let):
        return [expr.value, expr.body]
    if isinstance(expr, relay.If):
        return [expr.cond, expr.true_branch, expr.false_branch]
    return [expr.body] if isinstance(expr, relay.Function) else []


def top_level(function: Any) -> list[Any]:
    """Return the expressions of a function, operands first, without those inside nested functions."""
    order, visited = [], set()
    todo = [(function.body, False)]
    while todo:
        expr, ready = todo.pop()
        if ready:
            order.append(expr)
        elif expr not in visited:
            visited.add(expr)
            parts = [part for part in parts_of(expr) if not isinstance(part, relay.Function)]
            todo += [(expr, True), *((part, False) for part in reversed(parts))]
    return order


def view_ids(function: Any) -> dict[int, str]:
    """Return the ids of a function's expressions in its view, by the expressions' handles."""
    visit = reader.Reader("main", {})
    walk(visit.entry(function, ""))
    return visit.ids


def depth(functions: dict[str, Any]) -> int:
    steps: dict[Any, int] = {}

    def visit(expr: Any) -> None:
        counted = isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op)
        steps[expr] = max((steps.get(part, 0) for part in parts_of(expr)), default=0) + counted

    relay.analysis.post_order_visit(functions["main"], visit)
    return max(steps.values())


def hides_sums(names: list[str]) -> bool:
    return False


def equal_types(one: Any, other: Any) -> bool:
    return bool(tvm.ir.structural_equal(one, other, map_free_vars=True))


def mismatch(one: Any, other: Any) -> tuple[str, str] | None:
    if tvm.ir.structural_equal(one, other):
        return None
    paths = tvm.ir.base.get_first_structural_mismatch(one, other)
    return ("", "") if paths is None else (str(paths[0]), str(paths[1]))


def expose_calls(module: Any, most: int) -> CallValues | None:
    module = typed(module)
    main = functions(module)["main"]
    order = top_level(main)
    if any(isinstance(e, relay.Let | relay.If) for e in order):
        return None
    calls = [e for e in order if isinstance(e, relay.Call) and isinstance(e.checked_type, relay.TensorType)]
    if not 0 < len(calls) <= most:
        return None
    ids = view_ids(main)
    named = [(ids.get(call.handle.value, "?"), callee_name(call)) for call in calls]
    function = relay.Function(main.params, relay.Tuple(calls))
    others = {var: f for var, f in module.functions.items() if var.name_hint != "main"}
    return CallValues(named, tvm.IRModule({**others, relay.GlobalVar("main"): function}, module.type_definitions))


def as_written(module: Any) -> Any | None:
    module = relay.transform.DefuseOps()(typed(module))
    mutator = _Apart()
    functions = {v: mutator.visit(f) if isinstance(f, relay.Function) else f for v, f in module.functions.items()}
    return tvm.IRModule(functions, module.type_definitions) if mutator.simplified else None


class _Apart(relay.ExprMutator):
    """Copies the second of two equal operands to a buffer of its own; at level 0 the copy is not fused."""

    def __init__(self) -> None:
        super().__init__()
        self.simplified = False
        self.names: dict[Any, int] = {}
        self.numbers: dict[Any, int] = {}  # of the old expressions

    def number(self, expr: Any) -> int:
        """Return the number of a value whose operands have been visited."""
        if expr not in self.numbers:
            parts = isinstance(expr, relay.Call | relay.Tuple | relay.TupleGetItem)
            own = callee_name(expr) if isinstance(expr, relay.Call) else getattr(expr, "index", "")
            key = (type(expr), own, *map(self.number, parts_of(expr))) if parts else (expr,)
            self.numbers[expr] = numbered(self.names, *key)
        return self.numbers[expr]

    def visit_call(self, call: Any) -> Any:
        new = super().visit_call(call)
        self.number(call)
        name = callee_name(call)
        if name not in (*CANCELS, *ZEROS) or "float" not in call.args[0].checked_type.dtype:
            return new
        if name in ZEROS:
            self.simplified |= any(isinstance(a, relay.Constant) and not a.data.numpy().any() for a in call.args)
        elif self.number(call.args[0]) == self.number(call.args[1]):
            self.simplified = True
            return relay.Call(new.op, [new.args[0], relay.copy(new.args[1])], new.attrs)
        return new
