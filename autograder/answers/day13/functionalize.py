"""Hidden cases and answers of day13.functionalize."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from autograder.authoring.answers import edited, right, something_to_do, wrong
from passlab.exercises.day13.functionalize import Tensor, case
from passlab.given.day13.functionalize import COMPUTES, VIEWS, aten, put_back
from passlab.judge import Case

WRITES = ("add_", "sub_", "mul_", "copy_")


def views(draw: random.Random, value: tuple) -> tuple:
    """Return a view of a value (Tensor, its shape), with its shape."""
    tensor, shape = value
    kind = draw.randrange(5)
    dim = draw.randrange(len(shape))
    if kind == 0 and len(shape) > 1:
        return tensor.select(dim, draw.randrange(shape[dim])), shape[:dim] + shape[dim + 1 :]
    if kind == 1 and shape[dim] > 1:
        start = draw.randrange(shape[dim] - 1)
        end = draw.randrange(start + 1, shape[dim] + 1)
        return tensor.slice(dim, start, end), (*shape[:dim], end - start, *shape[dim + 1 :])
    if kind == 2 and len(shape) == 2:
        return tensor.transpose(0, 1), shape[::-1]
    if kind == 3 and len(shape) < 3:
        dim = draw.randrange(len(shape) + 1)
        return tensor.unsqueeze(dim), (*shape[:dim], 1, *shape[dim:])
    return tensor.slice(dim, 0, shape[dim]), shape


def random_body(rng: random.Random) -> Any:
    """Return a function of x, y and row that views and writes."""
    seed = rng.randrange(2**31)

    def body(x: Tensor, y: Tensor, row: Tensor) -> tuple:
        draw = random.Random(seed)
        values = [(x, (3, 4), 0), (y, (3, 4), 1), (row, (4,), 2)]  # with the number of its memory
        for number in range(3, 3 + draw.randint(9, 12)):
            tensor, shape, memory = draw.choice(values[-5:] + values[:1])
            kind = draw.random()
            if kind < 0.45:
                values.append((*views(draw, (tensor, shape)), memory))
            elif kind < 0.75:
                # torch refuses operands that overlap with what is written
                fits = [other for other, size, of in values if size == shape and of != memory]
                other = draw.choice([*fits, 2, 0.5])
                name = draw.choice(WRITES if isinstance(other, Tensor) else WRITES[:3])
                values.append((getattr(tensor, name)(other), shape, memory))
            else:
                name, *operands = draw.choice([("neg",), ("relu",), ("mul", 3)])
                values.append((getattr(tensor, name)(*operands), shape, number))
        return tuple(tensor for tensor, *_ in draw.sample(values, 3))

    return body


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    draw = lambda: case("drawn", random_body(rng), "x", "y", "row")  # noqa: E731
    return [
        *(something_to_do("day13.functionalize", draw) for _ in range(6)),
        case("a smaller value, and one in float64", forms, "x", "y", "row", double=("y",)),
        case("an exchange", exchange, "x", "y"),
        case("one input by another's part", parts, "x", "z"),
        case("views made before and behind", before_and_behind, "x"),
        case("a view of a written view of a value", deep, "x"),
        case("a view of another view", cousins, "x"),
        case("a row copied to every row, and float64 to float32", filled, "x", "y", "row", double=("y",)),
        case("multiples are added and taken away", scaled, "x", "y"),
        case("nothing is written", pure, "x", "y", about=("valid", "same", "spared")),
        case("what a write returns is written", chained, "x", "y"),
        case("one value three times", thrice, "x"),
        case("an exchange, the other way round", exchange_back, "x", "y"),
        case("a loop of a thousand writes", loop, "x", about=("valid",)),
        case("float64 is added", lambda x, y: (x.add_(y),), "x", "y", double=("y",)),
        case("float64 is taken away", lambda x, y: (x.sub_(y),), "x", "y", double=("y",)),
        case("a row is multiplied by float64", row_in_float64, "x", "row", double=("row",)),
        case("a value of the graph's own is multiplied by float64", own_in_float64, "x", "y", double=("y",)),
        case("integers of two sizes", integers, "x", "y", integers={"x": torch.int32, "y": torch.int64}),
        case("every second row is written", second_rows, "x"),
        case("a dimension more behind the others", column, "x"),
    ]


def forms(x: Tensor, y: Tensor, row: Tensor) -> tuple:
    x.mul_(y)
    x.select(0, 1).copy_(row)
    y.add_(row)
    x.transpose(0, 1).slice(0, 0, 2).sub_(2)
    return x.relu(), y


def row_in_float64(x: Tensor, row: Tensor) -> tuple:
    x.select(0, 1).mul_(row)
    return (x.relu(),)


def own_in_float64(x: Tensor, y: Tensor) -> tuple:
    a = x.relu()
    a.mul_(y)
    return (a,)


def integers(x: Tensor, y: Tensor) -> tuple:
    x.add_(y)
    return (x.neg(),)


def second_rows(x: Tensor) -> tuple:
    rows = x.slice(0, 0, 3, 2)
    rows.mul_(3)
    return (x.neg(),)


def column(x: Tensor) -> tuple:
    x.unsqueeze(2).mul_(3)
    return (x.neg(),)


def cousins(x: Tensor) -> tuple:
    columns = x.transpose(0, 1)
    two = columns.slice(0, 0, 2)
    x.select(0, 1).neg_()
    return columns, two.mul(2)


def filled(x: Tensor, y: Tensor, row: Tensor) -> tuple:
    a = x.mul(2)
    a.copy_(row)
    x.copy_(y)
    return a.relu(), x.mul(3)


def scaled(x: Tensor, y: Tensor) -> tuple:
    x.select(0, 0).add_(y.select(0, 1), alpha=3)
    y.sub_(x, alpha=-2)
    return (x.mul(y),)


def exchange(x: Tensor, y: Tensor) -> tuple:
    old = x.mul(1)
    x.copy_(y)
    y.copy_(old)
    y.select(1, 0).copy_(x.select(1, 1))
    return (x.sub(y),)


def exchange_back(x: Tensor, y: Tensor) -> tuple:
    y.neg_()
    old = y.mul(1)
    y.copy_(x)
    x.copy_(old)
    return y, x


def loop(x: Tensor) -> tuple:
    a = x
    for _ in range(1000):
        a = a.neg_()
    return (a.mul(2),)


def parts(x: Tensor, z: Tensor) -> tuple:
    column = z.select(1, 0)
    x.select(0, 0).copy_(column)
    z.transpose(0, 1).slice(0, 1, 3).add_(x.slice(0, 0, 2))
    return column, x.slice(1, 1, 3)


def before_and_behind(x: Tensor) -> tuple:
    flat = x.view([12])
    doubled = flat.mul(2)
    x.select(0, 2).neg_()
    rows = x.view([2, 6])
    flat.slice(0, 3, 9).add_(doubled.slice(0, 0, 6))
    return rows, doubled, flat.select(0, 8)


def deep(x: Tensor) -> tuple:
    a = x.mul(2)
    b = a.unsqueeze(0).transpose(1, 2).select(0, 0).slice(0, 1, 3)
    c = b.add_(1)
    c.select(1, 0).mul_(5)
    return b, a.view([2, 6])


def pure(x: Tensor, y: Tensor) -> tuple:
    return x.add(y).relu(), x.select(0, 1)


def chained(x: Tensor, y: Tensor) -> tuple:
    a = x.add_(1).mul_(2)
    b = a.slice(1, 0, 2).neg_()
    return a.sub(y), b, x


def thrice(x: Tensor) -> tuple:
    a = x.mul(1)
    results = []
    for at in range(3):
        a.select(0, at).add_(a.select(0, (at + 1) % 3))
        results.append(a.mul(at + 1))
    return *results, a


# ---------------------------------------------------------------------------------------------------- answers


def _climb(graph, values, base, into, value, levels):
    """Give what is written its value, and so on up the views, as many as `levels`; return the last node on the way."""
    while into is not base[into]:
        values[into] = value
        if into.target in VIEWS:
            if not levels:
                return into
            value, levels = put_back(graph, into, values[into.args[0]], value), levels - 1
        into = into.args[0]
    values[into] = value
    return into


def _anew(graph, view, whole):
    """Make a view of new memory; the result of a write is that memory itself."""
    return whole if view.target in COMPUTES else graph.call_function(view.target, (whole, *view.args[1:]))


def _made_anew(gm, again=True, levels=99, form=True, at_once=False, linked=True, deep=True):
    """Return a functional graph: after each write, all views of the memory are made anew (`again`)."""
    graph, values, base, views, start = fx.Graph(), {}, {}, [], {}
    for node in gm.graph.nodes:
        if node.target in VIEWS:
            base[node] = base[node.args[0]]
            views.append(node)
            values[node] = graph.node_copy(node, values.__getitem__)
        elif node.target in COMPUTES:
            into = node.args[0]
            value = graph.call_function(COMPUTES[node.target], map_arg(node.args, values.__getitem__), node.kwargs)
            value = graph.call_function(aten.copy.default, (values[into], value)) if form else value
            base[node] = base[into] if linked else node
            values[node] = value
            into = _climb(graph, values, base, into, value, levels)
            value = values[into]
            if at_once and into in start:
                graph.call_function(aten.copy_.default, (start[into], value))
            views += [node] * linked
            for view in views if again else ():
                if base[view] is into and (deep or view.args[0] is into):
                    values[view] = _anew(graph, view, values[view.args[0]])
        elif node.op == "output":
            for target, first in start.items():
                if values[target] is not first and not at_once:
                    graph.call_function(aten.copy_.default, (first, values[target]))
            graph.node_copy(node, values.__getitem__)
        else:
            base[node] = node
            values[node] = graph.node_copy(node, values.__getitem__)
            if node.op == "placeholder":
                start[node] = values[node]
    return fx.GraphModule(gm, graph)


@right("after each write, makes all views of the memory anew")
def eager(gm):
    return _made_anew(gm)


class _Memory:
    """The graph while it is edited, and the value of each memory that was written so far."""

    def __init__(self, graph):
        self.graph, self.current = graph, {}
        self.up = {n: n.args[0] for n in graph.nodes if n.target in VIEWS or n.target in COMPUTES}

    def root(self, node):
        while node in self.up:
            node = self.up[node]
        return node

    def views(self, node):
        """Return the views on the way from a node up to its memory."""
        views = []
        while node in self.up:
            views += [node] * (node.target in VIEWS)
            node = self.up[node]
        return views

    def read(self, node):
        value = self.current.get(self.root(node), self.root(node))
        for view in reversed(self.views(node)):
            value = self.graph.call_function(view.target, (value, *view.args[1:]))
        return value

    def write(self, node):
        into = self.read(node.args[0])
        operands = [self.read(a) if isinstance(a, fx.Node) else a for a in node.args[1:]]
        value = self.graph.call_function(COMPUTES[node.target], (into, *operands), node.kwargs)
        value = self.graph.call_function(aten.copy.default, (into, value))
        for view in self.views(node.args[0]):
            value = put_back(self.graph, view, self.read(self.up[view]), value)
        self.current[self.root(node)] = value


@right("edits the graph: each write becomes a value, and what comes behind it reads that value")
def in_place(gm):
    nodes, memory = list(gm.graph.nodes), _Memory(gm.graph)
    for node in nodes:
        if node.op == "placeholder" or node.target in VIEWS:
            continue
        with gm.graph.inserting_before(node):
            if node in memory.up:
                memory.write(node)
                continue
            args = map_arg(node.args, memory.read)
            if node.op == "output":
                for place, value in memory.current.items():
                    if place.op == "placeholder":
                        gm.graph.call_function(aten.copy_.default, (place, value))
            node.args = args
    for node in reversed(nodes):
        if node in memory.up:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@wrong("same", "knows the way up from a view, and forgets the other views of the same memory")
def old_views(gm):
    return _made_anew(gm, again=False)


@wrong("same", "puts a value back into what a view looks into, and not further up")
def one_level(gm):
    return _made_anew(gm, levels=1)


@wrong("did", "copies into an input at once, behind each write")
def at_once(gm):
    return _made_anew(gm, at_once=True)


@wrong("same", "takes what a write returns for a value of its own, not for its operand")
def a_new_value(gm):
    return _made_anew(gm, linked=False)


@wrong("same", "makes anew the views of the written memory, but not the views of these")
def shallow(gm):
    return _made_anew(gm, deep=False)


no_keywords = edited("same", "forgets the keywords of a write")(("node.kwargs", "{}"))
copied_as_it_is = edited("same", "takes what is copied for the new value, in its own shape and dtype")(
    (
        "graph.call_function(aten.copy.default, (into, value))",
        "others[0] if node.target is aten.copy_.default else graph.call_function(aten.copy.default, (into, value))",
    )
)
any_form = edited("same", "gives a new value the shape and the dtype that it happens to have")(
    ("graph.call_function(aten.copy.default, (into, value))", "value")
)
FIT = "graph.call_function(aten.copy.default, (into, value))"
FORGETS = "gives a new value the dtype that it happens to have, {}"
form_of_products = edited("same", FORGETS.format("but for products and copies"))(
    (FIT, f"{FIT} if node.target in (aten.mul_.Tensor, aten.copy_.default) else value")
)
form_of_inputs = edited("same", FORGETS.format("but in an input as a whole"))(
    (FIT, f"{FIT} if node.args[0].op == 'placeholder' or node.target is aten.copy_.default else value")
)
form_of_floats = edited("same", FORGETS.format("but for floats"))(
    (FIT, f"{FIT} if node.meta['tensor_meta'].dtype.is_floating_point else value")
)
FIRST = "value = put_back(graph, node, read(seen[node]), value)"
whole_slices = edited("same", "puts a part back as if no slice left elements out")(
    (
        FIRST,
        "value = put_back(graph, node, read(seen[node]), value) if node.target is not aten.slice.Tensor else "
        "graph.call_function(aten.slice_scatter.default, (read(seen[node]), value, *node.args[1:4]))",
    )
)
first_dimension = edited("same", "takes a dimension that was added for the first")(
    (
        FIRST,
        "value = put_back(graph, node, read(seen[node]), value) if node.target is not aten.unsqueeze.default else "
        "graph.call_function(aten.select.int, (value, 0, 0))",
    )
)
source_itself = edited(
    "same", "takes what is copied for the new value: the epilogue has written into it by the time it is read"
)(
    (
        "graph.call_function(aten.copy.default, (into, value))",
        """
        others[0]
        if node.target is aten.copy_.default and all(
            getattr(node.args[1].meta["tensor_meta"], a) == getattr(node.meta["tensor_meta"], a)
            for a in ("shape", "dtype")
        )
        else graph.call_function(aten.copy.default, (into, value))
        """,
    )
)
no_epilogue = edited("same", "forgets the epilogue: the inputs keep their old values")(
    ("graph.call_function(aten.copy_.default, (own, now[base]))", "pass")
)
copies_everything = edited("spared", "copies into all inputs, written or not")(("now[base] is not own", "True"))
returns_nothing = edited("valid", "forgets to return the graph")(("return fx.GraphModule(gm, graph)", "pass"))


@wrong("valid", "goes from write to write, calling itself: a loop has too many for that")
def recursive(gm):
    up = {node: node.args[0] for node in gm.graph.nodes if node.target in COMPUTES}

    def root(node):
        return root(up[node]) if node in up else node

    for node in up:
        root(node)
    return _made_anew(gm)


@wrong("same", "replaces all reads of what is written, those before the write, too")
def too_early(gm):
    for node in list(gm.graph.nodes):
        if node.target in COMPUTES and node.args[0].op == "placeholder":
            first = next(n for n in gm.graph.nodes if n.op != "placeholder")
            if all(getattr(a, "op", "") in ("", "placeholder") for a in node.args):
                first.prepend(node)
    return _made_anew(gm)


@wrong("valid", "lets torch's exporter make a graph without writes")
def by_export(gm):
    notes = [node.meta["tensor_meta"] for node in gm.graph.find_nodes(op="placeholder")]
    inputs = tuple(torch.ones(note.shape, dtype=note.dtype) for note in notes)
    return torch.export.export(gm, inputs).run_decompositions({}).module()
