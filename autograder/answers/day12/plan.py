"""Hidden cases and answers of day12.plan."""

from __future__ import annotations

import random

import torch.nn.functional as F
from torch import nn

from autograder.authoring.answers import edited, right, wrong
from passlab.capstone import grouped
from passlab.capstone.families import drawn, generated
from passlab.exercises.day12.compiler import noisy, repeated, written
from passlab.exercises.day12.plan import bare_case, plan_case
from passlab.fx.cases import graph, seeded
from passlab.fx.effects import has_effects
from passlab.judge import Case
from passlab.memory.allocate import ORDERS, best_fit, colouring, first_fit
from passlab.memory.buffers import aligned, height
from passlab.memory.liveness import liveness
from passlab.memory.order import beam
from passlab.memory.plan import ALIGNMENT, Plan, planned
from passlab.memory.tasks import nodes_of, tasks_of


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

    return [
        plan_case(drawn(rng.choice(("convnet", "skip", "residual")), seed)),
        plan_case(drawn(rng.choice(("gpt", "vit")), seed)),
        plan_case(drawn("unet", seed)),
        bare_case("branches of two widths", seeded(graph(wide_last, (32, 8), w=(8, 8)), seed), ("valid", "did")),
        bare_case("many sizes", seeded(graph(many_sizes(rng.choice(_PROGRAMS)), (64, 8)), seed), ("valid", "did")),
        bare_case("a value is written, drawn", traced(written), ("valid", "spared")),
        bare_case("dropout in training, drawn", traced(noisy, True), ("valid", "spared")),
        bare_case("branches that draw", seeded(graph(draws_last, (32, 8), w=(8, 8)), seed), ("valid", "spared")),
        bare_case("a value that nothing uses, drawn", traced(repeated), ("valid", "did")),
        bare_case("a random graph", generated(seed % 2**31, 15, mutation=True).graph, ("valid", "spared")),
    ]


EQUIVALENT = {
    ("(first_fit, best_fit)", "(best_fit,)"): "best fit alone places nearly as well, and 5 % are allowed",
    ("(first_fit, best_fit)", "(first_fit,)"): "first fit alone is what the course's compiler has",
    ("not written(gm.graph) and ...", "..."): "a write is an effect, too",
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
as_listed = edited("did", "keeps the order of the graph")(
    (
        "orders.append([*(name for name in orders[0] if name not in (*steps, *unused, end)), *steps, *unused, end])",
        "pass",
    )
)
by_size = edited("did", "places by size alone, in either order")(
    ("fit(buffers, key, ALIGNMENT)", "first_fit(buffers, alignment=ALIGNMENT)")
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


@right("a beam search for the order, and one rule for places with four keys")
def by_beam(graph, groups, inputs):
    gm = grouped(graph, groups, inputs)
    orders = [[node.name for node in gm.graph.nodes]]
    if not has_effects(gm.graph):
        orders.append(nodes_of(gm, beam(tasks_of(gm, *inputs), 64)))
    plans = [
        planned(gm, *inputs, allocate=lambda b, alignment, k=key: first_fit(b, k, alignment), order=order)
        for order in orders
        for key in ORDERS.values()
    ]
    return min(plans, key=lambda plan: plan.arena)


@right("tries a few orders drawn at random as well, and best fit")
def at_random(graph, groups, inputs):
    from passlab.memory.order import best_order

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
