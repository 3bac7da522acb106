"""Day 4, two rewrites into one op: visible cases of linear + bias + activation and of attention, and their laws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab.exercises.cases_day02_rewrites import parameters
from passlab.exercises.cases_day03 import Expectation, case, expecting, graph, live, names, op_name, plural, read
from passlab.judge import Case

judge_linear = expecting()

#: Where scores are infinite or NaN the law of attention promises nothing; where they are huge, the last bit of a score
#: decides between one row of v and another.
judge_attention = expecting(trials=("given", "double", "structured", "sizes", "half"))


FUSED = ("linear_act", "scaled_dot_product_attention")
#: What turns a boolean mask round.
TURNS = ("logical_not", "bitwise_not", "invert", "inv")


def replaced(before: fx.GraphModule, after: fx.GraphModule, part: str = "") -> str:
    """Words for the last of the nodes that are gone, as " for relu_1": of ops with `part` in their name, if any."""
    kept = {(node.name, op_name(after, node)) for node in live(after)}
    gone = [node for node in live(before) if (node.name, op_name(before, node)) not in kept]
    last = [node for node in gone if node.op.startswith("call") and not any(user in gone for user in node.users)]
    last = [node for node in last if part in op_name(before, node).lower()] or last
    return f" for {names(last)}" if last else ""


def calls(number: int, why: str) -> Expectation:
    """At most `number` nodes call something (dead ones count), and no parameter is held twice."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        alive = set(live(after))
        there = [n for n in after.graph.nodes if n.op.startswith("call")]
        if len(there) > number:
            dead = [n for n in there if n not in alive]
            rest = [n for n in there if op_name(after, n) not in FUSED]
            rest = [n for n in rest if op_name(after, n) not in TURNS] or rest
            left = f" Nothing uses {names(dead)} any more: erase it." if dead else f" It still calls {names(rest)}."
            return f"{why} The graph has {plural(len(there), 'call')}; {number} are enough.{left}"
        extra = parameters(after) - parameters(before)
        if extra > 0:
            return f"The graph holds {extra:,} more parameters than before. Read those that are there, by get_attr."
        return None

    return law


# ---------------------------------------------------------------------------------------------------- linear


def layers(gm: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Activation → the live `linear_act` nodes that end in it."""
    found: dict[str, list[fx.Node]] = {}
    for node in live(gm):
        if op_name(gm, node) == "linear_act":
            activation = node.kwargs.get("activation", node.args[3] if len(node.args) > 3 else "relu")
            found.setdefault(str(activation), []).append(node)
    return found


def layers_made(why: str, **wanted: int) -> Expectation:
    """At least so many linear_act nodes of each activation."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        there = Counter({name: len(found) for name, found in layers(after).items()})
        missing = [name for name in wanted if there[name] < wanted[name]]
        if not missing:
            return None
        name = missing[0]
        one = f"{plural(wanted[name], 'linear layer')} end{'s' if wanted[name] == 1 else ''} in {name} here"
        return f"{one}, and the result has {plural(there[name], 'linear_act node')} with {name!r}. {why}"

    return law


def layers_at_most(why: str, **allowed: int) -> Expectation:
    """At most so many linear_act nodes of each activation, and none of any other."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        extra = {name: found for name, found in layers(after).items() if len(found) > allowed.get(name, 0)}
        if not extra:
            return None
        name, found = next(iter(extra.items()))
        may = allowed.get(name, 0)
        source = replaced(before, after, name.removesuffix("_tanh"))
        return f"{why} {names(found)} with {name!r} came in{source}; {may or 'none'} may."

    return law


def linear_cases() -> list[Case]:
    spellings = "A layer and an activation may be modules, functions, operators or methods."
    written_out = "x @ w.t() is a linear layer without bias, and what is added behind it, on either side, its bias."
    one = "One node stands for the product, the sum and the activation."
    reader = "Somebody else reads the value between: it has to be there."

    def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
        h = m.gelu(m.one(x))
        h = F.silu(F.linear(h, m.w, bias=m.b))
        return F.relu(m.two(h), inplace=True)

    def written(m: Any, x: fx.Proxy) -> fx.Proxy:
        h = F.gelu(x @ m.w1.t() + m.b1, approximate="tanh")
        h = (m.b2 + torch.matmul(h, m.w2.transpose(0, 1))).relu()
        return F.gelu(torch.addmm(m.b3, h, m.w3.T))

    def read_twice(m: Any, x: fx.Proxy) -> tuple:
        y = m.one(x)
        z = F.linear(x, m.w)
        s = z + m.b
        return torch.relu(y) + y, F.silu(s), z, F.gelu(m.two(x)), torch.tanh(m.two(x))

    def biases(m: Any, x: fx.Proxy) -> tuple:
        y = x @ m.w.t()
        return (
            torch.relu(y + m.column),
            torch.relu(x @ m.w.T + m.number),
            torch.relu(F.linear(x, m.w) + x),
            torch.relu(F.linear(x, m.w) + m.wide),
            torch.relu(m.one(x) + m.b),
            torch.relu(torch.add(F.linear(x, m.w), m.b, alpha=2)),
        )

    def near(m: Any, x: fx.Proxy) -> tuple:
        return (
            F.relu6(m.one(x)),
            F.leaky_relu(m.one(x), 0.2),
            torch.sigmoid(m.one(x)),
            torch.relu(x @ m.w + m.b),
            torch.relu(m.one(x) * 2),
            torch.relu(torch.addmm(m.b, x, m.w.t(), beta=2)),
            m.relu6(m.one(x)),
            torch.relu(m.heir(x)),
        )

    def rewritten(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = m.one(x)
        read(x, "one.bias").add_(1)
        return torch.relu(y)

    def heir() -> nn.Module:
        return nn.modules.linear.NonDynamicallyQuantizableLinear(4, 4)

    def layer(inputs: int, outputs: int, **options: Any) -> Callable[[], nn.Module]:
        return lambda: nn.Linear(inputs, outputs, **options)

    return [
        case(
            "modules and functions",
            graph(modules, (2, 3), one=layer(3, 4), two=layer(4, 5, bias=False), gelu=nn.GELU, w=(4, 4), b=(4,)),
            did=[layers_made(spellings, gelu=1, relu=1, silu=1)],
            spared=[layers_at_most("Three layers are all there are.", gelu=1, relu=1, silu=1)],
            cost=[calls(3, one)],
        ),
        case(
            "the product written out, the bias added",
            graph(written, (2, 3), w1=(4, 3), b1=(4,), w2=(5, 4), b2=(5,), w3=(3, 5), b3=(3,)),
            did=[layers_made(written_out, gelu_tanh=1, relu=1, gelu=1)],
            spared=[layers_at_most("gelu and gelu_tanh are two functions.", gelu_tanh=1, relu=1, gelu=1)],
            cost=[calls(3, one)],
        ),
        case(
            "values that somebody else reads",
            graph(read_twice, (2, 3), one=layer(3, 4), two=layer(3, 4), w=(4, 3), b=(4,)),
            did=[layers_made("One of the two calls of the module two can be fused; the other stays.", gelu=1)],
            spared=[layers_at_most(reader, gelu=1)],
        ),
        case(
            "what is added and is no bias",
            graph(
                biases,
                (4, 4),
                one=layer(4, 4),
                w=(4, 4),
                b=(4,),
                column=(4, 1),
                number=(1,),
                wide=torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
            ),
            spared=[
                layers_at_most("A bias has the shape (outputs,) and the layer's dtype, is added once, and is the only.")
            ],
        ),
        case(
            "near-misses",
            graph(near, (4, 4), one=layer(4, 4), w=(4, 4), b=(4,), relu6=nn.ReLU6, heir=heir),
            spared=[layers_at_most("None of these is a layer (nn.Linear, no subclass), then relu, gelu or silu.")],
        ),
        case(
            "a bias that is written in between",
            graph(rewritten, (2, 4), one=layer(4, 4)),
            spared=[
                layers_at_most("The layer reads its bias before the program writes it, the activation comes after.")
            ],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- attention


def attentions(gm: fx.GraphModule) -> list[fx.Node]:
    """The live nodes that call scaled_dot_product_attention."""
    return [node for node in live(gm) if op_name(gm, node) == "scaled_dot_product_attention"]


def attention_made(number: int, why: str) -> Expectation:
    """At least so many calls of scaled_dot_product_attention."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        there = len(attentions(after))
        if there >= number:
            return None
        left = [n for n in live(after) if op_name(after, n).lower() == "softmax"]
        still = f" {names(left)} still stand{'s' if len(left) == 1 else ''} in the graph." if left else ""
        return f"{plural(number, 'attention')} can be found here, and {there} became one op. {why}{still}"

    return law


def attention_at_most(number: int, why: str) -> Expectation:
    """At most so many calls of scaled_dot_product_attention."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        there = attentions(after)
        if len(there) <= number:
            return None
        return f"{why} {names(there)} came in{replaced(before, after)}; {number or 'none'} may."

    return law


def causal(size: int) -> torch.Tensor:
    """0 on and below the diagonal, -inf above: a token sees itself and what came before."""
    return torch.full((size, size), -math.inf).triu(1)


def attention_cases() -> list[Case]:
    heads = (2, 2, 4, 8)
    inf = math.inf

    def scales(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
        return (
            torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), dim=-1) @ v,
            torch.matmul(((q * 0.25) @ k.mT).softmax(-1), v),
            F.softmax(torch.matmul(q, k.permute(0, 1, 3, 2)), dim=3) @ v,
            torch.softmax((q * 0.9) @ k.mT / 2, -1) @ v,
        )

    def masks(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
        added = torch.softmax(m.mask + 0.5 * (q @ k.transpose(-1, -2)), -1) @ v
        filled = torch.softmax((q @ k.mT * 0.5).masked_fill(m.hidden, -inf), -1) @ v
        kept = torch.softmax(torch.where(m.seen, q @ k.mT * 0.5, -inf), -1) @ v
        put = torch.softmax(torch.where(m.hidden, -inf, q @ k.mT * 0.5), -1) @ v
        return added, filled, kept, put

    def flat(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
        p = m.drop(m.softmax(torch.bmm(q, torch.transpose(k, 1, 2)).div(3.0)))
        return torch.bmm(F.dropout(p, 0.1, False), v)

    def drawing(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> fx.Proxy:
        return m.drop(torch.softmax(q @ k.mT * 0.5, -1)) @ v

    def read_twice(m: Any, q: fx.Proxy, k: fx.Proxy, v: fx.Proxy) -> tuple:
        p = torch.softmax(q @ k.mT * 0.5, -1)
        scores = q @ k.mT
        return p @ v, p, torch.softmax(scores * 0.5, -1) @ v, scores.amax(-1)

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

    bare = "All of the formula belongs to the op: the transposition, the scale, and a dropout that does nothing."
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    return [
        case(
            "four ways to scale",
            graph(scales, heads, heads, heads),
            did=[attention_made(4, "The scores are scaled, or q, or both, or nothing is.")],
            cost=[calls(4, bare + " Where q and the scores are scaled, the scale is the product of both.")],
        ),
        case(
            "masks that are added, filled in, chosen",
            graph(masks, heads, heads, heads, mask=causal(4), hidden=~seen, seen=seen),
            did=[attention_made(4, "A mask is a tensor that is added, or a boolean one that puts -inf.")],
            cost=[calls(6, bare + " Only a mask that says where -inf goes has to be turned round.")],
        ),
        case(
            "three dimensions, no dropout, wider values",
            graph(flat, (3, 4, 8), (3, 5, 8), (3, 5, 6), drop=nn.Dropout, softmax=lambda: nn.Softmax(-1)),
            did=[attention_made(1, "bmm is a product of matrices, too, and a dropout that is off is nothing.")],
            cost=[calls(1, bare)],
        ),
        case(
            "dropout that draws",
            graph(drawing, heads, heads, heads, training=True, drop=nn.Dropout),
            spared=[attention_at_most(0, "In training this dropout draws, and no other op draws the same numbers.")],
        ),
        case(
            "scores and probabilities that are read",
            graph(read_twice, heads, heads, heads),
            spared=[
                attention_at_most(0, "Somebody else reads the scores or the probabilities: they have to be there.")
            ],
        ),
        case(
            "near-misses",
            graph(near, (2, 4, 4, 4), hidden=~seen, bias=(4, 4)),
            spared=[
                attention_at_most(0, "None of these is attention: look at every dimension, order, number and dtype.")
            ],
        ),
    ]
