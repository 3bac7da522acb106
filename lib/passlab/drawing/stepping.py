"""Show a pass state by state in plain HTML and CSS: no kernel, no scripts, nothing to load."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from passlab.drawing import boxes as b
from passlab.drawing.boxes import LIMIT, Box, Key
from passlab.drawing.difference import diff_lines, merged
from passlab.drawing.graphs import ids, node_lines
from passlab.drawing.picture import INK, Picture, escape
from passlab.drawing.player import State, player
from passlab.graph import Graph, view
from passlab.judge.words import plural

#: Maximum number of states.
STATES = 100

Frame = tuple[Graph, set[str], str]  # graph, marked nodes, caption

_CSS = "#ID pre{display:none}#ID .some{transition:opacity .25s}"


class Steps(Picture):
    """The result of `steps`. `frames` are its states; the drawing holds all of them, and CSS shows one."""

    suffixes = (".html", ".txt")

    def __init__(self, frames: list[Frame], dot: str, title: str, note: str, tips: list[str]):
        self.frames = frames
        lines = [line for i in range(len(frames)) for line in self._lines(i)]
        super().__init__("\n".join(b.title_lines(title) + lines).rstrip(), dot, title, note, tips)

    def _lines(self, i: int) -> list[str]:
        """Return state `i` as lines: all nodes of the first state, only the changes of a later one."""
        graph, mark, caption = self.frames[i]
        marks = f"  ▸ {', '.join(sorted(mark))}" if mark and i else ""
        if i:
            ops = {node.id: node.op for node in graph}
            last = self.frames[i - 1][0]
            same = {node.id: node.id for node in last if ops.get(node.id) == node.op}
            boxes = merged(last, graph, same)
            changed = any(box.change != "kept" for box in boxes.values())
            lines = b.fit(diff_lines(boxes, context=1, all_below=0)) if changed else []
        else:
            lines = node_lines(graph, mark)
        return [f"{i + 1}/{len(self.frames)}  {caption}{marks}".rstrip(), *(f"  {line}" for line in lines), ""]

    @property
    def html(self) -> str:
        states, texts, count = [], [], len(self.frames)
        for i, (graph, _, caption) in enumerate(self.frames):
            rules = (
                f"ON.card pre.at{i}{{display:block}}ON.card .some:not(.in{i}){{opacity:0;pointer-events:none}}"
                f"ON.card .mark{i} path{{stroke:{INK};stroke-width:3.2}}"
            )
            label = f"<b>{i + 1}/{count}</b> {escape(caption)}<small>{len(graph)} nodes</small>"
            states.append(State(f"{i + 1} of {count}: {caption}", label, rules))
            texts.append(f'<pre class="at{i}">{html.escape(chr(10).join(self._lines(i)))}</pre>')
        return player(states, self.svg or f"{''.join(texts)}<p>{html.escape(self.note)}</p>", _CSS)


def steps(states: Iterable[Any], title: str | None = None, limit: int = LIMIT) -> Steps:
    """Step through a pass with buttons or the arrow keys: each state is (graph, marked nodes, caption), or a graph.

        steps([(gm, ["relu", "relu_1"], "two in a row"), (after, ["relu"], "one is left")])

    Each graph is read as soon as `states` yields it, so a generator may yield one graph and change it afterwards.
    A node keeps its place from state to state. Raises ValueError without a state.
    """
    frames: list[Frame] = []
    total = 0
    for total, state in enumerate(states, 1):
        if total <= STATES:
            graph, mark, caption = (*state, (), "")[:3] if isinstance(state, tuple) else (state, (), "")
            frames.append((view(graph), ids(mark or ()), str(caption)))
    if not frames:
        raise ValueError("steps got no states: pass (graph, marked nodes, caption) for at least one state.")
    boxes: dict[Key, Box] = {}
    frames_of: dict[Any, list[int]] = {}  # key of a box or an edge → its states
    marked: dict[Key, str] = {}
    for i, (graph, mark, _) in enumerate(frames):
        key = {node.id: (node.id, node.op) for node in graph}
        for node in graph:
            boxes[key[node.id]] = Box((node,))
            frames_of.setdefault(key[node.id], []).append(i)
            if node.id in mark:
                marked[key[node.id]] = f"{marked.get(key[node.id], '')} mark{i}"
        for producer, consumer in graph.edges:
            if producer in key:
                frames_of.setdefault(("edge", key[producer], key[consumer]), []).append(i)

    def css(element: Any) -> str:
        """Return the classes of a box or edge, "" if it is in every state."""
        return (
            ""
            if len(frames_of[element]) == len(frames)
            else " ".join(["some", *(f"in{i}" for i in frames_of[element])])
        )

    boxes = {key: replace(box, css=f"{marked.get(key, '')} {css(key)}".strip()) for key, box in boxes.items()}
    arcs = {
        element[1:]: f'class="{css(element)}"' for element in frames_of if element[0] == "edge" and len(element) == 3
    }
    note = f"Only the first {STATES} of {total} states are shown." if total > STATES else ""
    subtitle = f"{frames[0][0].ir}: {plural(len(frames), 'state')}"
    key = b.kinds_legend(dict.fromkeys((box.nodes[0].kind for box in boxes.values()), ""))
    dot, tips, note = b.to_dot(boxes, arcs, title or "", subtitle, key, limit, note)
    return Steps(frames, dot, title or "", note, tips)
