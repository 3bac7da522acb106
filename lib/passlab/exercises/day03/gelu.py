"""Day 3, a GELU matcher: visible cases and judge."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx, nn

from passlab.fx.cases import case, expecting, graph, live, nodes
from passlab.fx.nodes import op_name
from passlab.judge import core, listed, plural
from passlab.judge.expect import Expectation


def gelus(gm: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Return form ("none": erf, "tanh": tanh) → the nodes that compute that GELU."""
    nodes: dict[str, list[fx.Node]] = {"none": [], "tanh": []}
    for node in live(gm):
        if op_name(node, gm) == "gelu":
            form = node.kwargs.get("approximate", node.args[1] if len(node.args) > 1 else "none")
            nodes.setdefault(str(form), []).append(node)
        elif op_name(node, gm) == "GELU":
            nodes.setdefault(gm.get_submodule(node.target).approximate, []).append(node)
    return nodes


def expect_gelus(erf: int, tanh: int, why: str) -> Expectation:
    """Expect at least `erf` GELU nodes of the erf form and `tanh` of the tanh form."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        numbers = {form: len(nodes) for form, nodes in gelus(after).items()}
        if numbers["none"] >= erf and numbers["tanh"] >= tanh:
            return None
        if numbers["none"] > erf and numbers["tanh"] < tanh:
            return "The tanh form became plain gelu(x), which is the erf form. Pass approximate='tanh'."
        op, missing = ("erf", erf - numbers["none"]) if numbers["none"] < erf else ("tanh", tanh - numbers["tanh"])
        rest = [n for n in live(after) if op_name(n, after) == op]
        ops = f" ({listed(rest)})" if len(rest) == missing else ""  # else some of them are not part of a GELU
        return f"{why} {plural(missing, f'formula with {op}', f'formulas with {op}')}{ops} should be a gelu node, too."

    return law


def expect_no_gelu(why: str) -> Expectation:
    """Expect no GELU node at all."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        gelu_nodes = [n for nodes in gelus(after).values() for n in nodes]
        if not gelu_nodes:
            return None
        live_names = {n.name for n in live(after)}
        gates = [n for n in before.graph.nodes if op_name(n, before) in ("erf", "tanh") and n.name not in live_names]
        detail = f": {listed(gates)} should have stayed" if gates else ""
        return f"{why} The result has {plural(len(gelu_nodes), 'gelu node')}{detail}."

    return law


#: Constants may have as few as seven digits, so values may differ a little; half precision adds nothing to the test.
judge = expecting(rtol=1e-5, atol=1e-5, trials=("given", "double", "extreme", "nonfinite", "structured", "sizes"))


ROOT, SLOPE, CUBIC = math.sqrt(2), math.sqrt(2 / math.pi), 0.044715
ORDER = "Products and sums may be written in any order and grouped in any way."
EITHER = "The operands of + and * may stand either way round."


@core
@case("plain: 0.5 x (1 + erf(x / √2))", graph(..., (2, 3)), did=[expect_gelus(1, 0, "This is the formula.")])
def plain(m: Any, x: Any) -> Any:
    return (0.5 * x) * (1 + torch.erf(x / ROOT))


@core
@case("plain: operands the other way round", graph(..., (2, 3), (2, 3)), did=[expect_gelus(2, 0, EITHER)])
def plain_orders(m: Any, x: Any, y: Any) -> tuple:
    h = torch.tanh(y)
    return (torch.erf(x / ROOT) + 1) * (x * 0.5), (h * 0.5) * (1 + torch.erf(h / ROOT))


@core
@case(
    "plain: near-misses",
    graph(..., (2, 3)),
    spared=[expect_no_gelu("None of these formulas is GELU: look at every constant, and every operation.")],
)
def plain_near(m: Any, x: Any) -> tuple:
    return (
        (0.5 * x) * (1 + torch.erf(x / 1.5)),
        (0.6 * x) * (1 + torch.erf(x / ROOT)),
        (0.5 * x) * (1 + torch.tanh(x / ROOT)),
        (0.5 * x) * (2 + torch.erf(x / ROOT)),
        (0.5 * x) + (1 + torch.erf(x / ROOT)),
    )


@case(
    "0.5 x (1 + erf(x / √2)), twice",
    graph(..., (2, 3), (2, 3)),
    did=[expect_gelus(2, 0, ORDER)],
    cost=[nodes(6, "One node stands for the whole formula.")],
)
def erf_forms(m: Any, x: Any, y: Any) -> Any:
    first = 0.5 * x * (1 + torch.erf(x / ROOT))
    return first + y * ((torch.erf(0.7071067811865476 * y) + 1.0) * 0.5)


@case(
    "the tanh form, twice",
    graph(..., (2, 3), (2, 3)),
    did=[expect_gelus(0, 2, ORDER)],
    cost=[nodes(6, "One node stands for the whole formula.")],
)
def tanh_forms(m: Any, x: Any, y: Any) -> Any:
    first = 0.5 * x * (1 + torch.tanh(SLOPE * (x + CUBIC * torch.pow(x, 3))))
    return first + (1.0 + torch.tanh((y * y * y * CUBIC + y) * SLOPE)) * (y / 2)


@case(
    "methods, between two layers",
    graph(..., (2, 4), up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 4)),
    did=[expect_gelus(1, 0, "x may itself be a product, and .mul(…) is a product too.")],
)
def inside(m: Any, x: Any) -> Any:
    h = m.up(x) * 2
    return m.down(h.mul(0.5).mul(torch.erf(h.div(ROOT)).add(1)))


@case(
    "near-misses",
    graph(..., (2, 3), (2, 3)),
    spared=[expect_no_gelu("None of these formulas is GELU: look at every constant, every sign, and every x.")],
)
def near(m: Any, x: Any, y: Any) -> tuple:
    return (
        0.5 * x * (1 + torch.erf(x * ROOT)),
        0.5 * x * (1 - torch.erf(x / ROOT)),
        0.5 * y * (1 + torch.erf(x / ROOT)),
        x * (1 + torch.erf(x / ROOT)),
        0.5 * x * (1 + torch.tanh(SLOPE * (x + 0.0447 * x**3))),
        0.5 * x * (1 + torch.tanh(SLOPE * (x + CUBIC * x**2))),
        0.5 * x * (1 + torch.tanh(0.8 * (x + CUBIC * x**3))),
        x * torch.sigmoid(1.702 * x),
    )
