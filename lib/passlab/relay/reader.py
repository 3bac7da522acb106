"""Read Relay (TVM 0.17): a function is one expression, in which results that are used twice are shared.

Types are inferred on a copy where the module has none. A primitive function, which becomes one kernel, is one node, and
so is a composite function or one for another compiler; the attribute `fused` lists its operators. Calls of other
functions are inlined. The names `%0`, `%1`, … are those of Relay's text.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from itertools import count
from typing import Any

import tvm
from tvm import relay
from tvm.relay import adt, expr

from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, several, short, sized, strongest, value_of, walk

#: Attributes of a function that the compiler treats as one unit: its calls are not inlined.
_UNITS = ("Composite", "Primitive", "Compiler")

#: Calls are inlined until the graph has this many nodes.
_MOST = 100_000


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


class Reader:
    """Makes the nodes in post-order. Its methods that yield are visits, see `walk`."""

    def __init__(self, name: str, functions: dict[str, Any]):
        self.build = Builder(name, "Relay")
        self.functions = functions
        self.made: dict[Any, str] = {}  # expression → id of the node that makes its value
        self.inside: set[int] = set()  # functions that are being inlined
        self.units: dict[Any, Any] = {}  # variable → the unit that a let gave it
        self.numbers, self.constants = count(), count()

    def entry(self, function: Any, error: str) -> Generator:
        for parameter in function.params:
            self._variable(parameter)
        self.inside.add(function.handle.value)
        result = yield self.visit(function.body)
        self.build.outputs = [result]
        if error:
            next(node for node in self.build.nodes if node.id == result).attrs["error"] = error

    def visit(self, e: Any, name: str = "") -> Generator:
        """Return the id of the node that makes the value of `e`; `name`: its let variable."""
        key = e.handle.value
        if key not in self.made:
            how = next((how for base, how in _HOW.items() if isinstance(e, base)), Reader._other)
            self.made[key] = yield how(self, e, name)
        return self.made[key]

    def _add(self, e: Any, op: str, kind: str, inputs: list[str], name: str = "", attrs: dict | None = None) -> str:
        name = name or f"%{next(self.numbers)}"
        operands = [id if id.startswith(("%", "constant_")) else f"%{id}" for id in inputs]
        options = [f"{key}={short(value)}" for key, value in (attrs or {}).items() if key != "fused"]
        said = ", ".join([*operands, *options])
        text = f"{op}[{attrs['fused']}]({said})" if attrs and "fused" in attrs else f"{op}({said})"
        if op == "Tuple":
            text = f"({said})"
        elif op == "TupleGetItem":
            text = f"{operands[0]}.{attrs['index']}"
        text = f"%{name.lstrip('%')} = {text}"
        return self.build.add(name, op, kind, inputs, _type(e), text, attrs, ours=True)

    def _variable(self, e: Any, inputs: tuple[str, ...] = ()) -> str:
        id = self.build.add(str(e.name_hint), "Var", "data", inputs, _type(e), f"%{e.name_hint}", ours=True)
        self.made[e.handle.value] = id
        return id

    def _free(self, e: Any, name: str) -> Generator:
        """Add a variable that no enclosing function or let defines."""
        return self.build.missing(str(e.name_hint))
        yield

    def _constant(self, e: Any, name: str) -> Generator:
        attrs = value_of(e.data.numpy())
        label = short(attrs["value"]) if "value" in attrs else ""
        id = f"constant_{next(self.constants)}"
        text = f"{id} = {label}" if label else id
        type = sized(e.data.shape, *_element(e.data.dtype))
        return self.build.add(id, "Constant", "data", (), type, text, attrs, label, ours=True)
        yield

    def _tuple(self, e: Any, name: str) -> Generator:
        fields = []
        for field in e.fields:
            fields.append((yield self.visit(field)))
        return self._add(e, "Tuple", "shape", fields, name)

    def _item(self, e: Any, name: str) -> Generator:
        value = yield self.visit(e.tuple_value)
        return self._add(e, "TupleGetItem", "shape", [value], name, {"index": e.index})

    def _let(self, e: Any, name: str) -> Generator:
        while isinstance(e, expr.Let):
            if isinstance(e.value, relay.Function) and _unit(e.value):
                self.units[e.var.handle.value] = e.value
            else:
                self.made[e.var.handle.value] = yield self.visit(e.value, str(e.var.name_hint))
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
            return self._add(e, str(op.name), kind, operands, name, attrs)
        if isinstance(op, adt.Constructor):
            return self._add(e, str(op.name_hint), "data", operands, name)
        function, called = self.units.get(op.handle.value, op), "fn"
        if isinstance(op, tvm.ir.GlobalVar):
            function, called = self.functions.get(str(op.name_hint)), str(op.name_hint)
        if isinstance(function, relay.Function):
            if unit := _unit(function):
                fused = _inside(function)
                op = "fusion" if unit == "Primitive" else str(function.attrs[unit])
                kind = strongest(kinds.TVM.get(inner, "compute") for inner in fused)
                return self._add(e, op, kind, operands, name, {"fused": ", ".join(fused)})
            if function.handle.value not in self.inside and len(self.build.nodes) < _MOST:
                return (yield self._inline(function, operands))
        if not isinstance(op, tvm.ir.GlobalVar):  # a closure: a value decides which function runs
            operands = [(yield self.visit(op)), *operands]
        return self._add(e, "Call", "control", operands, name, {"callee": called})

    def _inline(self, function: Any, operands: list[str]) -> Generator:
        known = set(self.made)
        for parameter, operand in zip(function.params, operands, strict=True):
            self.made[parameter.handle.value] = operand
        self.inside.add(function.handle.value)
        result = yield self.visit(function.body)
        self.inside.remove(function.handle.value)
        for key in set(self.made) - known:  # the next call of it computes anew
            del self.made[key]
        return result

    def _if(self, e: Any, name: str) -> Generator:
        inputs = [(yield self.visit(e.cond))]
        name = name or f"%{next(self.numbers)}"
        for arm, branch in (("then", e.true_branch), ("else", e.false_branch)):
            inputs.append((yield self._block(f"{name}:{arm}", branch)))
        return self._add(e, "If", "control", inputs, name)

    def _match(self, e: Any, name: str) -> Generator:
        data = yield self.visit(e.data)
        inputs, name = [data], name or f"%{next(self.numbers)}"
        for number, clause in enumerate(e.clauses):
            inputs.append((yield self._block(f"{name}:clause{number}", clause.rhs, _bound(clause.lhs), (data,))))
        return self._add(e, "Match", "control", inputs, name)

    def _function(self, e: Any, name: str) -> Generator:
        name = name or f"%{next(self.numbers)}"
        result = yield self._block(name, e.body, e.params)
        return self._add(e, "Function", "control", [result], name)

    def _block(self, name: str, body: Any, variables: Any = (), made_from: tuple[str, ...] = ()) -> Generator:
        outer, self.build.block = self.build.block, name
        for variable in variables:
            self._variable(variable, made_from)
        result = yield self.visit(body)
        self.build.block = outer
        return result

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
        return self._add(e, type(e).__name__, "memory", inputs, name, attrs)

    def _other(self, e: Any, name: str) -> Generator:
        """Add a global or a constructor used as a value."""
        called = str(getattr(e, "name_hint", type(e).__name__))
        return self.build.add(called, type(e).__name__, "data", (), UNKNOWN, f"@{called}", ours=True)
        yield


_HOW = {
    expr.Var: Reader._free,  # those that are bound are in `made`
    expr.Constant: Reader._constant,
    expr.Call: Reader._call,
    expr.Tuple: Reader._tuple,
    expr.TupleGetItem: Reader._item,
    expr.Let: Reader._let,
    expr.If: Reader._if,
    adt.Match: Reader._match,
    relay.Function: Reader._function,
    (expr.RefCreate, expr.RefRead, expr.RefWrite): Reader._reference,
}


def _unit(function: Any) -> str:
    """Return the attribute that makes the function one unit to the compiler; "" for an ordinary one."""
    said = set(function.attrs.keys()) if function.attrs is not None else ()
    return next((name for name in _UNITS if name in said), "")


def _inside(function: Any) -> list[str]:
    """Return the operators that a function calls, operands first."""
    found: list[str] = []

    def look(e: Any) -> None:
        if isinstance(e, expr.Call) and isinstance(e.op, tvm.ir.Op):
            found.append(str(e.op.name))

    relay.analysis.post_order_visit(function.body, look)
    return found


def _bound(pattern: Any) -> list[Any]:
    """Return the variables that a pattern of a match binds."""
    if isinstance(pattern, adt.PatternVar):
        return [pattern.var]
    return [variable for part in getattr(pattern, "patterns", ()) for variable in _bound(part)]


def _attrs(attrs: Any) -> dict[str, Any]:
    """Return a call's attributes, without empty and absent ones."""
    if attrs is None:
        return {}
    found = {str(name): plain(attrs[name]) for name in list(attrs.keys())}
    return {name: value for name, value in found.items() if value is not None and value != ""}


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


def _element(dtype: str) -> tuple[str, float | None]:
    """Return the dtype, and the bytes of one element."""
    dtype = str(dtype)
    if dtype == "bool":
        return dtype, 1
    try:
        it = tvm.DataType(dtype)
    except ValueError:
        return dtype, None
    return dtype, it.bits * it.lanes / 8


def _type(e: Any) -> Type:
    try:
        return _of(e.checked_type)
    except ValueError:  # not inferred
        annotation = getattr(e, "type_annotation", None)
        return UNKNOWN if annotation is None else _of(annotation)


def _of(type: Any) -> Type:
    if isinstance(type, tvm.ir.TensorType):
        return sized(map(_dim, type.shape), *_element(type.dtype))
    if isinstance(type, tvm.ir.TupleType):
        return several(map(_of, type.fields)) if len(type.fields) else (None, "()", None)
    if isinstance(type, tvm.ir.FuncType):
        return None, "fn", None
    if isinstance(type, (tvm.ir.TypeCall, tvm.ir.RelayRefType)):
        return None, short(str(type)).strip("'"), None
    return UNKNOWN


def _dim(dim: Any) -> int | str:
    return dim.value if isinstance(dim, tvm.tir.IntImm) else "?" if isinstance(dim, tvm.tir.Any) else str(dim)
