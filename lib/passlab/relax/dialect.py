"""Relax's implementation of `passlab.tvm.dialect`. A function is a list of bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi

from passlab.building.parameters import Parameter
from passlab.relax import reader, relax, tvm
from passlab.tvm.dialect import CANCELS, ZEROS, CallValues, Node, numbered
from passlab.tvm.modules import callee_name, is_primitive

NAME = "relax"
Function, Tuple = relax.Function, relax.Tuple
BARE = {"pipeline": "none"}
#: Operators that call their first operand.
_INDIRECT = ("relax.call_", "relax.invoke_", "relax.make_closure")


def read(value: Any) -> Any:
    return reader.read(value)


def typed(module: Any) -> Any:
    return module


def type_of(expr: Any) -> Any:
    return getattr(expr, "ty", None)


def dtypes(type_: Any) -> Iterator[str]:
    if isinstance(type_, relax.TupleType):
        for field in type_.fields:
            yield from dtypes(field)
    elif dtype := getattr(type_, "dtype", None):
        yield str(dtype)


def key(expr: Any) -> Any:
    return expr.__chandle__()


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.ty) for p in function.params]


def result(function: Any) -> Any:
    return function.ret_ty


def examples(function: Any, odd: int) -> Iterator[Parameter]:
    own = [v for _, type_ in parameters(function) for v in relax.analysis.tir_vars_in_type(type_)]
    defined = relax.analysis.defined_symbolic_vars(function)  # by match_cast, too, which only a run can tell
    free = [v for v in defined if any(v.same_as(u) for u in own)]
    if free:
        function = function.bind_symbolic_vars({v: odd + 2 * i for i, v in enumerate(free)})
    for name, type_ in parameters(function):
        if not isinstance(type_, relax.TensorType) or type_.shape is None:
            raise ValueError(f"The parameter {name} is {type_}, not a tensor of known rank: give inputs.")
        yield Parameter(name, tuple(int(size) for size in type_.shape), str(type_.dtype or ""), bool(free))


def bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the bindings of a function in order, branches included, as (variable, value)."""

    def inside(expr: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    value = binding.value
                    if isinstance(value, relax.If):
                        yield from inside(value.true_branch)
                        yield from inside(value.false_branch)
                    elif isinstance(value, relax.Function):
                        yield from inside(value.body)
                    yield binding.var, value

    yield from inside(function.body)


def nodes(name: str, function: Any) -> Iterator[Node]:
    for var, value in bindings(function):
        if isinstance(value, relax.Call) and (callee := _name(value)):
            yield Node(callee, value, var, name)


def _name(call: Any) -> str | None:
    """Return the name of the operator, or of the PrimFunc or packed function that it calls."""
    if isinstance(call.op, relax.ExternFunc):
        return call.op.global_symbol
    if not isinstance(call.op, tvm.ir.Op):
        return None  # a function of the module: its own calls count
    if call.op.name.startswith(("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed")) and call.args:
        callee = call.args[0]
        return getattr(callee, "name_hint", None) or getattr(callee, "global_symbol", call.op.name)
    return call.op.name


def function_calls(function: Any) -> Iterator[Any]:
    for _, value in bindings(function):
        if isinstance(value, relax.Call):
            if not isinstance(value.op, tvm.ir.Op):
                yield value.op
            elif value.op.name.startswith(_INDIRECT) and value.args:
                yield value.args[0]


def groups(name: str, function: Any) -> Iterator[tuple[str, ...]]:
    names = tuple(node.name for node in nodes(name, function))
    yield from [names] if is_primitive(function) else [(one,) for one in names]


def consumers(function: Any) -> dict[Any, list[Any]]:
    readers: dict[Any, list[Any]] = {p: [] for p in function.params}
    for var, value in bindings(function):
        readers.setdefault(var, [])
        read: list[Any] = []
        relax.analysis.post_order_visit(value, read.append)
        for v in dict.fromkeys(e for e in read if isinstance(e, relax.Var)):
            if v in readers:
                readers[v].append(var)
    if function.body.body in readers:
        readers[function.body.body].append(None)
    return readers


def depth(functions: dict[str, Any]) -> int:
    return _depth(functions["main"], functions)


def _depth(function: Any, others: dict[str, Any], level: int = 0) -> int:
    steps: dict[Any, int] = {}
    for var, value in bindings(function):
        read: list[Any] = []
        relax.analysis.post_order_visit(value, read.append)
        own = 0
        if isinstance(value, relax.Call):
            callee = others.get(getattr(value.op, "name_hint", ""))
            own = _depth(callee, others, level + 1) if callee is not None and level < 4 else 1
        steps[var] = own + max((steps.get(e, 0) for e in read if isinstance(e, relax.Var)), default=0)
    return max(steps.values(), default=0)


def hides_sums(names: list[str]) -> bool:
    """Return whether there are TIR kernels, whose names do not tell what they compute."""
    return any(not name.startswith("relax.") for name in names)


def equal_types(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))


def mismatch(one: Any, other: Any) -> tuple[str, str] | None:
    if tvm_ffi.structural_equal(one, other):
        return None
    paths = tvm_ffi.get_first_structural_mismatch(one, other)
    return ("", "") if paths is None else (str(paths[0]), str(paths[1]))


def expose_calls(module: Any, most: int) -> CallValues | None:
    module = relax.transform.ToNonDataflow()(module)
    main = module["main"]
    all_bindings = [binding for block in main.body.blocks for binding in block.bindings]
    if any(isinstance(binding.value, relax.If | relax.Function) for binding in all_bindings):
        return None
    calls = [b for b in all_bindings if isinstance(b.value, relax.Call) and isinstance(b.var.ty, relax.TensorType)]
    if not 0 < len(calls) <= most:
        return None
    result = relax.BlockBuilder().normalize(relax.Tuple([b.var for b in calls]))
    all_values = relax.Var("all_values", result.ty)
    blocks = [*main.body.blocks, relax.BindingBlock([relax.VarBinding(all_values, result)])]
    body = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, all_values))
    function = relax.Function(main.params, body, result.ty, main.is_pure, main.attrs)
    returning = tvm.IRModule(dict(module.functions.items()))
    returning.update_func(returning.get_global_var("main"), function)
    names = {node.var: node.name for node in nodes("main", main)}
    return CallValues([(b.var.name, names.get(b.var) or callee_name(b.value)) for b in calls], returning)


def as_written(module: Any) -> Any | None:
    mutator = _Apart(module)
    for var, function in module.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(var, mutator.visit_expr(function))
    return mutator.builder_.get() if mutator.simplified else None


@relax.expr_functor.mutator
class _Apart(relax.PyExprMutator):
    """Makes a constant of 0 a value: of a kernel for one operator TVM knows only the single numbers.

    Equal operands are different buffers there.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.simplified = False
        self.names: dict[Any, int] = {}
        self.numbers: dict[Any, int] = {}  # of variables

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.Call):
            operands = (self.number(operand) for operand in value.args)
            self.numbers[key(binding.var)] = numbered(self.names, callee_name(value), *operands)
        super().visit_var_binding_(binding)

    def number(self, expr: Any) -> int:
        return self.numbers.setdefault(key(expr), numbered(self.names, key(expr)))

    def visit_call_(self, call: Any) -> Any:
        name = getattr(call.op, "name", "").removeprefix("relax.")
        equal = name in CANCELS and self.number(call.args[0]) == self.number(call.args[1])
        call = self.visit_expr_post_order(call)
        if name not in (*CANCELS, *ZEROS) or not all("float" in dtype for dtype in dtypes(call.args[0].ty)):
            return call
        self.simplified |= equal
        if name in CANCELS or not any(map(_is_zero, call.args)):
            return call
        self.simplified = True
        return tvm.ir.Call(call.op, [self._value(a) if _is_zero(a) else a for a in call.args], call.attrs, call.ty_args)

    def _value(self, zero: Any) -> Any:
        row = relax.const(zero.value.numpy().reshape(-1))
        return self.builder_.emit(relax.op.reshape(row, zero.value.shape))


def _is_zero(expr: Any) -> bool:
    return isinstance(getattr(expr, "value", None), tvm.runtime.Tensor) and not expr.value.numpy().any()
