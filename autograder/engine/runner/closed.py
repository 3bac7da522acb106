"""Close what an exercise closes for good: `passlab.judge.guards` in a process that is graded.

An answer to an exercise with closed functions runs in a process of its own, forked before the first cell, which
exchanges the code of these functions and keeps no original. It then runs the notebook's cells itself, so nothing that a
cell took from a function while it was open is in its memory; it may read neither the library's files nor /tmp, where
another process of the notebook could have left something, and it starts no program.

Not promised: an answer may hold a copy of a function's text, as it may be read in the library and typed into a cell.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import passlab
from autograder.engine import sandbox
from passlab.judge import guards

#: The files of the library; a process that has imported them does not need them.
LIBRARY = Path(passlab.__file__).parent


def close(names: Iterable[str]) -> None:
    """Close functions by their dotted names in this process, for good."""
    names = list(names)
    for function, name in guards.closed_functions(names).items():
        for module, packed in _packed(function):
            _remove(module, packed, name)
        function.__code__ = guards.refusing_code(name, function)
    for (holder, method), name in guards.closed_methods(names).items():
        setattr(holder, method, guards.refuse(name))
    linecache.clearcache()
    sandbox.drop_access(LIBRARY, "/tmp", programs=True)


def _packed(function: FunctionType) -> Iterator[tuple[ModuleType, str]]:
    """Yield the functions of TVM's C++ library that a function calls: (module that holds it, its name)."""
    names = function.__code__.co_names
    for module in (function.__globals__.get(name) for name in names):
        if isinstance(module, ModuleType) and module.__name__.startswith("tvm."):
            yield from ((module, name) for name in names if type(vars(module).get(name)).__name__ == "PackedFunc")


def _remove(module: ModuleType, packed: str, name: str) -> None:
    """Take a function of TVM's C++ library out of a module and out of TVM's table of global functions."""
    setattr(module, packed, guards.refuse(name))
    registry = sys.modules["tvm._ffi.registry"]
    for known in registry.list_global_func_names():
        if known.endswith(f".{packed}"):
            registry.remove_global_func(known)
