"""Day 1, shapes and dtypes without data: supported operations, visible cases, the watch on data, and the judge."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from passlab.exercises.day01._shared import TooMuch, excess, line, net
from passlab.fx.cases import seeded
from passlab.given.day01.propagate import Raised
from passlab.judge import Case, Finding
from passlab.judge.forms import why_not_names, why_not_of_type
from passlab.judge.words import shown

#: The supported operations. Everything else is an error that names the node.
FUNCTIONS = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul, operator.gt, operator.getitem,
    torch.relu, torch.matmul, torch.cat, torch.flatten, F.relu,
}  # fmt: skip
METHODS = {"relu", "view", "reshape", "transpose", "flatten", "chunk", "size", "sum", "mean", "argmax", "to", "float"}
MODULES = {nn.Linear, nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.ReLU, nn.Embedding, nn.LayerNorm}


def case(
    name: str, make: Callable[[], nn.Module], *inputs: tuple, about: tuple[str, ...] = ("valid", "did"), stop: str = ""
) -> Case:
    """Return a case. `inputs`: (shape, dtype) of each. `stop`: the node that cannot be worked out."""

    def build() -> tuple:
        gm = fx.symbolic_trace(seeded(make)())
        return (gm, *(torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in inputs))

    return Case(name, build, ("spared",) if stop else about, expect=stop)


def _vision() -> nn.Module:
    def forward(self, x):
        x = self.pool(self.act(self.norm(self.conv(x))))
        x = x.view(x.size(0), -1)
        return self.shift + self.fc(x)

    parts = dict(conv=nn.Conv2d(3, 4, 3, stride=2), norm=nn.BatchNorm2d(4), act=nn.ReLU(), pool=nn.MaxPool2d(2))
    return net(forward, **parts, fc=nn.Linear(16, 5), shift=nn.Parameter(torch.zeros(5)))


def _dtypes() -> nn.Module:
    def forward(self, tokens, scale):
        x = self.table(tokens) * scale
        left, right = x.chunk(2, dim=-1)
        best = left.argmax(-1) + 1
        half = tokens / 2
        return torch.cat([right, left], dim=1), best, half > 0.5

    return net(forward, table=nn.Embedding(10, 8))


def _unknown() -> nn.Module:
    def forward(self, x):
        x = self.linear(x)
        return torch.cumsum(x, 0).relu()

    return net(forward, linear=nn.Linear(4, 4))


def _unfit() -> nn.Module:
    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x)

    return net(forward, first=nn.Linear(4, 6), second=nn.Linear(5, 4))


def _huge() -> nn.Module:
    n = 1 << 17
    with torch.device("meta"):
        layer = nn.Linear(n, n)
    return net(lambda self, x: torch.relu(self.layer(x)).sum(0), layer=layer)


def cases() -> list[Case]:
    image = ((2, 3, 11, 11), torch.float32)
    return [
        case("a small convolution net", _vision, image),
        case("dtypes", _dtypes, ((2, 6), torch.int64), ((8,), torch.float16)),
        case("an operation that is not stated", _unknown, ((2, 4), torch.float32), stop="cumsum"),
        case("shapes that do not fit", _unfit, ((2, 4), torch.float32), stop="second"),
        case("no data: real weights", _vision, image, about=("cost",)),
        case("no data: 64 GiB of weights", _huge, ((1 << 17, 1 << 17), torch.float32), about=("cost",)),
    ]


def find_types(gm: fx.GraphModule, inputs: tuple) -> dict[str, tuple]:
    """Return name → (shape, dtype) of every node that returns a tensor, by torch's ShapeProp on a copy without data."""
    gm = copy.deepcopy(gm).to("meta")
    ShapeProp(gm).propagate(*inputs)
    metas = {node.name: node.meta.get("tensor_meta") for node in gm.graph.nodes if node.op != "output"}
    return {name: (tuple(meta.shape), meta.dtype) for name, meta in metas.items() if hasattr(meta, "dtype")}


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `did`: shape and dtype of every node. `spared`: an error at the right node. `cost`: no data computed."""
    gm, *inputs = case.build()
    if case.expect:
        yield _stopped(gm, case.expect, value)
        return
    if isinstance(value, TooMuch):
        yield excess(value, gm)
        return
    if isinstance(value, Raised):
        error = _first_line(value.error)
        message = f"Every operation here is supported, and all shapes fit, but your function raised {error}."
        yield Finding("valid", False, message, before=gm)
        return
    nodes = {node.name: node for node in gm.graph.nodes}
    broken = _why_not_types(value, nodes)
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    expected, message, name = find_types(gm, tuple(inputs)), "", None
    for name, (shape, dtype) in expected.items():
        at = line(gm, name)
        if name not in value:
            message = f"{name} returns a tensor but has no entry ({at})."
        elif tuple(value[name][0]) != shape:
            message = f"{name}: expected the shape {shape}, got {tuple(value[name][0])} ({at})."
        elif value[name][1] != dtype:
            message = f"{name}: expected {dtype}, got {value[name][1]} ({at})."
        if message:
            break
    if not message and (extra := [n for n in value if n not in expected]):
        name, message = extra[0], f"{extra[0]} has an entry but does not return a tensor ({nodes[extra[0]].op})."
    yield Finding("did", not message, message, before=gm, mark=(name,) if message else ())
    if "cost" in case.about:
        yield Finding("cost", not message)


def _stopped(gm: fx.GraphModule, stop: str, value: Any) -> Finding:
    """Check that the answer stopped with an error that names the node."""
    reason = (
        f"{stop} ({line(gm, stop)}) cannot be computed: it is not a supported operation, or its operands do not fit."
    )
    message = ""
    if not isinstance(value, Raised):
        message = f"{reason} Expected an error that names it, got a result; a guess here makes every later node wrong."
    elif stop not in (words := set(re.findall(r"\w+", value.error))):
        message = f"{reason} Your error does not name it: {_first_line(value.error)}."
    elif len(words & _elsewhere(gm, stop)) > 1:
        message = f"{reason} Your error names other nodes as well; name only the first that cannot be computed."
    return Finding("spared", not message, message, before=gm, mark=(stop,))


def _elsewhere(gm: fx.GraphModule, stop: str) -> set[str]:
    """Return the names of the operations that an error at node `stop` is not about.

    The operands of `stop` are left out, because torch's own message may mention them.
    """
    node_at_stop = next(node for node in gm.graph.nodes if node.name == stop)
    about = {node_at_stop, *node_at_stop.all_input_nodes}
    return {node.name for node in gm.graph.nodes if node.op.startswith("call_") and node not in about}


def _first_line(error: str) -> str:
    return error.strip().split("\n")[0][:200].rstrip(". ")


def _why_not_types(value: Any, nodes: dict) -> str:
    """Return why a value is not a dict from names of nodes to their types."""
    if reason := why_not_of_type(value, "a dict from node name to (shape, dtype)", dict):
        return reason
    if reason := why_not_names(value, nodes):
        return reason
    for name, entry in value.items():
        whole = isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], tuple | list)
        if not whole or not isinstance(entry[1], torch.dtype) or not all(isinstance(n, int) for n in entry[0]):
            return f"The entry of {name} must be like ((2, 3), torch.float32); it is {shown(entry)}."
    return ""
