"""Close the libraries' own functions that do an exercise, as long as an answer to it runs."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

_active: list[Closed] = []


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Give the closed functions back for a while: what builds a case, or an exercise's `call`, may need them."""
    for closed in _active:
        closed.give_back()
    try:
        yield
    finally:
        for closed in _active:
            closed.close()


class Closed:
    """A context in which every call of some functions raises RuntimeError, under whatever name they were imported.

    `names`: dotted, "passlab.polyhedral.dependences"; a class stands for its constructor. The code inside the function
    is exchanged, so a reference taken earlier is closed, too. Raises ValueError for something not written in Python.
    """

    def __init__(self, names: Iterable[str]):
        found = {_function(name): name for name in names}
        self._own = {function: function.__code__ for function in found}
        self._refusing = {f: _refusal(name, f.__code__.co_freevars) for f, name in found.items()}

    def __enter__(self) -> Closed:
        self.close()
        _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)
        self.give_back()

    def close(self) -> None:
        for function, code in self._refusing.items():
            function.__code__ = code

    def give_back(self) -> None:
        for function, code in self._own.items():
            function.__code__ = code


def _function(name: str) -> FunctionType:
    found = pkgutil.resolve_name(name)
    inner = inspect.unwrap(found.__init__ if isinstance(found, type) else found)
    if not isinstance(inner, FunctionType):
        raise ValueError(f"{name} cannot be closed: it is not written in Python. Close the function that calls it.")
    return inner


def _refusal(name: str, free: tuple[str, ...]) -> CodeType:
    """Return code that raises. `free`: the variables of enclosing functions, which the new code must mention."""
    said = f"{name} does what this exercise asks, so it is closed here: write it yourself"
    body = f"raise RuntimeError({said!r})\n  {', '.join(free) or None}"
    space: dict = {}
    exec(f"def made({', '.join(free)}):\n def refuse(*_, **__):\n  {body}\n return refuse", space)
    return space["made"](*free).__code__
