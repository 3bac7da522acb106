"""Orders of blocks, loops and dominators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from passlab.dataflow.cfg import Program, predecessors, successors


def depth_first_order(edges: Mapping[str, Sequence[str]], starts: Iterable[str]) -> list[str]:
    """Return the nodes that `starts` reach in reverse post-order: each before its successors, except along back edges.

    Not recursive, since a path may have thousands of blocks.
    """
    postorder: list[str] = []
    visited: set[str] = set()
    for start in starts:
        if start in visited:
            continue
        visited.add(start)
        path = [(start, iter(edges[start]))]
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in visited:
                    visited.add(other)
                    path.append((other, iter(edges[other])))
                    break
            else:
                postorder.append(node)
                path.pop()
    return postorder[::-1]


def reverse_postorder(program: Program, direction: str = "forward") -> list[str]:
    """Return the names of the blocks in the order in which facts flow.

    Forward, from the entry, without unreachable blocks. Backward, from the returns and then from blocks without a path
    to a return, so all blocks are in it.
    """
    if direction == "forward":
        return depth_first_order(successors(program), [program.entry.name])
    sources = predecessors(program)
    order = depth_first_order(sources, [block.name for block in program.blocks if block.terminator.kind == "return"])
    if len(order) == len(program.blocks):
        return order
    returning = set(order)
    forward = depth_first_order(successors(program), [block.name for block in program.blocks])
    # The result begins with the last start, so the blocks without a path to a return are started in reverse.
    stuck = [name for name in reversed(forward) if name not in returning]
    edges = {name: [other for other in sources[name] if other not in returning] for name in stuck}
    return order + depth_first_order(edges, stuck)


def loop_heads(program: Program, direction: str = "forward") -> set[str]:
    """Return the targets of back edges: every cycle contains at least one of them."""
    order = {name: i for i, name in enumerate(reverse_postorder(program, direction))}
    edges = successors(program) if direction == "forward" else predecessors(program)
    return {target for block in order for target in edges[block] if target in order and order[target] <= order[block]}


def dominators(program: Program) -> dict[str, str | None]:
    """Return, for each reachable block, its immediate dominator; None for the entry.

    K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    order = reverse_postorder(program)
    number = {name: i for i, name in enumerate(order)}
    sources = predecessors(program)
    above = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            parent, *others = (source for source in sources[name] if source in above)
            for other in others:
                while parent != other:
                    if number[parent] > number[other]:
                        parent = above[parent]
                    else:
                        other = above[other]
            changed |= above.get(name) != parent
            above[name] = parent
    return {name: None if name == order[0] else above[name] for name in order}


def reducible(program: Program) -> bool:
    """Return whether the target of every back edge dominates its source.

    Programs of `if` and `while` are reducible; a jump into the middle of a loop is not.
    """
    order = {name: i for i, name in enumerate(reverse_postorder(program))}
    above, edges = dominators(program), successors(program)

    def dominates(target: str, block: str | None) -> bool:
        while block not in (target, None):
            block = above[block]
        return block == target

    return all(dominates(t, block) for block in order for t in edges[block] if order[t] <= order[block])
