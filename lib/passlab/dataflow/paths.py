"""The merge over all paths, by brute force: the reference for solutions."""

from __future__ import annotations

from functools import reduce
from typing import Any

from passlab.dataflow.cfg import Program, predecessors, successors
from passlab.dataflow.solver import Analysis


def over_all_paths(program: Program, analysis: Analysis, limit: int = 20_000) -> dict[str, Any]:
    """Return, for each block, the merge of the facts at its input over all paths; `initial` for a block without a path.

    A path is a chain of transfers from the boundary. A fact that several paths share is followed once, so the walk ends
    if the facts are finitely many. Raise ValueError beyond `limit` facts.
    """
    forward = analysis.direction == "forward"
    ahead, behind = successors(program), predecessors(program)
    readers = ahead if forward else behind
    starts = [program.entry.name] if forward else [b.name for b in program.blocks if not ahead[b.name]]
    blocks = {block.name: block for block in program.blocks}
    worklist = [(name, analysis.boundary(program)) for name in starts]
    facts: dict[str, list[Any]] = {name: [] for name in blocks}
    count = 0
    while worklist:
        name, fact = worklist.pop()
        if fact in facts[name]:
            continue
        facts[name].append(fact)
        if (count := count + 1) > limit:
            raise ValueError(f"{program.name}: more than {limit} different facts on its paths; take a smaller program.")
        output = analysis.transfer(blocks[name], fact)
        for reader in readers[name]:
            edge_fact = analysis.edge(blocks[name], reader, output) if analysis.edge and forward else output
            worklist.append((reader, edge_fact))
    return {name: reduce(analysis.merge, facts[name], analysis.initial(program)) for name in blocks}
