"""Day 4, convex groups: the cases that learners do not see. Traps made by hand, and groups in generated graphs."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab import random_graph
from passlab.exercises.cases_day03 import call, graph, read
from passlab.exercises.cases_day04_convex import allowed, effectful, refused, way_back
from passlab.fx.effects import effects
from passlab.judge import Case


def _drawn(rng: random.Random, size: int, mutation: bool, number: int) -> tuple[int, list[str]]:
    """The seed of a random graph, and a group of a few pure nodes in it, most of them neighbours."""
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
    """Groups drawn until there are so many that may be one kernel, and so many that may not."""
    found: list[Case] = []
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
            found.append(kind(f"generated{writes}, number {len(found) + 1}", build, *group))
        if not any(left.values()):
            break
    return found


def convex(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = torch.exp(x)
        b = torch.tanh(a)
        for _ in range(40):
            a = torch.relu(a) + a
        return a.sum() * b

    def closed_ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
        b = a = torch.exp(x)
        for _ in range(40):
            a = torch.relu(a) + a
        return torch.maximum(a, b)

    def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
        b = a = torch.exp(x)
        for _ in range(1500):
            a = torch.sin(a)
        return torch.maximum(a, b)

    def keyword(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = torch.exp(x)
        return torch.add(input=a, other=torch.softmax(input=a, dim=1))

    def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x)
        a = y * 2
        y.view(-1).mul_(3)
        return torch.sigmoid(y) + a

    def attribute(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = read(x, "state") * 2
        read(x, "state").add_(1)
        return torch.maximum(read(x, "state"), x) - a

    def two_draws(m: Any, x: fx.Proxy) -> tuple:
        a = torch.exp(x)
        first = F.dropout(a, 0.5, True)
        return torch.maximum(torch.bernoulli(x.sigmoid()), a), first

    def elsewhere(m: Any, x: fx.Proxy) -> tuple:
        a, other = torch.exp(x), torch.tanh(x)
        other.add_(1)
        return torch.neg(a), other

    def out(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = x * 2
        b = torch.sin(a)
        call(torch.exp, a, out=b)
        return b - a

    def written_first(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x)
        y.add_(1)
        return torch.exp(y) * torch.neg(y)

    def switched_off(m: Any, x: fx.Proxy) -> fx.Proxy:
        return torch.relu(F.dropout(x * 2, 0.5, False))

    shape = (2, 3)
    return [
        allowed("a ladder beside it", graph(ladder, shape), "exp", "tanh"),
        refused("a ladder on the way", graph(closed_ladder, shape), "exp", "maximum"),
        refused("a long way", graph(deep, shape), "exp", "maximum"),
        refused("operands by name", graph(keyword, shape), "exp", "add"),
        refused("written through a view", graph(through_a_view, shape), "mul", "sigmoid"),
        allowed("on one side of the write", graph(through_a_view, shape), "sigmoid", "add"),
        refused("a parameter is written", graph(attribute, shape, state=shape), "mul", "maximum", "sub"),
        refused("two draws", graph(two_draws, shape), "exp", "maximum"),
        refused("a draw inside", graph(two_draws, shape), "sigmoid", "bernoulli"),
        allowed("other memory is written", graph(elsewhere, shape), "exp", "neg"),
        refused("out= writes", graph(out, shape), "sin", "sub"),
        refused("a write is a member", graph(written_first, shape), "add_", "exp"),
        allowed("written before", graph(written_first, shape), "exp", "neg", "mul"),
        allowed("a dropout that is switched off", graph(switched_off, shape), "mul", "dropout", "relu"),
        *generated(rng, 6, 6, mutation=False),
        *generated(rng, 4, 3, mutation=True),
    ]
