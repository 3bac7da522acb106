"""MLIR modules as data: their text in the generic syntax, as xDSL prints it.

No object of the learner's is sent: the process of the learner's code prints a module, and only that text is judged.
Its limits are checked before a parser sees it. Then a confined process without cases parses it (`use`), where a crash
costs one question; then xDSL alone, which is Python, with the list of allowed operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from passlab.process.refusal import Refused

#: Limit on the bytes of a module's text: xDSL takes longer to parse larger ones than a judge waits.
MOST_BYTES = 2**18


def carries(value: Any) -> bool:
    """Return whether `encode` takes `value`: a module of xDSL, or of IREE's bindings."""
    builtin = sys.modules.get("xdsl.dialects.builtin")
    if builtin is not None and isinstance(value, builtin.ModuleOp):
        return True
    native = sys.modules.get("iree.compiler.ir")
    return native is not None and isinstance(value, native.Module)


def encode(value: Any) -> bytes:
    """Return the text of a module. Raises Refused."""
    from passlab.mlir.modules import generic

    try:
        text = generic(value)
    except Exception as error:
        raise Refused(f"The module cannot be printed: {type(error).__name__}: {str(error)[:150]}.") from None
    try:
        payload = text.encode()
    except UnicodeEncodeError:
        raise Refused("The module's text contains half a character (a lone surrogate).") from None
    return _check_size(payload)


def _check_size(payload: bytes) -> bytes:
    if len(payload) > MOST_BYTES:
        raise Refused(f"The module's text takes more than {MOST_BYTES // 1024} KiB. Make it smaller.")
    return payload


_complaint: Callable[[str], str] | None = None


def use(check: Callable[[str], str]) -> None:
    """Have `check` read every untrusted text first, in another process: it returns the error, or ""."""
    global _complaint
    _complaint = check


def decode(payload: bytes) -> Any:
    """Return the module of a text. Raises Refused for one that does not parse, or holds what no program may."""
    if "xdsl" not in sys.modules:
        raise Refused("Got an MLIR module where none is expected.")
    from passlab.mlir.modules import MLIRError, parse

    try:
        text = _check_size(payload).decode()
    except UnicodeDecodeError:
        raise Refused("The module's text is not in UTF-8.") from None
    if _complaint is not None and (wrong := _complaint(text)):
        raise Refused(wrong)
    try:
        return parse(text, verified=False)  # the judge verifies, and says so
    except MLIRError as error:
        raise Refused(str(error)) from None
