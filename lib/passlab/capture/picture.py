"""How `draw` shows a record of torch.compile: a frame for each graph, the breaks between them, the guards beside."""

from __future__ import annotations

from passlab.capture.recorder import Capture
from passlab.drawing import boxes as b
from passlab.drawing.graphs import numbered
from passlab.drawing.picture import Picture, cut
from passlab.graph import Node, view

#: Guards that a frame shows; the text form shows all.
GUARDS = 4


def draw(captured: Capture, title: str = "") -> Picture:
    """Return the picture of what was captured, in the order in which it was compiled."""
    graph = view(captured)
    frames, lines = {}, [str(captured)]
    parts: dict[str, list[Node]] = {}  # by the number of the compilation
    for node in graph:
        parts.setdefault(node.id.split(".")[0], []).append(node)
    for number, record in enumerate(captured.compilations):
        heading = f"{number}: {record.function}" + (f", call {record.call}" if len(captured.counts) > 1 else "")
        lines.append(heading + (f": {record.error}" if record.error else ""))
        lines += [f"    compiled again, since this did not hold: {record.failed_guard}"] if record.failed_guard else []
        lines += [f"    if {guard}" for guard in record.guards]
        nodes = parts.get(str(number), [])
        lines += ["  " + b.line(node) for node in nodes]
        if record.graph is not None:
            title_of = _title(heading, [str(guard) for guard in record.guards])
            frames[title_of] = [node.id for node in nodes if node.op != "break"]
    boxes = {node.id: b.Box((node,)) for node in graph}
    key = b.kinds_legend(graph.counts())
    dot, tips, note = b.to_dot(boxes, numbered(graph), title or captured.name, str(captured), key, b.LIMIT, "", frames)
    return Picture("\n".join(b.fit(lines)), dot, f"{title or captured.name}. {captured}", note, tips)


def _title(heading: str, guards: list[str]) -> str:
    rest = [f"and {len(guards) - GUARDS} more guards"] if len(guards) > GUARDS else []
    return "\n".join([heading, *(cut(f"if {guard}", 60) for guard in guards[:GUARDS]), *rest])
