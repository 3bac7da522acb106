"""Hidden cases and answers of day13.backend."""

from __future__ import annotations

import operator
import random
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day13.backend import case
from passlab.fx.effects import effects, written
from passlab.given.day13.backend import elementwise, kernel
from passlab.judge import Case

ONE = (torch.relu, torch.tanh, torch.sigmoid, torch.neg, lambda v: v.exp(), lambda v: v * 2, lambda v: v.abs() + 1)
TWO = (lambda u, v: u + v, lambda u, v: u * v, torch.sub, lambda u, v: torch.maximum(u, v))


def random_body(rng: random.Random, writes: float, views: float = 0.15) -> Any:
    """Return a function of s0, x, y and w that returns two or three values."""
    seed = rng.randrange(2**31)

    def body(s0: Any, x: Any, y: Any, w: Any) -> tuple:
        draw = random.Random(seed)
        values, fresh = [x, y, torch.tanh(torch.matmul(x, w))], []
        for _ in range(draw.randint(10, 14)):
            kind = draw.random()
            recent = values[-draw.randint(1, len(values)) :]
            one = recent[0]
            if kind < writes:
                target = draw.choice([x, x, y, x[:1], *fresh])
                target.mul_(0.5) if draw.random() < 0.5 else target.add_(1)
            elif kind < writes + views:
                values.append(draw.choice([one.view(s0, 4), one.reshape(s0 * 1, 2, 2).flatten(1), one[:]]))
            elif kind < 0.85:
                values.append(draw.choice(ONE)(one))
                fresh.append(values[-1])
            elif kind < 0.95:
                values.append(draw.choice(TWO)(one, values[-1]))
            else:
                values.append(torch.matmul(one, w))
        return tuple(values[-draw.randint(2, 3) :])

    return body


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(name: str, writes: float) -> Case:
        draw = lambda: case(name, random_body(rng, writes), "s0", "x", "y", "w")  # noqa: E731
        return something_to_do("day13.backend", draw)

    return [
        *(drawn(f"drawn, without writes, number {i + 1}", 0.0) for i in range(2)),
        *(drawn(f"drawn, with writes, number {i + 1}", 0.25) for i in range(4)),
        case("a number is not a tensor", numbers, "s0", "s1", "x"),
        case("two writes", two_writes, "s0", "x", "y"),
        case("a write by an option", by_an_option, "s0", "x", "y"),
        case("a view of an input that is written", through_a_view, "s0", "x", "y"),
        case("the first of three reads an input", far, "s0", "x", "y"),
        case("a write behind all reads", late, "s0", "x", "y"),
        case("the second input may be the first", twins, "s0", "x", "y"),
        case("a value that is written", own, "s0", "x"),
        case("one operand twice, and by name", twice, "s0", "x", "y"),
        case("nothing to combine", apart, "s0", "x", "w", about=("valid", "same", "spared")),
        case("a long chain", long, "s0", "x"),
        case("an input is an operand by name", by_keyword, "s0", "x", "y"),
        case("an input is the first operand of two", before_a_value, "s0", "x", "y"),
        case("an item is set", stored, "s0", "x", "y"),
        case("a size that one operation uses", sized, "s0", "s1", "x"),
        case("readers that meet again", meeting, "s0", "x", "y"),
        case("a value in the middle is returned", in_the_middle, "s0", "x"),
        case("a value is read, and then written", read_and_written, "s0", "x"),
        case("random numbers between", random_between, "s0", "x", "y"),
    ]


def numbers(s0: Any, s1: Any, x: Any) -> tuple:
    n = s0 * 2
    half = (s0 + s1) * 0.5
    return ((x * half) + n).neg(), n, half


def by_an_option(s0: Any, x: Any, y: Any) -> tuple:
    a = x * 2
    functional.relu(x, inplace=True)
    return ((a + x * y).tanh(),)


def two_writes(s0: Any, x: Any, y: Any) -> tuple:
    a = x * y
    x.add_(1)
    b = a + x
    x.mul_(2)
    c = b.tanh() * x
    return (c - 1).relu(), y + 0


def through_a_view(s0: Any, x: Any, y: Any) -> tuple:
    rows = x[1:]
    a = rows.exp()
    x.mul_(2)
    return (a + 1).neg(), rows * 2


def far(s0: Any, x: Any, y: Any) -> tuple:
    a = x.sigmoid()
    b = a * 2
    c = b - 1
    y.add_(1)
    return (c.relu(),)


def late(s0: Any, x: Any, y: Any) -> tuple:
    a = (x * 2).relu() + y
    x.mul_(2)
    return a, x.sum(0)


def twins(s0: Any, x: Any, y: Any) -> tuple:
    a = y.exp()
    x.add_(1)
    return (a * 2, y.neg() + 1)


def own(s0: Any, x: Any) -> tuple:
    a = x * 2
    b = a.tanh()
    a.add_(1)
    c = a * b
    return (c + a).relu(), b[1:]


def twice(s0: Any, x: Any, y: Any) -> tuple:
    a = torch.add(input=x, other=y, alpha=2)
    b = torch.where(x.gt(0), a * a, y)
    return b.clamp(min=-1, max=1), y.view(s0, 2, 2)


def apart(s0: Any, x: Any, w: Any) -> tuple:
    a = torch.relu(x)
    b = torch.matmul(a, w).neg()
    return a, b, b.view(s0, 2, 2), b.sum(0)


def by_keyword(s0: Any, x: Any, y: Any) -> tuple:
    a = torch.mul(torch.softmax(y, 1), other=x)
    x.add_(1)
    return ((a + 1).relu(),)


def before_a_value(s0: Any, x: Any, y: Any) -> tuple:
    a = x - torch.softmax(y, 1)
    x.add_(1)
    return (a.neg() * 2,)


def stored(s0: Any, x: Any, y: Any) -> tuple:
    a = x.exp()
    x.tracer.create_proxy("call_function", operator.setitem, (x, 0, y[1]), {})
    return ((a + 1).neg(),)


def sized(s0: Any, s1: Any, x: Any) -> tuple:
    return ((x * (s0 + s1) + 1).neg(),)


def meeting(s0: Any, x: Any, y: Any) -> tuple:
    a = y.exp()
    b = a.neg() * x
    return (torch.maximum(b, a + b).tanh(),)


def in_the_middle(s0: Any, x: Any) -> tuple:
    a = (x * 2).relu()
    return a, a.exp() + 1


def read_and_written(s0: Any, x: Any) -> tuple:
    a = x * 2
    b = a.tanh()
    a.add_(1)
    return (b.neg() + 1,)


def random_between(s0: Any, x: Any, y: Any) -> tuple:
    a = x * 2
    b = (a + torch.rand_like(y)).neg()
    x.add_(1)
    return (b,)


def long(s0: Any, x: Any) -> tuple:
    y = x
    for _ in range(40):
        y = y.tanh() * 1.5
    return (y,)


EQUIVALENT = {
    ("place[node] < at < place[last]", "place[node] < at <= place[last]"): "what writes is not element-wise",
    ("place[node] < at < place[last]", "place[node] <= at < place[last]"): "what writes is not element-wise",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
}

# ---------------------------------------------------------------------------------------------------- answers


@right("goes forward, and joins each node with the groups that it alone reads")
def forward(gm):
    nodes = list(gm.graph.nodes)
    place = {node: at for at, node in enumerate(nodes)}
    memory = written(gm.graph)
    writes = [at for node, at in place.items() if "writes" in effects(node)]
    first = {node: place[node] if any(n in memory for n in node.all_input_nodes) else len(nodes) for node in nodes}
    group = {node: [node] for node in nodes if elementwise(node)}
    for node in nodes:
        if node not in group:
            continue
        joined, grown = group[node], True
        while grown:
            grown = False
            for operand in [n for member in joined for n in member.all_input_nodes]:
                others = group.get(operand)
                if others is None or others is joined or not set(operand.users) <= set(joined):
                    continue
                reads = min(first[n] for n in others)
                if any(reads < at < place[node] for at in writes):
                    continue
                joined += others
                for member in others:
                    group[member] = joined
                grown = True
    for members in {id(members): members for members in group.values()}.values():
        if len(members) > 1:
            kernel(gm, members)
    gm.recompile()
    return gm


@right("makes kernels of all operations, also of single ones, in a new graph")
def rebuilt(gm):
    for node in [n for n in gm.graph.nodes if elementwise(n)]:
        node.meta["kernel"] = node
    order = {n: at for at, n in enumerate(gm.graph.nodes)}
    memory = written(gm.graph)
    stops = [n for n in gm.graph.nodes if "writes" in effects(n)]
    for node in reversed(gm.graph.nodes):
        if "kernel" not in node.meta or not node.users:
            continue
        roots = {user.meta.get("kernel") for user in node.users}
        if len(roots) != 1 or None in roots:
            continue
        (root,) = roots
        reads = any(n in memory for n in node.all_input_nodes)
        if not (reads and any(order[node] < order[n] < order[root] for n in stops)):
            node.meta["kernel"] = root
    kernels = {}
    for node in gm.graph.nodes:
        if "kernel" in node.meta:
            kernels.setdefault(node.meta.pop("kernel"), []).append(node)
    for members in kernels.values():
        kernel(gm, members)
    return fx.GraphModule(gm, gm.graph)


ignores_writes = edited("same", "moves reads of an input behind a write")(("not (reads and between)", "True"))
by_name = edited("same", "knows writes by names that end in _")(
    ("'writes' in effects(node)", "getattr(node.target, '__name__', str(node.target)).endswith('_')")
)
by_name_or_option = edited("same", "knows writes by names that end in _ and by inplace=True, not an item that is set")(
    (
        "'writes' in effects(node)",
        "getattr(node.target, '__name__', str(node.target)).endswith('_') or node.kwargs.get('inplace')",
    )
)
positional = edited("same", "looks for what a node reads among its positional operands only")(
    ("operand in memory for operand in node.all_input_nodes", "operand in memory for operand in node.args")
)
last_operand = edited("same", "looks at the last operand only")(
    (
        "operand in memory for operand in node.all_input_nodes",
        "operand in memory for operand in node.all_input_nodes[-1:]",
    )
)
sizes_too = edited("valid", "takes the arithmetic of sizes into kernels")(
    (
        "elementwise(node) and node.users and ...",
        "(elementwise(node) or node.target is operator.add) and node.users and ...",
    )
)
no_views = edited("same", "looks for writes into the operands themselves, and not into what they are views of")(
    (
        "memory = written(gm.graph)",
        "memory = {o for n in nodes if 'writes' in effects(n) for o in n.all_input_nodes[:1]}",
    )
)
to_the_reader = edited(
    "same", "looks for writes between a node and its first reader, not between it and the end of the kernel"
)(("place[node] < at < place[last]", "place[node] < at < min(place[user] for user in node.users)"))
any_write_ends = edited("did", "ends a kernel at every write, also where nothing is read across it")(
    ("not (reads and between)", "not between")
)
draws_end = edited("did", "takes what draws random numbers for a write")(
    ("'writes' in effects(node)", "effects(node) & {'writes', 'draws'}")
)
no_written_memory = edited(
    "did", "leaves out everything that reads memory which the program writes, wherever the writes are"
)(("not (reads and between)", "not reads"))
one_reader = edited("did", "asks for one reader: forks that join again are two kernels")(
    ("set(node.users) <= group", "len(node.users) == 1 and set(node.users) <= group")
)
pairs = edited("did", "combines two operations, not more")(
    ("set(node.users) <= group", "set(node.users) <= group and len(group) < 2")
)
any_reader = edited("valid", "asks whether some reader is in the kernel, not whether all are")(
    ("set(node.users) <= group", "set(node.users) & group")
)
returned_too = edited("valid", "does not count it as reading that a value is returned")(
    ("set(node.users) <= group", "{user for user in node.users if user.op != 'output'} <= group")
)
written_too = edited("valid", "does not count it as reading that a value is written")(
    ("set(node.users) <= group", "{user for user in node.users if 'writes' not in effects(user)} <= group")
)
returns_nothing = edited("valid", "forgets to return the graph")(("return gm", "pass"))


@wrong("spared", "computes what two kernels read in both of them")
def twice_computed(gm):
    for last in reversed(list(gm.graph.nodes)):
        for operand in last.all_input_nodes if elementwise(last) else ():
            if not elementwise(operand) or written(gm.graph) & {operand, *operand.all_input_nodes}:
                continue
            if len(operand.users) > 1:
                with gm.graph.inserting_before(last):
                    copy = gm.graph.node_copy(operand)
                last.replace_input_with(operand, copy)
    return forward(gm)


@wrong("same", "leaves out the writes: a backend only computes, it thinks")
def without_writes(gm):
    for node in reversed(gm.graph.nodes):
        if "writes" in effects(node):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    return forward(gm)


@wrong("same", "returns a tensor of the caller's where the function returned one of its own")
def without_copies(gm):
    for node in list(gm.graph.nodes):
        if node.target is operator.add and node.args[1] == 0:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    return forward(gm)
