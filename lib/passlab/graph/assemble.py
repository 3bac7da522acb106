"""Helpers for readers: a builder of nodes with unique ids, types, and texts cut to a length."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable
from typing import Any

from passlab.graph.model import Graph, Node

#: Shape, dtype and bytes of a value.
Type = tuple[tuple | None, str | None, int | None]
UNKNOWN: Type = (None, None, None)

#: Longest text kept of one operand or line: a list of 10,000 numbers is cut.
LONGEST = 200
_MOST_ELEMENTS = 2**20


def short(value: Any) -> str:
    """Return `repr(value)`, cut when long; never raises."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__} in its repr>"
    return cut(text)


def value_of(array: Any) -> dict[str, Any]:
    """Return the attributes that tell a constant from others of its type: its value, or a checksum of its bits."""
    if array.size == 1:
        return {"value": array.item()}
    return {"bits": f"{zlib.crc32(array.tobytes()):08x}"} if array.size <= _MOST_ELEMENTS else {}


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def tensor_type(shape: Iterable | None, dtype: str | None, itemsize: float | None) -> Type:
    """Return a tensor's type; its bytes are known when every dimension is an int."""
    if shape is None:
        return None, dtype, None
    shape = tuple(dim if type(dim) is int else str(dim) for dim in shape)
    size = itemsize
    for dim in shape:
        size = size * dim if size is not None and type(dim) is int else None
    return shape, dtype, None if size is None else int(-(-size // 1))


def several(types: Iterable[Type]) -> Type:
    """Return the type of a node with several results, a tuple of shapes; of one result, its own type."""
    types = list(types)
    if len(types) == 1:
        return types[0]
    known = [type for type in types if type[0] is not None]
    if not known:
        return None, ", ".join(dict.fromkeys(dtype for _, dtype, _ in types if dtype)) or None, None
    shapes, dtypes, sizes = zip(*known, strict=True)
    each = [dtype for shape, dtype, _ in known for dtype in _each(shape or (), dtype)]
    return shapes, dtypes[0] if len(set(each)) == 1 else ", ".join(each), None if None in sizes else sum(sizes)


def _each(shape: tuple, dtype: str | None) -> list[str]:
    """Return a dtype for each tensor of a value: a tuple whose tensors are all alike names its dtype once."""
    if not any(isinstance(dim, tuple) for dim in shape):
        return [dtype or "?"]
    if dtype and ", " in dtype:
        return dtype.split(", ")
    return [name for part in shape for name in _each(part, dtype)]


def walk(visit: Generator) -> Any:
    """Run a visit that yields the visits it needs and is sent their results: recursion without Python's depth limit.

    def visit(expr):
        operands = []
        for operand in expr.args:
            operands.append((yield visit(operand)))
        return make(expr, operands)
    """
    waiting, result = [visit], None
    while waiting:
        try:
            operand = waiting[-1].send(result)
        except StopIteration as done:
            waiting.pop()
            result = done.value
        else:
            waiting.append(operand)
            result = None
    return result


def strongest(kinds: Iterable[str]) -> str:
    """Return the kind of a node that stands for several: compute, where one of them computes."""
    present = set(kinds)
    return next((kind for kind in ("compute", "control", "memory", "shape") if kind in present), "compute")


class Builder:
    """Build a graph from nodes given in the order of the IR.

    Operations inside another one (the arms of an if, the body of a loop) are nodes like all others, with the attribute
    `block`; the node of the if or loop follows them and uses their results.
    """

    def __init__(self, name: str, ir: str):
        self.name, self.ir = name, ir
        self.nodes: list[Node] = []
        self.ids: set[str] = set()
        self.block = ""
        self.outputs: list[str] = []

    def add(
        self,
        id: str,
        op: str,
        kind: str,
        inputs: Iterable[str] = (),
        type: Type = UNKNOWN,
        text: str = "",
        attrs: dict[str, Any] | None = None,
        label: str = "",
        ours: bool = False,
    ) -> str:
        """Append a node and return its id: `id`, with a number if that is taken.

        A name that the IR itself gave twice is noted (`redefines`); `ours`: the name is not the IR's.
        """
        attrs = dict(attrs or {})
        free, number = id, 1
        while free in self.ids:
            free, number = f"{id}#{number}", number + 1
        self.ids.add(free)
        if free != id and not ours:
            attrs["redefines"] = id
        if self.block:
            attrs["block"] = self.block
        inputs = tuple(dict.fromkeys(inputs))
        text = text or f"{free} = {op}({', '.join(inputs)})"
        self.nodes.append(Node(free, op, kind, inputs, *type, cut(" ".join(text.split())), attrs, label))
        return free

    def missing(self, name: str) -> str:
        """Return the id for a value that is used but not defined before."""
        if name not in self.ids:
            self.ids.add(name)
            self.nodes.insert(0, Node(name, "missing", "data", text=f"{name} is used but not defined before"))
        return name

    def graph(self, text: str = "") -> Graph:
        text = text or "\n".join(node.text for node in self.nodes)
        return Graph(self.name, self.ir, tuple(self.nodes), tuple(dict.fromkeys(self.outputs)), text)
