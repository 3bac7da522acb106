"""Read Relax (TVM today): a function is a list of bindings, each of which names one value.

A call of a PrimFunc (`call_tir`) is a node whose op is the PrimFunc's name. A function that the compiler treats as one
unit (primitive, composite, or for another compiler) is one node; the attribute `fused` lists its operators. Calls of
other functions are inlined. Nodes of a dataflow block have the attribute `dataflow`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import Any, ClassVar

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Type, several, short, strongest, tensor_type, value_of, walk
from passlab.tvm.visits import Visits, element

#: Attributes of a function that the compiler treats as one unit: its calls are not inlined.
_UNITS = ("Composite", "Codegen", "Primitive")

#: Operators that call their first operand; its operands are the second one (a tuple), or all others.
_CALLS = {
    *("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad", "relax.vm.call_tir_dyn"),
    *("relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed", "relax.call_builtin_with_ctx"),
    *("relax.call_py_func", "relax.invoke_closure", "relax.invoke_pure_closure"),
}

#: The text of an integer inside an expression in TVMScript.
_INTEGER = re.compile(r"T\.int\d+\((-?\d+)\)")

#: Attributes that a line of text shows in another way or omits.
_ASIDE = ("fused", "by", "primfunc")


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of a Relax module (its `main`, or its only function) or of one function. Raises ValueError."""
    functions = {v.name_hint: f for v, f in obj.functions.items()} if isinstance(obj, tvm.IRModule) else {"main": obj}
    graphs = {name: f for name, f in functions.items() if isinstance(f, relax.Function)}
    if not graphs:
        raise ValueError("This module has no Relax function, so there is no graph to view.")
    name = "main" if "main" in graphs else min(graphs)
    reader = _Reader(name, functions)
    walk(reader.entry(graphs[name]))
    return reader.build.graph(obj.script())


class _Reader(Visits):
    """Makes the nodes in the order of the bindings."""

    ir, sigil, unnamed = "Relax", "", "_"
    dataflow = False

    def type(self, e: Any) -> Type:
        return _of(e.ty)

    def name(self, variable: Any) -> str:
        return variable.name

    def entry(self, function: Any) -> Generator:
        result = yield self.enter(function)
        self.build.add("return", "return", "data", [result], text=f"return {result}", ours=True)

    def add(self, e: Any, op: str, kind: str, inputs: list[str], name: str = "", attrs: dict | None = None) -> str:
        name = name or self.fresh()
        attrs = attrs or {}
        options = [f"{key}={short(value)}" for key, value in attrs.items() if key not in _ASIDE]
        arguments = ", ".join([*inputs, *options])
        text = f"{op.replace('relax.', 'R.')}({arguments})"
        if "fused" in attrs:
            text = f"{op}[{attrs['fused']}]({arguments})"
        elif "by" in attrs:
            text = f"R.{attrs['by']}({op}, {arguments})"
        elif op == "Tuple":
            text = f"({arguments},)" if len(inputs) == 1 else f"({arguments})"
        elif op == "TupleGetItem":
            text = f"{inputs[0]}[{attrs['index']}]"
        text = f"{name} = {text}"
        if self.dataflow:
            attrs = {**attrs, "dataflow": True}
        return self.build.add(name, op, kind, inputs, _of(e.ty), text, attrs, ours=True)

    def _constant(self, e: Any, name: str) -> Generator:
        type = _of(e.ty)
        id = name or f"constant_{next(self.constants)}"
        attrs = value_of(e.value.numpy()) if isinstance(e.value, tvm.runtime.Tensor) else {}
        label = short(attrs["value"]) if "value" in attrs else ""
        text = f"{id} = {label}" if label else id
        return self.build.add(id, "Constant", "data", (), type, text, attrs, label, ours=True)
        yield

    def _sequence(self, e: Any, name: str) -> Generator:
        for block in e.blocks:
            outer, self.dataflow = self.dataflow, isinstance(block, relax.DataflowBlock)
            for binding in block.bindings:
                variable = binding.var
                if isinstance(binding, relax.MatchCast):
                    value = yield self.visit(binding.value)
                    id = self.add(variable, "match_cast", "shape", [value], variable.name)
                else:
                    id = yield self.visit(binding.value, variable.name)
                self.ids[variable.__chandle__()] = id
            self.dataflow = outer
        return (yield self.visit(e.body, name))

    def _tuple(self, e: Any, name: str) -> Generator:
        inputs, attrs = yield self._operands(e.fields, ())
        return self.add(e, "Tuple", "shape", inputs, name, attrs)

    def _call(self, e: Any, name: str) -> Generator:
        op, args = e.op, list(e.args)
        convention, attrs = "", _attrs(e.attrs)
        if isinstance(op, tvm.ir.Op) and op.name in _CALLS:
            convention, op, args = op.name.removeprefix("relax."), args[0], args[1:]
        if isinstance(op, tvm.ir.Op):
            inputs, operands = yield self._operands(args, [a.name for a in op.arguments])
            kind = kinds.TVM.get(op.name.removeprefix("relax."), "compute")
            return self.add(e, op.name, kind, inputs, name, operands | attrs)
        inputs, operands = yield self._operands(args, ())
        attrs = {**({"by": convention} if convention else {}), **operands, **attrs}
        if isinstance(op, relax.ExternFunc):
            symbol = str(op.global_symbol)
            return self.add(e, symbol, kinds.TVM.get(symbol, "compute"), inputs, name, attrs)
        called = op.name_hint if isinstance(op, tvm.ir.GlobalVar) else ""
        function = self.functions.get(called, op)
        if isinstance(function, PrimFunc):
            return self._primfunc(e, called, inputs, name, attrs)
        if isinstance(function, relax.Function):
            if unit := _unit(function):
                fused = self._inside(function)
                attrs["fused"] = ", ".join(fused)
                if unit == "Composite":
                    called, attrs["function"] = str(function.attrs[unit]), called
                return self.add(e, called or "fusion", strongest(map(_kind, fused)), inputs, name, attrs)
            if self.may_inline(function):
                return (yield self.inline(function, inputs))
        if not called:  # a closure: a value decides which function runs
            inputs = [(yield self.visit(op)), *inputs]
        return self.add(e, "Call", "control", inputs, name, {"callee": called, **attrs})

    def _primfunc(self, e: Any, called: str, inputs: list[str], name: str, attrs: dict) -> str:
        """Add a kernel. Called directly, not by call_tir, it writes into its last operand."""
        attrs["primfunc"] = True
        if attrs.get("by") == "call_tir_inplace" or ("by" not in attrs and inputs):
            attrs["mutates"] = inputs[-1]
        return self.add(e, called, _kind(called), inputs, name, attrs)

    def _operands(self, args: Iterable[Any], names: Any) -> Generator:
        """Return (ids of the operands that are values, the others by name). A literal tuple stands for its fields."""
        inputs: list[str] = []
        attributes: dict[str, Any] = {}
        for number, arg in enumerate(args):
            if isinstance(arg, tvm.ir.Tuple) and arg.__chandle__() not in self.ids:
                within, about = yield self._operands(arg.fields, ())
                inputs += within
                if about:
                    attributes[names[number] if number < len(names) else f"operand{number}"] = tuple(about.values())
            elif self._is_value(arg):
                inputs.append((yield self.visit(arg)))
            else:
                attributes[names[number] if number < len(names) else f"operand{number}"] = plain(arg)
        return inputs, attributes

    def _is_value(self, e: Any) -> bool:
        """Return whether a node computes this value: literal numbers, shapes and strings have no node."""
        if e.__chandle__() in self.ids:
            return True
        if isinstance(e, (relax.ShapeExpr, relax.ExternFunc, tvm.ir.GlobalVar, tvm.ir.StringImm, tvm.ir.OpaqueExpr)):
            return False
        if isinstance(e, tvm.ir.GenericConst) and not isinstance(e.value, tvm.runtime.Tensor):  # a dtype
            return False
        return not isinstance(getattr(e, "ty", None), tvm.ir.PrimType)

    def _inside(self, function: Any) -> list[str]:
        """Return the operators and PrimFuncs that a function calls, in order, directly or through other functions."""
        names: list[str] = []
        for block in function.body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.Function):
                    names += self._inside(value)
                if not isinstance(value, relax.Call) or isinstance(value.op, relax.Var):  # a variable: handled above
                    continue
                op = value.op
                if isinstance(op, tvm.ir.Op) and op.name in _CALLS:
                    op = value.args[0]
                name = getattr(op, "name_hint", None) or getattr(op, "global_symbol", None) or getattr(op, "name", "")
                inner = self.functions.get(str(name))
                names += self._inside(inner) if isinstance(inner, relax.Function) else [str(name)]
        return names

    def other(self, e: Any, name: str) -> Generator:
        """Add a shape, number, text or function used as a value."""
        kind = "shape" if isinstance(e, relax.ShapeExpr) else "data"
        return self.add(e, type(e).__name__, kind, [], name, {"value": plain(e)})
        yield

    how: ClassVar = {
        relax.SeqExpr: _sequence,
        relax.Var: Visits.free,  # those that are bound are in `made`
        relax.Call: _call,
        tvm.ir.GenericConst: _constant,
        tvm.ir.Tuple: _tuple,
        tvm.ir.TupleGetItem: Visits.item,
        relax.If: Visits.choice,
        relax.Function: Visits.function,
    }


def _unit(function: Any) -> str:
    """Return the attribute that makes the function one unit to the compiler; "" for an ordinary one."""
    return next((name for name in _UNITS if function.attrs and name in function.attrs), "")


def _kind(called: str) -> str:
    """Return the kind of an operator or of a PrimFunc, which is named after one: `reshape2`, `fused_conv2d_add`."""
    return kinds.TVM.get(re.sub(r"\d+$", "", called.removeprefix("relax.")), "compute")


def _attrs(attrs: Any) -> dict[str, Any]:
    """Return a call's attributes, without empty and absent ones."""
    if attrs is None:
        return {}
    if isinstance(attrs, tvm.ir.DictAttrs):
        values = {str(name): plain(attrs[name]) for name in set(attrs.keys())}
    else:
        names = [f.name for base in type(attrs).__mro__ for f in _fields(base)]
        values = {name: plain(getattr(attrs, name)) for name in names}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _fields(base: type) -> Iterable[Any]:
    return getattr(base.__dict__.get("__tvm_ffi_type_info__"), "fields", None) or ()


def plain(value: Any) -> Any:
    """Return a TVM value as a Python value; an expression as its text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm, tvm.ir.StringImm)):
        return value.value
    if isinstance(value, relax.ShapeExpr):
        return tuple(plain(dim) for dim in value.values)
    if isinstance(value, (tvm.ir.Array, list, tuple)):
        return tuple(plain(part) for part in value)
    return _INTEGER.sub(r"\1", " ".join(str(value).split())).replace("T.", "")


def _of(type: Any) -> Type:
    if isinstance(type, relax.TensorType):
        dtype, size = element(str(type.dtype.dtype)) if type.dtype is not None else (None, None)
        if isinstance(type.shape, relax.ShapeExpr):
            return tensor_type([d if isinstance(d, int) else plain(d) for d in type.shape.values], dtype, size)
        return (None if type.ndim < 0 else ("?",) * type.ndim), dtype, None
    if isinstance(type, relax.TupleType):
        return several(map(_of, type.fields)) if len(type.fields) else (None, "()", None)
    if isinstance(type, relax.ShapeType):
        return None, "shape", None
    if isinstance(type, relax.FuncType):
        return None, "fn", None
    if isinstance(type, tvm.ir.PrimType):
        return tensor_type((), *element(str(type.dtype)))
    return (None, "object", None) if isinstance(type, relax.AnyType) else UNKNOWN
