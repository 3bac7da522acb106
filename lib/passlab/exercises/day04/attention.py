"""Day 4, attention as one op: visible cases and judge."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab.exercises.day04._shared import calls, replaced
from passlab.fx.cases import case, expecting, graph, live
from passlab.fx.nodes import op_name
from passlab.judge import Case, is_or_are, listed, plural
from passlab.judge.expect import Expectation

#: Where scores are infinite or NaN the law of attention promises nothing; where they are huge, the last bit of a score
#: decides between one row of v and another.
judge = expecting(trials=("given", "double", "structured", "sizes", "half"))


def attentions(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the live nodes that call scaled_dot_product_attention."""
    return [node for node in live(gm) if op_name(node, gm) == "scaled_dot_product_attention"]


def attention_made(number: int, why: str) -> Expectation:
    """Expect at least `number` calls of scaled_dot_product_attention."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        count = len(attentions(after))
        if count >= number:
            return None
        rest = [n for n in live(after) if op_name(n, after).lower() == "softmax"]
        still = f" {listed(rest)} {is_or_are(len(rest))} still in the graph." if rest else ""
        return f"{plural(number, 'attention')} can be fused here; {count} became one op. {why}{still}"

    return law


def attention_at_most(number: int, why: str) -> Expectation:
    """Expect at most `number` calls of scaled_dot_product_attention."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        matches = attentions(after)
        if len(matches) <= number:
            return None
        return f"{why} {listed(matches)} came in{replaced(before, after)}; expected {number or 'none'}."

    return law


def causal(size: int) -> torch.Tensor:
    """Return the causal mask: 0 on and below the diagonal, -inf above; a token sees itself and what came before."""
    return torch.full((size, size), -math.inf).triu(1)


HEADS = (2, 2, 4, 8)
INF = math.inf
BARE = "The op includes the whole formula: the transposition, the scale, and a dropout that does nothing."
SEEN = torch.ones(4, 4, dtype=torch.bool).tril()


@case(
    "four ways to scale",
    graph(..., HEADS, HEADS, HEADS),
    did=[attention_made(4, "The scale may be on the scores, on q, on both, or missing.")],
    cost=[calls(4, BARE + " Where both q and the scores are scaled, multiply the scales.")],
)
def scales(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    return (
        torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), dim=-1) @ v,
        torch.matmul(((q * 0.25) @ k.mT).softmax(-1), v),
        F.softmax(torch.matmul(q, k.permute(0, 1, 3, 2)), dim=3) @ v,
        torch.softmax((q * 0.9) @ k.mT / 2, -1) @ v,
    )


@case(
    "masks that are added, filled in, chosen",
    graph(..., HEADS, HEADS, HEADS, mask=causal(4), hidden=~SEEN, seen=SEEN),
    did=[attention_made(4, "A mask is a tensor that is added, or a boolean tensor that selects -inf.")],
    cost=[calls(6, BARE + " Only a mask that is True where -inf goes has to be inverted.")],
)
def masks(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    total = torch.softmax(m.mask + 0.5 * (q @ k.transpose(-1, -2)), -1) @ v
    fill = torch.softmax((q @ k.mT * 0.5).masked_fill(m.hidden, -INF), -1) @ v
    choice = torch.softmax(torch.where(m.seen, q @ k.mT * 0.5, -INF), -1) @ v
    swap = torch.softmax(torch.where(m.hidden, -INF, q @ k.mT * 0.5), -1) @ v
    return total, fill, choice, swap


@case(
    "three dimensions, no dropout, wider values",
    graph(..., (3, 4, 8), (3, 5, 8), (3, 5, 6), drop=nn.Dropout, softmax=lambda: nn.Softmax(-1)),
    did=[attention_made(1, "bmm is a matrix product, too, and a dropout that is off does nothing.")],
    cost=[calls(1, BARE)],
)
def flat(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    p = m.drop(m.softmax(torch.bmm(q, torch.transpose(k, 1, 2)).div(3.0)))
    return torch.bmm(F.dropout(p, 0.1, False), v)


@case(
    "dropout that draws",
    graph(..., HEADS, HEADS, HEADS, training=True, drop=nn.Dropout),
    spared=[
        attention_at_most(0, "In training this dropout draws random numbers, and no other op draws the same ones.")
    ],
)
def drawing(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return m.drop(torch.softmax(q @ k.mT * 0.5, -1)) @ v


@case(
    "scores and probabilities with other consumers",
    graph(..., HEADS, HEADS, HEADS),
    spared=[attention_at_most(0, "The scores or the probabilities have another consumer, so they must be kept.")],
)
def read_twice(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    p = torch.softmax(q @ k.mT * 0.5, -1)
    scores = q @ k.mT
    return p @ v, p, torch.softmax(scores * 0.5, -1) @ v, scores.amax(-1)


@case(
    "near-misses",
    graph(..., (2, 4, 4, 4), hidden=~SEEN, bias=(4, 4)),
    spared=[attention_at_most(0, "None of these is attention: look at every dimension, order, number and dtype.")],
)
def near(m: Any, x: fx.Proxy) -> tuple:
    s = 0.5
    return (
        torch.softmax(x @ x.mT * s, -2) @ x,
        torch.softmax((x @ x.mT + m.bias) * s, -1) @ x,
        torch.softmax((x @ x.mT * s).masked_fill(m.hidden, -1e9), -1) @ x,
        x @ torch.softmax(x @ x.mT * s, -1),
        torch.softmax(x @ x * s, -1) @ x,
        torch.softmax(x @ x.transpose(1, 2) * s, -1) @ x,
        torch.softmax(x @ x.mT - x @ x.mT, -1) @ x,
        torch.softmax(x @ x.mT * s + m.hidden, -1) @ x,
    )


def cases() -> list[Case]:
    return [scales, masks, flat, drawing, read_twice, near]


HEADS_CASE = (2, 2, 4, 8)


def probabilities(q: fx.Proxy, k: fx.Proxy, dim: int = -1) -> fx.Proxy:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.3, dim)


NEAR_MISSES = "The softmax is over the last dimension, v is on the right, and k is transposed: each breaks one."


@case(
    "two in a row",
    graph(..., HEADS_CASE, HEADS_CASE, HEADS_CASE),
    did=[attention_made(2, "Each is softmax(q @ k.transpose(-2, -1) * c, -1) @ v.")],
    cost=[calls(2, "The op includes the whole formula: the transposition and the scale, too.")],
)
def in_a_row(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
    return probabilities(probabilities(q, k) @ v, k) @ v


@case(
    "scores and probabilities with other consumers",
    graph(..., HEADS_CASE, HEADS_CASE, HEADS_CASE),
    spared=[attention_at_most(0, "Another node reads the scores or the probabilities, so they must be kept.")],
)
def read_twice_program(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
    p = probabilities(q, k)
    scores = q @ k.transpose(-2, -1)
    return p @ v, p, torch.softmax(scores * 0.3, -1) @ v, scores.amax(-1)


@case("near-misses", graph(..., (2, 2, 4, 4)), spared=[attention_at_most(0, NEAR_MISSES)])
def near_program(m: Any, x: fx.Proxy) -> tuple:
    return probabilities(x, x, -2) @ x, x @ probabilities(x, x), torch.softmax(x @ x * 0.3, -1) @ x


def smaller_cases() -> list[Case]:
    """Return cases of one spelling, torch.softmax(q @ k.transpose(-2, -1) * c, -1) @ v."""
    return [in_a_row, read_twice_program, near_program]
