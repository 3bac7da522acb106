"""Hidden cases and answers of day04.chains.

Many wrong answers are the reference with one rule changed or left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day04.chains import chains_case
from passlab.fx.cases import graph, read, store
from passlab.fx.effects import effects, written
from passlab.fx.patterns import Pattern, canonical, pattern
from passlab.judge import Case, cases_in

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Steps (tensor, tensor) → tensor: the first are element-wise, the others are between groups.
POINTWISE: tuple[Callable[[Any, fx.Proxy, fx.Proxy], fx.Proxy], ...] = (
    lambda m, x, y: torch.relu(x),
    lambda m, x, y: torch.tanh(x),
    lambda m, x, y: x.sigmoid(),
    lambda m, x, y: m.act(x),
    lambda m, x, y: x * 0.5,
    lambda m, x, y: 1 - x,
    lambda m, x, y: x + y,
    lambda m, x, y: torch.maximum(x, y),
    lambda m, x, y: x * m.row,
    lambda m, x, y: y + m.col,
)
OTHERS: tuple[Callable[[Any, fx.Proxy, fx.Proxy], fx.Proxy], ...] = (
    lambda m, x, y: x - x.amax(1, keepdim=True),
    lambda m, x, y: torch.softmax(x, 1),
    lambda m, x, y: x.reshape(-1).reshape(4, 6),
    lambda m, x, y: torch.cat([x[:, :3], y[:, 3:]], 1),
    lambda m, x, y: x @ m.w,
    lambda m, x, y: torch.cumsum(x, 1) * 0.25,
)
PARTS = {"row": (6,), "col": (4, 1), "w": (6, 6), "act": nn.SiLU}


def random_chains(seed: int, steps: int, others: float) -> Callable[[], fx.GraphModule]:
    """Return a random graph of `steps` steps, a share of `others` among them; unused values are returned."""

    def body(m: Any, x: fx.Proxy, y: fx.Proxy) -> Any:
        rng, values = random.Random(seed), [x, y]
        for _ in range(steps):
            step = rng.choice(OTHERS if rng.random() < others else POINTWISE)
            values.append(step(m, *(values[max(0, len(values) - 1 - int(rng.expovariate(0.7)))] for _ in range(2))))
        ends = [v for v in values[2:] if not v.node.users]
        return tuple(ends + rng.sample(values[2:-1], 1)) if rng.random() < 0.5 else tuple(ends)

    return graph(body, (4, 6), (4, 6), **PARTS)


ALL_THREE = ("did", "spared", "cost")


def ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
    for _ in range(4):
        x = torch.relu(x) * 0.5 + x
    return x


def long(m: Any, x: fx.Proxy) -> fx.Proxy:
    for at in range(60):
        x = torch.sin(x) if at % 2 else x + 0.25
    return x


def two_groups_read_it(m: Any, x: fx.Proxy) -> tuple:
    a = torch.exp(-x)
    return (torch.relu(a) + 1).sum(1), torch.tanh(a * 2).amax(1)


def comes_back(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x * 0.5)
    return torch.relu(a / a.sum(1, keepdim=True) - a)


def shapes(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu((torch.exp(x) * 2).t() + 1) * 3


def through_a_view(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    a = torch.tanh(x + 1)
    y.view(-1).mul_(2)
    return y * a, torch.sigmoid(a) * 2


def stored(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.exp(x) * 2
    z = torch.relu(torch.add(input=y, other=0.5))
    store(y, 0, 0.0)
    return torch.neg(z + 1)


def input_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.relu(x) * 2
    x.add_(1)
    return torch.tanh(a + 1) * 0.5


def parameter_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = (x * m.b).sigmoid() * 2
    read(x, "b").add_(1)
    return torch.tanh(a + 1) * 0.5


def many_operands(m: Any, x: fx.Proxy) -> fx.Proxy:
    for number in range(14):
        x = x + getattr(m, f"b{number}")
    return x


def in_place(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.relu(torch.exp(x + 1) * 2, inplace=True).sigmoid() - 1


def draws(m: Any, x: fx.Proxy) -> fx.Proxy:
    noise = torch.rand_like(x) * 0.1 + 1
    return torch.relu(m.off(x * noise)) - m.on(torch.tanh(x))


def whole_numbers(m: Any, n: fx.Proxy) -> tuple:
    return torch.maximum(n * 3 - 1, n) + n, (n > 1).logical_not()


def casts(m: Any, x: fx.Proxy) -> fx.Proxy:
    return (x.half() * 2 + 1).float() * x


def masks(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.where((x > 0).logical_and(x < 1), x, -x).clamp(-2, 2)


def gelu(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x @ m.w + m.b
    return (0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y**3)))) @ m.v


def norm(m: Any, x: fx.Proxy) -> fx.Proxy:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(1, keepdim=True) + 1e-5) * m.b + m.b


def constants(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * torch.exp(m.b * 2) + torch.relu(m.b)


def returned_first(m: Any, x: fx.Proxy) -> tuple:
    a = x + 1
    b = torch.relu(a)
    return b, torch.exp(b) * a


def dead(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.relu(x * 2)
    torch.tanh(a) + 1
    return torch.exp(a) - 1


def two_hundred(m: Any, x: fx.Proxy) -> fx.Proxy:
    for _ in range(100):
        x = torch.sin(x) + x
    return x


def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(x * 2) * (x.size(0) * 2 + 1)


def read_by_name(m: Any, x: fx.Proxy) -> tuple:
    a = torch.relu(x * 2)
    return torch.tanh(a) + 1, torch.cumsum(input=a, dim=1)


def nested(m: Any, x: fx.Proxy) -> dict:
    a = torch.relu(x * 2)
    return {"ends": [torch.tanh(a) + 1], "rest": {"a": a}}


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    rows, columns = rng.randint(2, 9), rng.randint(2, 9)
    shape = (rows, columns)
    parts = {"w": (columns, 4), "v": (4, columns), "b": (columns,)}
    return [
        *cases_in(__name__),
        chains_case("a ladder", graph(ladder, shape), "did", "cost"),
        chains_case("sixty in a row", graph(long, shape), "did", "cost", built=False),
        chains_case("read by two groups", graph(two_groups_read_it, shape), *ALL_THREE),
        chains_case("a value that leaves and comes back", graph(comes_back, shape), *ALL_THREE),
        chains_case("a transpose in the middle", graph(shapes, shape), *ALL_THREE),
        chains_case("written through a view", graph(through_a_view, shape), *ALL_THREE),
        chains_case("stored into", graph(stored, shape), *ALL_THREE),
        chains_case("an input is written", graph(input_written, shape), *ALL_THREE),
        chains_case("a parameter is written", graph(parameter_written, shape, b=(columns,)), *ALL_THREE),
        chains_case(
            "fifteen operands",
            graph(many_operands, shape, **{f"b{number}": (columns,) for number in range(14)}),
            *("did", "cost"),
            built=False,
        ),
        chains_case("a relu in place", graph(in_place, shape), *ALL_THREE),
        chains_case(
            "draws", graph(draws, shape, training=True, on=nn.Dropout, off=lambda: nn.Dropout(0.0)), *ALL_THREE
        ),
        chains_case("whole numbers", graph(whole_numbers, torch.arange(rows)), *ALL_THREE, built=False),
        chains_case("casts", graph(casts, shape), "did", "cost", built=False),
        chains_case("masks", graph(masks, shape), "did", "cost", built=False),
        chains_case("GELU between products", graph(gelu, shape, **parts | {"b": (4,)}), *ALL_THREE, built=False),
        chains_case("a layer norm", graph(norm, shape, b=(columns,)), *ALL_THREE, built=False),
        chains_case("constants", graph(constants, shape, b=(columns,)), "did", "cost", built=False),
        chains_case("the first one is returned", graph(returned_first, shape), *ALL_THREE),
        chains_case("an unused value", graph(dead, shape), *ALL_THREE),
        chains_case("an empty tensor", graph(comes_back, (0, columns)), *ALL_THREE),
        *(
            chains_case(
                f"generated, number {at + 1}",
                random_chains(rng.randrange(10**6), rng.randint(8, 16), others),
                *ALL_THREE,
                built=at < 1,
            )
            for at, others in enumerate((0.0, 0.2, 0.4, 0.1, 0.2, 0.3, 0.4))
        ),
        chains_case("two hundred in a row", graph(two_hundred, shape), "did", "cost", built=False),
        chains_case("arithmetic of sizes", graph(sizes, shape), *ALL_THREE, built=False),
        chains_case("read by name outside", graph(read_by_name, shape), *ALL_THREE),
        chains_case("returned in a dictionary", graph(nested, shape), *ALL_THREE),
    ]


EQUIVALENT = {
    ("len(group) > 1", "True"): "groups of one may be left out",
    ("len(group) > 1", "len(group) >= 1"): "groups of one may be left out",
}

# ---------------------------------------------------------------------------------------------------- answers


def _fits(gm):
    """Return the operations that may be in a group."""
    touched = written(gm.graph)
    return {
        n for n in gm.graph.nodes if pattern(n) <= Pattern.BROADCAST and touched.isdisjoint([n, *n.all_input_nodes])
    }


def _grouped(gm, last):
    groups = {}
    for n in gm.graph.nodes:
        if n in last:
            groups.setdefault(last[n], []).append(n.name)
    return [group for group in groups.values() if len(group) > 1]


@right("begins with groups of one, and merges two for as long as that gives one result")
def merging(gm):
    fits = _fits(gm)
    groups = [{n} for n in gm.graph.nodes if n in fits]
    progress = True
    while progress:
        progress = False
        for group in groups:
            readers = {r for n in group for r in n.users} - group
            whole = next((g for g in groups if g is not group and readers and readers <= g), None)
            if whole is not None:
                whole |= group
                groups.remove(group)
                progress = True
                break
    order = [n.name for n in gm.graph.nodes]
    return [sorted((n.name for n in g), key=order.index) for g in groups]


def _grown(gm, fits):
    groups, members = [], set()
    for end in reversed(gm.graph.nodes):
        if end not in fits or end in members:
            continue
        group, grown = {end}, True
        while grown:
            below = {a for n in group for a in n.all_input_nodes} - group
            grown = {a for a in below if a in fits and a.users and set(a.users) <= group}
            group |= grown
        members |= group
        groups.append(tuple(n.name for n in gm.graph.nodes if n in group))
    return groups


@right("a walk from every node that ends a group to what it reads, again and again; groups of one listed, too")
def growing(gm):
    return _grown(gm, _fits(gm))


@wrong("cost", "only values with one reader: what is read twice inside ends the group")
def one_reader(gm):
    fits, last = _fits(gm), {}
    for n in reversed(gm.graph.nodes):
        if n in fits:
            readers = list(n.users)
            last[n] = last[readers[0]] if len(readers) == 1 and readers[0] in fits else n
    return _grouped(gm, last)


first_reader = edited("spared", "joins a node with its first reader, although others read it, too")(
    ("{last.get(reader) for reader in node.users}", "{last.get(next(iter(node.users), None))}")
)


@wrong("spared", "everything that is connected by element-wise operations is one group: values leave the middle")
def connected(gm):
    fits, last = _fits(gm), {}
    for n in gm.graph.nodes:
        if n in fits:
            near = [last[a] for a in n.all_input_nodes if a in last]
            last[n] = n
            last = {m: n if end in near else end for m, end in last.items()}
    return _grouped(gm, last)


memory_unseen = edited("spared", "forgets memory: fuses readers of a value that the program writes into")(
    ("written(gm.graph),", "set(),")
)
inputs_unseen = edited("spared", "forgets that the program may write into its inputs: their readers are in groups")(
    ("written(gm.graph),", '{node for node in written(gm.graph) if node.op != "placeholder"},')
)
parameters_unseen = edited(
    "spared", "forgets that the program may write into its parameters: their readers are in groups"
)(("written(gm.graph),", '{node for node in written(gm.graph) if node.op != "get_attr"},'))
few_operands = edited("did", "leaves out a group that reads more than eight values from outside")(
    (
        "len(group) > 1",
        "len(group) > 1 and "
        "len({a for n in gm.graph.nodes if n.name in group for a in n.all_input_nodes}) < 8 + len(group)",
    )
)
all_patterns = edited("spared", "fuses reductions and reshapes, too: all up to COMM_REDUCE")(
    ("Pattern.BROADCAST", "Pattern.COMM_REDUCE")
)


@wrong("spared", "goes by names, and forgets effects: a dropout that draws and a relu in place are in groups")
def by_name(gm):
    names = ("dropout", "relu", "rand_like", "add_")
    return _grown(gm, {n for n in gm.graph.nodes if pattern(n) <= Pattern.BROADCAST or canonical(n) in names})


@wrong("spared", "goes by names: `x.size(0) * 2`, a product of numbers, is in a group as if it were one of tensors")
def numbers_too(gm):
    touched = written(gm.graph)
    names = {canonical(n) for n in _fits(gm)} | {"add", "mul"}
    calls = (n for n in gm.graph.nodes if n.op.startswith("call_") and not effects(n))
    return _grown(gm, {n for n in calls if canonical(n) in names and touched.isdisjoint([n, *n.all_input_nodes])})


@wrong("spared", "looks for readers among positional operands: one that gets the value by name is missed")
def positional_readers(gm):
    fits, readers, last = _fits(gm), {n: set() for n in gm.graph.nodes}, {}
    for n in gm.graph.nodes:
        fx.node.map_arg(n.args, lambda a, n=n: readers[a].add(n))
    for n in reversed(gm.graph.nodes):
        if n in fits:
            ends = {last.get(r) for r in readers[n]}
            last[n] = ends.pop() if len(ends) == 1 and None not in ends else n
    return _grouped(gm, last)


@wrong("spared", "sees what is returned alone or in a flat tuple, not what is in a list or a dictionary in it")
def flat_outputs(gm):
    fits, last = _fits(gm), {}
    [value] = gm.graph.output_node().args
    returned = value if isinstance(value, tuple | list) else [value]
    returned = {n for n in returned if isinstance(n, fx.Node)}
    for n in reversed(gm.graph.nodes):
        if n in fits:
            ends = {last.get(r) for r in n.users if r.op != "output"} | ({None} if n in returned else set())
            last[n] = ends.pop() if len(ends) == 1 and None not in ends else n
    return _grouped(gm, last)


hundred_at_most = edited("cost", "begins a new group after a hundred operations")(
    (
        "[group for group in ... if ...]",
        "[group[at : at + 100] for group in groups.values() for at in range(0, len(group), 100) if len(group) > 1]",
    )
)
no_broadcast = edited(
    "did", "only operations whose operands all have the shape of the result: broadcasting ends a group"
)(
    (
        "pattern(node) <= ...",
        'pattern(node) <= ... and len({n.meta["tensor_meta"].shape for n in [node, *node.all_input_nodes]}) == 1',
    )
)
element_wise_alone = edited("did", "ELEMWISE alone: no sums and no products")(("Pattern.BROADCAST", "Pattern.ELEMWISE"))
pairs = edited("did", "pairs: each operation with the next one, and then it stops")(
    ("[group for group in ... if ...]", "[group[:2] for group in ... if ...]")
)


nodes_themselves = edited("valid", "gives nodes instead of their names, or the inputs of a kernel, too")(
    ("node.name", "node")
)
