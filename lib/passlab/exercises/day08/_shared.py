"""Shared parts of the day 8 exercises."""

from __future__ import annotations

from collections import Counter
from typing import Any

from passlab.judge import plural
from passlab.relax import relax
from passlab.relax.cases import op
from passlab.tvm.modules import Node, bindings, consumers, functions, is_primitive, nodes

CONV, RELU, CLIP = "relax.nn.conv2d", "relax.nn.relu", "relax.clip"


class Reading:
    """One function of a module: the call that makes each variable (`made`), its consumers, and the bound values."""

    def __init__(self, mod: Any, name: str):
        self.nodes = {node.var: node for node in nodes(mod, name)}
        self.readers = consumers(mod, name)
        self.values = dict(bindings(functions(mod)[name]))

    def only_reader(self, var: Any) -> Node | None:
        """Return the only call that reads `var`, or None if it has other consumers or is returned."""
        readers = self.readers.get(var, [])
        hidden = isinstance(var, relax.DataflowVar)
        return self.nodes.get(readers[0]) if hidden and len(readers) == 1 else None

    def made(self, var: Any, name: str) -> Node | None:
        """Return the call that makes `var` if it calls this operator, else None."""
        node = self.nodes.get(var)
        return node if node is not None and node.name == name else None


def readings(mod: Any) -> list[Reading]:
    return [Reading(mod, name) for name, function in functions(mod).items() if not is_primitive(function)]


def launches(mod: Any) -> list[tuple[str, ...]]:
    """Return the operators of each launch outside primitive functions, in order; a bare operator is a launch of one.

    Calls count, not functions: two equal calls may share a function.
    """
    inside = {name: tuple(node.name for node in nodes(mod, name)) for name in functions(mod)}
    fused = {name for name, function in functions(mod).items() if is_primitive(function)}
    groups = [(node.name,) for name in inside if name not in fused for node in nodes(mod, name)]
    for name in inside.keys() - fused:
        for _, value in bindings(functions(mod)[name]):
            called = getattr(getattr(value, "op", None), "name_hint", None)
            if called in fused:
                groups.append(inside[called])
    return groups


def calls(mod: Any) -> Counter[str]:
    """Count the calls of each operator; operators in a primitive function count once for each call of it."""
    return Counter(name for launch in launches(mod) for name in launch)


def other_calls(before: Any, after: Any, free: set[str]) -> str | None:
    """Return a message about another operator whose number of calls changed, or None."""
    old, new = calls(before), calls(after)
    for name in sorted((old | new).keys() - free):
        if old[name] != new[name]:
            return f"{name} was called {plural(old[name], 'time')} and is now called {plural(new[name], 'time')}."
    return None


IMAGE, WEIGHT = (1, 4, 6, 6), (4, 4, 3, 3)


def conv(x: Any, w: Any, **options: Any) -> Any:
    return op.nn.conv2d(x, w, padding=1, **options)
