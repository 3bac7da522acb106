"""Read Relay (TVM 0.17): a function is one expression, in which results that are used twice are shared.

Types are inferred on a copy where the module has none. A primitive function, which becomes one kernel, is one node, and
so is a composite function or one for another compiler; the attribute `fused` lists its operators. Calls of other
functions are inlined. The names `%0`, `%1`, … are those of Relay's text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, ClassVar

import tvm
from tvm import relay
from tvm.relay import adt, expr

from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Type, several, short, strongest, tensor_type, value_of, walk
from passlab.tvm.visits import Visits, element

#: Attributes of a function that the compiler treats as one unit: its calls are not inlined.
_UNITS = ("Composite", "Primitive", "Compiler")


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of a Relay module (its `main`, or its only function) or of one function. Raises ValueError."""
    module = obj if isinstance(obj, tvm.IRModule) else tvm.IRModule.from_expr(obj)
    functions = {str(v.name_hint): f for v, f in module.functions.items() if isinstance(f, relay.Function)}
    if not functions:
        raise ValueError("This module has no Relay function, so there is no graph to view.")
    name = "main" if "main" in functions else min(functions)
    error = ""
    if _type(functions[name].body) == UNKNOWN or _type(functions[name]) == UNKNOWN:
        try:
            module = relay.transform.InferType()(module)
            functions = {str(v.name_hint): f for v, f in module.functions.items() if isinstance(f, relay.Function)}
        except tvm.TVMError as ill:  # ill-typed graphs can be viewed too
            error = f"InferType rejects it ({type(ill).__name__})"
    reader = Reader(name, functions)
    walk(reader.entry(functions[name], error))
    return reader.build.graph(str(obj.astext(show_meta_data=False)))


class Reader(Visits):
    """Makes the nodes in post-order."""

    ir, sigil, unnamed = "Relay", "%", "%"

    def __init__(self, name: str, functions: dict[str, Any]):
        super().__init__(name, functions)
        self.units: dict[Any, Any] = {}  # variable → the unit that a let gave it

    def type(self, e: Any) -> Type:
        return _type(e)

    def name(self, variable: Any) -> str:
        return str(variable.name_hint)

    def entry(self, function: Any, error: str) -> Generator:
        result = yield self.enter(function)
        if error:
            next(node for node in self.build.nodes if node.id == result).attrs["error"] = error

    def add(self, e: Any, op: str, kind: str, inputs: list[str], name: str = "", attrs: dict | None = None) -> str:
        name = name or self.fresh()
        operands = [id if id.startswith(("%", "constant_")) else f"%{id}" for id in inputs]
        options = [f"{key}={short(value)}" for key, value in (attrs or {}).items() if key != "fused"]
        arguments = ", ".join([*operands, *options])
        text = f"{op}[{attrs['fused']}]({arguments})" if attrs and "fused" in attrs else f"{op}({arguments})"
        if op == "Tuple":
            text = f"({arguments})"
        elif op == "TupleGetItem":
            text = f"{operands[0]}.{attrs['index']}"
        text = f"%{name.lstrip('%')} = {text}"
        return self.build.add(name, op, kind, inputs, _type(e), text, attrs, ours=True)

    def _constant(self, e: Any, name: str) -> Generator:
        attrs = value_of(e.data.numpy())
        label = short(attrs["value"]) if "value" in attrs else ""
        id = f"constant_{next(self.constants)}"
        text = f"{id} = {label}" if label else id
        type = tensor_type(e.data.shape, *element(e.data.dtype))
        return self.build.add(id, "Constant", "data", (), type, text, attrs, label, ours=True)
        yield

    def _tuple(self, e: Any, name: str) -> Generator:
        fields = []
        for field in e.fields:
            fields.append((yield self.visit(field)))
        return self.add(e, "Tuple", "shape", fields, name)

    def _let(self, e: Any, name: str) -> Generator:
        while isinstance(e, expr.Let):
            if isinstance(e.value, relay.Function) and _unit(e.value):
                self.units[e.var.handle.value] = e.value
            else:
                self.ids[e.var.handle.value] = yield self.visit(e.value, str(e.var.name_hint))
            e = e.body
        return (yield self.visit(e, name))

    def _call(self, e: Any, name: str) -> Generator:
        operands = []
        for operand in e.args:
            operands.append((yield self.visit(operand)))
        op = e.op
        if isinstance(op, tvm.ir.Op):
            attrs = _attrs(e.attrs)
            kind = kinds.TVM.get(op.name, "compute")
            if op.name == "call_lowered":
                attrs["callee"] = str(getattr(e.args[0], "name_hint", ""))
            return self.add(e, str(op.name), kind, operands, name, attrs)
        if isinstance(op, adt.Constructor):
            return self.add(e, str(op.name_hint), "data", operands, name)
        function, called = self.units.get(op.handle.value, op), "fn"
        if isinstance(op, tvm.ir.GlobalVar):
            function, called = self.functions.get(str(op.name_hint)), str(op.name_hint)
        if isinstance(function, relay.Function):
            if unit := _unit(function):
                fused = _inside(function)
                op = "fusion" if unit == "Primitive" else str(function.attrs[unit])
                kind = strongest(kinds.TVM.get(inner, "compute") for inner in fused)
                return self.add(e, op, kind, operands, name, {"fused": ", ".join(fused)})
            if self.may_inline(function):
                return (yield self.inline(function, operands))
        if not isinstance(op, tvm.ir.GlobalVar):  # a closure: a value decides which function runs
            operands = [(yield self.visit(op)), *operands]
        return self.add(e, "Call", "control", operands, name, {"callee": called})

    def _match(self, e: Any, name: str) -> Generator:
        data = yield self.visit(e.data)
        inputs, name = [data], name or self.fresh()
        for number, clause in enumerate(e.clauses):
            inputs.append((yield self.block(f"{name}:clause{number}", clause.rhs, _bound(clause.lhs), (data,))))
        return self.add(e, "Match", "control", inputs, name)

    def _reference(self, e: Any, name: str) -> Generator:
        """Add a mutable cell that is made, read or written."""
        parts = [e.value] if isinstance(e, expr.RefCreate) else [e.ref]
        attrs = {}
        if isinstance(e, expr.RefWrite):
            parts.append(e.value)
        inputs = []
        for part in parts:
            inputs.append((yield self.visit(part)))
        if isinstance(e, expr.RefWrite):
            attrs["mutates"] = inputs[0]
        return self.add(e, type(e).__name__, "memory", inputs, name, attrs)

    def other(self, e: Any, name: str) -> Generator:
        """Add a global or a constructor used as a value."""
        called = str(getattr(e, "name_hint", type(e).__name__))
        return self.build.add(called, type(e).__name__, "data", (), UNKNOWN, f"@{called}", ours=True)
        yield

    how: ClassVar = {
        expr.Var: Visits.free,  # those that are bound are in `made`
        expr.Constant: _constant,
        expr.Call: _call,
        expr.Tuple: _tuple,
        expr.TupleGetItem: Visits.item,
        expr.Let: _let,
        expr.If: Visits.choice,
        adt.Match: _match,
        relay.Function: Visits.function,
        (expr.RefCreate, expr.RefRead, expr.RefWrite): _reference,
    }


def _unit(function: Any) -> str:
    """Return the attribute that makes the function one unit to the compiler; "" for an ordinary one."""
    keys = set(function.attrs.keys()) if function.attrs is not None else ()
    return next((name for name in _UNITS if name in keys), "")


def _inside(function: Any) -> list[str]:
    """Return the operators that a function calls, operands first."""
    operators: list[str] = []

    def look(e: Any) -> None:
        if isinstance(e, expr.Call) and isinstance(e.op, tvm.ir.Op):
            operators.append(str(e.op.name))

    relay.analysis.post_order_visit(function.body, look)
    return operators


def _bound(pattern: Any) -> list[Any]:
    """Return the variables that a pattern of a match binds."""
    if isinstance(pattern, adt.PatternVar):
        return [pattern.var]
    return [variable for part in getattr(pattern, "patterns", ()) for variable in _bound(part)]


def _attrs(attrs: Any) -> dict[str, Any]:
    """Return a call's attributes, without empty and absent ones."""
    if attrs is None:
        return {}
    values = {str(name): plain(attrs[name]) for name in list(attrs.keys())}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def plain(value: Any) -> Any:
    """Return a TVM value as a Python value; an expression as its text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (tvm.tir.IntImm, tvm.tir.FloatImm)):
        return value.value
    if isinstance(value, (tvm.ir.Array, list, tuple)):
        return tuple(plain(part) for part in value)
    return re.sub(r"\s+", " ", str(value))


def _type(e: Any) -> Type:
    try:
        return _of(e.checked_type)
    except ValueError:  # not inferred
        annotation = getattr(e, "type_annotation", None)
        return UNKNOWN if annotation is None else _of(annotation)


def _of(type: Any) -> Type:
    if isinstance(type, tvm.ir.TensorType):
        return tensor_type(map(_dim, type.shape), *element(type.dtype))
    if isinstance(type, tvm.ir.TupleType):
        return several(map(_of, type.fields)) if len(type.fields) else (None, "()", None)
    if isinstance(type, tvm.ir.FuncType):
        return None, "fn", None
    if isinstance(type, (tvm.ir.TypeCall, tvm.ir.RelayRefType)):
        return None, short(str(type)).strip("'"), None
    return UNKNOWN


def _dim(dim: Any) -> int | str:
    return dim.value if isinstance(dim, tvm.tir.IntImm) else "?" if isinstance(dim, tvm.tir.Any) else str(dim)
