"""Check a Relay module with InferType, after checking what InferType assumes and crashes on."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from passlab.relay import relay, tvm
from passlab.tvm.judge import HOLE, InvalidModuleError, last_line, unbound
from passlab.tvm.modules import functions, nodes, short


def check(module: Any, names: list[str], tell: Callable[[str], None]) -> None:
    """Raise InvalidModuleError unless all functions are well-formed and well-typed."""
    called: set[str] = set()  # InferType types the calls of these by their declared results
    for name, function in functions(module).items():
        exprs: list[Any] = []
        tell(f"The pass returned a module whose function {name} TVM cannot traverse")
        try:
            relay.analysis.post_order_visit(function, exprs.append)
        except tvm.error.TVMError:
            raise InvalidModuleError(f"In {name}, {HOLE}") from None
        for call in (e for e in exprs if isinstance(e, relay.Call)):
            _look_at(call, name, names)
        called |= {e.name_hint for e in exprs if isinstance(e, tvm.ir.GlobalVar)}
        _check_variables(name, function)
    tell("TVM crashed while it inferred the types of the module: look at the attributes and types you gave")
    _check_types(module, called)


def _check_variables(name: str, function: Any) -> None:
    """Raise InvalidModuleError for a variable that is not bound, or bound more than once."""
    if free := list(relay.analysis.free_vars(function)):
        raise InvalidModuleError(unbound(name, free[0].name_hint, {p.name_hint for p in function.params}))
    for parameter, count in Counter(p.name_hint for p in function.params).items():
        if count > 1 and len({hash(p) for p in function.params if p.name_hint == parameter}) < count:
            raise InvalidModuleError(f"{name} has its parameter {parameter} twice.")
    if not relay.analysis.well_formed(function):
        raise InvalidModuleError(
            f"{name} is not well-formed: a variable is bound more than once. "
            "Give every function and every let its own variables."
        )


def _check_types(module: Any, called: set[str]) -> None:
    """Raise InvalidModuleError for an ill-typed module, or a function whose body is not of the type that it declares.

    called: the functions that others call, whose declared types InferType needs.
    """
    bare = tvm.IRModule(dict(module.functions.items()), module.type_definitions)
    declared = {}
    for name, function in functions(module).items():
        typed = function.ret_type is not None and not isinstance(function.ret_type, tvm.ir.type.IncompleteType)
        if typed and name not in called:
            declared[name] = function.ret_type
    for name in declared:
        f = bare[name]
        bare.update_func(
            bare.get_global_var(name), relay.Function(f.params, f.body, None, f.type_params, f.attrs, f.span)
        )
    inferred = _inferred(bare)
    if isinstance(inferred, str):
        raise InvalidModuleError(inferred)
    for name, ret in declared.items():
        result = inferred[name].ret_type
        if not tvm.ir.structural_equal(result, ret, map_free_vars=True):
            raise InvalidModuleError(
                f"{name} declares that it returns {ret}, but its body is {result}: "
                "leave the return type out when you make the function, and InferType finds it."
            )


def _look_at(call: Any, where: str, names: list[str]) -> None:
    """Raise InvalidModuleError for a call on which InferType would crash."""
    op = call.op
    if isinstance(op, tvm.ir.GlobalVar) and op.name_hint not in names:
        raise InvalidModuleError(f"{where} calls {op.name_hint}, and the module has no function of that name.")
    if not isinstance(op, tvm.ir.Op):
        return
    if op.attrs_type_key and call.attrs is None:
        raise InvalidModuleError(
            f"In {where}, {op.name} is called without its attributes: "
            "give relay.Call those of the old call (call.attrs), or use the function relay."
            f"{op.name}."
        )
    key = str(call.attrs).partition("(")[0]
    if op.attrs_type_key and key.startswith("relay.attrs.") and key != op.attrs_type_key:
        raise InvalidModuleError(f"In {where}, {op.name} is called with {key}; its attributes are {op.attrs_type_key}.")


def _inferred(module: Any) -> Any:
    """Return the typed module, or a message that says why it has no types."""
    messages: list[str] = []
    with _diagnostics_to(messages):
        try:
            return relay.transform.InferType()(module)
        except tvm.error.TVMError as error:
            text = messages[0] if messages else last_line(error)
        return f"The module is not well-typed{_culprit(module)}: {short(text, 300).rstrip('.')}."


@contextlib.contextmanager
def _diagnostics_to(messages: list[str]):
    """Collect Relay's diagnostics in a list instead of printing them."""
    from tvm.ir import diagnostics

    diagnostics.override_renderer(lambda context: messages.extend(d.message for d in context.diagnostics))
    try:
        yield
    finally:
        diagnostics.override_renderer(None)


def _culprit(module: Any) -> str:
    """Return " at nn.conv2d in main": the first call, operands first, without a type although its operands have one."""
    calls = nodes(module)
    for node in calls if len(calls) <= 300 else ():
        free = relay.analysis.free_vars(node.expr)
        if any(v.type_annotation is None for v in free):
            return ""
        try:
            relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(free, node.expr)))
        except tvm.error.TVMError:
            return f" at {node.name} in {node.function}"
    return ""
