"""Checks of TensorIR kernels that the exercises of several days share."""

from __future__ import annotations

from functools import cache

#: TensorIR operations that run external code.
FOREIGN = ("call_extern", "call_pure_extern", "call_packed", "call_cpacked", "call_llvm", "lookup_param", "inline_asm")


@cache
def host_target() -> str:
    from passlab.relax.pipelines import host

    return str(host())
