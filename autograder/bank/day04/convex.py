"""Bank of day04.convex."""

from __future__ import annotations

from collections import deque

from autograder.bank import right, wrong
from passlab.fx.effects import effects, memory_order, written


def _members(gm, group):
    return [node for node in gm.graph.nodes if node.name in group]


def _readers(gm, *, memory=True, operands=lambda node: node.all_input_nodes):
    """Node → the nodes that must come after it."""
    after = {node: [] for node in gm.graph.nodes}
    order = memory_order(gm.graph) if memory else {}
    for node in gm.graph.nodes:
        for before in [*operands(node), *order.get(node, ())]:
            after[before].append(node)
    return after


def _search(gm, group, after):
    """Breadth first from each member, over nodes that are none."""
    inside = set(_members(gm, group))
    for start in inside:
        came_from, todo = {start: None}, deque([start])
        while todo:
            node = todo.popleft()
            for reader in after[node]:
                if reader in inside and node is not start:
                    path = [reader, node]
                    while came_from[path[-1]] is not None:
                        path.append(came_from[path[-1]])
                    return [n.name for n in reversed(path)]
                if reader not in came_from and reader not in inside:
                    came_from[reader] = node
                    todo.append(reader)
    return None


def _effect(gm, group):
    return next(([n.name] for n in _members(gm, group) if effects(n)), None)


@right("a breadth-first search from each member, forwards")
def breadth_first(gm, group):
    return _effect(gm, group) or _search(gm, group, _readers(gm))


@right("the nodes that are behind the group and before it, and then the way through one of them; tuples for lists")
def behind_and_before(gm, group):
    members = _members(gm, group)
    for member in members:
        if effects(member):
            return (member.name,)
    order = memory_order(gm.graph)
    waits = {n: [*n.all_input_nodes, *order[n]] for n in gm.graph.nodes}
    behind, nearer = {}, {}
    for node in gm.graph.nodes:
        for n in waits[node]:
            if node not in members and (n in members or n in behind):
                behind.setdefault(node, n)
    for node in reversed(gm.graph.nodes):
        for n in waits[node]:
            if n not in members and (node in members or node in nearer):
                nearer.setdefault(n, node)
    middle = next((n for n in behind if n in nearer), None)
    if middle is None:
        return None
    path = [middle]
    while path[0] not in members:
        path.insert(0, behind[path[0]])
    while path[-1] not in members:
        path.append(nearer[path[-1]])
    return tuple(n.name for n in path)


@wrong("did", "looks one node far: a way through two nodes outside is not seen")
def one_step(gm, group):
    members, after = _members(gm, group), _readers(gm)
    for a in members:
        for between in after[a]:
            for b in after[between]:
                if between not in members and b in members:
                    return [a.name, between.name, b.name]
    return _effect(gm, group)


@wrong("did", "knows operands in args alone: those in lists and keywords are not seen")
def args_alone(gm, group):
    def operands(node):
        return [a for a in node.args if hasattr(a, "users")]

    return _effect(gm, group) or _search(gm, group, _readers(gm, operands=operands))


@wrong("did", "forgets memory: a write between two members changes what the second reads")
def memory_unseen(gm, group):
    return _effect(gm, group) or _search(gm, group, _readers(gm, memory=False))


@wrong("did", "forgets effects: a dropout may be a member")
def effects_unseen(gm, group):
    return _search(gm, group, _readers(gm))


@wrong("spared", "takes the order of the text for a dependence: whatever stands between two members is in the way")
def order_of_text(gm, group):
    nodes = list(gm.graph.nodes)
    places = [at for at, n in enumerate(nodes) if n.name in group]
    for n in nodes[places[0] : places[-1]]:
        if n.name not in group and n.op.startswith("call_"):
            return [nodes[places[0]].name, n.name, nodes[places[-1]].name]
    return _effect(gm, group)


@wrong("spared", "wants one result: a value that leaves the group is in the way, also if it never comes back")
def one_result(gm, group):
    for a in _members(gm, group)[:-1]:
        for reader in a.users:
            if reader.name not in group:
                return [a.name, reader.name, group[-1]]
    return breadth_first(gm, group)


@wrong("spared", "wants the members to be connected")
def connected(gm, group):
    members = _members(gm, group)
    reached, todo = {members[0]}, [members[0]]
    while todo:
        node = todo.pop()
        for near in [*node.users, *node.all_input_nodes]:
            if near in members and near not in reached:
                reached.add(near)
                todo.append(near)
    alone = [n.name for n in members if n not in reached]
    return [members[0].name, alone[0]] if alone else breadth_first(gm, group)


@wrong("spared", "refuses whatever touches memory that is written anywhere")
def writes_anywhere(gm, group):
    memory = written(gm.graph)
    for n in _members(gm, group):
        if n in memory or any(a in memory for a in n.all_input_nodes):
            return [n.name]
    return breadth_first(gm, group)


@wrong("did", "names the outside nodes of the way without its ends")
def without_ends(gm, group):
    found = breadth_first(gm, group)
    return found[1:-1] if found and len(found) > 1 else found


@wrong("did", "names the two members, and not what is between")
def ends_alone(gm, group):
    found = breadth_first(gm, group)
    return [found[0], found[-1]] if found and len(found) > 1 else found


@wrong("did", "names the way backwards")
def backwards(gm, group):
    found = breadth_first(gm, group)
    return found and found[::-1]


@wrong("valid", "answers True or False")
def yes_or_no(gm, group):
    return breadth_first(gm, group) is None


@wrong("valid", "answers with a sentence")
def a_sentence(gm, group):
    found = breadth_first(gm, group)
    return found and f"{found[0]} and {found[-1]} are not convex"


@wrong("spared", "tries all ways, one by one: on a ladder there are two to the power of forty")
def all_ways(gm, group):
    after = _readers(gm)

    def ways(node, path):
        for reader in after[node]:
            if reader.name in group:
                if len(path) > 1:
                    return [*path, reader.name]
            elif found := ways(reader, [*path, reader.name]):
                return found
        return None

    for n in _members(gm, group):
        if found := ways(n, [n.name]):
            return found
    return _effect(gm, group)
