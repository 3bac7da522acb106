"""The common view of a control-flow graph: one node for each block, and an edge for each way on."""

from __future__ import annotations

from passlab.dataflow.cfg import Program, predecessors
from passlab.graph import Graph, Node


def read(program: Program, *inputs: object) -> Graph:
    """Return the blocks as nodes, in the order of the text. Loops make cycles, which no other IR's view has."""
    before = predecessors(program)
    nodes = []
    for block in program.blocks:
        lines = [*map(str, block.instructions), str(block.terminator)]
        said = {"instructions": tuple(lines)}
        ways = tuple(before[block.name])
        nodes.append(Node(block.name, "block", "control", ways, text=f"{block.name}: {'; '.join(lines)}", attrs=said))
    ends = tuple(block.name for block in program.blocks if not block.terminator.targets)
    return Graph(program.name, "CFG", tuple(nodes), ends, str(program))
