"""Day 4, linear, bias and activation: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab.exercises.day04._shared import calls, replaced
from passlab.fx.cases import case, expecting, graph, live, read
from passlab.fx.nodes import op_name
from passlab.judge import Case, listed, plural
from passlab.judge.expect import Expectation

judge = expecting()


def layers(gm: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Return activation → the live `linear_act` nodes that end in it."""
    nodes: dict[str, list[fx.Node]] = {}
    for node in live(gm):
        if op_name(node, gm) == "linear_act":
            activation = node.kwargs.get("activation", node.args[3] if len(node.args) > 3 else "relu")
            nodes.setdefault(str(activation), []).append(node)
    return nodes


def layers_made(why: str, **numbers: int) -> Expectation:
    """Expect at least the given number of linear_act nodes of each activation."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        counts = Counter({name: len(nodes) for name, nodes in layers(after).items()})
        missing = [name for name in numbers if counts[name] < numbers[name]]
        if not missing:
            return None
        name = missing[0]
        one = f"{plural(numbers[name], 'linear layer')} end{'s' if numbers[name] == 1 else ''} in {name} here"
        return f"{one}; the result has {plural(counts[name], 'linear_act node')} with {name!r}. {why}"

    return law


def layers_at_most(why: str, **allowed: int) -> Expectation:
    """Expect at most the given number of linear_act nodes of each activation, and none of any other."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        extra = {name: nodes for name, nodes in layers(after).items() if len(nodes) > allowed.get(name, 0)}
        if not extra:
            return None
        name, nodes = next(iter(extra.items()))
        may = allowed.get(name, 0)
        source = replaced(before, after, name.removesuffix("_tanh"))
        return f"{why} {listed(nodes)} with {name!r} came in{source}; expected {may or 'none'}."

    return law


SPELLINGS = "Layers and activations may be modules, functions, operators or methods."
WRITTEN_OUT = "x @ w.t() is a linear layer without bias; a vector added to it, on either side, is its bias."
ONE = "One node should replace the product, the sum and the activation."
READER = "The intermediate value has another consumer, so it must be kept."


def heir() -> nn.Module:
    return nn.modules.linear.NonDynamicallyQuantizableLinear(4, 4)


def layer(inputs: int, outputs: int, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(inputs, outputs, **options)


@case(
    "modules and functions",
    graph(..., (2, 3), one=layer(3, 4), two=layer(4, 5, bias=False), gelu=nn.GELU, w=(4, 4), b=(4,)),
    did=[layers_made(SPELLINGS, gelu=1, relu=1, silu=1)],
    spared=[layers_at_most("There are only three layers.", gelu=1, relu=1, silu=1)],
    cost=[calls(3, ONE)],
)
def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
    h = m.gelu(m.one(x))
    h = F.silu(F.linear(h, m.w, bias=m.b))
    return F.relu(m.two(h), inplace=True)


@case(
    "the product written out, the bias added",
    graph(..., (2, 3), w1=(4, 3), b1=(4,), w2=(5, 4), b2=(5,), w3=(3, 5), b3=(3,)),
    did=[layers_made(WRITTEN_OUT, gelu_tanh=1, relu=1, gelu=1)],
    spared=[layers_at_most("gelu and gelu_tanh are different functions.", gelu_tanh=1, relu=1, gelu=1)],
    cost=[calls(3, ONE)],
)
def written(m: Any, x: fx.Proxy) -> fx.Proxy:
    h = F.gelu(x @ m.w1.t() + m.b1, approximate="tanh")
    h = (m.b2 + torch.matmul(h, m.w2.transpose(0, 1))).relu()
    return F.gelu(torch.addmm(m.b3, h, m.w3.T))


@case(
    "values with other consumers",
    graph(..., (2, 3), one=layer(3, 4), two=layer(3, 4), w=(4, 3), b=(4,)),
    did=[layers_made("One of the two calls of the module two can be fused; the other stays.", gelu=1)],
    spared=[layers_at_most(READER, gelu=1)],
)
def read_twice(m: Any, x: fx.Proxy) -> tuple:
    y = m.one(x)
    z = F.linear(x, m.w)
    s = z + m.b
    return torch.relu(y) + y, F.silu(s), z, F.gelu(m.two(x)), torch.tanh(m.two(x))


@case(
    "additions that are not a bias",
    graph(
        ...,
        (4, 4),
        one=layer(4, 4),
        w=(4, 4),
        b=(4,),
        column=(4, 1),
        number=(1,),
        wide=torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    ),
    spared=[
        layers_at_most("A bias has the shape (outputs,) and the layer's dtype, is added once, and is the only one.")
    ],
)
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


@case(
    "near-misses",
    graph(..., (4, 4), one=layer(4, 4), w=(4, 4), b=(4,), relu6=nn.ReLU6, heir=heir),
    spared=[layers_at_most("None of these is a layer (nn.Linear, not a subclass) followed by relu, gelu or silu.")],
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


@case(
    "a bias that is written in between",
    graph(..., (2, 4), one=layer(4, 4)),
    spared=[
        layers_at_most("The layer reads its bias before the program writes it; a fused op would read it afterwards.")
    ],
)
def rewritten(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = m.one(x)
    read(x, "one.bias").add_(1)
    return torch.relu(y)


def cases() -> list[Case]:
    return [modules, written, read_twice, biases, near, rewritten]


READER_CASE = "The value of the layer has another consumer, or is an output."


@case(
    "two layers in a row",
    graph(..., (2, 3), w1=(4, 3), b1=(4,), w2=(5, 4), b2=(5,)),
    did=[layers_made("Each is F.relu(F.linear(x, w, b)).", relu=2)],
    spared=[layers_at_most("There are only two layers.", relu=2)],
    cost=[calls(2, "One node should replace the layer and the relu.")],
)
def layers_in_a_row(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.relu(F.linear(F.relu(F.linear(x, m.w1, m.b1)), m.w2, m.b2))


@case("layers with other consumers", graph(..., (2, 3), w=(4, 3), b=(4,)), spared=[layers_at_most(READER_CASE)])
def read_twice_program(m: Any, x: fx.Proxy) -> tuple:
    y, z = F.linear(x, m.w, m.b), F.linear(x, m.w, m.b)
    return F.relu(y) * y, F.relu(z), z


@case(
    "a relu and a layer apart",
    graph(..., (2, 3), w=(4, 3), b=(4,)),
    spared=[layers_at_most("The relu comes before the layer, not after it.")],
)
def others(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.tanh(F.linear(F.relu(x), m.w, m.b))


def smaller_cases() -> list[Case]:
    """Return cases of one spelling, F.relu(F.linear(x, w, b))."""
    return [layers_in_a_row, read_twice_program, others]
