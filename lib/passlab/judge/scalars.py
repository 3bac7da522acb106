"""NumPy's numbers as Python's own: `np.int64(3)` is the integer 3, `np.float64(0.5)` a float, `np.bool_(True)` a bool.

What an answer returns passes through here before a judge sees it, so that judges may ask `type(x) is int`. Grading's
wire does the same on its way. (NumPy's strings are of type str already.)
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import OrderedDict
from typing import Any

from passlab.judge.travel import RECORDS

#: Values nested more deeply are left as they are: some contain themselves.
DEPTH = 60

#: What holds numbers, and so does what is derived from it: a `defaultdict` is a dict.
_CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset)


def scalar(value: Any) -> Any:
    """Return a number of NumPy as Python's; anything else as it is."""
    numpy = sys.modules.get("numpy")  # without it there is none of its numbers
    return value.item() if numpy is not None and isinstance(value, (numpy.number, numpy.bool_)) else value


def plain_numbers(value: Any, depth: int = 0) -> Any:
    """Return a value with `scalar` of all that its lists, tuples, sets, dicts and records hold.

    Containers without a number of NumPy are returned themselves; none is edited. One of a derived class that has such
    numbers becomes a plain one: a named tuple a tuple.
    """
    kind = type(value)
    if depth > DEPTH or kind in (int, float, bool, str):
        return value
    if RECORDS.get(kind.__name__) is kind:
        return _record(value, depth)
    base: Any = next((base for base in type.mro(kind) if base in _CONTAINERS), None)
    if base is None:
        return scalar(value)
    parts = list(base.items(value) if base in (OrderedDict, dict) else base.__iter__(value))
    if base in (OrderedDict, dict):
        plain = [(plain_numbers(key, depth + 1), plain_numbers(one, depth + 1)) for key, one in parts]
        same = all(a is c and b is d for (a, b), (c, d) in zip(parts, plain, strict=True))
    else:
        plain = [plain_numbers(one, depth + 1) for one in parts]
        same = all(a is b for a, b in zip(parts, plain, strict=True))
    return value if same else base(plain)


def _record(value: Any, depth: int) -> Any:
    fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    plain = {name: plain_numbers(one, depth + 1) for name, one in fields.items()}
    changed = {name: one for name, one in plain.items() if one is not fields[name]}
    if changed:
        value = copy.copy(value)
        for name, one in changed.items():
            object.__setattr__(value, name, one)  # a record may be frozen
    return value
