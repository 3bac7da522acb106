"""Post-dominators: the first node that every path from a node to the output passes through.

    behind = post_dominators(gm.graph)
    behind[node]            # the first node on all paths from `node` to the output
    nodes_between(node, behind[node])

A node's post-dominators form a chain: its immediate one, that one's, and so on. The chains of all nodes form a tree, so
the place where the users of a node meet is their lowest common ancestor in that tree (Cooper, Harvey and
Kennedy, "A Simple, Fast Dominance Algorithm", 2001). A graph without cycles needs one walk from the last node to the
first. Each node keeps one long step besides the short one to its post-dominator (Myers, "An Applicative Random-Access
Stack", 1983), so that a meeting is found in logarithmic time however long the chains are.
"""

from __future__ import annotations

from torch import fx


def post_dominators(graph: fx.Graph) -> dict[fx.Node, fx.Node | None]:
    """Return the immediate post-dominator of every node.

    None for the output, for unused nodes, and where paths end at different places, as they do after a node with a dead
    user.
    """
    behind: dict[fx.Node, fx.Node | None] = {}
    jump: dict[fx.Node, fx.Node | None] = {}  # another node further up the chain
    depth: dict[fx.Node | None, int] = {None: 0}

    def meeting(a: fx.Node | None, b: fx.Node | None) -> fx.Node | None:
        while a is not b:
            if a is None or b is None:
                return None
            if depth[a] < depth[b]:
                a, b = b, a
            if depth[a] > depth[b]:
                a = jump[a] if depth[jump[a]] >= depth[b] else behind[a]
            elif jump[a] is not jump[b]:
                a, b = jump[a], jump[b]
            else:
                a, b = behind[a], behind[b]
        return a

    for node in reversed(graph.nodes):
        readers = iter(node.users)
        meet = next(readers, None)
        for reader in readers:
            meet = meeting(meet, reader)
            if meet is None:
                break
        behind[node], depth[node] = meet, depth[meet] + 1
        # Two long steps of one length become one: lengths are 1, 1, 3, 1, 1, 3, 7, …
        far = jump.get(meet)
        farther = jump.get(far)
        jump[node] = farther if depth[meet] - depth[far] == depth[far] - depth[farther] else meet
    return behind


def nodes_between(node: fx.Node, sink: fx.Node, most: int | None = None) -> list[fx.Node] | None:
    """Return the nodes on the paths from `node` to its post-dominator `sink`, without the two.

    Return None if there are more than `most` (if given).
    """
    between = {node: None}
    todo = [node]
    while todo:
        for reader in todo.pop().users:
            if reader is sink or reader in between:
                continue
            if most is not None and len(between) > most:
                return None
            between[reader] = None
            todo.append(reader)
    return list(between)[1:]
