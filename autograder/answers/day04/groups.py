"""Hidden cases and answers of day04.groups.

Most wrong answers are the reference with one rule changed or left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab import models
from passlab.exercises._groups import drawn_case, without_groups
from passlab.exercises.day04.groups import (
    BLOCK,
    IMAGE,
    block,
    conv,
    dense,
    gelu,
    groups_case,
    norm,
    right_groups,
    zoo,
)
from passlab.fx.cases import graph
from passlab.fx.patterns import canonical, pattern
from passlab.judge import Case
from passlab.relay.translate import plain

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Steps (image, image) → image of the same shape. What a step needs besides is a parameter of `PARTS`.
STEPS: dict[str, Callable[[Any, fx.Proxy, fx.Proxy], fx.Proxy]] = {
    "unary": lambda m, x, y: torch.relu(x),
    "unary 2": lambda m, x, y: torch.tanh(x),
    "scalar": lambda m, x, y: x * 0.5,
    "binary": lambda m, x, y: x + y,
    "binary 2": lambda m, x, y: torch.maximum(x, y),
    "row": lambda m, x, y: x * m.row,
    "conv": lambda m, x, y: conv(m, x),
    "diamond": lambda m, x, y: torch.sigmoid(x) * torch.exp(x),
    "softmax": lambda m, x, y: torch.softmax(x, 1),
    "sum": lambda m, x, y: x - x.sum(1, keepdim=True),
    "mean": lambda m, x, y: y * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "turn": lambda m, x, y: x.transpose(2, 3),
    "flat": lambda m, x, y: torch.relu(x.reshape(4, 36)).reshape(IMAGE),
    "cat": lambda m, x, y: torch.cat([x, torch.exp(y)], 1)[:, 2:6],
    "chunk": lambda m, x, y: torch.cat([x.chunk(2, 1)[1], y.chunk(2, 1)[0]], 1),
    "cumsum": lambda m, x, y: torch.cumsum(x, 1),
    "pool": lambda m, x, y: F.max_pool2d(x, 3, 1, 1),
    "where": lambda m, x, y: torch.where(x > y, x, y),
}
PARTS = {"row": (4, 1, 1), "w": (4, 4, 3, 3)}


def random_program(seed: int, steps: int, only: tuple[str, ...] = ()) -> Callable[[], fx.GraphModule]:
    """Return a random graph of `steps` steps, most of them on recent values; unused values are returned."""

    def body(m: Any, x: fx.Proxy, y: fx.Proxy) -> Any:
        rng, values = random.Random(seed), [x, y]
        for _ in range(steps):
            at = [max(0, len(values) - 1 - int(rng.expovariate(0.6))) for _ in range(2)]
            values.append(STEPS[rng.choice(only or tuple(STEPS))](m, *(values[i] for i in at)))
        ends = [v for v in values[2:] if not v.node.users]
        inner = rng.sample(values[2:], 1) if rng.random() < 0.3 else []
        return ends[0] if len(ends) == 1 and not inner else tuple({v.node: v for v in ends + inner}.values())

    return graph(body, IMAGE, IMAGE, **PARTS)


def long(m: Any, x: fx.Proxy) -> fx.Proxy:
    for at in range(300):
        x = torch.tanh(x) if at % 3 else x + 1.0
    return x


def chain(x: fx.Proxy, length: int) -> fx.Proxy:
    for _ in range(length):
        x = torch.tanh(x)
    return x


KERNELS = {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "b": (4, 1, 1)}
KINDS = (
    (),
    ("unary", "binary", "diamond", "conv", "row", "scalar"),
    ("unary", "turn", "flat", "cat", "chunk", "binary"),
    ("unary", "sum", "mean", "softmax", "binary", "scalar"),
)


@groups_case("projections", graph(..., (2, 6, 4)))
def projections(m: Any, x: fx.Proxy) -> tuple:
    a, b, c = torch.relu(x).chunk(3, 1)
    pair = torch.cat([torch.cat([a, torch.exp(b)], 1), c], 1)
    return pair.transpose(1, 2), torch.tanh(b).sum(), a


@groups_case("two convolutions meet", graph(..., IMAGE, **KERNELS))
def two_convs(m: Any, x: fx.Proxy) -> fx.Proxy:
    joined = conv(m, x) + F.conv2d(x, m.v, None, 1, 1)
    return torch.relu(joined + m.b) * F.max_pool2d(joined, 1)


@groups_case("the first of two convolutions", graph(..., IMAGE, **KERNELS))
def order(m: Any, x: fx.Proxy) -> fx.Proxy:
    late = conv(m, x)
    early = F.conv2d(x, m.v, None, 1, 1)
    return torch.relu(early + late)


@groups_case("two lists", graph(..., IMAGE, **KERNELS))
def inception(m: Any, x: fx.Proxy) -> fx.Proxy:
    a, b = torch.relu(conv(m, x)), torch.relu(F.conv2d(x, m.v, None, 1, 1))
    first = torch.cat([a, b.transpose(2, 3)], 1)
    return torch.relu(torch.cat([torch.tanh(first), torch.exp(x)], 1))


@groups_case("past a list", graph(..., IMAGE))
def past_a_cat(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.exp(x)
    return torch.cat([torch.relu(y), torch.tanh(y)], 1)[:, 1:5] + y


@groups_case("broadcast into a convolution", graph(..., IMAGE, **KERNELS))
def broadcast(m: Any, x: fx.Proxy) -> fx.Proxy:
    small = x.sum((2, 3), keepdim=True)
    return conv(m, x) * torch.sigmoid(small) + m.b.unsqueeze(0) + 1.0


@groups_case("wider than the convolution", graph(..., IMAGE, wide=(3, 4, 6, 6), w=(4, 4, 3, 3)))
def wide_then_conv(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = conv(m, x)
    return torch.relu(c + m.wide) + c


@groups_case("wider at first", graph(..., IMAGE, wide=(3, 4, 6, 6), w=(4, 4, 3, 3)))
def wider_at_first(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = conv(m, x)
    return (c + m.wide) * (c * m.wide)


@groups_case("shapes in one of two branches", graph(..., IMAGE, w=(4, 4, 3, 3)))
def branches(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = conv(m, x)
    return torch.relu(c).transpose(2, 3) + torch.sigmoid(c)


@groups_case("very long in between", graph(..., (2, 3)))
def bridged(m: Any, x: fx.Proxy) -> fx.Proxy:  # more between than a group holds
    x = torch.exp(x)
    return x + long(m, x)


@groups_case("as long as may be", graph(..., (2, 3)))
def just_fits(m: Any, x: fx.Proxy) -> fx.Proxy:  # 254 between, and the two
    x = torch.exp(x)
    return chain(x, 254) + x


@groups_case("joined already, and fits", graph(..., (2, 3), (2, 3)))
def joined_already(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:  # the sum is in the last node's group, of 129
    first, second = torch.relu(x), torch.exp(y)
    return chain(first, 125) + (first + second) * torch.sigmoid(second)


@groups_case("joined already, and too large", graph(..., (2, 3), (2, 3)))
def joined_with_its_own(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:  # the same, and the sum's number is 60
    first, second = torch.relu(x), torch.exp(y)
    end = (chain(x, 59) + (first + second)) * torch.sigmoid(second)
    return end + chain(first, 150)


@without_groups
@groups_case("a product at the end of two ways", graph(..., (4, 4)))
def late_product(m: Any, x: fx.Proxy) -> fx.Proxy:
    e = torch.exp(x)
    return torch.relu(e) @ torch.tanh(e)


@groups_case("a transpose meets a convolution", graph(..., IMAGE, w=(4, 4, 3, 3)))
def turned(m: Any, x: fx.Proxy) -> fx.Proxy:  # the transpose has its turn before the convolution
    return x.transpose(2, 3) + conv(m, x)


@groups_case("the list counts, too", graph(..., (2, 3), (2, 3)))
def long_into_cat(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    for _ in range(255):  # with the cat 256, and its list is one more
        x = torch.tanh(x)
    return torch.cat([x, y], 1)


@groups_case("a transpose in between", graph(..., IMAGE))
def turned_between(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.exp(x)
    return torch.relu(y.transpose(2, 3) + y)


@groups_case("a transpose into a diamond", graph(..., IMAGE, w=(4, 4, 3, 3)))
def turned_into_a_diamond(m: Any, x: fx.Proxy) -> fx.Proxy:  # the sum is in the convolution's group by then
    c = conv(m, x)
    return (c + x.transpose(2, 3)) * torch.sigmoid(c)


@groups_case("between, in the group of a convolution", graph(..., IMAGE, w=(4, 4, 3, 3)))
def between_in_a_group(m: Any, x: fx.Proxy) -> fx.Proxy:  # the product is in the convolution's group by then
    c = conv(m, x)
    e = torch.exp(x)
    return (e * c + torch.relu(e)) + c


@groups_case("between, when a convolution has joined", graph(..., IMAGE, w=(4, 4, 3, 3)))
def convolution_first(m: Any, x: fx.Proxy) -> fx.Proxy:  # the comparison is in the convolution's group by then
    c, y = conv(m, x), torch.relu(x)
    return torch.where(c > y, c, y)


@groups_case("a list joins before what it reads", graph(..., (2, 3)))
def list_first(m: Any, x: fx.Proxy) -> fx.Proxy:  # 12 with its reader; what it reads would make it 262
    return chain(torch.cat([chain(x, 250), x], 1), 10)


@groups_case("a diamond before a list, and a list in one", graph(..., (2, 3)))
def past_lists(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.exp(x)
    inner = torch.cat([torch.relu(y), torch.tanh(y)], 1)
    return torch.cat([inner, y], 1)


@groups_case("what is between counts, too", graph(..., (2, 3)))
def diamond_at_the_limit(m: Any, x: fx.Proxy) -> fx.Proxy:
    for _ in range(254):  # with the two between and the product 257
        x = torch.tanh(x)
    return torch.relu(x) * torch.sigmoid(x)


@groups_case("a ladder", graph(..., (2, 3)))
def ladder(m: Any, x: fx.Proxy) -> fx.Proxy:
    for _ in range(40):
        x = torch.relu(x) + x
    return x


@groups_case("returned in the middle", graph(..., IMAGE, w=(4, 4, 3, 3)))
def returned(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(conv(m, x))
    return y, torch.exp(y + 1).mean(1), y


@groups_case("as many elements, and one dimension more", graph(..., IMAGE, w=(4, 4, 3, 3), deep=(1, 1, 1, 1, 1)))
def one_dimension_more(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(conv(m, x)) + m.deep


@groups_case("a convolution after a transpose that has joined", graph(..., IMAGE, w=(4, 4, 3, 3)))
def turned_first(m: Any, x: fx.Proxy) -> fx.Proxy:  # the choice stays of kind 1, although a transpose is in its group
    e = torch.exp(x)
    return torch.where(e > 2.0, e.transpose(2, 3), conv(m, x))


@groups_case("between transposes", graph(..., IMAGE))
def turned_twice(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = x.transpose(2, 3)
    return a + a.transpose(2, 3)


@groups_case("a convolution past the group of another", graph(..., IMAGE, **KERNELS))
def past_a_convolution(m: Any, x: fx.Proxy) -> fx.Proxy:  # the sum is in the first convolution's group by then
    first, second = conv(m, x), F.conv2d(x, m.v, None, 1, 1)
    return (first + second) * second


@groups_case("sums in a list", graph(..., IMAGE))
def sums_in_a_list(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.cat([x.sum(1, keepdim=True), torch.exp(x)], 1)


@without_groups
@groups_case("past a sum into a list", graph(..., IMAGE))
def past_a_sum(m: Any, x: fx.Proxy) -> fx.Proxy:
    e = torch.exp(x)
    return torch.cat([e, e.sum(1, keepdim=True)], 1)


@without_groups
@groups_case("past a pooling into a list", graph(..., IMAGE))
def past_a_pooling(m: Any, x: fx.Proxy) -> fx.Proxy:
    e = torch.exp(x)
    return torch.cat([e, F.max_pool2d(e, 3, 1, 1)], 1)


@groups_case("the list just fits", graph(..., (2, 3), (2, 3)))
def just_into_cat(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return torch.cat([chain(x, 254), y], 1)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def layers(m: Any, x: fx.Proxy) -> fx.Proxy:
        for _ in range(depth):
            x = gelu(dense(norm(m, x), m.q, m.beta)) + x
        return torch.softmax(x @ m.k, -1)

    def narrow() -> fx.GraphModule:
        """Return ResNet-18 with a quarter of its channels: its parameters travel to each answer, which reads none."""
        return plain(models.resnet18(width=16), *models.ZOO["resnet18"].inputs())

    depth = rng.randint(1, 3)
    return [
        groups_case("resnet18", narrow),
        groups_case("convnet", zoo("convnet")),
        *(
            drawn_case(groups_case(f"generated, number {at + 1}", program), right_groups)
            for at, program in enumerate(
                random_program(rng.randrange(10**6), rng.randint(8, 25), only) for only in [*KINDS, *KINDS, *KINDS]
            )
        ),
        projections,
        two_convs,
        order,
        inception,
        past_a_cat,
        broadcast,
        wide_then_conv,
        wider_at_first,
        branches,
        groups_case("very long", graph(long, (2, 3))),
        bridged,
        just_fits,
        joined_already,
        joined_with_its_own,
        late_product,
        turned,
        long_into_cat,
        turned_between,
        turned_into_a_diamond,
        between_in_a_group,
        convolution_first,
        list_first,
        past_lists,
        diamond_at_the_limit,
        ladder,
        returned,
        groups_case("layers", graph(layers, (6, 8), **BLOCK)),
        groups_case("two blocks", graph(lambda m, x: block(m, block(m, x)), (6, 8), **BLOCK)),
        one_dimension_more,
        turned_first,
        turned_twice,
        past_a_convolution,
        sums_in_a_list,
        past_a_sum,
        past_a_pooling,
        just_into_cat,
    ]


EQUIVALENT = {
    ("list(gm.graph.nodes)", "gm.graph.nodes"): "the nodes can be walked through more than once",
    ("parent[n] = parent[parent[n]]", "pass"): "a shorter path leads to the same node",
    (
        "phase == 1 and ...",
        "...",
    ): "a kind falls only where values meet in an operation of pattern 2, and here that is a cat",
    ("inside <= ... and ...", "inside <= ..."): "an edge into pattern 8 is more than any path may have",
    ('... or sink.op == "output"', "..."): "the output is of pattern 8, which nothing joins",
    ("kind[n] == Pattern.OPAQUE or ...", "..."): "no row of the table is for kind 8",
    (
        "sink is None or ...",
        "...",
    ): "the output needs all nodes, so only the output, of pattern 8, has no post-dominator",
    ("phase < 3 and ...", "..."): "all nodes between a node and a cat of its group are in it, too",
    ("... != (phase == 3) or (...)", "... != (phase == 3)"): "with a node, all nodes between are in the group already",
    ("phase < 3 and ...", "phase < 4 and ..."): "all nodes between a node and a cat of its group are in it, too",
    ("phase < 3 and ...", "phase <= 3 and ..."): "all nodes between a node and a cat of its group are in it, too",
}

# ---------------------------------------------------------------------------------------------------- answers


class _Partition:
    """FuseOps with groups as sets and post-dominators by intersection."""

    def __init__(self, gm):
        self.nodes = list(gm.graph.nodes)
        self.at = {n: i for i, n in enumerate(self.nodes)}
        self.own = {n: int(pattern(n)) for n in self.nodes}
        self.kind = dict(self.own)
        self.number = {n: 2 if self.is_cat(n) else 1 for n in self.nodes}
        self.group = {n: {n} for n in self.nodes}
        self.sink = {}
        for n in reversed(self.nodes):
            self.sink[n] = self.meeting(n)

    def chain(self, n):
        """Return n, its post-dominator, that one's, and so on."""
        while n is not None:
            yield n
            n = self.sink[n]

    def meeting(self, n):
        """Return the first node that is on the chain of every reader."""
        readers = list(n.users)
        if not readers:
            return None
        common = set(self.chain(readers[0])).intersection(*(self.chain(r) for r in readers[1:]))
        return next((m for m in self.chain(readers[0]) if m in common), None)

    def is_cat(self, n):
        return canonical(n) == "cat"

    def last(self, n):
        return max(self.group[n], key=self.at.__getitem__)

    def group_kind(self, n):
        return self.kind[self.last(n)]

    def between(self, n, sink, nodes=None):
        nodes = {} if nodes is None else nodes
        for reader in n.users:
            if reader is not sink and reader not in nodes:
                nodes[reader] = None
                self.between(reader, sink, nodes)
        return list(nodes)

    def shape(self, n):
        return getattr(n.meta.get("tensor_meta"), "shape", None)

    def edge(self, n, reader):
        return 0 if self.own[reader] == 1 and self.shape(n) == self.shape(reader) else self.own[reader]

    def allowed(self, n, phase, between, path, inside, end):
        kind = self.kind[n]
        if phase == 3:
            return kind <= 2 and inside <= 2 and end <= 2
        if any(map(self.is_cat, between)):
            return False
        if kind == 4:
            return phase == 1 and path == 0 and inside <= 1 and end <= 1
        if kind <= 1:
            return path <= 3 and inside <= 2 and end <= 4
        return kind == 2 and phase == 2 and inside <= 2 and end <= 2

    def turn(self, n, phase):
        sink = self.sink[n]
        if self.kind[n] == 8 or sink is None or sink.op == "output":
            return
        if self.is_cat(sink) != (phase == 3) or self.group[n] is self.group[sink]:
            return
        between = self.between(n, sink)
        if sum(self.number[m] for m in [n, *between, self.last(sink)]) > 256:
            return
        inside = max((self.group_kind(m) for m in between), default=0)
        path = max(self.edge(m, reader) for m in [n, *between] for reader in m.users)
        if self.allowed(n, phase, between, path, inside, self.group_kind(sink)):
            self.join([n, *between], sink)

    def join(self, members, sink):
        target = self.last(sink)
        if any(self.group_kind(m) == 4 for m in members):
            self.kind[target] = 4
        self.number[target] += sum(self.number[m] for m in {self.last(m) for m in members} - {target})
        whole = set.union(self.group[sink], *(self.group[m] for m in members))
        for m in whole:
            self.group[m] = whole

    def run(self):
        for phase in (1, 2, 3):
            for n in self.nodes:
                self.turn(n, phase)
        return self.groups()

    def groups(self):
        groups = {}
        for n in self.nodes:
            if n.op.startswith("call_"):
                groups.setdefault(id(self.group[n]), []).append(n.name)
        return list(groups.values())


@right("groups as sets, post-dominators by intersecting whole chains, a recursive search")
def with_sets(gm):
    return _Partition(gm).run()


@right("post-dominators as sets of all nodes behind, and what chunk gives left out of the groups")
def by_sets_of_nodes(gm):
    class Sets(_Partition):
        def meeting(self, n):
            self.after = getattr(self, "after", {})
            readers = [self.after[reader] for reader in n.users]
            behind = set.intersection(*readers) if readers else set()
            self.after[n] = behind | {n}
            return min(behind, key=self.at.__getitem__, default=None)

        def groups(self):
            fields = {n.name for n in self.nodes if canonical(n) == "getitem" and isinstance(n.args[1], int)}
            return [left for g in super().groups() if (left := [name for name in g if name not in fields])]

    return Sets(gm).run()


@wrong("did", "fuses nothing: a kernel for each operation")
def nothing(gm):
    return [[n.name] for n in gm.graph.nodes if n.op.startswith("call_")]


@wrong("spared", "fuses everything: one kernel for the whole graph")
def everything(gm):
    return [[n.name for n in gm.graph.nodes if n.op.startswith("call_")]]


single_readers = edited("did", "fuses only what has one reader, so diamonds stay apart")(
    ("joins(n, phase, sink, between)", "len(n.users) == 1 and joins(n, phase, sink, between)")
)
after_reductions = edited("spared", "a reduction fuses with the element-wise operation after it")(
    ("kind[n] <= ...", "kind[n] <= ... or kind[n] == Pattern.COMM_REDUCE")
)
shapes_unseen = edited(
    "did", "a broadcasting operation stays broadcasting, even if the operand has the shape of the result"
)(("Pattern.ELEMWISE if ... else own[reader]", "own[reader]"))
elements_counted = edited(
    "spared", "compares numbers of elements: an operand with a dimension less has none to repeat"
)(("shape(n) == shape(reader)", "shape(n) and shape(reader) and shape(n).numel() == shape(reader).numel()"))
kinds_grow = edited("did", "gives a group the largest kind in it, so a transpose that joins a sum keeps products out")(
    ("kind[m] if ... else kind[target]", "max(kind[m], kind[target])")
)
lists_of_three = edited("did", "counts a cat as three: the cat, its list and what it gives")(
    ("1 + is_cat[n]", "1 + 2 * is_cat[n]")
)
sums_into_lists = edited("spared", "lets every node join a cat, also a sum")(
    ("max(kind[n], inside, end) <= Pattern.INJECTIVE", "max(inside, end) <= Pattern.INJECTIVE")
)
past_everything = edited("spared", "joins a cat past whatever is between, also past a sum or a pooling")(
    ("max(kind[n], inside, end) <= Pattern.INJECTIVE", "max(kind[n], end) <= Pattern.INJECTIVE")
)
convolutions_past_all = edited(
    "spared", "asks of the nodes between for their edges alone: one is in the group of another convolution"
)(
    (
        "path == Pattern.ELEMWISE and max(inside, end) <= Pattern.BROADCAST",
        "path == Pattern.ELEMWISE and end <= Pattern.BROADCAST",
    )
)
one_transpose = edited("did", "joins a transpose only past element-wise operations, not past another transpose")(
    (
        "kind[n] == Pattern.INJECTIVE and phase == 2 and max(inside, end) <= Pattern.INJECTIVE",
        "kind[n] == Pattern.INJECTIVE and phase == 2 and inside <= Pattern.BROADCAST and end <= 2",
    )
)
shapes_behind_convolutions = edited("spared", "lets a convolution take a transpose or a reshape with it")(
    (
        "path == Pattern.ELEMWISE and max(inside, end) <= Pattern.BROADCAST",
        "max(path, inside, end) <= Pattern.INJECTIVE",
    )
)
first_phase_only = edited("did", "one phase only: shapes are not fused, and nothing is fused into a cat")(
    ("(1, 2, 3)", "(1,)")
)
patterns_stay = edited("spared", "does not look at what a group has become: two convolutions end in one kernel")(
    ("kind[m] if ... else kind[target]", "kind[target] if ... else kind[target]")
)
lists_at_once = edited("did", "joins a cat in the first phase, so a list is full before the cat joins its reader")(
    ("is_cat[sink] != (phase == 3) or ...", "phase == 3 and not is_cat[sink] or ...")
)
never_past_lists = edited("did", "passes no list in the last phase either")(
    (
        "max(kind[n], inside, end) <= Pattern.INJECTIVE",
        "max(kind[n], inside, end) <= Pattern.INJECTIVE and not any(is_cat[m] for m in between)",
    )
)
own_kinds = edited("spared", "looks at the kinds of the nodes between, not at those of their groups")(
    ("(kind[last(m)] for m in between)", "(kind[m] for m in between)")
)
no_limit = edited("spared", "knows no limit to the size of a group")(("256", "10**9"))
own_edges = edited(
    "spared", "the path is the edges of the node itself: a product that only those between lead to is not seen"
)(("(... for m in [n, *between] for reader in m.users)", "(... for m in [n] for reader in m.users)"))
groups_counted = edited("spared", "counts again what has joined already, or takes its number from a node that joins")(
    ("sum(size[m] for m in [n, *between])", "sum(size[m] for m in {*map(last, [n, *between])} - {last(sink)})")
)
first_readers = edited(
    "spared", "joins every operation that may with its first reader: values leave the middle of kernels"
)(
    ("post_dominators(gm.graph)\n", "{n: next(iter(n.users), None) for n in gm.graph.nodes}\n"),
    ("nodes_between(n, sink, most)", "[]"),
)
element_wise_only = edited("did", "the rule of exercise 1: element-wise operations alone")(
    (
        "if phase == 3:\n            return max(kind[n], inside, end) <= Pattern.INJECTIVE",
        "return phase == 1 and max(kind[n], inside, end) <= Pattern.BROADCAST",
    )
)
no_singles = edited("valid", "lists only kernels of several calls")(
    ("list(groups.values())", "[g for g in groups.values() if len(g) > 1]")
)
nodes_themselves = edited("valid", "gives nodes instead of their names, or lists inputs and attributes, too")(
    ("n.name", "n")
)
