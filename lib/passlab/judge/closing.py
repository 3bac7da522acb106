"""Close the libraries' own functions that do an exercise, as long as an answer to it runs.

In a learner's kernel this is a reminder: an answer that wants to can undo it. Where answers are graded, they run in a
process that never has these functions open (autograder/engine/runner/closed.py). Neither keeps an answer from holding
the text of a function: the library is there to be read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

_active: list[Closed] = []


@contextlib.contextmanager
def reopen() -> Iterator[None]:
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
    is exchanged, so a reference taken earlier is closed, too. A method that is not written in Python is exchanged in
    its class. Raises ValueError for a function that is not written in Python.
    """

    def __init__(self, names: Iterable[str]):
        names = list(names)
        targets = functions(names)
        self._own = {function: function.__code__ for function in targets}
        self._refusing = {f: refusal(name, f) for f, name in targets.items()}
        self._methods = {place: (vars(place[0])[place[1]], refuse(name)) for place, name in methods(names).items()}

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
        for place, (_, refusing) in self._methods.items():
            setattr(*place, refusing)

    def give_back(self) -> None:
        for function, code in self._own.items():
            function.__code__ = code
        for place, (own, _) in self._methods.items():
            setattr(*place, own)


def functions(names: Iterable[str]) -> dict[FunctionType, str]:
    """Return function → its dotted name. Functions of an exercise that this process does not have are left out.

    Methods that are not written in Python are left to `methods`. Raise ValueError for a function that is not.
    """
    return {_function(name): name for name in names if not _withheld(name) and not _method(name)}


def methods(names: Iterable[str]) -> dict[tuple[type, str], str]:
    """Return (class, method) → its dotted name, for the methods that are not written in Python."""
    return {place: name for name in names if not _withheld(name) and (place := _method(name))}


def _method(name: str) -> tuple[type, str] | None:
    owner, _, method = name.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    own = isinstance(holder, type) and vars(holder).get(method)
    return (holder, method) if own and not isinstance(inspect.unwrap(own), FunctionType) else None


def _withheld(name: str) -> bool:
    return name.startswith("passlab.exercises.") and importlib.util.find_spec(name.rpartition(".")[0]) is None


def _function(name: str) -> FunctionType:
    value = pkgutil.resolve_name(name)
    inner = inspect.unwrap(getattr(value, "__init__") if isinstance(value, type) else value)  # noqa: B009
    if not isinstance(inner, FunctionType):
        raise ValueError(f"{name} cannot be closed: it is not written in Python. Close the function that calls it.")
    return inner


def closed_message(name: str) -> str:
    """Return the message of a closed function."""
    return f"{name} does what this exercise asks, so it is closed here: write it yourself"


def refuse(name: str) -> FunctionType:
    """Return a function that raises, whatever it is called with."""

    def refusing(*_: object, **__: object) -> None:
        raise RuntimeError(closed_message(name))

    assert isinstance(refusing, FunctionType)
    return refusing


def refusal(name: str, function: FunctionType) -> CodeType:
    """Return code for a function that raises. It mentions the same variables of enclosing functions, as it must."""
    free = function.__code__.co_freevars
    body = f"raise RuntimeError({closed_message(name)!r})\n  {', '.join(free) or None}"
    space: dict = {}
    text = f"def made({', '.join(free)}):\n def refuse(*_, **__):\n  {body}\n return refuse"
    exec(compile(text, __file__, "exec"), space)  # a line of the library: messages name the learner's line that called
    return space["made"](*free).__code__
