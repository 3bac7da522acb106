"""Check a Relax module with TVM's check, and add the remedy to its message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from passlab.relax import relax, tvm
from passlab.tvm.judge import HOLE, InvalidModuleError, last_line, unbound
from passlab.tvm.modules import functions, short

#: part of a message of Relax's check → remedy
_REMEDIES = {
    "of Expr": "Make expressions through the builder (`self.builder_.emit`, or BlockBuilder's): it gives them types.",
    "not populated": "Make expressions through the builder (`self.builder_.emit`): it gives them types.",
    "Missing()": "Make functions through BlockBuilder, which gives them types.",
    "is not defined": "Bind it before it is read.",
    "used outside DataflowBlock": "Make a dataflow block's output with `emit_output`.",
    "defined more than once": "Give every binding its own variable.",
}


def check(module: Any, names: list[str], tell: Callable[[str], None]) -> None:
    """Raise InvalidModuleError unless the module is well-formed."""
    tell("The pass returned a module that TVM cannot traverse")
    for name, function in functions(module).items():
        parameters = {p.name for p in function.params}
        called: list[Any] = []
        with contextlib.suppress(Exception):  # a part that is None: the check below reports it
            relax.analysis.post_order_visit(function, called.append)
        for var in (e for e in called if isinstance(e, tvm.ir.GlobalVar)):
            if var.name_hint not in names:
                raise InvalidModuleError(f"{name} calls {var.name_hint}, and the module has no function of that name.")
        with contextlib.suppress(tvm.error.InternalError):
            for v in relax.analysis.free_vars(function):
                if not v.same_as(function):
                    raise InvalidModuleError(unbound(name, v.name, parameters))
    tell("TVM crashed while it checked whether the module is well-formed")
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        text = last_line(error).split("\n")[0].split(" # Metadata omitted")[0]
        if "null pointer" in text:
            raise InvalidModuleError(f"Somewhere {HOLE}") from None
        remedy = next((remedy for part, remedy in _REMEDIES.items() if part in text), "")
        raise InvalidModuleError(
            f"The module is not well-formed: {short(text, 300).rstrip('.')}. {remedy}".strip()
        ) from None
