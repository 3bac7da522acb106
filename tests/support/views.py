"""What views of modules held, as plain data that tests look at."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from passlab import draw, view
from passlab.graph import Graph, table, why_not_ssa
from tests.support.flavours import python


def plain(obj: object) -> dict:
    """A view, its table row and its picture as plain data."""
    graph = view(obj)
    nodes = {
        n.id: [n.op, n.kind, list(n.inputs), n.type, n.bytes, n.text, {k: str(v) for k, v in n.attrs.items()}]
        for n in graph
    }
    told = {"outputs": list(graph.outputs), "ir": graph.ir, "name": graph.name, "text": graph.text}
    return {
        "nodes": nodes,
        "row": list(table([graph]).rows[0]),
        "ssa": why_not_ssa(graph),
        "drawn": draw(graph).text,
    } | told


def elsewhere(graphs: list[Graph], folder: Path) -> list[int]:
    """How long the graphs are for a process that unpickles them. Asserts that it loads no TVM for that."""
    (folder / "graphs").write_bytes(pickle.dumps(graphs))
    code = f"graphs = pickle.load(open({str(folder / 'graphs')!r}, 'rb'))"
    said = python(
        f"import json, pickle, sys; {code}; print(json.dumps([[len(g) for g in graphs], 'tvm' in sys.modules]))"
    )
    sizes, loaded = json.loads(said)
    assert not loaded
    return sizes


def ops(graph: dict) -> list[str]:
    """The operations of a view, in order."""
    return [node[0] for node in graph["nodes"].values()]
