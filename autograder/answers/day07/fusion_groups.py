"""Hidden cases and answers of day07.fusion-groups.

Most wrong answers are the reference with one rule changed or left out.
"""

from __future__ import annotations

import itertools
import random

from autograder.answers.day07._shared import SHAPE, Build, generated
from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises._groups import drawn_case, without_groups
from passlab.exercises.day07._shared import conv, ladder
from passlab.exercises.day07.fusion_groups import groups_case, simplified
from passlab.exercises.day07.pipeline_counts import zoo
from passlab.judge import Case, core
from passlab.relay import relay, tvm
from passlab.relay.cases import number, program, tuple_of, weight
from passlab.relay.dialect import parts_of
from passlab.relay.groups import fused_groups

# ---------------------------------------------------------------------------------------------------- hidden cases

TEN_MODELS = ("mlp", "convnet", "skip", "residual", "attention", "gpt", "vit", "lstm", "unet", "resnet18")


KINDS = (
    ("pointwise", "diamond", "conv", "reduce"),
    ("tuples", "views", "pointwise", "outputs"),
    ("conv", "views", "tuples", "diamond", "outputs"),
    ("pointwise", "constant", "reduce", "views", "integers", "repeat"),
)


def diamond(x: relay.Var) -> relay.Expr:
    turned = relay.transpose(x)
    return relay.tanh(turned) + relay.nn.relu(turned)


def two_ways_on(first: bool, far: bool) -> Build:
    """Return a convolution with two ways on; one has a shape in it, which is in the group at their end already."""

    def body(x: relay.Var) -> relay.Expr:
        y, c = relay.exp(x), conv(x)
        shaped, other = relay.reshape_like(relay.tanh(c) if far else c, y), relay.nn.relu(c)
        return y + (shaped + other if first else other + shaped)

    return program(body, SHAPE)


@groups_case("projections", program(..., (2, 6, 4)))
def projections(x: relay.Var) -> relay.Expr:
    a, b, c = relay.split(relay.nn.relu(x), 3, axis=1)
    pair = relay.concatenate([relay.concatenate([a, relay.exp(b)], 1), c], 1)
    return tuple_of(relay.transpose(pair, (0, 2, 1)), relay.sum(relay.tanh(b)), a)


@groups_case("two convolutions meet", program(..., SHAPE))
def two_convs(x: relay.Var) -> relay.Expr:
    joined = conv(x) + conv(x, 1)
    return relay.nn.relu(relay.nn.bias_add(joined, weight(4))) * relay.nn.max_pool2d(joined, (1, 1))


@groups_case("two tuples", program(..., SHAPE))
def inception(x: relay.Var) -> relay.Expr:
    a, b = relay.nn.relu(conv(x)), relay.nn.relu(conv(x, 1))
    first = relay.concatenate([a, relay.transpose(b, (0, 1, 3, 2))], 1)
    return relay.nn.relu(relay.concatenate([relay.tanh(first), relay.exp(x)], 1))


@groups_case("broadcast into a convolution", program(..., SHAPE))
def broadcast(x: relay.Var) -> relay.Expr:
    small = relay.sum(x, axis=[2, 3], keepdims=True)
    return conv(x) * relay.sigmoid(small) + relay.expand_dims(weight(6), 0) + number(1.0)


@groups_case("a convolution in a larger tensor", program(..., SHAPE))
def enlarged(x: relay.Var) -> relay.Expr:
    return relay.nn.relu(conv(x) + weight(2, 4, 6, 6))


@without_groups
@groups_case("two ways into a product", program(..., (4, 4)))
def two_ways(x: relay.Var) -> relay.Expr:
    y = relay.nn.relu(x)
    return relay.nn.dense(relay.tanh(y), relay.exp(y))


@groups_case("a ladder that is read at its end", program(..., (2, 3)))
def from_the_start(x: relay.Var) -> relay.Expr:
    y = relay.exp(x)
    return ladder(y) * y


@groups_case("very long", program(..., (2, 3)))
def long(x: relay.Var) -> relay.Expr:
    for at in range(300):
        x = relay.tanh(x) if at % 3 else x + number(1.0)
    return x


@groups_case("an order", program(..., (2, 3)))
def sorted_rows(x: relay.Var) -> relay.Expr:
    order = relay.argsort(relay.nn.relu(x), axis=1, dtype="int32")
    return relay.take(relay.exp(x), relay.reshape(order, (-1,)), axis=1) + relay.cast(number(2, "int32"), "float32")


@groups_case("past a tuple", program(..., (2, 3)))
def past_a_tuple(x: relay.Var) -> relay.Expr:
    y = relay.exp(x)
    pair = relay.concatenate([relay.nn.relu(y), relay.tanh(y)], axis=1)
    return relay.strided_slice(pair, [0, 1], [2, 4]) + y


@groups_case("a transpose on the way", program(..., (4, 4)))
def turned_on_the_way(x: relay.Var) -> relay.Expr:
    y = relay.exp(x)
    return relay.transpose(y) + y


@groups_case("a sum between, with its convolution", program(..., SHAPE))
def sum_between(x: relay.Var) -> relay.Expr:
    y = relay.tanh(x)
    return (relay.exp(x) + conv(x) + y) * y


@groups_case("a convolution comes too late", program(..., SHAPE))
def too_late(x: relay.Var) -> relay.Expr:
    """Return a convolution whose reader is in a group that takes one from phase 2 on, when it is too late."""
    turned = relay.transpose(x, (0, 1, 3, 2))
    first = relay.exp(turned)
    return relay.reshape_like(first + conv(x), first) + turned


@groups_case("a convolution on the way of another", program(..., SHAPE))
def taken_between(x: relay.Var) -> relay.Expr:
    """Return two convolutions: the first is in a group between the second and the place where its readers meet."""
    second = conv(x)
    return (conv(x) + second) + relay.nn.relu(second)


@groups_case("a tuple on the way to a tuple", program(..., (2, 3)))
def tuple_between(x: relay.Var) -> relay.Expr:
    y = relay.exp(x)
    return relay.concatenate([relay.concatenate([y, x], axis=0), relay.nn.relu(y)], axis=0)


@groups_case("a limit, and what has joined on the way", program(..., (4, 4)), 6)
def joined_between(x: relay.Var) -> relay.Expr:
    y = relay.transpose(x)
    return relay.exp(y) + relay.nn.relu(y)


@groups_case("a limit, and a group that joins on the way", program(..., (4, 4)), 7)
def grown(x: relay.Var) -> relay.Expr:
    y = relay.transpose(x)
    return relay.transpose(relay.exp(y)) + y + relay.transpose(x) + relay.transpose(x)


@without_groups
@groups_case("a limit, and a tuple that has joined", program(..., (2, 3)), 2)
def joined_tuple(x: relay.Var) -> relay.Expr:
    return relay.concatenate([relay.reverse(x, 1), x], axis=0)


@groups_case("a limit, and a constant of one dimension", program(..., (2, 3)), 2)
def one_dimension(x: relay.Var) -> relay.Expr:
    return relay.tanh(x * weight(1))


@groups_case("a comparison after a convolution", program(..., SHAPE))
def compared(x: relay.Var) -> relay.Expr:
    return relay.cast(relay.greater(conv(x), x), "float32")


@groups_case("a convolution that one call reads twice", program(..., SHAPE))
def doubled(x: relay.Var) -> relay.Expr:
    c = conv(x)
    return c + c


@groups_case("a sum of two tensors on the way of a convolution", program(..., SHAPE))
def added_between(x: relay.Var) -> relay.Expr:
    c = conv(x)
    return c + x + c


@without_groups
@groups_case("a reduction on the way of a transpose", program(..., (4, 4)))
def reduced_between(x: relay.Var) -> relay.Expr:
    y = relay.transpose(x)
    return relay.sum(y, axis=1, keepdims=True) * y


@groups_case("a reduction in a tuple", program(..., (2, 3)))
def reduced_field(x: relay.Var) -> relay.Expr:
    return relay.concatenate([relay.sum(x, axis=1, keepdims=True), relay.exp(x)], axis=1)


@groups_case("a projection on the way", program(..., (2, 3)))
def projected_between(x: relay.Var) -> relay.Expr:
    y = relay.exp(x)
    return relay.split(y, 1)[0] + y


#: Operators of all patterns that keep the shape of a tensor whose planes are square.
ONE = (
    *(relay.tanh, relay.nn.relu, relay.exp),
    lambda x: x * weight(4, 1, 1),
    lambda x: relay.transpose(x, (0, 1, 3, 2)),
    lambda x: relay.reverse(x, 1),
    conv,
    lambda x: relay.nn.softmax(x, axis=1),
    lambda x: relay.sum(x, axis=1, keepdims=True) * weight(4, 1, 1),
)


def plain_tree(seed: int, sums: bool = True) -> Build:
    """Return a tree of about twenty calls, each of which has one reader.

    sums: without them, it is a small tree, at whose end two calls share a kernel.
    """
    operators, count = (ONE, 20) if sums else (ONE[:-2], 6)

    def tree(rng: random.Random, x: relay.Expr, size: int) -> relay.Expr:
        if size < 1:
            return x
        if size > 4 and rng.random() < 0.4:
            share = rng.randrange(2, size - 1)
            return rng.choice((relay.add, relay.maximum))(tree(rng, x, share), tree(rng, x, size - 1 - share))
        return rng.choice(operators)(tree(rng, x, size - 1))

    def body(x: relay.Var) -> relay.Expr:
        y = tree(random.Random(seed), x, count)
        return y if sums else relay.tanh(relay.nn.relu(y))

    return program(body, SHAPE)


@core
@groups_case("plain: a sum, then a convolution", program(..., SHAPE))
def plain_end(x: relay.Var) -> relay.Expr:
    total = relay.nn.relu(relay.sum(relay.exp(x), axis=1, keepdims=True))
    return relay.nn.max_pool2d(relay.tanh(conv(relay.nn.relu(relay.reverse(x * total, 1)))), (2, 2))


def _program(rng: random.Random) -> Build:
    return generated(rng, rng.randrange(12, 36), *rng.choice(KINDS))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def sum_first(x: relay.Var) -> relay.Expr:
        y = x
        for _ in range(steps):
            y = relay.exp(y)
        return relay.nn.relu(y + conv(x)) + conv(x, 1)

    steps = rng.randint(1, 3)
    return [
        plain_end,
        *(core(groups_case(f"plain: a tree, number {i + 1}", plain_tree(rng.getrandbits(32)))) for i in range(4)),
        core(groups_case("plain: a tree without sums", plain_tree(seed + 1, sums=False))),
        *(groups_case(name, zoo(name, simplified=True)) for name in TEN_MODELS),
        *(
            drawn_case(groups_case(f"generated, number {i + 1}", _program(rng), *limit), fused_groups)
            for i, limit in enumerate(((), (), (), (), (), (), (3,), (8,)))
        ),
        projections,
        two_convs,
        inception,
        broadcast,
        enlarged,
        two_ways,
        from_the_start,
        long,
        sorted_rows,
        groups_case("a limit that counts a diamond once", program(diamond, (2, 3)), rng.choice((6, 7, 8))),
        groups_case("a limit that counts again what has joined", program(diamond, (2, 3)), rng.choice((4, 5))),
        past_a_tuple,
        turned_on_the_way,
        groups_case("a sum before its convolution", program(sum_first, SHAPE)),
        sum_between,
        too_late,
        taken_between,
        tuple_between,
        joined_between,
        grown,
        joined_tuple,
        one_dimension,
        compared,
        doubled,
        added_between,
        reduced_between,
        reduced_field,
        projected_between,
        *(
            groups_case(
                f"a shape on the {'first' if first else 'second'} of two ways{', further on' if far else ''}",
                two_ways_on(first, far),
            )
            for first, far in itertools.product((True, False), repeat=2)
        ),
        groups_case("a bound block", simplified(zoo("residual", bind=True)), rng.choice((4, 6))),
    ]


EQUIVALENT = {
    ("list(own), ...", "own, ..."): "the patterns are not read again",
    ("kind[i] == OPAQUE or ...", "..."): "no row of the table is for kind 8",
    ("max(group[i])", "min(group[i])"): "any node of a group names it",
    ("0, 1, 2, 3, 4, 7, 8", "0, 1, 2, 3, 4, 7, 9"): "no row of the table is for kind 8, nor for kind 9",
    ("1 + depth[meet]", "2 + depth[meet]"): "depths are compared with each other only",
    ("[1] * len(readers)", "[2] * len(readers)"): "depths are compared with each other only",
}


# ---------------------------------------------------------------------------------------------------- answers


def _nodes(mod):
    nodes = []
    relay.analysis.post_order_visit(mod["main"].body, nodes.append)
    return [e for e in nodes if not isinstance(e, tvm.ir.Op)]


def _kind(e):
    if isinstance(e, relay.Call):
        return int(relay.op.get(e.op.name).get_attr("TOpPattern"))
    if isinstance(e, relay.Tuple):
        return 7
    if isinstance(e, relay.TupleGetItem):
        return 2
    return 0 if isinstance(e, relay.Constant) and len(e.data.shape) == 0 else 8


def _edge(e, operand):
    if not isinstance(e, relay.Call):
        return 2
    kind = _kind(e)
    return 0 if kind == 1 and list(operand.checked_type.shape) == list(e.checked_type.shape) else kind


class _Partition:
    """FuseOps with a union-find and recursive searches."""

    def __init__(self, mod, max_depth):
        self.nodes, self.most = _nodes(mod), max_depth
        at = {e: i for i, e in enumerate(self.nodes)}
        self.kind = [_kind(e) for e in self.nodes]
        self.readers = {i: [] for i in at.values()}
        for e, i in at.items():
            for operand in parts_of(e):
                self.readers[at[operand]].append((i, _edge(e, operand)))
        self.into = list(range(len(self.nodes)))
        self.size = [1] * len(self.nodes)
        self.sink, self.path = {}, {}
        for i in reversed(range(len(self.nodes))):
            self.sink[i], self.path[i] = self.meeting(i)

    def chain(self, i):
        """Return i, its post-dominator, that one's, and so on."""
        while i is not None:
            yield i
            i = self.sink[i]

    def meeting(self, i):
        """Return the first node that is on the chain of every reader; the largest pattern on the ways there."""
        if not self.readers[i]:
            return None, 8
        chains = [list(self.chain(reader)) for reader, _ in self.readers[i]]
        common = set(chains[0]).intersection(*chains[1:])
        meet = next((n for n in chains[0] if n in common), None)
        path = max(edge for _, edge in self.readers[i])
        for chain in chains:
            for n in chain[: chain.index(meet)] if meet is not None else []:
                path = max(path, self.path[n])
        return meet, path

    def root(self, i):
        while self.into[i] != i:
            i = self.into[i]
        return i

    def between(self, i, sink, nodes=None):
        nodes = set() if nodes is None else nodes
        for reader, _ in self.readers[i]:
            if reader != sink and reader not in nodes:
                nodes.add(reader)
                self.between(reader, sink, nodes)
        return nodes

    def allowed(self, i, phase, inside, end):
        kind, sink = self.kind[i], self.sink[i]
        if phase == 2:
            return kind <= 2 and self.kind[sink] == 7 and inside <= 2 and end <= 2
        if self.kind[sink] == 7:
            return False
        if kind == 4:
            return phase == 0 and self.path[i] == 0 and inside <= 1 and end <= 1
        if kind <= 1:
            return self.path[i] <= 3 and inside <= 2 and end <= 4
        return kind in (2, 7) and phase == 1 and inside <= 2 and end <= 2

    def run(self):
        for phase in range(3):
            for i in range(len(self.nodes)):
                sink = self.sink[i]
                if self.kind[i] == 8 or sink is None:
                    continue
                between = self.between(i, sink)
                if self.together(i, between, sink) > self.most:
                    continue
                end = self.kind[self.root(sink)]
                inside = max((self.kind[self.root(n)] for n in between), default=0)
                if (phase == 2 or self.root(i) != self.root(sink)) and self.allowed(i, phase, inside, end):
                    for n in sorted({i} | between):
                        self.join(self.root(n), self.root(sink))
        return self.groups()

    def together(self, i, between, sink):
        return self.size[self.root(sink)] + sum(self.size[n] for n in {i} | between)

    def join(self, group, target):
        if group != target:
            self.into[group] = target
            self.size[target] += self.size[group]
            if self.kind[group] == 4:
                self.kind[target] = 4

    def groups(self):
        by_root, number = {}, 0
        for i, e in enumerate(self.nodes):
            if isinstance(e, relay.Call):
                by_root.setdefault(self.root(i), []).append(number)
                number += 1
        return list(by_root.values())


@right("a union-find, and whole chains of post-dominators that are intersected")
def with_union_find(mod, max_depth=256):
    return _Partition(mod, max_depth).run()


@right("sets of post-dominators by going through the graph until nothing changes")
def by_sets(mod, max_depth=256):
    class Sets(_Partition):
        def meeting(self, i):
            if i == len(self.nodes) - 1:
                self.after = {i: {i}}
            else:
                readers = [self.after[reader] for reader, _ in self.readers[i]]
                self.after[i] = {i} | set.intersection(*readers) if readers else {i}
            common = sorted(self.after[i] - {i})
            if not common:
                return None, 8
            meet, path = common[0], 0
            for reader, edge in self.readers[i]:
                path = max(path, edge)
                while reader != meet:
                    path, reader = max(path, self.path[reader]), self.sink[reader]
            return meet, path

    return Sets(mod, max_depth).run()


@plain("each call has one reader: two phases, no tuples, no diamonds, no limit")
def one_reader(mod, max_depth=256):
    calls = [e for e in _nodes(mod) if isinstance(e, relay.Call)]
    readers = {operand: sink for sink, call in enumerate(calls) for operand in call.args}
    kind = [_kind(call) for call in calls]
    last = list(range(len(calls)))  # of the group of each call
    for phase in (1, 2):
        for i, call in enumerate(calls[:-1]):
            edge, end = _edge(calls[readers[call]], call), last[readers[call]]
            soft = kind[i] <= 1 and edge <= 3 and kind[end] <= 4
            shape = kind[i] == 2 == phase and kind[end] <= 2
            product = kind[i] == 4 and phase == 1 and edge == 0 and kind[end] <= 1
            if soft or shape or product:
                kind[end] = 4 if kind[last[i]] == 4 else kind[end]
                last = [end if n == last[i] else n for n in last]
    return [[i for i, n in enumerate(last) if n == end] for end in set(last)]


@wrong("did", "fuses nothing: a kernel for each call", core=True)
def nothing(mod, max_depth=256):
    return [[at] for at in range(sum(isinstance(e, relay.Call) for e in _nodes(mod)))]


@wrong("spared", "fuses everything: one kernel for the whole function", core=True)
def everything(mod, max_depth=256):
    return [list(range(sum(isinstance(e, relay.Call) for e in _nodes(mod))))]


single_readers = edited("did", "fuses only what has one reader: diamonds stay apart")(
    ("joins(i, phase, sink, between)", "len(readers[i]) == 1 and joins(i, phase, sink, between)")
)
after_reductions = edited("spared", "a reduction fuses with the element-wise op after it", core=True)(
    ("kind[i] <= BROADCAST", "kind[i] <= BROADCAST or kind[i] == REDUCE")
)
shapes_unseen = edited(
    "did", "a broadcasting operator stays broadcasting, even if the operand has the shape of the result"
)(("ELEMWISE if pattern(e) == BROADCAST and shape(a) == shape(e) else pattern(e)", "pattern(e)"))
shapes_behind_convolutions = edited("spared", "lets a convolution take a transpose or a reshape with it")(
    ("paths[i] == ELEMWISE and max(inside, end) <= BROADCAST", "max(paths[i], inside, end) <= INJECTIVE")
)
first_phase_only = edited("did", "one phase only: shapes are not fused, and nothing is fused into tuples", core=True)(
    ("(1, 2, 3)", "(1,)")
)
into_tuples = edited("spared", "fuses into the tuple that main returns: its fields become one kernel")(
    ("end <= OUT_FUSABLE", "end <= TUPLE")
)
patterns_stay = edited("spared", "forgets that a group has a convolution: two end in one kernel", core=True)(
    ("kind[...] = OUT_FUSABLE", "kind[...] += 0")
)
whatever_between = edited(
    "spared", "a convolution looks at the end of its way alone: another one may have joined what is between"
)(("paths[i] == ELEMWISE and max(inside, end) <= BROADCAST", "paths[i] == ELEMWISE and end <= BROADCAST"))
largest_kind = edited("did", "a group is of the largest kind of its nodes")(
    ("kind[max(group[n])] for n in between - {i}", "max(kind[k] for k in group[n]) for n in between - {i}")
)
whole_groups = edited("did", "the limit counts the groups between, also what has joined the end already")(
    ("sum(gathered[n] for n in between)", "sum(gathered[n] for n in {max(group[n]) for n in between})")
)
nodes_join = edited("did", "adds the numbers of all nodes that join, not of the last ones of their groups")(
    ("{max(group[n]) for n in between} - {target}", "{n for n in between if max(group[n]) != target}")
)
end_alone = edited("spared", "the limit counts the post-dominator alone, not what is in its group")(
    ("gathered[max(group[sink])]", "gathered[sink]")
)
any_one = edited("did", "takes every constant of one element for a number")(
    ("not e.data.shape", "all(n == 1 for n in e.data.shape)")
)
types_alike = edited(
    "did", "a comparison is broadcasting where its operands have the shape of the result: types differ"
)(("shape(a) == shape(e)", "a.checked_type == e.checked_type"))
not_twice = edited("did", "fuses nothing that one call reads twice")(
    ("joins(i, phase, sink, between)", "len(readers[i]) == len(dict(readers[i])) and joins(i, phase, sink, between)")
)
elementwise_between = edited("did", "lets only element-wise operators stand on the way of a convolution")(
    (
        "paths[i] == ELEMWISE and max(inside, end) <= BROADCAST",
        "max(paths[i], inside) == ELEMWISE and end <= BROADCAST",
    )
)
past_reductions = edited("spared", "an injective operator looks at the end of its way alone")(
    (
        "kind[i] in (INJECTIVE, TUPLE) and phase == 2 and max(inside, end) <= INJECTIVE",
        "kind[i] in (INJECTIVE, TUPLE) and phase == 2 and end <= INJECTIVE",
    )
)
reductions_in_tuples = edited("spared", "fuses reductions into tuples, too")(
    ("kind[i] <= INJECTIVE", "kind[i] <= REDUCE")
)
edges_of_tuples = edited("did", "gives the edge from a tuple to its projection the pattern of a tuple")(
    ("[(e.tuple_value, INJECTIVE)]", "[(e.tuple_value, TUPLE)]")
)
no_limit = edited("spared", "knows no limit to the size of a group")(("max_depth", "10**9"))
numbers_of_nodes = edited("valid", "numbers all nodes, not the calls alone, or asks TVM's own pass")(("at", "i"))
no_singles = edited("valid", "lists only kernels of several calls")(
    ("list(groups.values())", "[g for g in groups.values() if len(g) > 1]")
)
