"""The order in which to visit blocks, and loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from passlab.dataflow.cfg import Program, predecessors, successors


def depth_first_order(edges: Mapping[str, Sequence[str]], starts: Iterable[str]) -> list[str]:
    """Return the nodes reached from `starts` in reverse post-order: each before those that it leads to, but for loops.

    Written without recursion, since a path may have thousands of blocks.
    """
    done: list[str] = []
    seen: set[str] = set()
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(edges[start]))]
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    path.append((other, iter(edges[other])))
                    break
            else:
                done.append(node)
                path.pop()
    return done[::-1]


def reverse_postorder(program: Program, direction: str = "forward") -> list[str]:
    """Return the names of the blocks in the order in which facts flow.

    Forward, from the entry: blocks that cannot be reached are left out. Backward, from the returns and then from blocks
    that lead to no return: all blocks are there.
    """
    if direction == "forward":
        return depth_first_order(successors(program), [program.entry.name])
    into = predecessors(program)
    order = depth_first_order(into, [block.name for block in program.blocks if block.terminator.kind == "return"])
    if len(order) == len(program.blocks):
        return order
    leads_out = set(order)
    rest = depth_first_order(successors(program), [block.name for block in program.blocks])
    # A later start comes out first, so the blocks without a way to a return are started in reverse.
    stuck = [name for name in reversed(rest) if name not in leads_out]
    inside = {name: [other for other in into[name] if other not in leads_out] for name in stuck}
    return order + depth_first_order(inside, stuck)


def loop_heads(program: Program, direction: str = "forward") -> set[str]:
    """Return the blocks that an edge leads back to: every cycle runs through at least one of them."""
    order = {name: i for i, name in enumerate(reverse_postorder(program, direction))}
    edges = successors(program) if direction == "forward" else predecessors(program)
    return {there for here in order for there in edges[here] if there in order and order[there] <= order[here]}


def dominators(program: Program) -> dict[str, str | None]:
    """Return, for each reachable block, its immediate dominator; None for the entry.

    K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    order = reverse_postorder(program)
    number = {name: i for i, name in enumerate(order)}
    into = predecessors(program)
    above = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            known = [other for other in into[name] if other in above]
            best = known[0]
            for other in known[1:]:
                while best != other:
                    if number[best] > number[other]:
                        best = above[best]
                    else:
                        other = above[other]
            changed |= above.get(name) != best
            above[name] = best
    return {name: None if name == order[0] else above[name] for name in order}


def reducible(program: Program) -> bool:
    """Return whether every edge that goes back in reverse post-order leads to a block that dominates its source.

    Programs made of `if` and `while` are; a jump into the middle of a loop makes one that is not.
    """
    order = {name: i for i, name in enumerate(reverse_postorder(program))}
    above, edges = dominators(program), successors(program)
    for here in order:
        for there in edges[here]:
            at: str | None = here
            while order[there] <= order[here] and at != there:
                at = above[at]  # type: ignore[index]
                if at is None:
                    return False
    return True
