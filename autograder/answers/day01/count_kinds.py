"""Hidden cases and answers of day01.count-kinds."""

from __future__ import annotations

import math
from collections import Counter

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day01._shared import random_case, zoo_case
from autograder.authoring.answers import edited, right, wrong
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


def _named_like_in_place() -> nn.Module:
    def forward(self, x, y):
        mask = (x > 0) & (y > 0) | ~(x > 1)
        a, b = x.chunk(2, -1)[0], x.split(3, -1)
        return mask, self.rows(x), y.view(-1), a * 2, b[1], torch.chunk(y, 4, -1)

    return net(forward, rows=nn.Unflatten(1, (5, 1)))


def _shapes_in_place() -> nn.Module:
    def forward(self, x):
        y = (x * 2).unsqueeze_(0).transpose_(1, 2)
        return y.squeeze_(0).t_() + 1, torch.clone(x).unsqueeze(0)

    return net(forward)


def _misleading() -> nn.Module:
    def forward(self, flatten, output):
        x = self.cat.chunk(flatten) + self.contiguous
        return self.add_(x), self.size(output), output.flatten().sum()

    parts = dict(cat=nn.ModuleDict({"chunk": nn.Linear(4, 4)}), add_=nn.Softplus(), size=nn.Flatten())
    return net(forward, **parts, contiguous=torch.ones(4))


def _misleading_nodes() -> tuple:
    graph = fx.Graph()
    x = graph.placeholder("x")
    z = graph.create_node("call_function", torch.neg, (x,), name="reshape")
    graph.output(graph.create_node("call_method", "cos", (z,), name="cat"))
    gm = fx.GraphModule(nn.Module(), graph)
    fx.passes.shape_prop.ShapeProp(gm).propagate(torch.randn(2, 4))  # tracing would give the nodes other names
    return (gm,)


def _every_word() -> nn.Module:
    def forward(self, x):
        a = torch.t(x.t()).view(2, 6).unflatten(1, (2, 3)).transpose(0, 1)
        b = torch.unflatten(torch.flatten(a.flatten(1).reshape(-1), 0), 0, (3, 4))
        c = torch.permute(torch.transpose(b, 0, 1), (1, 0)).permute(1, 0).expand(2, 4, 3)
        d = torch.squeeze(torch.unsqueeze(c.squeeze(0).unsqueeze(0), 0), 0)
        e = torch.clone(torch.stack([torch.cat([d[0][0], d[0][1]]), torch.reshape(d, (8, 3))]))
        parts = torch.chunk(e, 2)[0], torch.split(e, 1)[1], e.chunk(2)[1], e.split(1)[0]
        return parts, e.size(0), e.contiguous(), e.clone()

    return net(forward)


def hidden(seed: int) -> list[Case]:
    plain = ("pointwise", "modules", "reduce", "conv", "names", "outputs", "dead")
    both = ("valid", "did")
    return [
        *(Case(f"random graph {i}", random_case(seed * 10 + i, 20, only=plain), both) for i in range(2)),
        Case("attention", zoo_case("attention"), both),
        Case("a network with a skip", zoo_case("skip"), both),
        Case("in place and not", traced(_in_place, (2, 4), (2, 4)), ("valid", "did", "spared")),
        Case("tuples, numbers, dtypes", traced(_tuples, (2, 6)), both),
        Case("operators, uneven pieces", traced(_named_like_in_place, (2, 5), (2, 5)), ("valid", "did", "spared")),
        Case("every word, as function and method", traced(_every_word, (2, 6)), ("valid", "did", "spared")),
        Case("shapes, in place", traced(_shapes_in_place, (2, 4)), ("valid", "did", "spared")),
        Case("nodes named after what they do not do", _misleading_nodes, ("valid", "spared")),
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
        moves = isinstance(module, nn.Flatten | nn.Unflatten)
        return "memory" if getattr(module, "inplace", False) else "shape" if moves else "compute"
    in_torch = getattr(node.target, "__module__", "") != "_operator"
    if (_called(node).endswith("_") and in_torch) or node.kwargs.get("inplace"):
        return "memory"
    return KIND_OF.get(_called(node), "compute")


def _count(gm, kind):
    nodes, kinds = Counter(), Counter()
    for node in gm.graph.nodes:
        meta = None if node.op == "output" else node.meta.get("tensor_meta")
        nodes[kind(node, gm)] += 1
        for part in [meta] if hasattr(meta, "shape") else meta or ():
            kinds[kind(node, gm)] += math.prod(part.shape) * part.dtype.itemsize
    return {name: (nodes[name], kinds[name]) for name in KINDS}


@right("one table from names to kinds, and two Counters")
def by_table(gm):
    return _count(gm, _kind)


@wrong("valid", "reads kinds and bytes off the view that passlab draws, which is closed")
def by_view(gm):
    counts = {kind: [0, 0] for kind in KINDS}
    for node in view(gm).nodes:
        counts[node.kind][0] += 1
        counts[node.kind][1] += node.bytes or 0
    return {kind: tuple(pair) for kind, pair in counts.items()}


@right("adds up kinds and bytes in two sweeps, with bytes from empty tensors")
def in_two_sweeps(gm):
    counts = Counter(_kind(node, gm) for node in gm.graph.nodes)
    kinds = Counter()
    for node in gm.graph.nodes:
        meta = node.meta.get("tensor_meta", ()) if node.op != "output" else ()
        for part in [meta] if hasattr(meta, "dtype") else meta:
            kinds[_kind(node, gm)] += torch.empty(part.shape, dtype=part.dtype, device="meta").nbytes
    return {kind: (counts[kind], kinds[kind]) for kind in KINDS}


@wrong("spared", "goes by a node's name or a module's path, not by what it calls, or takes every module for compute")
def by_name(gm):
    def kind(node, gm):
        if node.op in ("placeholder", "get_attr", "output"):
            return "data"
        return KIND_OF.get(node.name.rstrip("_0123456789"), "memory" if node.name.endswith("_") else "compute")

    return _count(gm, kind)


only_methods_store = edited("did", "takes torch.clone, the function, for compute")(
    ('name in ("clone", ...)', 'name in ("clone", ...) and node.op == "call_method"')
)
no_methods = edited("did", "knows functions, and takes every method for compute")(
    ("node.target if ... else ...", '"" if ... else ...')
)
no_in_place = edited(
    "did", "does not ask whether a node works in place: relu_ and inplace=True are counted as compute"
)(('getattr(module, "inplace", False)', "False"), ('named_so or node.kwargs.get("inplace") or ...', "..."))
four_bytes = edited("did", "takes four bytes for every element, whatever the dtype")(("meta.dtype.itemsize", "4"))
first_of_tuple = edited("did", "counts only the first of several tensors")(("sum(map(size, meta))", "size(meta[0])"))
output_has_bytes = edited("did", "counts what the output node returns as if it were made there")(
    (
        '0 if node.op == "output" else ...',
        'sum(size(n.meta.get("tensor_meta")) for n in node.all_input_nodes) if node.op == "output" else ...',
    )
)
only_read_nodes = edited("did", "leaves out unused nodes, the output among them")(
    ("gm.graph.nodes", "(n for n in gm.graph.nodes if n.users)")
)
by_node_name = edited("spared", "goes by a node's name, not by what it calls")(
    ("name in shapes", 'name in shapes or node.name.split("_")[0] in shapes')
)
shapes_before_memory = edited("spared", "asks for shape before memory: squeeze_ is counted as shape")(
    ("named_so or ...", '(named_so and name.rstrip("_") not in shapes) or ...'),
    ('"shape" if name in shapes else ...', '"shape" if name.rstrip("_") in shapes else ...'),
)
erases = edited("valid", "erases the nodes that it has counted")(
    ("return counts", "for node in reversed(gm.graph.nodes):\n    gm.graph.erase_node(node)\nreturn counts")
)
only_kinds_that_occur = edited("valid", "leaves out kinds that do not occur")(
    ("return counts", "return {kind: pair for kind, pair in counts.items() if pair[0]}")
)
