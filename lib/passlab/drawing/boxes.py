"""Label nodes, and turn boxes and arcs into DOT."""

from __future__ import annotations

import reprlib
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

from passlab.drawing.grouping import Group, group
from passlab.drawing.picture import BLUE, FONT, GREY, INK, PALE, bold, cut, escape, rows, size, small
from passlab.graph import KINDS, Graph, Node
from passlab.judge.words import plural

#: More boxes than this are grouped: a larger picture is slow and illegible.
LIMIT = 200
#: Maximum number of lines of a text form.
LINES = 400
#: In a picture of more boxes than this, a weight or constant with one use is drawn inside the box that uses it.
ROOMY = 60

#: Kind → (line, fill), after Okabe and Ito's palette for all kinds of colour vision; the lines dark enough on white.
COLOURS = {
    "compute": (BLUE, "#E8F2F9"),
    "data": ("#767676", "#F5F5F5"),
    "shape": ("#B87A00", "#FDF4E1"),
    "control": ("#B0558A", "#FAEDF4"),
    "memory": ("#00805D", "#E4F4EE"),
}
RED = "#C24E00"


@dataclass(frozen=True)
class Change:
    """The look of a changed node: the sign and the line style repeat the meaning of the colour."""

    sign: str
    line: str
    fill: str
    box: str = "penwidth=2.2"
    edge: str = ""


CHANGES = {
    "kept": Change("", "#A8A8A8", "#FFFFFF", box="", edge='color="#A8A8A8"'),
    "added": Change("+", "#00805D", "#E4F4EE", edge='color="#00805D" penwidth=2.2'),
    "removed": Change(
        "−", RED, "#FDF0E7", 'penwidth=1.4 style="rounded,filled,dashed"', f'color="{RED}" penwidth=1.4 style=dashed'
    ),
    "rewired": Change("~", BLUE, "#E8F2F9"),
    "altered": Change("≠", "#B0558A", "#FAEDF4"),
}

#: Hidden attributes: defaults, those that the shape implies, and our own.
DEFAULTS = {
    *("stride=(1, 1)", "strides=(1, 1)", "padding=(0, 0)", "padding=(0, 0, 0, 0)", "output_padding=(0, 0)"),
    *("dilation=(1, 1)", "groups=1", "padding_mode='zeros'", "inplace=False", "affine=True", "elementwise_affine=True"),
    *("track_running_stats=True", "data_layout='NCHW'", "kernel_layout='OIHW'", "out_layout='NCHW'"),
}
HIDDEN = {"opcode", "in_channels", "out_channels", "in_features", "out_features", "num_features"}
HIDDEN |= {"channels", "dataflow", "primfunc", "by", "bits"}

#: Commutative operations: their edges are not numbered.
COMMUTATIVE = {"add", "mul", "multiply", "iadd", "imul", "add_", "mul_", "max", "min", "maximum", "minimum", "eq", "ne"}
COMMUTATIVE |= {"and", "or", "xor", "and_", "or_", "xor_"}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 24
_short.maxtuple = _short.maxlist = _short.maxdict = 6


def short(value: Any) -> str:
    """Shorten an attribute to a few characters; a weight becomes its shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"tensor{list(value.shape)}"
    try:
        return _short.repr(value)
    except Exception:
        return type(value).__name__


def shown_attributes(node: Node) -> list[str]:
    """Return the attributes to show, as `name=value`."""
    shown = []
    for name, value in sorted(node.attrs.items(), key=lambda item: item[0] != "kernel_size"):
        repeats = name == "target" and str(value).replace(".", "_") in node.id
        text = f"{name}={short(value)}"
        if name not in HIDDEN and not repeats and text not in DEFAULTS:
            shown.append(text)
    return shown


def attributes(node: Node) -> dict[str, str]:
    """Return the attributes in comparable form: tensors by type and shape, all else by `repr`."""
    return {name: _comparable(value) for name, value in node.attrs.items()}


def _comparable(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    try:
        return repr(value)
    except Exception:
        return type(value).__name__


def name(node: Node) -> str:
    """Return the name to show for a node: its id if that is readable, else its label."""
    return node.label if node.label and not node.id.isidentifier() else node.id


def kind_of_value(node: Node) -> str:
    """Return `float32[4, 8] · 128 B`, or `3 × float32[4, 8] · 384 B` for three alike."""
    text, shapes = node.type, set(node.shape or ())
    if len(shapes) == 1 and isinstance(shape := shapes.pop(), tuple) and "," not in (node.dtype or ""):
        text = f"{len(node.shape)} × {replace(node, shape=shape).type}"
    return " · ".join(filter(None, (cut(text, 44), size(node.bytes))))


def line(node: Node) -> str:
    """Format a node as a line of text: its source, then type and bytes."""
    text = cut(" ".join((node.text or f"{node.id} = {node.op}({', '.join(node.inputs)})").split()), 100)
    return f"{text:<48}  {kind_of_value(node)}".rstrip()


def fit(lines: list[str]) -> list[str]:
    """Cut `lines` to the maximum length of a text form."""
    return lines if len(lines) <= LINES else [*lines[:LINES], f"… {len(lines) - LINES:,} more lines"]


def title_lines(title: str | None) -> list[str]:
    return [title] if title else []


def heading(graph: Graph) -> str:
    values = f", {size(graph.bytes)} of values" if graph.bytes is not None else ""
    return f"{graph.ir}: {plural(len(graph), 'node')}{values}"


def legend(entries: list[tuple[str, str, str]]) -> str:
    """Format (colour, sign, words) entries as one line."""
    return small(
        " &#160; ".join(f'<font color="{c}"><b>{s}</b></font>&#160;&#160;{words}' for c, s, words in entries), INK
    )


def kinds_legend(counts: dict[str, Any]) -> str:
    """Return a legend of the kinds that occur, with their counts."""
    return legend([(COLOURS[kind][0], "■", f"{kind} {counts[kind]}") for kind in KINDS if counts.get(kind, 0) != 0])


@dataclass(frozen=True)
class Box:
    """One box: a node, or a group of nodes with a caption.

    `change` is one of CHANGES in a difference, `was` the old node, `css` classes for the step-through. `inside` are the
    weights and constants drawn inside this box.
    """

    nodes: tuple[Node, ...]
    change: str = ""
    was: Node | None = None
    marked: bool = False
    css: str = ""
    caption: str = ""
    inside: tuple[Node, ...] = ()

    @property
    def calm(self) -> bool:
        """Return whether the box is unmarked and unchanged, so that it may go into a group."""
        return not self.marked and self.change in ("", "kept") and not self.css

    @property
    def what_changed(self) -> str:
        """`padding=(1, 1) → (0, 0)`, or the old source; "" for an unchanged box."""
        if self.was is None or self.change not in ("rewired", "altered"):
            return ""
        old, new = self.was, self.nodes[0]
        before, after = attributes(old), attributes(new)
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        changes = [f"{name}={short(old.attrs.get(name))} → {short(new.attrs.get(name))}" for name in names]
        if self.change == "rewired" or not changes:
            was = old.text if old.text != new.text else old.type
            changes = [f"was {was}"] if was else []
        return cut("  ".join(changes), 60)

    def dot(self, name: str) -> str:
        """Return the box as a statement of DOT."""
        node = self.nodes[0]
        colour, fill = COLOURS.get(node.kind, COLOURS["compute"])
        sign, look = "", ""
        if len(self.nodes) > 1:
            colour, fill, look = GREY, "#FFFFFF", "peripheries=2"
        elif node.op == "missing":
            colour, look = RED, 'style="rounded,filled,dashed"'
        if self.change and (change := CHANGES[self.change]):
            sign, colour, fill, look = f"{change.sign} ".lstrip(), change.line, change.fill, f"{look} {change.box}"
        if self.marked:
            look += f' penwidth=3.2 color="{INK}"'
        label = self._group_label(sign) if len(self.nodes) > 1 else self._node_label(sign)
        return f'{name} [label={label} color="{colour}" fillcolor="{fill}" {look} class="{self.css}"]'

    def _node_label(self, sign: str) -> str:
        node = self.nodes[0]
        label = small(escape(cut(name(node), 40)), PALE, 10) if name(node) != node.op else ""
        leaf = node.kind == "data" and not node.inputs
        detail = self.what_changed or cut("  ".join(shown_attributes(node)), 56)
        if leaf or self.change == "kept":
            detail = ""
        elif self.change in ("added", "removed"):  # the source distinguishes relu(x) from x.relu()
            detail = cut(node.text, 56)
        head = bold(sign + cut(node.op, 40)) + (f"  {label}" if label else "")
        return rows(head, small(escape(kind_of_value(node)), "#333333"), small(escape(detail)), self._with())

    def _with(self) -> str:
        names = ", ".join(node.type or name(node) for node in self.inside)
        return small(escape(cut(f"with {names}", 56))) if names else ""

    def _group_label(self, sign: str) -> str:
        """Return the caption, a count of each op, and the bytes."""
        counts = Counter(node.op for node in self.nodes).most_common()
        ops = " · ".join(f"{number} {cut(op, 24)}" for op, number in counts[:4])
        others = f" · {len(counts) - 4} more ops" if len(counts) > 4 else ""
        sizes = [node.bytes for node in self.nodes if node.bytes is not None]
        values = f"{size(sum(sizes))} of values" if sizes else ""
        return rows(bold(sign + self.caption), small(escape(ops + others)), small(values))

    @property
    def tip(self) -> str:
        """The tooltip."""
        lines = [
            f"{n.text or n.id} [{n.kind}] {', '.join(shown_attributes(n))} {kind_of_value(n)}"
            for n in (*self.nodes, *self.inside)[:12]
        ]
        return "\n".join(cut(text, 300) for text in lines)


Key = Any  # a box's key: a node's id, (side, id) or (id, op)
Arcs = dict[tuple[Key, Key], str]  # (from, to) → attributes of DOT


class Dot(NamedTuple):
    """A graph in DOT, the tooltips of its boxes in order, and a note on groups."""

    source: str
    tips: list[str]
    note: str


def to_dot(
    boxes: dict[Key, Box],
    arcs: Arcs,
    title: str,
    subtitle: str,
    key: str,
    limit: int,
    note: str = "",
    framed: Mapping[str, Collection[Key]] | None = None,
) -> Dot:
    """Return boxes and arcs in DOT, grouped beyond `limit` boxes. `framed`: title of a frame, of one line or
    several → keys of its boxes."""
    arcs = {(a, b): look for (a, b), look in arcs.items() if a in boxes and b in boxes}
    total, frames = len(boxes), []
    if total > min(ROOMY, limit):
        boxes, arcs = _weights_inside(boxes, arcs)
        if inside := total - len(boxes):
            note += f" {inside:,} weights and constants are drawn inside the boxes that use them."
        boxes = _merge_unused(boxes, arcs)
    if len(boxes) > limit or len(arcs) > 4 * limit:
        boxes, arcs, frames = _groups(boxes, arcs, limit)
        rules = ["a repeated part is drawn once, in a dashed frame"] * bool(frames)
        rules += ["a double border holds several nodes"] * any(len(box.nodes) > 1 for box in boxes.values())
        note += f" {total:,} nodes in {len(boxes)} boxes: {', '.join(rules)} (limit=N allows N boxes)."
    note = note.strip()
    top = [f'<font point-size="12">{bold(cut(title, 90))}</font>' if title else ""]
    top += [small(escape(cut(subtitle, 110))), key, *(small(escape(part)) for part in textwrap.wrap(note, 80))]
    names = {key: f"n{i}" for i, key in enumerate(boxes)}
    if not frames:
        titled = (framed or {}).items()
        frames = [_frame(i, of, [names[k] for k in keys if k in names]) for i, (of, keys) in enumerate(titled)]
    statements = [
        "digraph {",
        f"graph [label={rows(*top)} labelloc=t labeljust=l bgcolor=white pad=0.1 nodesep=0.28 ranksep=0.32",
        f'  nslimit=2 nslimit1=2 mclimit=0.5 fontname="{FONT}" fontcolor="{INK}"]',
        f'node [shape=box style="rounded,filled" margin="0.11,0.05" height=0.3 fontname="{FONT}" fontsize=11',
        f'  fontcolor="{INK}" penwidth=1.2]',
        f'edge [color="{GREY}" arrowsize=0.6 fontname="{FONT}" fontsize=8 fontcolor="{PALE}" labeldistance=1.4]',
        *(box.dot(names[key]) for key, box in boxes.items()),
        *frames,
        *(f"{names[a]} -> {names[b]} [{look}]" for (a, b), look in arcs.items()),
        "}",
    ]
    return Dot("\n".join(statements), [box.tip for box in boxes.values()], note)


def _frame(number: int, title: str, names: list[str]) -> str:
    look = f'style="rounded,filled" color="{INK}" fillcolor="#FFFBE0" penwidth=1.4 margin=8 labeljust=l'
    first, *rest = title.split("\n")
    label = rows(small(escape(first), INK, 10), *(small(escape(line)) for line in rest))
    return f"subgraph cluster_{number} {{ graph [label={label} {look}]; {'; '.join(names)} }}"


def _weights_inside(boxes: dict[Key, Box], arcs: Arcs) -> tuple[dict[Key, Box], Arcs]:
    """Move weights and constants into the box that uses them: calm leaves that are not a consumer's first operand."""
    changed = (CHANGES["added"].edge, CHANGES["removed"].edge)
    users: dict[Key, list[Key]] = {}
    separate = set()
    for (a, b), look in arcs.items():
        users.setdefault(a, []).append(b)
        node = boxes[a].nodes[0]
        leaf = node.kind == "data" and not node.inputs and boxes[a].calm
        if not leaf or boxes[b].nodes[0].inputs[0] == node.id or look in changed or "some" in look:
            separate.add(a)
    into = {a: bs for a, bs in users.items() if a not in separate and (len(bs) == 1 or boxes[a].nodes[0].shape is None)}
    inside: dict[Key, tuple[Node, ...]] = {}
    for a, bs in into.items():
        for b in bs:
            inside[b] = (*inside.get(b, ()), boxes[a].nodes[0])
    rest = {key: replace(box, inside=inside.get(key, ())) for key, box in boxes.items() if key not in into}
    return rest, {arc: look for arc, look in arcs.items() if arc[0] not in into}


def _merge_unused(boxes: dict[Key, Box], arcs: Arcs) -> dict[Key, Box]:
    """Merge many unused leaves into one box."""
    used = {key for arc in arcs for key in arc}
    unused = [key for key, box in boxes.items() if key not in used and box.calm and box.nodes[0].kind == "data"]
    if len(unused) < 5:
        return boxes
    merged = _merge([boxes[key] for key in unused], f"{len(unused):,} unused leaves")
    return {unused[0]: merged} | {key: box for key, box in boxes.items() if key not in set(unused)}


class _Groups(NamedTuple):
    """Fewer boxes, the arcs between them, and frames around the runs as DOT."""

    boxes: dict[Key, Box]
    arcs: Arcs
    frames: list[str]


def _groups(boxes: dict[Key, Box], arcs: Arcs, limit: int) -> _Groups:
    """Group boxes until at most `limit` are left (see `grouping`).

    Marked and changed boxes stay ungrouped while there are few of them.
    """
    keep = [key for key, box in boxes.items() if not box.calm]
    names = {key: box.nodes[0].op for key, box in boxes.items()}
    looks = {key: (box.nodes[0].op, box.nodes[0].dtype, box.nodes[0].shape, box.change) for key, box in boxes.items()}
    fewer: dict[Key, Box] = {}
    home: dict[Key, Key] = {}  # node → the node whose box shows it
    frames: list[str] = []
    number = count()

    def place(g: Group) -> str:
        """Create a group's boxes and return their names in DOT, framed if the group is a run."""
        if g.body:
            inside = "; ".join(map(place, g.body))
            each = sum(len(part.keys) for part in g.body)
            home.update({key: home[g.keys[i % each]] for i, key in enumerate(g.keys)})
            label = rows(bold(f"{len(g.keys) // each:,} ×"))
            look = f'style="rounded,dashed" color="{GREY}" margin=10 labeljust=l'
            return f"subgraph cluster_{next(number)} {{ graph [label={label} {look}]; {inside} }}"
        home.update(dict.fromkeys(g.keys, g.keys[0]))
        members = [boxes[key] for key in g.keys]
        fewer[g.keys[0]] = members[0] if len(members) == 1 else _merge(members, g.caption)
        return f"n{len(fewer) - 1}"

    for g in group(names, looks, arcs, keep, limit):
        if g.body:
            frames.append(place(g))
        else:
            place(g)
    place_of = {key: i for i, key in enumerate(fewer)}
    merged: Arcs = {}
    for (a, b), look in arcs.items():
        arc = home[a], home[b]
        if place_of[arc[0]] >= place_of[arc[1]] and (arc[0] != arc[1] or len(fewer[arc[0]].nodes) == 1):
            look = "style=dashed constraint=false"  # into the next round of a run
        elif arc[0] == arc[1]:
            continue
        merged[arc] = look if merged.get(arc, look) == look else ""
    return _Groups(fewer, merged, frames)


def _merge(members: list[Box], caption: str) -> Box:
    """Merge several boxes; if their changes differ, the caption counts them."""
    changes = Counter(box.change for box in members)
    counted = [f"{CHANGES[change].sign}{number}" for change, number in changes.items() if change not in ("", "kept")]
    return Box(
        tuple(node for box in members for node in box.nodes),
        next(iter(changes)) if len(changes) == 1 else "",
        marked=any(box.marked for box in members),
        caption="  ".join([caption, *counted]) if len(changes) > 1 else caption,
    )
