"""Draw MLIR with its regions as nested boxes, and what a pass changed inside of them.

A box holds a function, a linalg operation, a loop or a branch. At its top are the arguments of its region with their
sources (`%x = %a[d0, d1]`), at its bottom the result of the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from passlab.drawing import boxes as b
from passlab.drawing.boxes import CHANGES, COLOURS, LIMIT, Arcs, Box, Key
from passlab.drawing.difference import difference
from passlab.drawing.picture import FONT, GREY, INK, PALE, Picture, bold, cut, escape, rows, small
from passlab.graph import Graph, Node
from passlab.mlir.reader import as_module, functions, read

#: With more nodes than this, the bodies of linalg operations are a line in their box.
NESTED = 80

#: Fills of boxes in boxes, from the outside in.
_FILLS = ("#FBFCFD", "#F1F6FA", "#FBF6EA", "#F8F1F6")
#: An operand that lends its shape or its storage; its elements are not read.
_LENT = 'style=dashed arrowhead=none color="#B4B4B4"'
#: From one statement of a region to the next, where no value says the order.
_THEN = 'style=dotted color="#7C8A96" arrowsize=0.5 weight=3'

#: The path to a node: (the key of an operation, the name of its region), from the outside in.
Way = tuple[tuple[Key, str], ...]


def draw(module: Any, title: str = "", limit: int = LIMIT) -> Picture:
    """Draw a module of xDSL or IREE. More than `limit` operations outside of linalg are drawn in few boxes."""
    module = as_module(module)
    graph = read(module)
    note = ""
    if len(graph) > NESTED:
        graph, note = _without_empty(read(module, bodies=False)), "tensor.empty is not drawn. "
    heading, key = b.heading(graph), b.kinds_legend(graph.counts())
    text = "\n".join([*b.title_lines(title), heading, *b.fit([_indented(node) for node in graph])])
    name = title or f"@{graph.name}"
    if len(graph) > limit:
        boxes = {node.id: Box((node,)) for node in graph}
        dot, tips, note = b.to_dot(boxes, dict.fromkeys(graph.edges, ""), name, heading, key, limit, note)
        return Picture(text, dot, f"{name}. {heading}", note, tips)
    boxes = {node.id: Box((node,)) for node in graph}
    ways = {node.id: _way(node, lambda id: id) for node in graph}
    nest = _Nest(boxes, ways, dict.fromkeys(graph.edges, ""), _signatures(module))
    nest.order = nest.sequence()
    note += "Dotted arrows: the order of the program, where values do not say it." if nest.order else ""
    return Picture(text, nest.dot(name, heading, key), f"{name}. {heading}", note.strip(), nest.tips)


def diff(before: Any, after: Any, title: str = "", limit: int = LIMIT) -> Picture:
    """Draw two modules as one, with changes inside regions. See `passlab.diff`."""
    old_module, new_module = as_module(before), as_module(after)
    bodies = True
    graphs = [read(old_module), read(new_module)]
    if max(map(len, graphs)) > NESTED:
        bodies = False
        graphs = [read(old_module, bodies=False), read(new_module, bodies=False)]
    change = difference(*map(_placeless, graphs), title)
    if len(change.boxes) > limit or not bodies:
        dot, tips, note = b.to_dot(change.boxes, change.arcs, title, change.subtitle, change.legend, limit)
        return Picture(change.text, dot, change.name, note, tips)
    ways = {change.key[node.id]: _way(node, lambda id: change.key.get(id, id)) for node in graphs[0]}
    ways |= {("after", node.id): _way(node, lambda id: ("after", id)) for node in graphs[1]}
    nest = _Nest(change.boxes, ways, change.arcs, _signatures(new_module))
    return Picture(change.text, nest.dot(title, change.subtitle, change.legend), change.name, "", nest.tips)


def _without_empty(graph: Graph) -> Graph:
    """Return a graph without tensor.empty, which computes nothing and has an edge to almost everything."""
    empty = {node.id for node in graph if node.op == "tensor.empty"}
    nodes = (node for node in graph if node.id not in empty)
    return replace(graph, nodes=tuple(replace(n, inputs=tuple(i for i in n.inputs if i not in empty)) for n in nodes))


def _placeless(graph: Graph) -> Graph:
    """Return a graph whose nodes lack their `block`: the name of the operation around them may have changed."""
    nodes = (replace(n, attrs={name: value for name, value in n.attrs.items() if name != "block"}) for n in graph)
    return replace(graph, nodes=tuple(nodes))


def _way(node: Node, key: Any) -> Way:
    parts = (part.partition(":") for part in node.attrs.get("block", "").split("/") if part)
    return tuple((owner if owner.startswith("@") else key(owner), name) for owner, _, name in parts)


def _indented(node: Node) -> str:
    return "  " * (1 + node.attrs.get("block", "").count(":")) + b.line(node)


def _signatures(module: Any) -> list[str]:
    """Return the head of each function: its name, and the types that it takes and returns."""
    heads = []
    for name, function in functions(module).items():
        type = function.properties["function_type"]
        takes, gives = (", ".join(map(str, types)) for types in (type.inputs.data, getattr(type, "outputs", type).data))
        heads.append(f"func.func @{name}({takes}) → {gives or 'nothing'}")
    return heads


@dataclass
class _Nest:
    """Boxes with their paths, and arcs: as DOT with a frame for each operation that has regions."""

    boxes: Mapping[Key, Box]
    ways: Mapping[Key, Way]
    arcs: Arcs
    heads: list[str]
    names: dict[Key, str] = field(default_factory=dict)
    #: pairs of statements next to each other, drawn as dotted arrows
    order: list[tuple[Key, Key]] = field(default_factory=list)

    def __post_init__(self):
        self.owners = {owner for path in self.ways.values() for owner, _ in path}
        sources = {a for a, _ in self.arcs}
        self.hidden = {k for k, box in self.boxes.items() if self._is_lent(k, box) and k not in sources}
        self.hidden |= {k for k in sources if self._is_bound(k)}
        self.names = {key: f"n{i}" for i, key in enumerate(k for k in self.boxes if k not in self.hidden)}
        self.frames = 0
        self.clusters: dict[Key, int] = {}

    @property
    def tips(self) -> list[str]:
        return [self.boxes[key].tip for key in self.names]

    def _is_lent(self, key: Key, box: Box) -> bool:
        node = box.nodes[0]
        return node.op == "argument" and any(name for _, name in self.ways.get(key, ()))

    def _is_bound(self, key: Key) -> bool:
        """Return whether this is a number that is only a bound of loops: it is shown in their heads."""
        box = self.boxes.get(key)
        if box is None or not box.calm or box.nodes[0].op != "arith.constant" or box.nodes[0].shape != ():
            return False
        enclosing = {owner for owner, _ in self.ways.get(key, ())}
        return all(c in self.owners and c not in enclosing for a, c in self.arcs if a == key)

    def dot(self, title: str, subtitle: str, key: str) -> str:
        top = [f'<font point-size="12">{bold(cut(title, 90))}</font>' if title else ""]
        top += [small(escape(cut(subtitle, 110))), key]
        tree = self._tree()
        bodies = [self._function(number, tree) for number in range(max(1, len(self.heads)))]
        return "\n".join(
            [
                "digraph {",
                f"graph [label={rows(*top)} labelloc=t labeljust=l bgcolor=white pad=0.1 nodesep=0.24 ranksep=0.28",
                f'  compound=true fontname="{FONT}" fontcolor="{INK}"]',
                f'node [shape=box style="rounded,filled" margin="0.10,0.04" height=0.28 fontname="{FONT}" fontsize=11',
                f'  fontcolor="{INK}" penwidth=1.2]',
                f'edge [color="{GREY}" arrowsize=0.6 fontname="{FONT}" fontsize=8 fontcolor="{PALE}"]',
                *bodies,
                *self._edges(),
                "}",
            ]
        )

    def _tree(self) -> dict[Way, list[Key]]:
        """Return path → the boxes directly at it, in order."""
        tree: dict[Way, list[Key]] = {}
        for key in self.boxes:
            tree.setdefault(self.ways.get(key, ()), []).append(key)
        return tree

    def sequence(self) -> list[tuple[Key, Key]]:
        """Return the pairs of statements next to each other in a region, of which no value connects the two.

        A statement is a load, or an operation without a result: a store, a copy, a loop that carries no value. After
        the last one of a region, the operation around it is done.
        """
        pairs = []
        for way, keys in self._tree().items():
            statements = [
                key for key in keys if key not in self.hidden and self._is_statement(self.boxes[key].nodes[0])
            ]
            statements += [owner for owner, _ in way[-1:] if owner in self.boxes]
            pairs += [pair for pair in pairwise(statements) if pair not in self.arcs]
        return pairs

    @staticmethod
    def _is_statement(node: Node) -> bool:
        return node.op == "memref.load" or not node.id.startswith("%")

    def _first(self, key: Key) -> Key:
        """Return the first box that is drawn inside an operation, or its own."""
        return next((k for k in self.boxes if k in self.names and k not in self.owners and self._is_in(k, key)), key)

    def _is_in(self, key: Key, owner: Key) -> bool:
        return any(around == owner for around, _ in self.ways.get(key, ()))

    def _function(self, number: int, tree: dict[Way, list[Key]]) -> str:
        head = self.heads[number] if self.heads else "module"
        name = head.split("@")[1].split("(")[0] if self.heads else ""
        way: Way = ((f"@{name}", ""),) if number else ()
        return self._frame(_big("func.func ") + small(escape(cut(head.removeprefix("func.func "), 90))), way, tree, 0)

    def _frame(self, label: str, way: Way, tree: dict[Way, list[Key]], depth: int, look: str = "") -> str:
        self.frames += 1
        head = f"subgraph cluster_{self.frames} {{"
        style = look or f'color="#C4CDD4" fillcolor="{_FILLS[depth % len(_FILLS)]}"'
        label = f'graph [label={rows(label)} labeljust=l labelloc=t style="rounded,filled" margin=9 {style}]'
        return "\n".join([head, label, *self._inside(way, tree, depth), "}"])

    def _inside(self, way: Way, tree: dict[Way, list[Key]], depth: int) -> Iterable[str]:
        for key in tree.get(way, ()):
            if key in self.owners:
                yield self._operation(key, way, tree, depth + 1)
            elif key not in self.hidden:
                yield self._node(key)

    def _operation(self, key: Key, way: Way, tree: dict[Way, list[Key]], depth: int) -> str:
        """Return the frame of an operation with regions, with the box of its result in it."""
        box = self.boxes[key]
        node = box.nodes[0]
        label = _big(_sign(box) + node.op) + "  " + small(escape(cut(self._head(node), 70)))
        regions = list(
            dict.fromkeys(part[len(way)] for part in tree if part[: len(way)] == way and len(part) > len(way))
        )
        own = [part for part in regions if part[0] == key]
        look = ""
        if box.change and box.change != "kept":
            change = CHANGES[box.change]
            line = "dashed" if box.change == "removed" else "solid"
            look = f'color="{change.line}" fillcolor="{change.fill}" penwidth=2 style="rounded,filled,{line}"'
        self.frames += 1
        self.clusters[key] = self.frames
        head = f"subgraph cluster_{self.frames} {{"
        style = look or f'color="{COLOURS.get(node.kind, COLOURS["compute"])[0]}" fillcolor="{_FILLS[depth % 4]}"'
        lines = [head, f'graph [label={rows(label)} labeljust=l labelloc=t style="rounded,filled" margin=9 {style}]']
        for part in own:
            inner = (*way, part)
            if part[1] == "body":
                lines += self._inside(inner, tree, depth)
            else:
                lines.append(self._frame(small(escape(part[1]), INK, 10), inner, tree, depth))
        return "\n".join([*lines, self._node(key), "}"])

    def _head(self, node: Node) -> str:
        """Return the head of an operation with regions: its loops, its bounds, its condition."""
        if node.op == "linalg.generic":
            loops = node.attrs.get("iterators", "").split(", ")
            return ", ".join(f"d{i} {kind}" for i, kind in enumerate(loops) if kind)
        numbers = {box.nodes[0].id: box.nodes[0].label for box in self.boxes.values()}
        text = node.text.partition(node.op)[2].strip()
        return re.sub(r"%[\w$.-]+", lambda match: numbers.get(match[0]) or match[0], text)

    def _node(self, key: Key) -> str:
        box = self.boxes[key]
        node = box.nodes[0]
        colour, fill = COLOURS.get(node.kind, COLOURS["compute"])
        style = ""
        if box.change:
            change = CHANGES[box.change]
            colour, fill, style = change.line, change.fill, change.box
        return f'{self.names[key]} [label={self._label(key, box)} color="{colour}" fillcolor="{fill}" {style}]'

    def _label(self, key: Key, box: Box) -> str:
        node, sign = box.nodes[0], _sign(box)
        change = small(escape(box.what_changed)) if box.what_changed else ""
        value = small(escape(b.kind_of_value(node) if node.shape else node.dtype or ""), "#333333")
        if node.op == "argument":
            read = node.text.partition(" = ")[2]
            name = node.id.partition("#")[0]
            return rows(bold(sign + name) + (f"  {small(escape(f'= {read}'))}" if read else ""), value, change)
        if key in self.owners:
            return rows(bold(sign + (node.id if node.id.startswith("%") else "done")), value, change)
        name = small(escape(cut(node.id, 40)), PALE, 10) if node.id.startswith("%") else ""
        detail = node.label or node.attrs.get("applies", "")
        return rows(
            bold(sign + cut(node.op, 40)) + (f"  {name}" if name else ""), small(escape(cut(detail, 44))), value, change
        )

    def _edges(self) -> Iterable[str]:
        """Yield the arcs. An operand that feeds an argument of the region is drawn to the argument only."""
        covered = {
            (a, owner)
            for (a, c) in self.arcs
            if c in self.boxes and self.boxes[c].nodes[0].op == "argument" and c not in self.hidden
            for owner, _ in self.ways.get(c, ())[-1:]
        }
        for (a, c), look in self.arcs.items():
            if a not in self.names or c not in self.names or (a, c) in covered:
                continue
            inside = self._is_in(a, c)
            lent = c in self.owners and not inside and self.boxes[c].nodes[0].op.startswith("linalg.")
            yield f"{self.names[a]} -> {self.names[c]} [{look} {_LENT if lent and not look else ''}]"
        for a, c in self.order:
            ends, head = [f"ltail=cluster_{self.clusters[a]}"] if a in self.clusters else [], c
            if c in self.clusters and not self._is_in(a, c):
                ends, head = [*ends, f"lhead=cluster_{self.clusters[c]}"], self._first(c)
            yield f"{self.names[a]} -> {self.names[head]} [{_THEN} {' '.join(ends)}]"


def _sign(box: Box) -> str:
    return f"{CHANGES[box.change].sign} ".lstrip() if box.change else ""


def _big(text: str) -> str:
    return f'<font point-size="12">{bold(text)}</font>'
