"""Hidden cases and answers of day04.convex."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab import random_graph
from passlab.exercises.day04.convex import allowed, effectful, normalized, refused, way_back
from passlab.fx.cases import call, graph, read
from passlab.fx.effects import effects, memory_order, writes, written
from passlab.fx.patterns import Pattern, pattern
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _drawn(rng: random.Random, size: int, mutation: bool, number: int) -> tuple[int, list[str]]:
    """Return the seed of a random graph, and a group of a few pure nodes in it, most of them neighbours."""
    seed = rng.randrange(10**6)
    gm = random_graph(seed, size, mutation=mutation)
    pure = [n for n in gm.graph.nodes if n.op.startswith("call_") and not effects(n)]
    group = {rng.choice(pure)}
    for _ in range(number):
        member = rng.choice(sorted(group, key=lambda n: n.name))
        near = [n for n in [*member.all_input_nodes, *member.users] if n in pure]
        further = [u for n in near for u in n.users if u in pure]
        group.update(rng.sample(near + further, min(1, len(near + further))))
    group.update(rng.sample(pure, 1) if rng.random() < 0.3 else [])
    return seed, [n.name for n in gm.graph.nodes if n in group]


def generated(rng: random.Random, refuses: int, allows: int, mutation: bool) -> list[Case]:
    """Draw groups until there are enough that may be one kernel, and enough that may not."""
    cases: list[Case] = []
    left = {refused: refuses, allowed: allows}
    for _ in range(400):
        size = rng.choice((15, 25))
        seed, group = _drawn(rng, size, mutation, rng.randint(1, 5))
        if len(group) < 2:
            continue

        def build(seed: int = seed, size: int = size) -> fx.GraphModule:
            return random_graph(seed, size, mutation=mutation)

        kind = refused if effectful(build(), group) or way_back(build(), group) else allowed
        if left[kind]:
            left[kind] -= 1
            writes = " with writes" if mutation else ""
            cases.append(kind(f"generated{writes}, number {len(cases) + 1}", build, *group))
        if not any(left.values()):
            break
    return cases


def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    a = y * 2
    y.view(-1).mul_(3)
    return torch.sigmoid(y) + a


def two_draws(m: Any, x: fx.Proxy) -> tuple:
    a = torch.exp(x)
    first = F.dropout(a, 0.5, True)
    return torch.maximum(torch.bernoulli(x.sigmoid()), a), first


def written_first(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    y.add_(1)
    return torch.exp(y) * torch.neg(y)


def asserted(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.exp(x)
    torch._assert(torch.all(y > 0), "a power is positive")
    return torch.neg(y)


def not_known(m: Any, x: fx.Proxy) -> tuple:
    a = torch.exp(x)
    unique = call(torch.unique, a)
    return torch.neg(a), unique, torch.tanh(unique)


SHAPE = (2, 3)


@allowed("a ladder beside it", graph(..., SHAPE), "exp", "tanh")
def ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    b = torch.tanh(a)
    for _ in range(40):
        a = torch.relu(a) + a
    return a.sum() * b


@refused("a ladder on the way", graph(..., SHAPE), "exp", "maximum")
def closed_ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
    b = a = torch.exp(x)
    for _ in range(40):
        a = torch.relu(a) + a
    return torch.maximum(a, b)


@refused("a long way", graph(..., SHAPE), "exp", "maximum")
def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
    b = a = torch.exp(x)
    for _ in range(1500):
        a = torch.sin(a)
    return torch.maximum(a, b)


@refused("operands by name", graph(..., SHAPE), "exp", "add")
def keyword(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    return torch.add(input=a, other=torch.softmax(input=a, dim=1))


@refused("through a slice", graph(..., SHAPE), "exp", "add")
def sliced(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    rows = a.size(0)
    return x[:rows] + a


@refused("a parameter is written", graph(..., SHAPE, state=SHAPE), "mul", "maximum", "sub")
def attribute(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = read(x, "state") * 2
    read(x, "state").add_(1)
    return torch.maximum(read(x, "state"), x) - a


@allowed("other memory is written", graph(..., SHAPE), "exp", "neg")
def elsewhere(m: Any, x: fx.Proxy) -> tuple:
    a, other = torch.exp(x), torch.tanh(x)
    other.add_(1)
    return torch.neg(a), other


@refused("out= writes", graph(..., SHAPE), "sin", "sub")
def out(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = x * 2
    b = torch.sin(a)
    call(torch.exp, a, out=b)
    return b - a


@allowed("a dropout that is switched off", graph(..., SHAPE), "mul", "dropout", "relu")
def switched_off(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(F.dropout(x * 2, 0.5, False))


@refused("a module that draws is a member", graph(..., SHAPE, training=True, drop=nn.Dropout), "mul", "drop")
def module_draws(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.drop(x * 2)


@refused("a relu in place is a member", graph(..., SHAPE), "mul", "relu")
def in_place(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.relu(x * 2, inplace=True)


@refused("two members draw", graph(..., SHAPE), "dropout", "mul", "dropout_1")
def both_draw(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.dropout(F.dropout(x, 0.5, True) * 2, 0.5, True)


@allowed("a member that FuseOps never fuses", graph(..., SHAPE), "exp", "cumsum", "neg")
def sums_up(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.neg(torch.cumsum(torch.exp(x), 1))


@allowed("two writes into different memory", graph(..., SHAPE), "exp", "neg")
def two_memories(m: Any, x: fx.Proxy) -> tuple:
    a, b = torch.exp(x), torch.tanh(x)
    a.add_(1)
    b.add_(1)
    return torch.neg(b), a


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        refused("an assertion is a member", graph(asserted, SHAPE), "exp", "gt", "all_1", "_assert"),
        allowed("an assertion is not a member", graph(asserted, SHAPE), "exp", "neg"),
        refused("a member that nothing is known about", graph(not_known, SHAPE), "unique", "tanh"),
        refused("what nothing is known about may write", graph(not_known, SHAPE), "exp", "neg"),
        ladder,
        closed_ladder,
        deep,
        keyword,
        sliced,
        refused("named from last to first", graph(normalized, SHAPE), "truediv", "exp"),
        allowed("named from last to first, and convex", graph(normalized, SHAPE), "relu", "truediv"),
        refused("written through a view", graph(through_a_view, SHAPE), "mul", "sigmoid"),
        allowed("on one side of the write", graph(through_a_view, SHAPE), "sigmoid", "add"),
        attribute,
        refused("two draws", graph(two_draws, SHAPE), "exp", "maximum"),
        refused("a draw inside", graph(two_draws, SHAPE), "sigmoid", "bernoulli"),
        elsewhere,
        out,
        refused("a write is a member", graph(written_first, SHAPE), "add_", "exp"),
        allowed("written before", graph(written_first, SHAPE), "exp", "neg", "mul"),
        switched_off,
        *generated(rng, 6, 6, mutation=False),
        *generated(rng, 4, 3, mutation=True),
        module_draws,
        in_place,
        both_draw,
        sums_up,
        two_memories,
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _members(gm, group):
    return [node for node in gm.graph.nodes if node.name in group]


def _readers(gm):
    """Return a table: node → the nodes that must come after it."""
    after, order = {node: [] for node in gm.graph.nodes}, memory_order(gm.graph)
    for node in gm.graph.nodes:
        for before in [*node.all_input_nodes, *order[node]]:
            after[before].append(node)
    return after


def _search(gm, group, after):
    """Search breadth first from each member, over nodes that are not members."""
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


args_alone = edited("did", "knows operands in args alone: those in lists and keywords are not seen")(
    ("node.all_input_nodes", "(a for a in node.args if isinstance(a, fx.Node))")
)
in_lists_alone = edited("did", "takes operands out of lists and keywords, but not out of slices")(
    (
        "node.all_input_nodes",
        "(a for part in (*node.args, *node.kwargs.values())"
        " for a in (part if isinstance(part, list | tuple) else [part]) if isinstance(a, fx.Node))",
    )
)


@wrong("did", "takes the names for sorted: looks only for ways from a member to one that is named after it")
def as_named(gm, group):
    way = breadth_first(gm, group)
    return way if way is None or len(way) == 1 or group.index(way[0]) < group.index(way[-1]) else None


memory_unseen = edited("did", "forgets memory: a write between two members changes what the second reads")(
    ("*..., *memory[node]", "*...")
)
effects_unseen = edited("did", "forgets effects: a dropout may be a member")(
    ("node in inside and effects(node)", "False")
)
effects_of_functions = edited(
    "did", "asks functions and methods for effects: a dropout that is a module may be a member"
)(("node in inside and effects(node)", 'node in inside and node.op != "call_module" and effects(node)'))
writes_by_name = edited("did", "knows writes by an underscore at the end of the name: `inplace=True` is not seen")(
    (
        "node in inside and effects(node)",
        'node in inside and (effects(node) - {"writes"} or str(node.target).endswith("_"))',
    )
)


@wrong("did", "names all members that have effects, not one")
def all_effects(gm, group):
    return [n.name for n in _members(gm, group) if effects(n)] or breadth_first(gm, group)


@wrong("spared", "takes the pattern OPAQUE for an effect: a cumulative sum may not be a member")
def opaque_is_effect(gm, group):
    opaque = [n.name for n in _members(gm, group) if pattern(n) is Pattern.OPAQUE]
    return opaque[:1] or breadth_first(gm, group)


@wrong("spared", "keeps each read of memory that is written behind the last write, into whatever memory it goes")
def one_memory(gm, group):
    after, changed, last = _readers(gm), written(gm.graph), None
    for n in gm.graph.nodes:
        if last is not None and changed.intersection(n.all_input_nodes) and n.op != "output":
            after[last].append(n)
        if writes(n):
            last = n
    return _effect(gm, group) or _search(gm, group, after)


effects_anywhere = edited("spared", "an effect anywhere in the graph is in the way")(
    ("node in inside and effects(node)", 'effects(node) - {"signature"}')
)


@wrong("spared", "takes the order of the text for a dependence: each node between two members is in the way")
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


without_ends = edited(
    "did", "names the outside nodes of the way without its ends, its ends alone, or all of it backwards"
)(("reversed(path)", "reversed(path[1:-1])"))


@wrong("valid", "answers True or False")
def yes_or_no(gm, group):
    return breadth_first(gm, group) is None
