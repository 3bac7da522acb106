"""Why a value does not have the form that an exercise asks for: sentences that judges share.

Each function whose name begins with `why_not` returns a message for the learner, or "" for a value that fits. Those of
a value as a whole begin with "Return …"; `wanted` says what:

    >>> why_not_a_dict([], "a dict from operation to layout", ["conv"], "layout", "an operation")
    'Return a dict from operation to layout; got [].'
    >>> why_not_a_dict({}, "a dict from operation to layout", ["conv"], "layout", "an operation")
    'conv has no layout.'
    >>> why_not_a_dict({"conv": 0, "x": 1}, "a dict from operation to layout", ["conv"], "layout", "an operation")
    "'x' is not an operation."
    >>> why_not_a_list((3,), "a pair, the numbers of sectors and of lines", 2)
    'Return a pair, the numbers of sectors and of lines; got (3,), with 1 entry.'
    >>> why_not_a_list(None, "a list of groups")
    'Return a list of groups; got None. End every path of the function with `return`.'

Any other type, and the end of a sentence of one's own:

    >>> why_not_of_type([1], "the loop nest as text", str)
    'Return the loop nest as text; got [1].'
    >>> why_not_of_type(Exception(), "the loop nest as text", str)
    'Return the loop nest as text; got a value of type Exception.'
    >>> f"The domain must be a set; it is {excerpt(Exception())}."
    'The domain must be a set; it is a value of type Exception.'

A dict from each value to a number is one with `each`, a function of a key and its entry:

    >>> def each(name, slot):
    ...     return "" if type(slot) is int else f"The slot of {name} must be an int; it is {shown(slot)}."
    >>> why_not_a_dict({"a": "0"}, "a dict from value to slot", ["a"], "slot", "a value", each)
    "The slot of a must be an int; it is '0'."

Names that a graph does not have:

    >>> why_not_names(["exp", 7], ["exp", "mul"])
    'The answer holds 7, of type int; a node is called by its name.'
    >>> why_not_names(["exp", "sin"], ["exp", "mul"])
    "The answer holds 'sin', and the graph has no node of that name."
    >>> why_not_names(["b9"], ["b1"], "The list of visits", "block", "the program")
    "The list of visits holds 'b9', and the program has no block of that name."

Groups, such as those of a fusion pass, in which no node occurs twice:

    >>> tail = lambda name: why_not_a_name(name, ["exp", "mul"])
    >>> why_not_groups([["exp"], ["mul", "exp"]], "names of nodes", tail)
    'Node exp is in two groups, or twice in one.'
    >>> why_not_groups([["exp"]], "names of nodes", tail, every=["exp", "mul"])
    'Node mul is missing: a node that is not fused forms a group of one.'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

from passlab.judge.words import plural, shown

#: Types of which the beginning is worth showing.
_PLAIN = (str, int, float, type(None))


def excerpt(value: Any) -> str:
    """Return the beginning of a value of plain data; of any other value its type."""
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if isinstance(parts, list | tuple | set | frozenset):
        readable = all(isinstance(part, (*_PLAIN, list, tuple, dict)) for part in parts)
    else:
        readable = isinstance(value, _PLAIN)
    return shown(value) if readable else f"a value of type {type(value).__name__}"


def _return(expected: str, value: Any, detail: str = "") -> str:
    hint = " End every path of the function with `return`." if value is None else ""
    return f"Return {expected}; got {excerpt(value)}{detail}.{hint}"


def is_number(value: Any) -> bool:
    """Return whether a value is a Python number, finite and not a bool."""
    return type(value) is int or (type(value) is float and math.isfinite(value))


def why_not_of_type(value: Any, expected: str, *types: type) -> str:
    """Return why a value is of none of the types."""
    return "" if isinstance(value, types) else _return(expected, value)


def why_not_a_list(value: Any, expected: str, length: int | None = None) -> str:
    """Return why a value is not a list or tuple, of `length` entries."""
    if reason := why_not_of_type(value, expected, list, tuple):
        return reason
    if length is not None and len(value) != length:
        return _return(expected, value, f", with {plural(len(value), 'entry', 'entries')}")
    return ""


def why_not_a_dict(
    value: Any,
    expected: str,
    keys: Collection[Any],
    entry: str,
    kind: str,
    each: Callable[[Any, Any], str] = lambda key, part: "",
    *,
    label: str = "{}",
) -> str:
    """Return why a value is not a dict with an entry for each of the keys, and for no other.

    entry: the noun for a part, as in "conv has no layout". kind: the noun for a key, as in "'x' is not an operation".
    each: returns what is wrong with the entry of a key, or "". label: how messages write a key.
    """
    if reason := why_not_of_type(value, expected, dict):
        return reason
    if missing := [key for key in keys if key not in value]:
        return f"{label.format(missing[0])} has no {entry}."
    if unknown := [key for key in value if key not in keys]:
        return f"{shown(unknown[0])} is not {kind}."
    return next(filter(None, (each(key, value[key]) for key in keys)), "")


def why_not_a_name(name: Any, known: Collection[str], kind: str = "node", owner: str = "the graph") -> str:
    """Return the end of a sentence on something that is not one of the known names."""
    if not isinstance(name, str):
        return f"of type {type(name).__name__}; a {kind} is called by its name"
    return "" if name in known else f"and {owner} has no {kind} of that name"


def why_not_names(
    names: Iterable[Any],
    known: Collection[str],
    holder: str = "The answer",
    kind: str = "node",
    owner: str = "the graph",
) -> str:
    """Return which of the names is not known. `holder`: what holds them."""
    for name in names:
        if tail := why_not_a_name(name, known, kind, owner):
            return f"{holder} holds {shown(name)}, {tail}."
    return ""


def why_not_groups(
    value: Any,
    members: str,
    why_not: Callable[[Any], str],
    every: Iterable[Any] = (),
    kind: str = "node",
    types: tuple[type[Collection[Any]], ...] = (list, tuple, set, frozenset),
) -> str:
    """Return why a value is not a list of groups in which nothing occurs twice.

    members: of what, as in "names of nodes". why_not: returns the end of a sentence on what cannot be in a group, or
    "". every: what has to be in one of them. types: of a group.
    """
    if wrong := why_not_a_list(value, "a list of groups"):
        return wrong
    earlier = set()
    for group in value:
        if not isinstance(group, types) or not group:
            return f"A group is a list of {members}; one here is {shown(group)}."
        for member in group:
            if tail := why_not(member):
                return f"A group holds {shown(member)}, {tail}."
            if member in earlier:
                return f"{kind.capitalize()} {member} is in two groups, or twice in one."
            earlier.add(member)
    for member in every:
        if member not in earlier:
            return f"{kind.capitalize()} {member} is missing: a {kind} that is not fused forms a group of one."
    return ""
