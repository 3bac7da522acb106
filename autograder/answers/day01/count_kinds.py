"""Hidden cases and answers of day01.count-kinds."""

from __future__ import annotations

import math
from collections import Counter

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day01._shared import random_case, zoo_case
from autograder.authoring.answers import right, wrong
from passlab import view
from passlab.exercises.day01._shared import net, traced
from passlab.graph import KINDS
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _in_place() -> nn.Module:
    def forward(self, x, y):
        x = self.drop(F.relu(x * 2, inplace=True))
        x = self.tail(x).mul_(y)
        torch._assert(x.size(0) > 1, "more than one row")
        return torch.sigmoid_(x + y.shape[0]).contiguous(), F.relu(y, inplace=False).clone()

    return net(forward, drop=nn.Dropout(inplace=False), tail=nn.Sequential(nn.Flatten(), nn.Hardtanh(inplace=True)))


def _tuples() -> nn.Module:
    def forward(self, x):
        half, whole = x.to(torch.float16), x.to(torch.float64)
        a, b, c = half.split(2, -1)
        rows = torch.stack([a, b, c]).unflatten(1, (1, -1)).squeeze(1)
        return rows.expand(3, 2, 2), whole > 0, x.unsqueeze(0)[0], self.table

    return net(forward, table=torch.arange(5))


def _misleading() -> nn.Module:
    def forward(self, flatten, output):
        x = self.cat.chunk(flatten) + self.contiguous
        return self.add_(x), self.size(output), output.flatten().sum()

    parts = dict(cat=nn.ModuleDict({"chunk": nn.Linear(4, 4)}), add_=nn.Softplus(), size=nn.Flatten())
    return net(forward, **parts, contiguous=torch.ones(4))


def hidden(seed: int) -> list[Case]:
    plain = ("pointwise", "modules", "reduce", "conv", "names", "outputs", "dead")
    both = ("valid", "did")
    return [
        *(Case(f"random graph {i}", random_case(seed * 10 + i, 20, only=plain), both) for i in range(2)),
        Case("attention", zoo_case("attention"), both),
        Case("a network with a skip", zoo_case("skip"), both),
        Case("in place and not", traced(_in_place, (2, 4), (2, 4)), ("valid", "did", "spared")),
        Case("tuples, numbers, dtypes", traced(_tuples, (2, 6)), both),
        Case("misleading names", traced(_misleading, (2, 4), (2, 3)), ("valid", "spared")),
    ]


# ---------------------------------------------------------------------------------------------------- answers

SHAPE = "reshape view flatten unflatten transpose t permute expand squeeze unsqueeze cat stack chunk split size"
KIND_OF = dict.fromkeys([*SHAPE.split(), "getitem", "getattr"], "shape")
KIND_OF |= {"clone": "memory", "contiguous": "memory", "_assert": "control"}


def _called(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else node.target.__name__


def _kind(node: fx.Node, gm: fx.GraphModule) -> str:
    if node.op in ("placeholder", "get_attr", "output"):
        return "data"
    if node.op == "call_module":
        module = gm.get_submodule(node.target)
        return "memory" if getattr(module, "inplace", False) else "shape" if type(module) is nn.Flatten else "compute"
    if _called(node).endswith("_") or node.kwargs.get("inplace"):
        return "memory"
    return KIND_OF.get(_called(node), "compute")


def _metas(node: fx.Node) -> list:
    meta = node.meta.get("tensor_meta")
    if meta is None or node.op == "output":
        return []
    return [meta] if hasattr(meta, "shape") else list(meta)


def _bytes(node: fx.Node) -> int:
    return sum(math.prod(meta.shape) * meta.dtype.itemsize for meta in _metas(node))


def _count(gm, kind=_kind, size=_bytes, counted=lambda node: True):
    nodes, held = Counter(), Counter()
    for node in filter(counted, gm.graph.nodes):
        nodes[kind(node, gm)] += 1
        held[kind(node, gm)] += size(node)
    return {name: (nodes[name], held[name]) for name in KINDS}


@right("one table from names to kinds, and two Counters")
def by_table(gm):
    return _count(gm)


@right("reads kinds and bytes off the view that passlab draws")
def by_view(gm):
    counts = {kind: [0, 0] for kind in KINDS}
    for node in view(gm).nodes:
        counts[node.kind][0] += 1
        counts[node.kind][1] += node.bytes or 0
    return {kind: tuple(pair) for kind, pair in counts.items()}


@wrong("spared", "goes by a node's name, which says nothing about what it calls")
def by_name(gm):
    def kind(node, gm):
        if node.op in ("placeholder", "get_attr", "output"):
            return "data"
        return KIND_OF.get(node.name.rstrip("_0123456789"), "memory" if node.name.endswith("_") else "compute")

    return _count(gm, kind)


@wrong("spared", "takes the path of a module for the operation it does")
def by_target(gm):
    def kind(node, gm):
        if node.op == "call_module":
            return KIND_OF.get(node.target.split(".")[-1], "compute")
        return _kind(node, gm)

    return _count(gm, kind)


@wrong("did", "every module computes: nn.Flatten and modules that work in place are overlooked")
def modules_compute(gm):
    return _count(gm, lambda node, gm: "compute" if node.op == "call_module" else _kind(node, gm))


@wrong("did", "knows functions, and takes every method for compute")
def no_methods(gm):
    return _count(gm, lambda node, gm: "compute" if node.op == "call_method" else _kind(node, gm))


@wrong("did", "in place or not is not asked: relu_ and inplace=True are counted as compute")
def no_in_place(gm):
    def kind(node, gm):
        found = _kind(node, gm)
        by_table = node.op in ("call_function", "call_method") and KIND_OF.get(_called(node)) == "memory"
        return "compute" if found == "memory" and not by_table else found

    return _count(gm, kind)


@wrong("did", "takes four bytes for every element, whatever the dtype")
def four_bytes(gm):
    return _count(gm, size=lambda node: sum(4 * math.prod(meta.shape) for meta in _metas(node)))


@wrong("did", "of several tensors only the first is counted")
def first_of_tuple(gm):
    return _count(gm, size=lambda node: sum(math.prod(m.shape) * m.dtype.itemsize for m in _metas(node)[:1]))


@wrong("did", "counts what the output node hands out as if it were made there")
def output_has_bytes(gm):
    def size(node):
        if node.op != "output":
            return _bytes(node)
        return sum(map(_bytes, node.all_input_nodes))

    return _count(gm, size=size)


@wrong("did", "leaves out nodes that nobody reads, the output among them")
def only_read_nodes(gm):
    return _count(gm, counted=lambda node: node.users)


@wrong("valid", "kinds that do not occur are missing from the result")
def only_kinds_that_occur(gm):
    return {kind: pair for kind, pair in _count(gm).items() if pair[0]}
