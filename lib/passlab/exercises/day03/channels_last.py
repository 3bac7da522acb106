"""Day 3, channels last, with the fewest conversions: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.fx.cases import graph, live
from passlab.fx.judge import judge_pass
from passlab.fx.layout import ANY, NCHW, NHWC, clashes, converts, wants
from passlab.judge import Case, Finding, as_decorator, core, enough, listed, plural


def _convolutions_in_nhwc(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    late = [c for c in clashes(after, *before.meta["inputs"]) if wants(c.reader) == NHWC]
    if not late:
        return None
    readers = list(dict.fromkeys(c.reader for c in late))
    node = "Nodes" if len(readers) > 1 else "Node"
    operands = listed([c.operand for c in late])
    return f"{node} {listed(readers)} should receive channels-last images, but {operands} came as NCHW."


def _others_in_order(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    for clash in clashes(after, *before.meta["inputs"]):
        reader = "The output" if clash.reader.op == "output" else clash.reader.name
        if wants(clash.reader) == ANY:
            return f"{reader} takes any layout, but the same for all its images; {clash.operand} came as {clash.have}."
        if wants(clash.reader) == NCHW:
            return f"{reader} needs {clash.want}; {clash.operand} came as {clash.have}. Convert it at the border."
    return None


def _few_conversions(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    conversions = [n for n in live(after) if converts(n)]
    if len(conversions) <= case.expect:
        return None
    return (
        f"{plural(len(conversions), 'conversion')}: {listed(conversions)}. {enough(case.expect)}: "
        f"convert an image once, however many consumers it has, and choose the layout of ops that take any."
    )


judge: Callable[[Case, object], Iterator[Finding]] = judge_pass(
    _convolutions_in_nhwc, _others_in_order, _few_conversions
)


@as_decorator
def layout_case(name: str, build: Callable[[], fx.GraphModule], conversions: int) -> Case:
    """Return a case in which `conversions` is the smallest possible number of conversions."""
    about = ("valid", "same", "did", "spared", "cost") if conversions else ("valid", "same", "cost")
    return Case(name, lambda: (build(),), about, expect=conversions)


def conv(channels: int, out: int) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(channels, out, 3, padding=1)


IMAGE = (2, 4, 6, 6)


@core
@layout_case("plain: a convolution and a ReLU", graph(..., IMAGE, one=conv(4, 8)), 2)
def plain(m: Any, x: Any) -> Any:
    return torch.relu(m.one(x))


@core
@layout_case("plain: there and back", graph(..., IMAGE, one=conv(4, 8), two=conv(8, 4), fc=lambda: nn.Linear(6, 6)), 4)
def plain_back(m: Any, x: Any) -> Any:
    return torch.sigmoid(m.two(torch.tanh(m.fc(torch.relu(m.one(x))))))


@layout_case("a chain", graph(..., IMAGE, one=conv(4, 8), two=conv(8, 4), bn=lambda: nn.BatchNorm2d(8)), 2)
def chain(m: Any, x: Any) -> Any:
    return m.two(torch.relu(m.bn(m.one(x))))


@layout_case(
    "a residual block and a classifier",
    graph(..., IMAGE, one=conv(4, 4), two=conv(4, 4), three=conv(4, 4), fc=lambda: nn.Linear(36, 5)),
    2,
)
def residual(m: Any, x: Any) -> Any:
    y = torch.relu(m.two(torch.relu(m.one(x))) + x)
    return m.fc(F.max_pool2d(m.three(y), 2).flatten(1))


@layout_case("most of it is not convolution", graph(..., IMAGE, IMAGE, IMAGE, one=conv(4, 4)), 2)
def late(m: Any, x: Any, y: Any, z: Any) -> Any:
    return torch.relu(m.one(x) + y) * z


nothing = layout_case("no convolution", graph(lambda m, x: torch.sigmoid(x) * x, IMAGE), 0)
