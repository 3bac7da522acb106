"""Hidden cases and answers of day12.plan."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

from autograder.authoring.answers import edited, right, wrong
from passlab.capstone import grouped
from passlab.capstone.families import drawn, generated
from passlab.exercises.day12.compiler import noisy, repeated, written
from passlab.exercises.day12.plan import bare_case, plan_case
from passlab.fx.cases import graph, seeded
from passlab.fx.effects import effects, has_effects, memory_order, writes
from passlab.judge import Case
from passlab.memory.allocate import ORDERS, best_fit, colouring, first_fit
from passlab.memory.buffers import aligned, height
from passlab.memory.liveness import liveness, ranges
from passlab.memory.order import beam, best_order, is_tree, liu
from passlab.memory.plan import ALIGNMENT, Plan, planned
from passlab.memory.storages import storages
from passlab.memory.tasks import Task, nodes_of, tasks_of


def wide_last(m, x):
    """The narrow branch, listed first, stays while the wide one runs."""
    products = [(x * k) @ m.w for k in range(4)]
    wide = (x.repeat(1, 6) + 1).sum(1, keepdim=True)
    return sum(products[1:], products[0]) * wide


def draws_last(m, x):
    """The wide branch, listed last, draws; to run it first would give it the numbers of the narrow one."""
    products = [F.dropout((x * k) @ m.w, 0.5, True) for k in range(4)]
    wide = F.dropout(x.repeat(1, 6) + 1, 0.5, True).sum(1, keepdim=True)
    return sum(products[1:], products[0]) * wide


def normalizes_last(m, x):
    """The wide branch, listed last, changes the running statistics that the narrow one changes before."""
    products = [m.norm((x * k) @ m.w) for k in range(4)]
    wide = m.norm(x.repeat(6, 1) + 1).sum(0, keepdim=True)
    return sum(products[1:], products[0]) * wide


def reads_last(m, x):
    """The last operation could free the first wide value early, but it reads what the second one changes."""
    y = x * 2
    wide = torch.tanh(x.repeat(1, 6))
    y.add_((wide.sum(1, keepdim=True) + x).repeat(1, 6).sum(1, keepdim=True))
    return y.t() @ wide


def reads_one_value(m, x):
    """Both branches read a value that is computed, so the tasks are no tree."""
    return wide_last(m, torch.relu(x))


def draws_unread(m, x):
    """What reads no result of the first draw may not come before it: it would draw the numbers of the first."""
    F.dropout(x, 0.5, True)
    return F.dropout(torch.relu(x), 0.5, True)


def equal_orders(m, x):
    """In the best order, listed last, the wide value comes first: with other places, and no smaller arena."""
    wide, *others = (torch.exp(torch.cat([x] * n, 1)).mean(1) for n in (9, 3, 4))
    return x.sum(1) + others[0] + others[1] + wide


def two_results(m, x):
    """The first result is read, and has to stay."""
    first = x @ m.w
    return first, ((first @ m.w) @ m.w) @ m.w


def a_view(m, x):
    """Nothing needs a place."""
    return x.t()


#: Numbers of programs of `many_sizes` on which, in any order, by size alone takes over 10 % more than the best rule.
_PROGRAMS = (102, 111, 112, 179, 185, 198)


def many_sizes(number):
    """A program of values of many sizes, of which some live long. It is nearly a chain: the order matters little."""

    def body(m, x):
        rng = random.Random(number)
        live, last = [], x + 1
        for _ in range(12):
            live.append(last)
            ended = live.pop(rng.randrange(len(live))) if len(live) > 3 else last
            last = (last[:, :1] + ended[:, -1:]).repeat(1, rng.choice((4, 8, 12, 20, 28, 44)))
        for value in live:
            last = last[:, :1] + value[:, -1:]
        return last

    return body


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def traced(body, training=False):
        return seeded(graph(body, (16, 24), lin=lambda: nn.Linear(24, 24), training=training), seed)

    def narrow(body):
        norm = lambda: nn.BatchNorm1d(8)  # noqa: E731
        return seeded(graph(body, (32, 8), w=(8, 8), norm=norm, training=True), seed)

    return [
        plan_case(drawn(rng.choice(("convnet", "skip", "residual")), seed)),
        plan_case(drawn(rng.choice(("gpt", "vit")), seed)),
        plan_case(drawn("unet", seed)),
        bare_case("branches of two widths", narrow(wide_last), ("valid", "did")),
        bare_case("branches that read one value", narrow(reads_one_value), ("valid", "did")),
        bare_case("two orders with equal arenas", seeded(graph(equal_orders, (16, 24)), seed), ("valid", "did")),
        bare_case("many sizes", seeded(graph(many_sizes(rng.choice(_PROGRAMS)), (64, 8)), seed), ("valid", "did")),
        bare_case("two results", seeded(graph(two_results, (8, 8), w=(8, 8)), seed), ("valid", "did")),
        bare_case("a view", seeded(graph(a_view, (8, 8)), seed), ("valid", "did")),
        bare_case("a value is written, drawn", traced(written), ("valid", "did", "spared")),
        bare_case("a read after a write", seeded(graph(reads_last, (32, 8)), seed), ("valid", "did", "spared")),
        bare_case("dropout in training, drawn", traced(noisy, True), ("valid", "spared")),
        bare_case("a draw that nothing uses", seeded(graph(draws_unread, (8, 8)), seed), ("valid", "spared")),
        bare_case("branches that draw", narrow(draws_last), ("valid", "did", "spared")),
        bare_case("branches that normalize", narrow(normalizes_last), ("valid", "did", "spared")),
        bare_case("a value that nothing uses, drawn", traced(repeated), ("valid", "did")),
        bare_case("a random graph", generated(seed % 2**31, 15, mutation=True).graph, ("valid", "spared")),
    ]


EQUIVALENT = {
    ("(first_fit, best_fit)", "(best_fit,)"): "best fit alone places nearly as well, and 5 % are allowed",
    ("(first_fit, best_fit)", "(first_fit,)"): "first fit alone is what the course's compiler has",
    ("not written(gm.graph) and ...", "..."): "a write is an effect, too",
    ("tuple(order)", "order"): "an order may be a list",
}

# ---------------------------------------------------------------------------------------------------- answers

_RETURN = "return min(plans, key=lambda plan: plan.arena)"

ungrouped = edited("valid", "plans the graph without its groups")(("gm = grouped(graph, groups, inputs)", "gm = graph"))
backwards = edited("valid", "runs the steps from the last to the first")(("tuple(order)", "tuple(order[::-1])"))
all_at_zero = edited("valid", "places everything at the beginning, forgets a buffer, or claims half of the arena")(
    (
        "return min(plans, key=...)",
        "plan = min(plans, key=...)\nreturn Plan(plan.order, dict.fromkeys(plan.offsets, 0), plan.arena)",
    )
)
any_order = edited("spared", "orders graphs that write into memory, too")(("not written(gm.graph) and ...", "True"))
functions_only = edited(
    "spared", "asks functions and methods for effects, not layers: a batch norm in training writes"
)(
    (
        'not written(gm.graph) and not any(effects(node) for node in gm.graph.nodes if node.op.startswith("call_"))',
        'not any(effects(node) for node in gm.graph.nodes if node.op in ("call_function", "call_method"))',
    )
)
results_die = edited("valid", "lets a result die with its last reader, before it is returned")(
    (
        "buffers = liveness(gm, *inputs, order=order)",
        """
        readers = {n.name: [order.index(user.name) for user in n.users if user.op != "output"] for n in gm.graph.nodes}
        buffers = liveness(gm, *inputs, order=order)
        buffers = [
            type(b)(b.name, b.lower, 1 + max([b.lower, *readers[b.name]]), b.size)
            if b.upper == len(order) and b.name in readers and readers[b.name]
            else b
            for b in buffers
        ]
        """,
    )
)
something_to_place = edited("valid", "takes for granted that something needs a place")(
    ("height(buffers, offsets)", "max(offsets[b.name] + b.size for b in buffers)")
)
as_listed = edited("did", "keeps the order of the graph")(
    (
        "orders.append([*(name for name in orders[0] if name not in (*steps, *unused, end)), *steps, *unused, end])",
        "pass",
    )
)
by_size = edited("did", "places by size alone, in either order")(
    ("fit(buffers, key, ALIGNMENT)", "first_fit(buffers, alignment=ALIGNMENT)")
)
order_of_the_last = edited("valid", "returns the best places, and the order that was tried last")(
    (
        _RETURN,
        "best = min(plans, key=lambda plan: plan.arena)\nreturn Plan(tuple(order), best.offsets, best.arena)",
    )
)
highest = edited("did", "keeps the highest arena")((_RETURN, _RETURN.replace("min(", "max(")))


@wrong("did", "gives every buffer a place of its own")
def no_reuse(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    offsets, end = {}, 0
    for buffer in liveness(gm, *inputs):
        offsets[buffer.name] = end
        end += aligned(buffer.size, ALIGNMENT)
    return Plan(tuple(node.name for node in gm.graph.nodes), offsets, end)


@wrong("did", "takes the order of the graph, and as many places as buffers live at once")
def coloured(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    buffers = liveness(gm, *inputs)
    offsets = colouring(buffers, ALIGNMENT)
    return Plan(tuple(node.name for node in gm.graph.nodes), offsets, height(buffers, offsets))


@wrong("did", "gives every value a place of its own where something is written or drawn")
def no_reuse_beside_effects(graph, groups, inputs):
    with_effects = has_effects(grouped(graph, groups, inputs).graph)
    return (no_reuse if with_effects else by_beam)(graph, groups, inputs)


def _searched(graph, groups, inputs, waits=lambda node: True):
    """Plan for the best order, also of writes. `waits`: whether a node stays behind those that `memory_order` lists."""
    gm = grouped(graph, groups, inputs)
    *nodes, end = gm.graph.nodes
    behind = memory_order(gm.graph)
    reads = {
        node.name: dict.fromkeys([*node.all_input_nodes, *(behind[node] if waits(node) else ())]) for node in nodes
    }
    reads[end.name] = dict.fromkeys([*end.all_input_nodes, *(node for node in nodes if not node.users)])
    reads = {name: dict.fromkeys(node.name for node in others) for name, others in reads.items()}
    sizes = dict.fromkeys(reads, 0)
    for storage in storages(gm, *inputs):
        if storage.kind == "value":
            owner = storage.name.split(".")[0]
            sizes[owner] += storage.size
            for name in ([*reads][at] for at in storage.touched):
                reads[name] |= {} if name == owner else {owner: None}
    tasks = [Task(name, tuple(names), sizes[name]) for name, names in reads.items()]
    plans = []
    for order in ([*reads], best_order(tasks, states=2_000, width=8).order):
        buffers = ranges(storages(gm, *inputs), gm, order)
        for key in ORDERS.values():
            offsets = first_fit(buffers, key, ALIGNMENT)
            plans.append(Plan(tuple(order), offsets, height(buffers, offsets)))
    return min(plans, key=lambda plan: plan.arena)


@right("searches for an order of graphs that write and draw, too, with what memory_order says")
def by_memory_order(graph, groups, inputs):
    return _searched(graph, groups, inputs)


@wrong("spared", "keeps writes behind reads, and lets a read move before an earlier write")
def late_reads_move(graph, groups, inputs):
    return _searched(graph, groups, inputs, waits=effects)


@right("a beam search for the order, and one rule for places with four keys")
def by_beam(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    orders = [] if has_effects(gm.graph) else [nodes_of(gm, beam(tasks_of(gm, *inputs), 64))]
    return _smallest(gm, inputs, orders)


def _smallest(gm, inputs, orders):
    """Return the smallest plan for the graph's own order and others, by four rules for places."""
    plans = [
        planned(gm, *inputs, allocate=lambda b, alignment, k=key: first_fit(b, k, alignment), order=order)
        for order in ([node.name for node in gm.graph.nodes], *orders)
        for key in ORDERS.values()
    ]
    return min(plans, key=lambda plan: plan.arena)


@wrong("did", "orders trees only")
def trees_only(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    tasks = [] if has_effects(gm.graph) else tasks_of(gm, *inputs)
    return _smallest(gm, inputs, [nodes_of(gm, liu(tasks))] if tasks and is_tree(tasks) else [])


@wrong("spared", "keeps the order of the draws that something uses, and not of the others")
def moves_draws_unread(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    if any(writes(node) for node in gm.graph.nodes):
        return _smallest(gm, inputs, [])
    tasks = tasks_of(gm, *inputs)
    order = best_order(tasks).order
    drawing = {node.name for node in gm.graph.nodes if effects(node)}
    kept = [name for name in order if name in drawing] == [task.name for task in tasks if task.name in drawing]
    return _smallest(gm, inputs, [nodes_of(gm, order)] if kept else [])


@right("tries a few orders drawn at random as well, and best fit")
def at_random(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    orders = [[node.name for node in gm.graph.nodes]]
    if not has_effects(gm.graph):
        tasks = tasks_of(gm, *inputs)
        for mixed in (tasks, *(random.Random(n).sample(tasks, len(tasks)) for n in range(2))):
            orders.append(nodes_of(gm, best_order(mixed, states=5_000).order))
    plans = []
    for order in orders:
        for key in ORDERS.values():
            for fit in (best_fit, first_fit):
                place = lambda b, alignment, f=fit, k=key: f(b, k, alignment)  # noqa: E731
                plans.append(planned(gm, *inputs, allocate=place, order=order))
    return min(plans, key=lambda plan: plan.arena)
