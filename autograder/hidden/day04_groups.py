"""Day 4, fusion groups: the cases that learners do not see. Generated graphs, zoo models, traps made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab.exercises.cases_day03 import graph
from passlab.exercises.cases_day04_groups import BLOCK, IMAGE, block, conv, dense, gelu, groups_case, norm, zoo
from passlab.judge import Case

#: Steps (image, image) → image of the same shape. What a step needs besides is a parameter of `PARTS`.
STEPS: dict[str, Callable[[Any, fx.Proxy, fx.Proxy], fx.Proxy]] = {
    "unary": lambda m, x, y: torch.relu(x),
    "unary 2": lambda m, x, y: torch.tanh(x),
    "scalar": lambda m, x, y: x * 0.5,
    "binary": lambda m, x, y: x + y,
    "binary 2": lambda m, x, y: torch.maximum(x, y),
    "row": lambda m, x, y: x * m.row,
    "conv": lambda m, x, y: conv(m, x),
    "diamond": lambda m, x, y: torch.sigmoid(x) * torch.exp(x),
    "softmax": lambda m, x, y: torch.softmax(x, 1),
    "sum": lambda m, x, y: x - x.sum(1, keepdim=True),
    "mean": lambda m, x, y: y * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "turn": lambda m, x, y: x.transpose(2, 3),
    "flat": lambda m, x, y: torch.relu(x.reshape(4, 36)).reshape(IMAGE),
    "cat": lambda m, x, y: torch.cat([x, torch.exp(y)], 1)[:, 2:6],
    "chunk": lambda m, x, y: torch.cat([x.chunk(2, 1)[1], y.chunk(2, 1)[0]], 1),
    "cumsum": lambda m, x, y: torch.cumsum(x, 1),
    "pool": lambda m, x, y: F.max_pool2d(x, 3, 1, 1),
    "where": lambda m, x, y: torch.where(x > y, x, y),
}
PARTS = {"row": (4, 1, 1), "w": (4, 4, 3, 3)}


def random_program(seed: int, steps: int, only: tuple[str, ...] = ()) -> Callable[[], fx.GraphModule]:
    """A random graph of so many steps, most of them on recent values; what nobody reads is returned."""

    def body(m: Any, x: fx.Proxy, y: fx.Proxy) -> Any:
        rng, values = random.Random(seed), [x, y]
        for _ in range(steps):
            at = [max(0, len(values) - 1 - int(rng.expovariate(0.6))) for _ in range(2)]
            values.append(STEPS[rng.choice(only or tuple(STEPS))](m, *(values[i] for i in at)))
        ends = [v for v in values[2:] if not v.node.users]
        inner = rng.sample(values[2:], 1) if rng.random() < 0.3 else []
        return ends[0] if len(ends) == 1 and not inner else tuple({v.node: v for v in ends + inner}.values())

    return graph(body, IMAGE, IMAGE, **PARTS)


def groups(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def projections(m: Any, x: fx.Proxy) -> tuple:
        a, b, c = torch.relu(x).chunk(3, 1)
        pair = torch.cat([torch.cat([a, torch.exp(b)], 1), c], 1)
        return pair.transpose(1, 2), torch.tanh(b).sum(), a

    def late_product(m: Any, x: fx.Proxy) -> fx.Proxy:
        e = torch.exp(x)
        return torch.relu(e) @ torch.tanh(e)

    def turned(m: Any, x: fx.Proxy) -> fx.Proxy:  # the transpose has its turn before the convolution
        return x.transpose(2, 3) + conv(m, x)

    def long_into_cat(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        for _ in range(255):  # with the cat 256, and its list is one more
            x = torch.tanh(x)
        return torch.cat([x, y], 1)

    def two_convs(m: Any, x: fx.Proxy) -> fx.Proxy:
        joined = conv(m, x) + F.conv2d(x, m.v, None, 1, 1)
        return torch.relu(joined + m.b) * F.max_pool2d(joined, 1)

    def order(m: Any, x: fx.Proxy) -> fx.Proxy:
        late = conv(m, x)
        early = F.conv2d(x, m.v, None, 1, 1)
        return torch.relu(early + late)

    def inception(m: Any, x: fx.Proxy) -> fx.Proxy:
        a, b = torch.relu(conv(m, x)), torch.relu(F.conv2d(x, m.v, None, 1, 1))
        first = torch.cat([a, b.transpose(2, 3)], 1)
        return torch.relu(torch.cat([torch.tanh(first), torch.exp(x)], 1))

    def past_a_cat(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.exp(x)
        return torch.cat([torch.relu(y), torch.tanh(y)], 1)[:, 1:5] + y

    def broadcast(m: Any, x: fx.Proxy) -> fx.Proxy:
        small = x.sum((2, 3), keepdim=True)
        return conv(m, x) * torch.sigmoid(small) + m.b.unsqueeze(0) + 1.0

    def wide_then_conv(m: Any, x: fx.Proxy) -> fx.Proxy:
        c = conv(m, x)
        return torch.relu(c + m.wide) + c

    def branches(m: Any, x: fx.Proxy) -> fx.Proxy:
        c = conv(m, x)
        return torch.relu(c).transpose(2, 3) + torch.sigmoid(c)

    def long(m: Any, x: fx.Proxy) -> fx.Proxy:
        for at in range(300):
            x = torch.tanh(x) if at % 3 else x + 1.0
        return x

    def ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
        for _ in range(40):
            x = torch.relu(x) + x
        return x

    def returned(m: Any, x: fx.Proxy) -> tuple:
        y = torch.relu(conv(m, x))
        return y, torch.exp(y + 1).mean(1), y

    def layers(m: Any, x: fx.Proxy) -> fx.Proxy:
        for _ in range(depth):
            x = gelu(dense(norm(m, x), m.q, m.beta)) + x
        return torch.softmax(x @ m.k, -1)

    depth = rng.randint(1, 3)
    kernels = {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "b": (4, 1, 1)}
    kinds = (
        (),
        ("unary", "binary", "diamond", "conv", "row", "scalar"),
        ("unary", "turn", "flat", "cat", "chunk", "binary"),
        ("unary", "sum", "mean", "softmax", "binary", "scalar"),
    )
    return [
        groups_case("resnet18", zoo("resnet18")),
        groups_case("convnet", zoo("convnet")),
        *(
            groups_case(f"generated, number {at + 1}", random_program(rng.randrange(10**6), rng.randint(8, 25), only))
            for at, only in enumerate([*kinds, *kinds, *kinds])
        ),
        groups_case("projections", graph(projections, (2, 6, 4))),
        groups_case("two convolutions meet", graph(two_convs, IMAGE, **kernels)),
        groups_case("the first of two convolutions", graph(order, IMAGE, **kernels)),
        groups_case("two lists", graph(inception, IMAGE, **kernels)),
        groups_case("past a list", graph(past_a_cat, IMAGE)),
        groups_case("broadcast into a convolution", graph(broadcast, IMAGE, **kernels)),
        groups_case("wider than the convolution", graph(wide_then_conv, IMAGE, wide=(3, 4, 6, 6), w=(4, 4, 3, 3))),
        groups_case("shapes in one of two branches", graph(branches, IMAGE, w=(4, 4, 3, 3))),
        groups_case("very long", graph(long, (2, 3))),
        groups_case("a product at the end of two ways", graph(late_product, (4, 4))),
        groups_case("a transpose meets a convolution", graph(turned, IMAGE, w=(4, 4, 3, 3))),
        groups_case("the list counts, too", graph(long_into_cat, (2, 3), (2, 3))),
        groups_case("a ladder", graph(ladder, (2, 3))),
        groups_case("returned in the middle", graph(returned, IMAGE, w=(4, 4, 3, 3))),
        groups_case("layers", graph(layers, (6, 8), **BLOCK)),
        groups_case("two blocks", graph(lambda m, x: block(m, block(m, x)), (6, 8), **BLOCK)),
    ]
