"""A node and a graph: the common view of every IR. Nothing here depends on an IR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

from passlab.graph.names import did_you_mean

#: The role of a node. compute: arithmetic on elements. data: where values come from and go to (inputs, weights,
#: constants, outputs). shape: the same elements in another shape or order, or a query of their shape.
#: control: decides what runs. memory: writes into or copies storage that already exists.
KINDS = ("compute", "data", "shape", "control", "memory")


@dataclass(frozen=True, slots=True)
class Node:
    """One operation and the value it makes.

    `id` is unique in its graph, `op` is the IR's own name for the operation, `inputs` are the ids of the producers of
    its operands (each once, in the order of the operands). `shape`, `dtype` and `bytes` are of the value, None where
    the IR does not say; the shape of a node that makes several tensors is a tuple of shapes, its dtype names them
    joined by ", ", its bytes are their sum. A dimension is an int, or a str where it is symbolic. `text` is one line
    of the IR's text, `label` is a name for people where `id` is not one.

    `attrs` holds the operands that are not nodes, and what the reader noted: `block` (the arm or body that the node is
    in), `mutates` (it writes into storage that was there before), `redefines` (a name that the IR gives twice), `error`
    (why it has no type, or did not run on the inputs), `opcode` (torch.fx), `role` (torch.export), `fused` (what a node
    holds that stands for several operations), `applies` (XLA), `primfunc` and `dataflow` (Relax).
    """

    id: str
    op: str
    kind: str
    inputs: tuple[str, ...] = ()
    shape: tuple | None = None
    dtype: str | None = None
    bytes: int | None = None
    text: str = ""
    attrs: dict[str, Any] = field(default_factory=dict, hash=False)
    label: str = ""

    @property
    def type(self) -> str:
        """Return dtype and shape as one word: `float32[4, 8]`, `(float32[2], int64[2])`, or "" if unknown."""
        if self.shape is None:
            return self.dtype or ""
        dtypes = (self.dtype or "").split(", ")
        return _typed_shape(self.shape, iter(dtypes) if len(dtypes) > 1 else repeat(dtypes[0]))


def _typed_shape(shape: tuple, dtypes: Iterator[str]) -> str:
    """Return `float32[2, 3]`; for a tuple of shapes, all of them in parentheses. Takes one dtype per tensor."""
    if any(isinstance(dim, tuple) for dim in shape):
        return f"({', '.join(_typed_shape(part, dtypes) for part in shape)})"
    return f"{next(dtypes, '')}[{', '.join(map(str, shape))}]"


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of the IR. `outputs`: ids of the values it returns. `ir`: "torch.fx", "ONNX", …

    A node that is used but not defined is listed first, with the op "missing": broken graphs can be viewed too.
    """

    name: str
    ir: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    text: str = ""

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _consumers(self) -> dict[str, tuple[str, ...]]:
        users: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for producer, consumer in self.edges:
            users.setdefault(producer, []).append(consumer)
        return {id: tuple(consumers) for id, consumers in users.items()}

    def node(self, id: str) -> Node:
        """Return the node with this id. Raises KeyError, with the nearest ids."""
        try:
            return self._by_id[id]
        except KeyError:
            hint = did_you_mean(str(id), self._by_id, 3, 0.6)
            raise KeyError(f"{self.ir} graph {self.name!r} has no node {id!r}.{hint}") from None

    def consumers(self, id: str) -> tuple[str, ...]:
        """Return the ids of the nodes that use the value of node `id`, in graph order."""
        return self._consumers[self.node(id).id]

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Return (producer id, consumer id), each pair once, grouped by consumer in graph order."""
        return tuple((producer, node.id) for node in self.nodes for producer in node.inputs)

    def counts(self) -> dict[str, int]:
        """Return kind → number of its nodes, for every kind."""
        counts = dict.fromkeys(KINDS, 0)
        for node in self.nodes:
            counts[node.kind] += 1
        return counts

    @property
    def bytes(self) -> int | None:
        """Return the bytes of all values of known size, or None where no size is known."""
        known = [node.bytes for node in self.nodes if node.bytes is not None]
        return sum(known) if known else None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.counts().items() if number)
        return f"Graph({self.name!r}, {self.ir}: {len(self.nodes)} nodes{': ' + kinds if kinds else ''})"


def why_not_ssa(graph: Graph) -> str:
    """Return the first violation of static single assignment form, as a message, or "".

    In SSA every value is defined once, before all its uses, and never changed (Cytron et al., TOPLAS 1991).
    """
    defined: set[str] = set()
    for node in graph.nodes:
        if node.op == "missing":
            return f"{node.id} is used but never defined"
        if "redefines" in node.attrs:
            return f"{node.attrs['redefines']} is defined twice"
        if late := [id for id in node.inputs if id not in defined]:
            return f"{node.id} uses {late[0]} before it is defined"
        if node.attrs.get("mutates"):
            return f"{node.op} changes a value that already exists"
        defined.add(node.id)
    return ""
