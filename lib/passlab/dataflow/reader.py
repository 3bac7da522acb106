"""The common view of a control-flow graph: one node for each block, and one edge for each target."""

from __future__ import annotations

from passlab.dataflow.cfg import Program, predecessors
from passlab.graph import Graph, Node


def read(program: Program, *inputs: object) -> Graph:
    """Return the blocks as nodes, in the order of the text. Unlike the view of any other IR, it can have cycles."""
    sources = predecessors(program)
    nodes = []
    for block in program.blocks:
        lines = [*map(str, block.instructions), str(block.terminator)]
        text, attrs = f"{block.name}: {'; '.join(lines)}", {"instructions": tuple(lines)}
        nodes.append(Node(block.name, "block", "control", tuple(sources[block.name]), text=text, attrs=attrs))
    returns = tuple(block.name for block in program.blocks if not block.terminator.targets)
    return Graph(program.name, "CFG", tuple(nodes), returns, str(program))
