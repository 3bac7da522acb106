"""The merge over all paths, by brute force: what a solution is compared with."""

from __future__ import annotations

from typing import Any

from passlab.dataflow.cfg import Program, predecessors, successors
from passlab.dataflow.solver import Analysis


def over_all_paths(program: Program, analysis: Analysis, most: int = 20_000) -> dict[str, Any]:
    """Return, for each block, the merge of the facts that all paths bring to it; blocks without a path have `initial`.

    A path here is a chain of transfers from the boundary. Facts that two paths have in common are followed once, so
    that loops end where facts are finite in number. Raise ValueError beyond `most` facts.
    """
    forward = analysis.direction == "forward"
    ahead, behind = successors(program), predecessors(program)
    onward = ahead if forward else behind
    starts = [program.entry.name] if forward else [b.name for b in program.blocks if not ahead[b.name]]
    boundary, blocks = analysis.boundary(program), {b.name: b for b in program.blocks}
    waiting = [(name, boundary) for name in starts]
    seen: dict[str, list[Any]] = {name: [] for name in blocks}
    count = 0
    while waiting:
        name, fact = waiting.pop()
        if fact in seen[name]:
            continue
        seen[name].append(fact)
        if (count := count + 1) > most:
            raise ValueError(f"{program.name}: more than {most} different facts on its paths; take a smaller program.")
        after = analysis.transfer(blocks[name], fact)
        for other in onward[name]:
            along = analysis.edge(blocks[name], other, after) if analysis.edge and forward else after
            waiting.append((other, along))
    found = {}
    for name, facts in seen.items():
        found[name] = analysis.initial(program)
        for fact in facts:
            found[name] = analysis.merge(found[name], fact)
    return found
