"""IRs side by side: the form of each, as its graphs show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from passlab.graph.model import Graph, Node, why_not_ssa


def _is_kernel(node: Node) -> bool:
    """Return whether the node is one kernel: several fused operations, or a TVM function over loops."""
    return node.op == "fusion" or not {"fused", "primfunc"}.isdisjoint(node.attrs)


_TVM = ("Relay", "Relax")

#: The name of a computing node at each level, the highest first.
LEVELS = (
    ("layers", lambda graph, node: node.attrs.get("opcode") == "call_module"),
    ("ATen operators", lambda graph, node: node.op.startswith("aten")),
    ("framework functions", lambda graph, node: "opcode" in node.attrs),
    ("exchange operators", lambda graph, node: graph.ir == "ONNX"),
    ("tensor operators", lambda graph, node: graph.ir in _TVM and node.kind == "compute" and not _is_kernel(node)),
    ("kernels", lambda graph, node: _is_kernel(node)),
    ("runtime calls", lambda graph, node: graph.ir in _TVM),
    ("tensor primitives", lambda graph, node: graph.ir in ("StableHLO", "HLO")),
    ("loops over elements", lambda graph, node: graph.ir == "MLIR" and node.op.startswith("linalg.")),
    ("numbers", lambda graph, node: graph.ir == "MLIR" and node.op.startswith(("arith.", "math."))),
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
    """Compare IRs by the form of their graphs, one or several per name.

        table({"torch.fx": view(gm), "ONNX": [view(onnx_model), view(onnx_model_with_a_branch)]})

    Everything is read from the graphs. typed: how many values have a type; SSA: `why_not_ssa`; control flow: its
    nodes and how many blocks they hold; level: what the computing nodes are. Several graphs of an IR are taken
    together, except that `nodes` and `computes` are about the first.
    """
    if not isinstance(graphs, Mapping):
        graphs = {graph.ir: graph for graph in graphs}
    rows = []
    for name, of_one_ir in graphs.items():
        several = [of_one_ir] if isinstance(of_one_ir, Graph) else list(of_one_ir)
        first = several[0]
        reason = next(filter(None, map(why_not_ssa, several)), "")
        computes = Counter(node.op for node in first.nodes if node.kind == "compute")
        rows.append(
            (
                name,
                str(len(first)),
                ", ".join(f"{op} ×{number}" if number > 1 else op for op, number in computes.items()) or "nothing",
                _typed_share(several),
                f"no: {reason}" if reason else "yes",
                _control(several),
                _level(several),
            )
        )
    return Table(("IR", "nodes", "computes", "typed?", "SSA?", "control flow?", "level"), tuple(rows))


def _typed_share(graphs: Sequence[Graph]) -> str:
    values = [node for graph in graphs for node in graph.nodes if not _returns(graph, node)]
    typed = sum(1 for node in values if node.shape is not None or _is_whole(node.dtype))
    return "yes" if typed == len(values) else "no" if not typed else f"{typed} of {len(values)} values"


def _returns(graph: Graph, node: Node) -> bool:
    """Return whether this node only returns the outputs and makes no value itself."""
    return node.op.split(".")[-1] in ("output", "return", "prim::Return")


def _is_whole(dtype: str | None) -> bool:
    """Return whether this dtype is a complete type (`int`, `NoneType`), to which no tensor shape belongs."""
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
    levels = {
        next((level for level, belongs in LEVELS if belongs(graph, node)), graph.ir)
        for graph in graphs
        for node in graph.nodes
        if node.kind in ("compute", "memory")
    }
    order = [level for level, _ in LEVELS]
    return ", ".join(sorted(levels, key=lambda level: order.index(level) if level in order else len(order)))
