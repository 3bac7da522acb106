"""Day 3, two rewrites with a shape of their own: the GELU matcher and the propagation of channels-last."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.exercises.cases_day03 import (
    Expectation,
    case,
    expecting,
    graph,
    live,
    names,
    nodes,
    op_name,
    plural,
)
from passlab.fx.judge import judge_pass
from passlab.fx.layout import ANY, NCHW, NHWC, clashes, converts, wants
from passlab.judge import Case, Finding

# ---------------------------------------------------------------------------------------------------- GELU


def gelus(gm: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Form ("none" is the one with erf, "tanh" the other) → the nodes that compute GELU in it."""
    found: dict[str, list[fx.Node]] = {"none": [], "tanh": []}
    for node in live(gm):
        if op_name(gm, node) == "gelu":
            form = node.kwargs.get("approximate", node.args[1] if len(node.args) > 1 else "none")
            found.setdefault(str(form), []).append(node)
        elif op_name(gm, node) == "GELU":
            found.setdefault(gm.get_submodule(node.target).approximate, []).append(node)
    return found


def made(erf: int, tanh: int, why: str) -> Expectation:
    """At least so many GELU nodes of the erf form and of the tanh form."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        there = {form: len(found) for form, found in gelus(after).items()}
        if there["none"] >= erf and there["tanh"] >= tanh:
            return None
        if there["none"] > erf and there["tanh"] < tanh:
            return "The tanh form became plain gelu(x), which is the erf form: say approximate='tanh'."
        left = [n for n in live(after) if op_name(after, n).lower() in ("erf", "tanh")]
        return f"{why} {names(left)} still stand{'s' if len(left) == 1 else ''} in the graph as written out."

    return law


def none_made(why: str) -> Expectation:
    """No GELU node at all."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        found = [n for nodes in gelus(after).values() for n in nodes]
        if not found:
            return None
        old = [n for n in before.graph.nodes if op_name(before, n).lower() in ("erf", "tanh")]
        return f"{why} {plural(len(found), 'gelu node')} came where {names(old)} stood."

    return law


#: Constants are given with as few as seven digits, so values may differ a little; half precision says nothing more.
judge_gelu = expecting(rtol=1e-5, atol=1e-5, trials=("given", "double", "extreme", "nonfinite", "structured", "sizes"))


def gelu_cases() -> list[Case]:
    root, slope, cubic = math.sqrt(2), math.sqrt(2 / math.pi), 0.044715
    order = "Products and sums may be written in any order and grouped in any way."

    def erf_forms(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        first = 0.5 * x * (1 + torch.erf(x / root))
        return first + y * ((torch.erf(0.7071067811865476 * y) + 1.0) * 0.5)

    def tanh_forms(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        first = 0.5 * x * (1 + torch.tanh(slope * (x + cubic * torch.pow(x, 3))))
        return first + (1.0 + torch.tanh((y * y * y * cubic + y) * slope)) * (y / 2)

    def inside(m: Any, x: fx.Proxy) -> fx.Proxy:
        h = m.up(x) * 2
        return m.down(h.mul(0.5).mul(torch.erf(h.div(root)).add(1)))

    def near(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
        return (
            0.5 * x * (1 + torch.erf(x * root)),
            0.5 * x * (1 - torch.erf(x / root)),
            0.5 * y * (1 + torch.erf(x / root)),
            x * (1 + torch.erf(x / root)),
            0.5 * x * (1 + torch.tanh(slope * (x + 0.0447 * x**3))),
            0.5 * x * (1 + torch.tanh(slope * (x + cubic * x**2))),
            0.5 * x * (1 + torch.tanh(0.8 * (x + cubic * x**3))),
            x * torch.sigmoid(1.702 * x),
        )

    return [
        case(
            "0.5 x (1 + erf(x / √2)), twice",
            graph(erf_forms, (2, 3), (2, 3)),
            did=[made(2, 0, order)],
            cost=[nodes(6, "One node stands for the whole formula.")],
        ),
        case(
            "the tanh form, twice",
            graph(tanh_forms, (2, 3), (2, 3)),
            did=[made(0, 2, order)],
            cost=[nodes(6, "One node stands for the whole formula.")],
        ),
        case(
            "methods, between two layers",
            graph(inside, (2, 4), up=lambda: nn.Linear(4, 8), down=lambda: nn.Linear(8, 4)),
            did=[made(1, 0, "x may itself be a product, and .mul(…) is a product too.")],
        ),
        case(
            "near-misses",
            graph(near, (2, 3), (2, 3)),
            spared=[none_made("None of these formulas is GELU: look at every constant, every sign, and every x.")],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- layout


def _convolutions_in_nhwc(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    late = [c for c in clashes(after, *before.meta["inputs"]) if wants(c.reader) == NHWC]
    if not late:
        return None
    readers = list(dict.fromkeys(c.reader for c in late))
    return f"{names(readers)} should get channels-last images; {names([c.operand for c in late])} came as NCHW."


def _others_in_order(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    for clash in clashes(after, *before.meta["inputs"]):
        reader = "The output" if clash.reader.op == "output" else clash.reader.name
        if wants(clash.reader) == ANY:
            return f"{reader} takes any layout, but all its images in one: {clash.operand} comes as {clash.have}."
        if wants(clash.reader) == NCHW:
            return f"{reader} wants {clash.want}; {clash.operand} comes as {clash.have}. Convert at the border."
    return None


def _few_conversions(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    there = [n for n in live(after) if converts(n)]
    if len(there) <= case.expect:
        return None
    return (
        f"{plural(len(there), 'conversion')}: {names(there)}. {case.expect} are enough: "
        f"one image is converted once however many read it, and an op that takes any layout may take either."
    )


judge_layout: Callable[[Case, object], Iterator[Finding]] = judge_pass(
    _convolutions_in_nhwc, _others_in_order, _few_conversions
)


def layout_case(name: str, build: Callable[[], fx.GraphModule], conversions: int) -> Case:
    """A case in which `conversions` conversions are the fewest possible."""
    about = ("valid", "same", "did", "spared", "cost") if conversions else ("valid", "same", "cost")
    return Case(name, lambda: (build(),), about, expect=conversions)


def layout_cases() -> list[Case]:
    def conv(channels: int, out: int) -> Callable[[], nn.Module]:
        return lambda: nn.Conv2d(channels, out, 3, padding=1)

    def chain(m: Any, x: fx.Proxy) -> fx.Proxy:
        return m.two(torch.relu(m.bn(m.one(x))))

    def residual(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(m.two(torch.relu(m.one(x))) + x)
        return m.fc(F.max_pool2d(m.three(y), 2).flatten(1))

    def late(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
        return torch.relu(m.one(x) + y) * z

    image = (2, 4, 6, 6)
    return [
        layout_case("a chain", graph(chain, image, one=conv(4, 8), two=conv(8, 4), bn=lambda: nn.BatchNorm2d(8)), 2),
        layout_case(
            "a residual block and a classifier",
            graph(residual, image, one=conv(4, 4), two=conv(4, 4), three=conv(4, 4), fc=lambda: nn.Linear(36, 5)),
            2,
        ),
        layout_case("most of it is not convolution", graph(late, image, image, image, one=conv(4, 4)), 2),
        layout_case("no convolution", graph(lambda m, x: torch.sigmoid(x) * x, image), 0),
    ]
