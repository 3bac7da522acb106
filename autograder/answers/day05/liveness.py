"""Hidden cases and answers of day05.liveness."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from autograder.authoring.answers import edited, right, wrong
from passlab import random_graph
from passlab.exercises.day05.liveness import live_case
from passlab.fx.cases import call, graph, store
from passlab.judge import Case, cases_in
from passlab.memory.storages import CannotPlan, storages

# ---------------------------------------------------------------------------------------------------- hidden cases


def drawn(rng: random.Random, count: int, size: int, mutation: bool) -> list[Case]:
    """Return random graphs of which no node makes two storages."""
    cases: list[Case] = []
    while len(cases) < count:
        seed = rng.randrange(10**9)

        def build(seed: int = seed) -> fx.GraphModule:
            return random_graph(seed, size, mutation=mutation, random=False)

        gm = build()
        try:
            if any("." in storage.name for storage in storages(gm, *gm.meta["inputs"])):
                continue
        except CannotPlan:
            continue
        writes = " with writes" if mutation else ""
        cases.append(live_case(f"drawn{writes}, number {len(cases) + 1}", build, *gm.meta["inputs"]))
    return cases


def a_chain_of_views(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = m.lin(x)
    v = y.t()[1:].unsqueeze(0)
    z = torch.exp(x)
    z = torch.tanh(z)
    return z.sum() + v.sum()


def given_back(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    torch.tanh(x)
    return y.t(), x, y[0]


def of_the_caller(m: Any, x: fx.Proxy) -> fx.Proxy:
    w = m.w.t()
    y = w + 1
    call(torch.Tensor.add_, y, 1)
    return x + w[0] + y[0] + m.b


def empty(m: Any, x: fx.Proxy) -> tuple:
    nothing = torch.relu(x)[:0] + 1
    y = torch.exp(x)
    return torch.cat([nothing, y]), nothing


def wide(m: Any, x: fx.Proxy) -> fx.Proxy:
    one = x.sum(0, keepdim=True)
    many = one.expand(50, -1)
    store(one, 0, 1.0)
    torch.sigmoid(x)
    return many[3] * 2


def maybe(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    same, copy = y.contiguous(), y.t().contiguous()
    z = torch.exp(same.reshape(-1))
    return z, copy.reshape(-1) + 1, m.drop(y).flatten()


def in_other_numbers(m: Any, x: fx.Proxy) -> tuple:
    wide, positive = x.double(), x > 0
    torch.exp(x)
    return wide * 2, positive.logical_not(), x.half().t()


def of_three(m: Any, x: fx.Proxy) -> tuple:
    a, b, c = torch.relu(x), torch.exp(x), torch.tanh(x)
    return torch.cat([a, b, c]), b * c


def written_last(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.relu(x), torch.exp(x)
    y.add_(1)
    return z


def by_name(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.relu(x), torch.exp(x)
    torch.sigmoid(x)
    call(torch.Tensor.add_, y, z)
    w = torch.tanh(x)
    rows = torch.exp(x).size(0)
    return torch.add(y, other=w) * rows


def padded(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x.new_empty_strided((2, 3), (9, 1)).zero_()
    return y.sum() + x.sum()


def strided(m: Any, x: fx.Proxy) -> tuple:
    y, z = x.contiguous(), x.reshape(-1)
    torch.exp(y)
    w = x.t().contiguous()
    return y + 1, z * 2, w[0]


def in_parts(m: Any, x: fx.Proxy) -> tuple:
    y, z = torch.relu(x), torch.tanh(x)
    parts = y.split(1)
    torch.exp(x)
    return torch.cat(parts), [z, (torch.sigmoid(x),)]


def assigned(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.relu(x), torch.exp(x)
    store(y, 0, 0.0)
    return z


def shaped(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.tanh(x), torch.exp(x)
    return z * y.shape[0]


def detached(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.relu(x), torch.tanh(x)
    v, w = y[1:].detach(), z.data
    torch.exp(x)
    return torch.cat([v, w])


def dropped(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.exp(m.drop(x))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n = rng.randint(3, 6)
    return [
        *cases_in(__name__),
        live_case("a storage larger than its view", graph(padded, (2, n)), (2, n)),
        live_case("a view of a view", graph(a_chain_of_views, (n, n), lin=lambda: nn.Linear(n, n)), (n, n)),
        live_case("results that share", graph(given_back, (n, 3)), (n, 3)),
        live_case("parameters", graph(of_the_caller, (2, n), w=(n, 2), b=(n,)), (2, n)),
        live_case("an input that is transposed", graph(strided, (n, 3)), lambda: torch.ones(3, n).t()),
        live_case("an input that is expanded", graph(strided, (n, 3)), lambda: torch.ones(n, 1).expand(n, 3)),
        live_case("no bytes", graph(empty, (2, n)), (2, n)),
        live_case("one number, seen often", graph(wide, (3, n)), (3, n)),
        live_case("copies only where it must", graph(maybe, (3, n), drop=lambda: nn.Dropout(0.5)), (3, n)),
        live_case("the first of three operands", graph(of_three, (2, n)), (2, n)),
        live_case("written in place, and not read", graph(written_last, (2, n)), (2, n)),
        live_case("numbers of two bytes, of eight and of one", graph(in_other_numbers, (2, n)), (2, n)),
        live_case("read by name, written from, and asked for its size", graph(by_name, (2, n)), (2, n)),
        live_case("all parts at once, and results within results", graph(in_parts, (2, n)), (2, n)),
        live_case("an assignment to a part", graph(assigned, (2, n)), (2, n)),
        live_case("asked for its shape", graph(shaped, (2, n)), (2, n)),
        live_case("detached", graph(detached, (2, n)), (2, n)),
        live_case("a dropout in training", graph(dropped, (2, n), training=True, drop=nn.Dropout), (2, n)),
        *drawn(rng, 3, 20, False),
        *drawn(rng, 3, 20, True),
    ]


# ---------------------------------------------------------------------------------------------------- answers


class _All(fx.Interpreter):
    """Runs a graph and keeps every value."""

    def __init__(self, gm, inputs):
        super().__init__(gm, garbage_collect_values=False)
        self.value = {}
        self.run(*inputs)

    def run_node(self, node):
        self.value[node] = super().run_node(node)
        return self.value[node]


def _storages_of(value):
    return [t.untyped_storage() for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _owned(gm, inputs):
    return {t.untyped_storage().data_ptr() for t in (*inputs, *gm.parameters(), *gm.buffers())}


@right("runs first, and collects the ranges from the values afterwards")
def afterwards(gm, inputs):
    value = _All(gm, inputs).value
    owned = _owned(gm, inputs)
    nodes = list(gm.graph.nodes)
    maker, upper, size, lower = {}, {}, {}, {}
    for step, node in enumerate(nodes):
        for storage in _storages_of([value[n] for n in (*node.all_input_nodes, node)]):
            at = storage.data_ptr()
            if at in owned or not storage.nbytes():
                continue
            if at not in maker:
                maker[at], lower[at], size[at] = node.name, step, storage.nbytes()
            upper[at] = step + 1
    return {maker[at]: (lower[at], upper[at], size[at]) for at in maker}


@right("runs on fake tensors, as the library does")
def on_fakes(gm, inputs):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = {}

    class Faking(fx.Interpreter):
        def fetch_attr(self, target):
            value = super().fetch_attr(target)
            if isinstance(value, torch.Tensor):
                return fakes.setdefault(value.untyped_storage().data_ptr(), {}).setdefault(
                    target, mode.from_tensor(value)
                )
            return value

        def call_module(self, target, args, kwargs):
            module = super().fetch_attr(target)
            state = {n: mode.from_tensor(t) for n, t in (*module.named_parameters(), *module.named_buffers())}
            fake_state.extend(state.values())
            return torch.func.functional_call(module, state, args, kwargs)

        def run_node(self, node):
            value[node] = super().run_node(node)
            return value[node]

    value, fake_state = {}, []
    with mode:
        Faking(gm, garbage_collect_values=False).run(*map(mode.from_tensor, inputs))
    nodes, ranges = list(gm.graph.nodes), {}
    outside = {s._cdata for n in nodes if n.op in ("placeholder", "get_attr") for s in _storages_of(value[n])}
    outside |= {t.untyped_storage()._cdata for t in fake_state}
    for step, node in enumerate(nodes):
        for storage in _storages_of([value[n] for n in (*node.all_input_nodes, node)]):
            if storage._cdata not in outside and storage.nbytes():
                name, first, _, size = ranges.get(storage._cdata, (node.name, step, step, storage.nbytes()))
                ranges[storage._cdata] = name, first, step + 1, size
    return {name: (lower, upper, size) for name, lower, upper, size in ranges.values()}


@wrong("spared", "every value has memory of its own: views, too")
def values_only(gm, inputs):
    value = _All(gm, inputs).value
    ranges = {}
    steps = {node: step for step, node in enumerate(gm.graph.nodes)}
    for node, step in steps.items():
        tensors = [t for t in tree_leaves(value[node]) if isinstance(t, torch.Tensor)]
        if node.op.startswith("call") and tensors and tensors[0].nbytes:
            last = max((steps[user] for user in node.users), default=step)
            ranges[node.name] = step, last + 1, tensors[0].nbytes
    return ranges


@wrong("did", "a storage ends with the last reader of the value that made it, although its views are read later")
def without_views(gm, inputs):
    ranges, steps = afterwards(gm, inputs), {node.name: step for step, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        if node.name in ranges:
            lower, _, size = ranges[node.name]
            ranges[node.name] = lower, max([lower, *(steps[user.name] for user in node.users)]) + 1, size
    return ranges


@wrong("did", "what the program returns is done, or the last step is the end of the range")
def outputs_die(gm, inputs):
    last = len(gm.graph.nodes) - 1
    return {n: (lo, min(hi, last), size) for n, (lo, hi, size) in afterwards(gm, inputs).items()}


@wrong("did", "a result that nothing reads needs no memory")
def unused_is_nothing(gm, inputs):
    return {n: (lo, hi, size) for n, (lo, hi, size) in afterwards(gm, inputs).items() if hi > lo + 1}


@wrong("spared", "everything lives to the end, as without a plan")
def forever(gm, inputs):
    return {n: (lo, len(gm.graph.nodes), size) for n, (lo, hi, size) in afterwards(gm, inputs).items()}


@wrong("spared", "what the caller has is planned, too: the program's inputs or its parameters")
def callers_too(gm, inputs):
    value = _All(gm, inputs).value
    ranges = afterwards(gm, inputs)
    for step, node in enumerate(gm.graph.nodes):
        if node.op in ("placeholder", "get_attr") and (storages := _storages_of(value[node])):
            ranges[node.name] = step, len(gm.graph.nodes), storages[0].nbytes()
    return ranges


@wrong("did", "a storage is as large as the value that it was made with")
def as_large_as_its_value(gm, inputs):
    value, ranges = _All(gm, inputs).value, afterwards(gm, inputs)
    sizes = {n.name: sum(t.nbytes for t in tree_leaves(value[n]) if isinstance(t, torch.Tensor)) for n in value}
    return {name: (lower, upper, sizes[name]) for name, (lower, upper, _) in ranges.items()}


@wrong("did", "takes four bytes for each number, whatever its dtype")
def four_bytes(gm, inputs):
    value = _All(gm, inputs).value
    width = {n.name: t.element_size() for n in value for t in tree_leaves(value[n]) if isinstance(t, torch.Tensor)}
    ranges = afterwards(gm, inputs)
    return {name: (lower, upper, 4 * size // width[name]) for name, (lower, upper, size) in ranges.items()}


on_copies = edited("did", "runs on copies of the inputs, which are contiguous")(
    (
        "recorder = Recorder(gm, inputs)",
        "inputs = [x.clone().contiguous() for x in inputs]\nrecorder = Recorder(gm, inputs)",
    )
)
only_results = edited("did", "reading touches nothing: only results count")(
    ("tree_leaves((operands, value))", "tree_leaves(value)")
)
two_operands = edited("did", "looks at two operands of a node")(("node.all_input_nodes", "node.all_input_nodes[-2:]"))
unread_writes = edited("did", "an operation in place that nothing reads touches nothing")(
    (
        "for tensor in tree_leaves((operands, value)): ...",
        'for tensor in tree_leaves((operands, value) if node.users or not str(node.target).endswith("_") else ()):\n'
        "    ...",
    )
)
without_names = edited("did", "operands that are given by name, or of which only the size is read, are overlooked")(
    ("[... for operand in ...]", "[... for operand in ... if operand not in node.kwargs.values()]")
)
no_parts = edited(
    "did", "the parts of a split are touched only where one is taken out, or results within results are overlooked"
)(
    (
        "operands = [self.env[operand] for operand in node.all_input_nodes]",
        "operands = [v for v in map(self.env.get, node.all_input_nodes) if isinstance(v, Tensor)]",
    )
)
bases = edited("did", "asks a view for its base: what is detached from a value has its memory, and names no base")(
    ("self.touch(node.name, tensor.untyped_storage())", "self.touch(node.name, tensor)"),
    (
        "at = storage.data_ptr()",
        "tensor, storage = storage, storage.untyped_storage()\n"
        "at = (tensor if tensor._base is None else tensor._base).data_ptr()",
    ),
)
without_values = edited("did", "an assignment to a part has no value, and is said to touch nothing")(
    ("(operands, value)", "(operands, value) if value is not None else ()")
)
without_shapes = edited("did", "asking for a shape is said to touch nothing")(
    ("[... for operand in ...]", "[... for operand in ... if node.target is not getattr]")
)
evaluated = edited("did", "runs the graph in evaluation mode, in which a dropout makes nothing")(
    ("recorder = Recorder(gm, inputs)", "recorder = Recorder(gm.eval(), inputs)")
)
