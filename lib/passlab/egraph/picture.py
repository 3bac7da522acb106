"""Draw an e-graph: classes as dashed frames, e-nodes as boxes in them, an arrow from each operand to its class.

    draw_classes(graph, {root: "the program"})

Graphviz lays it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from passlab.drawing.boxes import COLOURS, fit, legend
from passlab.drawing.picture import FONT, GREY, INK, PALE, Picture, bold, cut, rows, small
from passlab.egraph.graph import EGraph

#: Maximum number of e-nodes in a drawing; the text form has more.
LIMIT = 120

_LINE, _FILL = COLOURS["compute"]
_LEAF_LINE, _LEAF_FILL = COLOURS["data"]
_NAMED = COLOURS["memory"][0]


def draw_classes(graph: EGraph, names: Mapping[int, str] = MappingProxyType({}), title: str = "An e-graph") -> Picture:
    """Draw the classes of an e-graph. names: number of a term → what to write on its class."""
    titles: dict[int, list[str]] = {}
    for number, name in names.items():
        titles.setdefault(graph.find(number), []).append(name)
    heads = {number: ", ".join([str(number), *titles.get(number, ())]) for number in graph.nodes}
    counts = f"{len(graph)} e-nodes in {len(graph.nodes)} classes"
    lines = [f"{head}: {' | '.join(map(_text, graph.nodes[number]))}" for number, head in heads.items()]
    text = "\n".join([title, counts, *fit(lines)])
    if len(graph) > LIMIT:
        return Picture(text, "digraph { }", title, f"{counts} are too many to draw (at most {LIMIT} e-nodes).")
    return Picture(text, _dot(graph, titles, title, counts), f"{title}. {counts}")


def _text(node: tuple) -> str:
    operands = ", ".join(map(str, node[1:]))
    return f"{node[0]}({operands})" if operands else str(node[0])


def _dot(graph: EGraph, titles: Mapping[int, list[str]], title: str, counts: str) -> str:
    key = legend([(GREY, "▭", "class"), (_LINE, "■", "e-node, its operands below")])
    boxes = {(number, node): f"e{at}" for at, (number, node) in enumerate(_members(graph))}
    first = {number: boxes[number, next(iter(nodes))] for number, nodes in graph.nodes.items()}
    lines = [
        "digraph {",
        f"graph [label={rows(bold(cut(title, 90)), small(counts), key)} labelloc=t labeljust=l bgcolor=white",
        f'  compound=true nodesep=0.3 ranksep=0.5 pad=0.1 fontname="{FONT}" fontcolor="{INK}"]',
        f'node [shape=plain fontname="{FONT}" fontsize=11 fontcolor="{INK}"]',
        f'edge [color="{GREY}" arrowsize=0.6]',
    ]
    for number, nodes in graph.nodes.items():
        inside = "; ".join(f"{boxes[number, node]} [label={_box(node)}]" for node in nodes)
        name = bold(", ".join(titles.get(number, ())))
        label = f"{small(str(number), PALE)}  {name}" if number in titles else small(str(number), PALE)
        colour, width = (_NAMED, 2) if number in titles else (GREY, 1)
        look = f'style="rounded,dashed" color="{colour}" penwidth={width} margin=7 labeljust=l fontsize=10'
        lines.append(f"subgraph cluster_{number} {{ graph [label=<{label}> {look}]; {{ rank=same; {inside} }} }}")
    for (number, node), name in boxes.items():
        for at, operand in enumerate(graph.find(operand) for operand in node[1:]):
            head = "" if operand == number else f" [lhead=cluster_{operand}]"
            lines.append(f"{name}:p{at}:s -> {first[operand]}{head}")
    return "\n".join([*lines, "}"])


def _members(graph: EGraph) -> list[tuple[int, tuple]]:
    return [(number, node) for number, nodes in graph.nodes.items() for node in nodes]


def _box(node: tuple) -> str:
    """Return an e-node as a table: its label, and below it a cell for each operand."""
    operands = len(node) - 1
    line, fill = (_LINE, _FILL) if operands else (_LEAF_LINE, _LEAF_FILL)
    head = f'<td colspan="{max(1, operands)}">{bold(cut(str(node[0]), 24))}</td>'
    cells = "".join(f'<td port="p{at}" width="16" height="5" fixedsize="true"></td>' for at in range(operands))
    below = f"<tr>{cells}</tr>" if operands else ""
    look = f'border="0" cellborder="1" cellspacing="0" cellpadding="3" color="{line}" bgcolor="{fill}"'
    return f"<<table {look}><tr>{head}</tr>{below}</table>>"
