"""Checks of TensorIR kernels that the exercises of several days share."""

from __future__ import annotations

from functools import cache
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
            if found := foreign(function.script()):
                return found
        else:
            relax.analysis.post_order_visit(function, called.append)
    names = (str(one.global_symbol) for one in called if isinstance(one, relax.ExternFunc))
    return next((name for name in names if not name.startswith("vm.builtin.")), None)


@cache
def host_target() -> str:
    from passlab.relax.pipelines import host

    return str(host())
