"""One read-only view of every IR: nodes, edges, kind, shape, dtype, bytes, text.

    view(torch.fx.symbolic_trace(model)).counts()     # {"compute": 2, "data": 2, "shape": 0, ...}

Reading order: a node, a graph, `view` and the table of readers behind it, and a table that compares IRs.
Whatever draws, counts or prices works on this view, so that it works on every IR. The readers, one per IR, sit in
the packages of their IRs and load when used.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

#: What a node is for. compute: arithmetic on elements. data: where values come from and go to (inputs, weights,
#: constants, outputs). shape: the same elements, seen or arranged otherwise, or a question about their shape.
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
        """Shape and dtype in one word: `float32[4, 8]`, `(float32[2], int64[2])`, or "" where nothing is known."""
        if self.shape is None:
            return self.dtype or ""
        dtypes = (self.dtype or "").split(", ")
        return _typed_shape(self.shape, iter(dtypes) if len(dtypes) > 1 else repeat(dtypes[0]))


def _typed_shape(shape: tuple, dtypes: Iterator[str]) -> str:
    """`float32[2, 3]`, and for a tuple of shapes each of them in brackets; takes one dtype per tensor."""
    if any(isinstance(dim, tuple) for dim in shape):
        return f"({', '.join(_typed_shape(part, dtypes) for part in shape)})"
    return f"{next(dtypes, '')}[{', '.join(map(str, shape))}]"


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of the IR. `outputs`: ids of the values it returns. `ir`: "torch.fx", "ONNX", …

    A node that is used and nowhere defined is listed first, with the op "missing": broken graphs can be looked at too.
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
        """The node with this id."""
        try:
            return self._by_id[id]
        except KeyError:
            from difflib import get_close_matches

            near = get_close_matches(str(id), self._by_id, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise KeyError(f"{self.ir} graph {self.name!r} has no node {id!r}.{hint}") from None

    def consumers(self, id: str) -> tuple[str, ...]:
        """Ids of the nodes that use the value of node `id`, in graph order."""
        return self._consumers[self.node(id).id]

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(producer id, consumer id), each pair once, grouped by consumer in graph order."""
        return tuple((producer, node.id) for node in self.nodes for producer in node.inputs)

    def counts(self) -> dict[str, int]:
        """Kind → number of nodes of it; every kind is there."""
        counts = dict.fromkeys(KINDS, 0)
        for node in self.nodes:
            counts[node.kind] += 1
        return counts

    @property
    def bytes(self) -> int | None:
        """Bytes of all values whose size is known, or None where no size is known."""
        known = [node.bytes for node in self.nodes if node.bytes is not None]
        return sum(known) if known else None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.counts().items() if number)
        return f"Graph({self.name!r}, {self.ir}: {len(self.nodes)} nodes{': ' + kinds if kinds else ''})"


#: Type (module and name, as its class says it) → (module that reads it, how to call the type in a message).
#: A type is looked up with its bases, the nearest first. A new IR is one line here and one module there.
READERS = {
    "torch.fx.graph_module.GraphModule": ("fx.reader", "torch.fx.GraphModule"),
    "torch.fx.graph.Graph": ("fx.reader", "torch.fx.Graph"),
    "torch.nn.modules.module.Module": ("fx.reader", "torch.nn.Module (it is traced)"),
    "torch.jit._script.ScriptModule": ("formats.torchscript", "torch.jit.ScriptModule"),
    "torch.jit.torch.jit.ScriptFunction": ("formats.torchscript", "torch.jit.ScriptFunction"),
    "torch.export.exported_program.ExportedProgram": ("formats.export", "torch.export.ExportedProgram"),
    "torch.onnx.ONNXProgram": ("formats.onnx", "torch.onnx.ONNXProgram"),
    "onnx.onnx_ml_pb2.ModelProto": ("formats.onnx", "onnx.ModelProto"),
    "jaxlib._jax.PjitFunction": ("formats.stablehlo", "jax.jit(f) (it is lowered for the inputs)"),
    "jax._src.stages.Traced": ("formats.stablehlo", "jax.stages.Traced"),
    "jax._src.stages.Lowered": ("formats.stablehlo", "jax.stages.Lowered"),
    "jax._src.stages.Compiled": ("formats.hlo", "jax.stages.Compiled"),
    "jaxlib.mlir._mlir_libs._mlir.ir.Module": ("formats.stablehlo", "an MLIR module in StableHLO"),
    "tvm.ir.module.IRModule": ("tvm.reader", "an IRModule of Relay or Relax"),
    "tvm.relay.function.Function": ("relay.reader", "relay.Function"),
    "tvm.relax.expr.Function": ("relax.reader", "relax.Function"),
    "tvm.tirx.function.PrimFunc": ("relax.tensorir", "tirx.PrimFunc"),
    "tvm.tir.function.PrimFunc": ("relax.tensorir", "tir.PrimFunc"),
    "builtins.str": ("formats.text", "text in StableHLO or HLO"),
}


def view(obj: Any, *inputs: Any) -> Graph:
    """The read-only view of any IR object; `obj` is not changed.

        view(model, x)                      # an nn.Module is traced first; x gives shapes
        view(torch.export.export(model, (x,)))
        view(jax.jit(f).lower(x))

    `inputs`: example inputs, for the IRs that do not know shapes by themselves (torch.fx). Raises TypeError for an
    object that is no IR.
    """
    if isinstance(obj, Graph):
        return obj
    for base in type(obj).__mro__:
        if reader := READERS.get(f"{base.__module__}.{base.__qualname__}"):
            return importlib.import_module(f"passlab.{reader[0]}").read(obj, *inputs)
    accepted = ", ".join(name for _, name in READERS.values())
    raise TypeError(f"view cannot read {type(obj).__module__}.{type(obj).__qualname__}; it takes: {accepted}.")


def breaks_ssa(graph: Graph) -> str:
    """The first way in which the graph is not in static single assignment form, as a sentence; "" when it is.

    In SSA every value is defined once, before all its uses, and never changed (Cytron et al., TOPLAS 1991).
    """
    defined: set[str] = set()
    for node in graph.nodes:
        if node.op == "missing":
            return f"{node.id} is used and never defined"
        if "redefines" in node.attrs:
            return f"{node.attrs['redefines']} is defined twice"
        if late := [id for id in node.inputs if id not in defined]:
            return f"{node.id} uses {late[0]} before it is defined"
        if node.attrs.get("mutates"):
            return f"{node.op} changes a value that is already there"
        defined.add(node.id)
    return ""


def _is_kernel(node: Node) -> bool:
    """Is the node one kernel: several operations put together, or a TVM function over loops?"""
    return node.op == "fusion" or not {"fused", "primfunc"}.isdisjoint(node.attrs)


_TVM = ("Relay", "Relax")

#: What a computing node is called at each level, the highest first.
LEVELS = (
    ("layers", lambda graph, node: node.attrs.get("opcode") == "call_module"),
    ("ATen operators", lambda graph, node: node.op.startswith("aten")),
    ("framework functions", lambda graph, node: "opcode" in node.attrs),
    ("exchange operators", lambda graph, node: graph.ir == "ONNX"),
    ("tensor operators", lambda graph, node: graph.ir in _TVM and node.kind == "compute" and not _is_kernel(node)),
    ("kernels", lambda graph, node: _is_kernel(node)),
    ("runtime calls", lambda graph, node: graph.ir in _TVM),
    ("tensor primitives", lambda graph, node: graph.ir in ("StableHLO", "HLO")),
)


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; shows itself in a notebook and when printed."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([text[0], "  ".join("-" * width for width in widths), *text[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        def line(tag: str, cells: tuple[str, ...]) -> str:
            return "<tr>" + "".join(f'<{tag} style="text-align:left">{escape(c)}</{tag}>' for c in cells) + "</tr>"

        rows = "".join(line("td", row) for row in self.rows)
        return f"<table><thead>{line('th', self.columns)}</thead><tbody>{rows}</tbody></table>"


def table(graphs: Mapping[str, Graph | Sequence[Graph]] | Sequence[Graph]) -> Table:
    """Compare IRs: what the graphs, one or several per name, say about the form they are written in.

        table({"torch.fx": view(gm), "ONNX": [view(onnx_model), view(onnx_model_with_a_branch)]})

    Everything is found in the graphs. typed: how many values have a type; SSA: `breaks_ssa`; control flow: what the
    control nodes are and how many blocks they hold; level: what the computing nodes are. Where there are several
    graphs of an IR, they are asked together, and `nodes` and `computes` are about the first.
    """
    if not isinstance(graphs, Mapping):
        graphs = {graph.ir: graph for graph in graphs}
    rows = []
    for name, of_one_ir in graphs.items():
        several = [of_one_ir] if isinstance(of_one_ir, Graph) else list(of_one_ir)
        first = several[0]
        why = next(filter(None, map(breaks_ssa, several)), "")
        computes = Counter(node.op for node in first.nodes if node.kind == "compute")
        rows.append(
            (
                name,
                str(len(first)),
                ", ".join(f"{op} ×{number}" if number > 1 else op for op, number in computes.items()) or "nothing",
                _typed(several),
                f"no: {why}" if why else "yes",
                _control(several),
                _level(several),
            )
        )
    return Table(("IR", "nodes", "computes", "typed?", "SSA?", "control flow?", "level"), tuple(rows))


def _typed(graphs: Sequence[Graph]) -> str:
    values = [node for graph in graphs for node in graph.nodes if not _returns(graph, node)]
    typed = sum(1 for node in values if node.shape is not None or _is_whole(node.dtype))
    return "yes" if typed == len(values) else "no" if not typed else f"{typed} of {len(values)} values"


def _returns(graph: Graph, node: Node) -> bool:
    """Is this the node that hands the outputs out, and makes no value itself?"""
    return node.op.split(".")[-1] in ("output", "return", "prim::Return")


def _is_whole(dtype: str | None) -> bool:
    """Is this dtype a whole type by itself (`int`, `NoneType`), or does a tensor's shape belong to it?"""
    return dtype is not None and "Tensor" not in dtype and not dtype[-1:].isdigit()


def _control(graphs: Sequence[Graph]) -> str:
    ops = dict.fromkeys(node.op for graph in graphs for node in graph.nodes if node.kind == "control")
    blocks = {
        (i, node.attrs["block"]) for i, graph in enumerate(graphs) for node in graph.nodes if "block" in node.attrs
    }
    if not ops:
        return "none in this graph" if len(graphs) == 1 else "none in these graphs"
    return f"{', '.join(ops)}{f', {len(blocks)} blocks' if blocks else ''}"


def _level(graphs: Sequence[Graph]) -> str:
    found = {
        next((level for level, belongs in LEVELS if belongs(graph, node)), graph.ir)
        for graph in graphs
        for node in graph.nodes
        if node.kind in ("compute", "memory")
    }
    order = [level for level, _ in LEVELS]
    return ", ".join(sorted(found, key=lambda level: order.index(level) if level in order else len(order)))
