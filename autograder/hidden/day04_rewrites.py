"""Day 4, linear + bias + activation and attention: hidden cases. Spellings drawn from a seed, the zoo, traps by hand.

What a zoo model must become, and how few calls do, is asked of the reference answer.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.bank import reference
from autograder.hidden.day03 import zoo
from passlab import random_graph
from passlab.exercises.cases_day03 import case, graph, read
from passlab.exercises.cases_day04_rewrites import (
    attention_at_most,
    attention_made,
    attentions,
    calls,
    causal,
    layers,
    layers_at_most,
    layers_made,
)
from passlab.judge import Case

Build = Callable[[], fx.GraphModule]


def few_calls(name: str, build: Build) -> int:
    """How many calls the reference answer leaves."""
    return sum(node.op.startswith("call") for node in reference(name)(build()).graph.nodes)


def written_graphs(rng: random.Random) -> list[Case]:
    """Random graphs with writes in them: nothing is asked for but their meaning."""
    seeds = [rng.randrange(10**6) for _ in range(2)]
    return [
        case(f"generated, with writes, number {i + 1}", lambda seed=seed: random_graph(seed, 40, mutation=True))
        for i, seed in enumerate(seeds)
    ]


# ---------------------------------------------------------------------------------------------------- linear

#: Each is a product without bias, of x and a weight.
PRODUCTS = (
    lambda x, w: x @ w.t(),
    lambda x, w: x @ w.T,
    lambda x, w: x @ w.mT,
    lambda x, w: torch.mm(x, torch.t(w)),
    lambda x, w: torch.matmul(x, w.transpose(-1, -2)),
    lambda x, w: x.matmul(w.transpose(1, 0)),
    lambda x, w: x.mm(torch.transpose(w, 0, -1)),
    lambda x, w: F.linear(x, w),
    lambda x, w: F.linear(input=x, weight=w),
)
SUMS = (lambda y, b: y + b, lambda y, b: b + y, lambda y, b: torch.add(b, y), lambda y, b: y.add(b), lambda y, b: y)
WHOLE = (
    lambda m, x, w, b: F.linear(x, w, b),
    lambda m, x, w, b: F.linear(x, bias=b, weight=w),
    lambda m, x, w, b: torch.addmm(b, x, w.T),
    lambda m, x, w, b: m.layer(x),
    lambda m, x, w, b: m.unbiased(x) + b,
)
ENDS = (
    ("relu", torch.relu),
    ("relu", lambda y: y.relu()),
    ("gelu", F.gelu),
    ("gelu", lambda y: F.gelu(y, approximate="none")),
    ("gelu_tanh", lambda y: F.gelu(y, approximate="tanh")),
    ("silu", F.silu),
    ("", torch.tanh),
    ("", F.relu6),
    ("", lambda y: F.leaky_relu(y, 0.1)),
)


def linear_act(seed: int) -> list[Case]:
    rng = random.Random(seed)
    width = rng.choice((3, 4, 6))
    spelled = "A product, a sum and an activation, in one of their spellings."

    def drawn(number: int) -> Case:
        plan, wanted = [], Counter()
        for i in range(5):
            name, end = rng.choice(ENDS) if i < 4 else ("relu", lambda y: F.relu(y, inplace=True))
            whole, product, total = rng.choice(WHOLE), rng.choice(PRODUCTS), rng.choice(SUMS)
            plan.append((whole if rng.random() < 0.4 else None, product, total, end))
            wanted.update([name] * bool(name))

        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            for whole, product, total, end in plan:
                x = end(whole(m, x, m.w, m.b) if whole else total(product(x, m.w), m.b))
            return x

        square = (width, width)
        layer = {"layer": lambda: nn.Linear(*square), "unbiased": lambda: nn.Linear(*square, bias=False)}
        build = graph(body, (5, width), w=square, b=(width,), **layer)
        expect = {
            "did": [layers_made(spelled, **wanted)],
            "spared": [layers_at_most("Some of these functions are not in linear_act.", **wanted)],
            "cost": [calls(few_calls("day04.linear-act", build), "One node for each layer.")],
        }
        return case(f"drawn, number {number}", build, **expect)

    def of_zoo(name: str) -> Case:
        wanted = {a: len(found) for a, found in layers(reference("day04.linear-act")(zoo(name)())).items()}
        return case(
            f"zoo: {name}",
            zoo(name),
            did=[layers_made("Its layers are modules.", **wanted)],
            spared=[layers_at_most("Not every layer ends in an activation.", **wanted)],
        )

    def shared(m: Any, x: fx.Proxy) -> tuple:
        h = m.gelu(m.fc(x))
        return m.silu(m.fc(h)), m.silu(m.fc(h) * 2), m.fc(h)

    def vector(m: Any, x: fx.Proxy) -> tuple:
        y = x @ m.w.t()
        z = F.linear(x, m.w)
        return torch.relu(y + y), torch.relu(z + m.b) + torch.relu(torch.add(z, 1.0))

    def written(m: Any, x: fx.Proxy) -> tuple:
        y = m.fc(x)
        x.mul_(2)
        z = F.linear(y, m.w)
        read(x, "w").add_(1)
        return torch.relu(y), F.gelu(z)

    def options(m: Any, x: fx.Proxy) -> tuple:
        wt = m.w.t()
        return (
            torch.relu(torch.addmm(m.b, x, wt, alpha=2)),
            torch.relu(torch.addmm(m.full, x, wt)),
            torch.relu(torch.sub(x @ wt, m.b)),
            torch.relu((x @ wt + m.b) + m.b),
            torch.relu(x @ wt + m.full),
            torch.relu(torch.addmm(m.b, x, m.w)),
        )

    def batched(m: Any, x: fx.Proxy) -> tuple:
        return torch.relu(x @ m.stack.mT + m.b), torch.relu(torch.bmm(x, m.stack.transpose(1, 2)) + m.b)

    def types(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
        return torch.relu(x @ m.w.t() + m.narrow), torch.relu(n @ m.whole.t())

    def deep(m: Any, x: fx.Proxy) -> tuple:
        h = F.silu(m.block.fc(x))
        return torch.relu(h @ m.w.t() + m.b), m.w.t() * 2

    def block() -> nn.Module:
        made = nn.Module()
        made.fc = nn.Linear(4, 4)
        return made

    def fc() -> nn.Module:
        return nn.Linear(4, 4)

    whole = torch.arange(16).reshape(4, 4) - 8
    return [
        *(drawn(i + 1) for i in range(5)),
        of_zoo("vit"),
        case(
            "one module, four calls",
            graph(shared, (2, 4), fc=fc, silu=lambda: nn.SiLU(inplace=True), gelu=lambda: nn.GELU("tanh")),
            did=[layers_made("A module may be called from several places.", silu=1, gelu_tanh=1)],
            spared=[layers_at_most("The other calls of the module are other layers.", silu=1, gelu_tanh=1)],
            cost=[calls(6, "The layers share the module's parameters with its other calls.")],
        ),
        case(
            "more dimensions, a nested module, and a transposition with another reader",
            graph(deep, (2, 3, 4), block=block, w=(4, 4), b=(4,)),
            did=[layers_made("x may have any number of dimensions.", silu=1, relu=1)],
            cost=[calls(4, "The transposition is read elsewhere, too.")],
        ),
        case(
            "a value that is its own bias",
            graph(vector, (4,), w=(4, 4), b=(4,)),
            spared=[layers_at_most("Each of these products is read twice.")],
        ),
        case(
            "written in between",
            graph(written, (4, 4), fc=fc, w=(4, 4)),
            spared=[layers_at_most("The program writes into what the layer reads, before the activation comes.")],
        ),
        case(
            "options and other sums",
            graph(options, (4, 4), w=(4, 4), b=(4,), full=(4, 4)),
            spared=[layers_at_most("alpha, a difference, two biases, a matrix, a weight as it is: none is a layer.")],
        ),
        case(
            "a weight for each of the batch",
            graph(batched, (2, 3, 4), stack=(2, 4, 4), b=(4,)),
            spared=[layers_at_most("linear_act takes one matrix for all of the batch.")],
        ),
        case(
            "integers, and a bias of another dtype",
            graph(types, (3, 4), torch.arange(12).reshape(3, 4), w=(4, 4), narrow=torch.ones(4).half(), whole=whole),
            spared=[layers_at_most("Operands are of one floating-point dtype.")],
        ),
        *written_graphs(rng),
    ]


# ---------------------------------------------------------------------------------------------------- attention

INF = math.inf

SCORES = (lambda q, kt: q @ kt, lambda q, kt: torch.matmul(q, kt), lambda q, kt: q.matmul(kt))
VALUES = (lambda p, v: p @ v, lambda p, v: torch.matmul(p, v), lambda p, v: p.matmul(v))
KEYS = (
    lambda k, rank: k.transpose(-1, -2),
    lambda k, rank: torch.transpose(k, rank - 2, -1),
    lambda k, rank: k.mT,
    lambda k, rank: k.permute(*range(rank - 2), rank - 1, rank - 2),
    lambda k, rank: torch.permute(k, (*range(rank - 2), -1, -2)),
)
SCALES = (
    (lambda q: q, lambda s: s),
    (lambda q: q * 0.3, lambda s: s),
    (lambda q: q / 3, lambda s: s),
    (lambda q: q, lambda s: 0.7 * s),
    (lambda q: q, lambda s: s.div(math.sqrt(5))),
    (lambda q: torch.mul(q, 0.9), lambda s: torch.div(s, 2)),
)
MASKS = (
    lambda m, s: s,
    lambda m, s: s + m.mask,
    lambda m, s: torch.add(m.mask, s),
    lambda m, s: s + m.bias,
    lambda m, s: s.masked_fill(m.hidden, -INF),
    lambda m, s: torch.masked_fill(s, m.hidden, float("-inf")),
    lambda m, s: torch.where(m.seen, s, -INF),
    lambda m, s: torch.where(m.hidden, -INF, s),
)
SOFTMAXES = (
    lambda m, s, rank: torch.softmax(s, -1),
    lambda m, s, rank: F.softmax(s, dim=rank - 1),
    lambda m, s, rank: s.softmax(dim=-1),
    lambda m, s, rank: m.softmax(s),
)
DROPOUTS = (
    lambda m, p: p,
    lambda m, p: m.drop(p),
    lambda m, p: F.dropout(p, 0.0, True),
    lambda m, p: F.dropout(m.drop(p), 0.2, training=False),
)


def attention(seed: int) -> list[Case]:
    rng = random.Random(seed)
    tokens, others, width, values = rng.sample((3, 4, 5, 6), 4)
    seen = torch.ones(tokens, others, dtype=torch.bool).tril(1)
    parts = {
        "mask": torch.zeros(tokens, others).masked_fill(~seen, -INF),
        "bias": (1, others),
        "hidden": ~seen,
        "seen": seen,
        "softmax": lambda: nn.Softmax(-1),
        "drop": lambda: nn.Dropout(0.3),
    }

    def drawn(number: int) -> Case:
        rank = rng.choice((3, 4))
        plan = [tuple(map(rng.choice, (SCORES, KEYS, SCALES, MASKS, SOFTMAXES, DROPOUTS, VALUES))) for _ in range(3)]

        def body(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
            made = []
            for scores, keys, (before, behind), mask, softmax, dropout, product in plan:
                s = mask(m, behind(scores(before(q), keys(k, rank))))
                made.append(product(dropout(m, softmax(m, s, rank)), v))
            return tuple(made)

        batch = (2, 3)[: rank - 2]
        build = graph(body, (*batch, tokens, width), (*batch, others, width), (*batch, others, values), **parts)
        return case(
            f"drawn, number {number}",
            build,
            did=[attention_made(3, "Every step of the formula has several spellings.")],
            cost=[calls(few_calls("day04.attention", build), "One node for each attention.")],
        )

    def of_zoo(name: str) -> Case:
        number = len(attentions(reference("day04.attention")(zoo(name)())))
        return case(f"zoo: {name}", zoo(name), did=[attention_made(number, "The zoo writes attention out.")])

    def twice(m: Any, x: fx.Proxy) -> fx.Proxy:
        half = x * 0.5
        for _ in range(2):
            x = torch.softmax(half @ x.mT + m.mask, -1) @ x
        return x

    def dark(m: Any, q: fx.Proxy, k: fx.Proxy) -> fx.Proxy:
        return torch.softmax((q @ k.mT).masked_fill(m.hidden, -INF), -1) @ k

    def shapes(m: Any, x: fx.Proxy, k: fx.Proxy) -> tuple:
        s = 0.5
        return (
            torch.softmax(x @ x.mT * s + m.row, -1) @ x,
            torch.softmax(x @ x.mT * s + m.many, -1) @ x,
            torch.softmax(x @ k.mT * s, -1) @ k,
            torch.softmax(x @ x.permute(1, 0, 3, 2) * s, -1) @ x,
            torch.softmax(x @ x.mT * s, 2) @ x,
            torch.softmax(x @ x.mT * s + m.whole, -1) @ x,
        )

    def selves(m: Any, x: fx.Proxy) -> tuple:
        p, s = torch.softmax(x @ x.mT, -1), x @ x.mT
        return p @ p, torch.softmax(s + s, -1) @ x

    def constants(m: Any, x: fx.Proxy) -> tuple:
        s = 0.5
        return (
            torch.softmax(x @ x.mT * m.temperature, -1) @ x,
            torch.softmax(1 / (x @ x.mT), -1) @ x,
            torch.softmax((x @ x.mT * s).masked_fill(m.hidden, -10000.0), -1) @ x,
            torch.softmax(torch.where(m.hidden, x @ x.mT * s, 0.0), -1) @ x,
            torch.softmax(x @ x.mT * s, -1).masked_fill(m.hidden, 0.0) @ x,
            torch.softmax((x @ x.mT).masked_fill(m.hidden, -INF) * s, -1) @ x,
            torch.softmax(torch.add(x @ x.mT, m.bias, alpha=2), -1) @ x,
            torch.log_softmax(x @ x.mT * s, -1) @ x,
        )

    def written(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
        p = torch.softmax(q @ k.mT * 0.5, -1)
        q.add_(1)
        s = k @ v.mT
        s.mul_(2)
        return p @ v, torch.softmax(s, -1) @ k

    def drawing(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
        p = F.dropout(torch.softmax(q @ k.mT * 0.5, -1), 0.25, True)
        return p @ v

    def switched_off(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
        return m.off(m.still(torch.softmax(q @ k.mT, -1))) @ v

    four = (2, 2, 4, 4)
    upper = ~torch.ones(4, 4, dtype=torch.bool).tril()
    blind = upper.clone()
    blind[2] = True
    return [
        *(drawn(i + 1) for i in range(5)),
        *map(of_zoo, ("gpt", "vit")),
        case(
            "one behind the other, and a scaled query that both read",
            graph(twice, (2, 4, 4), mask=causal(4)),
            did=[attention_made(2, "The scaled query may be read twice: it stays as it is, or is not needed.")],
        ),
        case(
            "a row that sees nothing",
            graph(dark, (2, 4, 6), (2, 4, 6), hidden=blind),
            did=[attention_made(1, "A row without a finite score is NaN before, and free.")],
        ),
        case(
            "dropouts that are off in training",
            graph(
                switched_off, four, four, four, training=True, off=lambda: nn.Dropout(0.0), still=lambda: nn.Dropout(0)
            ),
            did=[attention_made(1, "A dropout with p=0 draws nothing, in training neither.")],
        ),
        case(
            "a functional dropout that draws",
            graph(drawing, four, four, four),
            spared=[attention_at_most(0, "F.dropout(…, training=True) draws, whatever mode the model is in.")],
        ),
        case(
            "shapes and dtypes",
            graph(shapes, four, (2, 1, 4, 4), row=(4,), many=(3, 1, 1, 4, 4), whole=torch.arange(16).reshape(4, 4)),
            spared=[attention_at_most(0, "Look at the shapes of masks, the leading dimensions, and the dtypes.")],
        ),
        case(
            "values that are their own operands",
            graph(selves, (2, 4, 4)),
            spared=[attention_at_most(0, "Probabilities and scores that are read twice have to be there.")],
        ),
        case(
            "other constants and orders",
            graph(constants, four, hidden=upper, temperature=torch.tensor(0.7), bias=(4, 4)),
            spared=[attention_at_most(0, "None of these is attention as the law has it.")],
        ),
        case(
            "written in between",
            graph(written, four, four, four),
            spared=[attention_at_most(0, "The program writes into q, and into scores, before they are used up.")],
        ),
        *written_graphs(rng),
    ]
