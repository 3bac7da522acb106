"""Which line of a compiler's error or output says what is wrong."""

from __future__ import annotations

import re

#: Lines that only locate an error in the sources of Python or of a compiler.
_STACK = re.compile(r"Traceback|File \"|\[bt\]|Stack trace|at |\d+: |\^+$|[-=!]{3,}|#\d+ |note: run with")
#: What comes before an error's sentence: "TVMError: [10:51:21] /src/module.cc:164: Check failed: (x) is false: ".
_BEFORE = re.compile(
    r"(what\(\):\s+)?(\w+Error: )?(\[[\d:]+\] \S+:\d+: ?)?(\w+Error: )?(Check failed: \(.*?\) is false: ?)?(?=.)"
)
#: An operator of Relax as TVM writes it, with all that is known of it.
_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
_MOST = 250


def last_line(text: str) -> str:
    """Return the last line outside a stack, without places, short and without a full stop; "" where there is none."""
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and not _STACK.match(line)]
    if not lines:
        return ""
    sentence = _BEFORE.sub("", _OPERATOR.sub(r"\1", lines[-1]), count=1).rstrip(". ")
    sentence = "".join(c if c.isprintable() else " " for c in sentence)
    return sentence if len(sentence) <= _MOST else f"{sentence[:_MOST]}…"


def reason(error: BaseException) -> str:
    """Return the sentence of an exception: its first line, or the one after a stack in it; "" where it has no text."""
    text = str(error).strip()
    stack = any(line.startswith(("Traceback", "Stack trace")) for line in text.split("\n"))
    return last_line(text if stack else text.split("\n")[0])
