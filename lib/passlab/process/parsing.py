"""Parse Python in a process with several threads."""

from __future__ import annotations

import ast
import threading

_parsing = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module, as `ast.parse` does, one thread at a time.

    CPython 3.11 counts the depth of the tree once for all threads: if a garbage collection lets another thread parse in
    the middle, both may end with "SystemError: AST constructor recursion depth mismatch".

    Raises SyntaxError, ValueError, RecursionError, MemoryError.
    """
    with _parsing:
        return ast.parse(source)
