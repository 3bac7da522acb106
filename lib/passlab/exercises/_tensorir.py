"""Checks of TensorIR kernels that the exercises of several days share."""

from __future__ import annotations

from typing import Any

#: TensorIR operations that run external code.
FOREIGN = ("call_extern", "call_pure_extern", "call_packed", "call_cpacked", "call_llvm", "lookup_param", "inline_asm")


def foreign(text: str) -> str | None:
    """Return an operation that runs external code and that a kernel's text names, or None."""
    return next((name for name in FOREIGN if name in text), None)


def foreign_in(module: Any) -> str | None:
    """Return the code from elsewhere that a Relax module calls, in its functions or in its kernels, or None."""
    from passlab.relax import relax, tvm

    called: list[Any] = []
    for function in module.functions.values():
        if isinstance(function, tvm.tirx.PrimFunc):
            if operator := foreign(function.script()):
                return operator
        else:
            relax.analysis.post_order_visit(function, called.append)
    names = (str(one.global_symbol) for one in called if isinstance(one, relax.ExternFunc))
    return next((name for name in names if not name.startswith("vm.builtin.")), None)


def why_not_one_kernel(value: Any, expected: str) -> str:
    """Return why a value is not an IRModule of one PrimFunc, or "". expected: how the sentence "Return …" ends."""
    from passlab.relax import tvm

    if not isinstance(value, tvm.IRModule):
        return f"Return {expected}; your function returned {type(value).__name__}."
    functions = list(value.functions.values())
    if len(functions) != 1 or not isinstance(functions[0], tvm.tirx.PrimFunc):
        return f"The module must hold one PrimFunc and nothing else; it holds {len(functions)} functions."
    return ""
