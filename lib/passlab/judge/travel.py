"""Declare what may leave the process that ran an answer, besides graphs, tensors and plain data.

The declaration stands where the thing is defined, in the module of an exercise or beside an operation:

    @record                       # a dataclass: its fields travel, each checked against its declared type
    class TooMuch: ...

    @function_travels             # a function that a node of a graph may call
    def relu(x): ...

    @module_travels               # a module that a graph may hold
    class Clipped(nn.ReLU): ...

The engine reads these tables and nothing else: a name in a returned value is a key into them. What an exercise declares
is refused until that exercise is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: name → the declared thing
RECORDS: dict[str, type] = {}
FUNCTIONS: dict[str, Callable] = {}
MODULES: dict[str, type] = {}


def name_in(table: dict[str, Any], obj: Any) -> str | None:
    """Return the name under which a function or class is declared in a table, or None."""
    name = f"{obj.__module__}.{obj.__qualname__}"
    return name if table.get(name) is obj else None


def fits(value: Any) -> bool:
    """Return whether every field of a record has its declared type."""
    return all(_is(getattr(value, name), hint) for name, hint in get_type_hints(type(value)).items())


def _is(value: Any, hint: Any) -> bool:
    if hint is Any:  # a graph, say, which the wire itself checks
        return True
    if get_origin(hint) in (tuple, list):  # tuple[Step, ...], list[str]
        return type(value) is get_origin(hint) and all(_is(v, get_args(hint)[0]) for v in value)
    if get_origin(hint) in (dict, Mapping):
        key, item = get_args(hint)
        return type(value) is dict and all(_is(k, key) and _is(v, item) for k, v in value.items())
    if get_origin(hint) in (Union, UnionType):
        return any(_is(value, option) for option in get_args(hint))
    return type(value) is hint


def _declare(table: dict[str, Any], name: str, obj: T) -> T:
    if name in table and table[name] is not obj:
        raise ValueError(f"{name} is declared twice as something that travels. Give one of the two another name.")
    table[name] = obj
    return obj


def record(cls: type[T]) -> type[T]:
    """Declare that instances of a dataclass travel, as the values of its fields.

    Raises ValueError for another class, or a second one of the same name.
    """
    if not is_dataclass(cls):
        raise ValueError(f"{cls.__name__} is not a dataclass: what travels of a record are its fields.")
    return _declare(RECORDS, cls.__name__, cls)


def function_travels(function: Callable) -> Callable:
    """Declare that the nodes of a graph that travels may call a function."""
    return _declare(FUNCTIONS, f"{function.__module__}.{function.__qualname__}", function)


def module_travels(cls: type[T]) -> type[T]:
    """Declare that a graph that travels may hold modules of a class: as their parameters, buffers and settings."""
    return _declare(MODULES, f"{cls.__module__}.{cls.__qualname__}", cls)
