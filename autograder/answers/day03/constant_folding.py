"""Hidden cases and answers of day03.constant-folding."""

from __future__ import annotations

import itertools
import math
import operator
import random
from functools import cache
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as F

from autograder.answers.day03._shared import generated
from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day03.constant_folding import constants, still_read
from passlab.fx.cases import call, case, graph, least, most, nodes, read, store, unrun
from passlab.fx.effects import effects, written
from passlab.judge import Case, Expect, core

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Names that a pass could give to the value of tanh(w).
TAKEN = ("folded", "folded_0", "folded_tanh", "folded_tanh_", "c_tanh", "const_tanh", "constant_tanh", "tanh_folded")


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.large = nn.Parameter(torch.randn(40, 40), requires_grad=False)


NEVER = "It has the same value on every call, so it can be computed now."
WRITTEN = "The program writes into this memory: what is computed from it is not constant."


def at_the_limit(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * (m.u.reshape(-1, 1) * m.v) + torch.exp(m.u)


def immense(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * (m.u.reshape(-1, 1) * m.v).amax()


BLOWN = "Folding blew up memory."


@case(
    "chunks and a layer of a weight",
    graph(..., (4, 4), w=(4, 4), lin=lambda: nn.Linear(4, 4, bias=False)),
    did=[most(op, 0, NEVER) for op in ("chunk", "cat", "t", "Linear")],
    cost=[nodes(6, NEVER)],
)
def layer(m: Any, x: fx.Proxy) -> fx.Proxy:
    a, b = m.w.chunk(2, 0)
    return torch.cat([b, a]).t() @ m.lin(torch.tanh(m.w)) + x


@case(
    "operands by name",
    graph(..., (3, 3), w=(3, 3)),
    did=[most("softmax", 0, NEVER), most("mm", 0, NEVER)],
)
def by_name(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * torch.softmax(m.w, dim=0) + torch.mm(input=m.w, mat2=m.w)


@case("written through a view", graph(..., (2, 3), w=(2, 3)), spared=[least("exp", 1, WRITTEN)])
def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
    m.w.view(-1).mul_(0.5)
    return x + torch.exp(m.w)


@case("the result is written", graph(..., (2, 3), w=(2, 3)), spared=[least("exp", 1, WRITTEN)])
def written_result(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = torch.exp(m.w)
    c.add_(x)
    return c * 2


@case(
    "dropout of a weight",
    graph(..., (2, 3), training=True, w=(2, 3), drop=nn.Dropout, off=lambda: nn.Dropout().eval()),
    did=[most("exp", 0, NEVER), most("tanh", 0, NEVER)],
    spared=[least("Dropout", 1, "This module draws."), least("bernoulli", 1, "bernoulli draws.")],
)
def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x + m.drop(torch.exp(m.w)) + m.off(torch.tanh(m.w)) + torch.bernoulli(torch.sigmoid(m.w))


@case(
    "shapes of a weight",
    graph(..., (2, 3), w=(2, 3)),
    did=[most(op, 0, NEVER) for op in ("add", "sub", "dim")],
)
def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x.reshape(m.w.shape).flatten() / math.sqrt(2) * (m.w.dim() + m.w.numel())
    return torch.sum(y, dim=m.w.dim() - 2, keepdim=True)


@case("constants are returned", graph(..., (2, 3), w=(2, 3)), did=[most("t", 0, NEVER)])
def returned(m: Any, x: fx.Proxy) -> tuple:
    return x + 1, m.w.t() * 2, m.w.chunk(2)


@case("read, then written", graph(..., (2, 3), w=(2, 3)), spared=[least("exp", 1, WRITTEN)])
def read_then_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x * torch.exp(m.w)
    m.w.add_(1)
    return y


@case(
    "a layer's weight is written",
    graph(..., (3, 3), w=(3, 3), lin=lambda: nn.Linear(3, 3), other=lambda: nn.Linear(3, 3)),
    did=[most("Linear", 1, "Nothing writes into this layer's weights.")],
    spared=[least("Linear", 1, WRITTEN)],
)
def layer_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    read(x, "lin.weight").view(-1).mul_(0.5)
    return x + m.lin(m.w) + m.other(m.w)


@case(
    "statistics of a batch norm in training mode",
    graph(..., (4, 3), training=True, bn=lambda: nn.BatchNorm1d(3)),
    spared=[least("rsqrt", 1, "Each call of the batch norm updates its running variance.")],
)
def statistics(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.bn(x) * torch.rsqrt(read(x, "bn.running_var")) + m.bn.weight.abs()


@case(
    "parameters over the limit",
    graph(..., (2, 3), large=(40, 40), part=lambda: Part()),
    4096,
    did=[most(op, 0, "Its result has four bytes, however large the parameter.") for op in ("sum", "mean")],
)
def summed(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * m.large.sum() + m.part.large.mean()


@case(
    "a weight that is also read as it is",
    graph(..., (2, 3), w=(2, 3)),
    did=[most("tanh", 0, NEVER)],
    cost=[still_read("w", "w itself was replaced: a copy of a parameter takes memory and saves nothing.")],
)
def also_plain(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * m.w + torch.tanh(m.w)


@case(
    "names that are taken",
    graph(..., (2, 3), w=(2, 3), **dict.fromkeys(TAKEN, (2, 3))),
    did=[most("tanh", 0, NEVER)],
)
def names_taken(m: Any, x: fx.Proxy) -> fx.Proxy:
    for name in TAKEN:
        x = x * getattr(m, name)
    return x + torch.tanh(m.w)


larger_than_memory = Case(
    "larger than memory",
    lambda: (unrun(immense, (2, 3), u=(60_000,), v=(60_000,))(), 1 << 20),
    ("valid", "spared"),
    expect=Expect(spared=[least("mul", 2, "The product of two vectors of 240,000 bytes has 14,400,000,000.")]),
)


def new(x: fx.Proxy, make: Any, *args: Any) -> fx.Proxy:
    """Put a call without tensors into the graph that is being traced."""
    return x.tracer.create_proxy("call_function", make, args, {})


@case(
    "made of numbers alone",
    graph(..., (2, 4)),
    did=[most("arange", 0, NEVER), most("mul", 1, NEVER)],
    spared=[least("rand", 1, "Every call draws new numbers.")],
)
def numbers_alone(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * (new(x, torch.arange, 4) * 2) + new(x, torch.rand, 4)


@case(
    "names of parts that are taken",
    graph(..., (2, 3), w=(2, 3), **dict.fromkeys(TAKEN, lambda: nn.Sequential(nn.ReLU()))),
    did=[most("tanh", 0, NEVER)],
)
def parts_taken(m: Any, x: fx.Proxy) -> fx.Proxy:
    for name in TAKEN:
        x = getattr(m, name)(x)
    return x + torch.tanh(m.w)


@case("a size is compared", graph(..., (2, 3), w=(2, 3)), did=[most(op, 0, NEVER) for op in ("size", "eq")])
def compared(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x.sum(0, keepdim=m.w.size(0) == 2)


@case("a size is returned", graph(..., (2, 3), w=(2, 3)), did=[most("size", 0, NEVER)])
def size_returned(m: Any, x: fx.Proxy) -> tuple:
    return x + 1, m.w.size(1)


@case("an operand by name is an input", graph(..., (2, 3), w=(2, 3)), did=[most("exp", 0, NEVER)])
def input_by_name(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.add(torch.exp(m.w), other=x)


@case(
    "a weight of doubles, and a dropout that is switched off",
    graph(..., (2, 3), w=torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64), b=(3,)),
    did=[most("exp", 0, NEVER), most("dropout", 0, "It is switched off, and so it is pure.")],
)
def doubles(m: Any, x: fx.Proxy) -> tuple:
    return x + F.dropout(m.b, 0.5, False), x + torch.exp(m.w)


@case(
    "nothing but empty tensors",
    graph(..., (2, 3), w=(2, 3), none=(0, 3)),
    0,
    did=[most("exp", 0, "An empty tensor has no bytes, which are not more than the limit.")],
    spared=[least("tanh", 1, "Its result has 24 bytes; the limit is 0.")],
)
def empty(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.cat([x, torch.exp(m.none)]) + torch.tanh(m.w)


@case(
    "an assertion, and a call that nothing is known about",
    graph(..., (4, 3), w=(4, 3), v=(4, 3)),
    did=[most("exp", 0, NEVER)],
    spared=[
        least("_assert", 1, "It may stop the program: it is not pure."),
        least("pca_lowrank", 1, "Its effects are 'unknown', so it stays (it draws, in fact)."),
    ],
)
def impure(m: Any, x: fx.Proxy) -> fx.Proxy:
    torch._assert(m.w.size(0) == 4, "four rows")
    return x + torch.exp(m.w) + torch.pca_lowrank(m.v, 2)[1].sum() * 0


@case(
    "written by functions",
    graph(..., (3,), w=(3,), v=(3,), u=(3,), c=(3,), mean=(3,), var=torch.ones(3)),
    spared=[least(op, 1, WRITTEN) for op in ("exp", "tanh", "sigmoid", "sin", "rsqrt")],
)
def by_functions(m: Any, x: fx.Proxy) -> fx.Proxy:
    store(m.w, 0, 0.5)
    F.relu(m.v, inplace=True)
    call(torch.cos, x, out=m.u)
    call(operator.imul, m.c, 0.5)
    y = F.batch_norm(torch.stack([x, -x]), m.mean, m.var, training=True)
    return y + torch.exp(m.w) + torch.tanh(m.v) + torch.sigmoid(m.u) + torch.sin(m.c) + torch.rsqrt(m.var)


@case(
    "a shape is taken apart",
    graph(..., (2, 3), w=(2, 3)),
    did=[most(op, 0, "The shape of a weight never changes.") for op in ("getattr", "getitem", "sqrt")],
)
def taken_apart(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * math.sqrt(m.w.shape[-1])


@case(
    "bytes of other dtypes",
    graph(..., (2, 3), w=torch.ones(2, 3, dtype=torch.float64)),
    40,
    did=[most("gt", 0, "Its result has 6 bytes.")],
    spared=[least("exp", 1, "Its result has 48 bytes; the limit is 40.")],
)
def other_dtypes(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * (m.w > 0) + torch.exp(m.w)


def trained() -> fx.GraphModule:
    gm = graph(lambda m, x: x + torch.exp(m.w).t(), (2, 3), w=(3, 2))()
    return gm.requires_grad_(True)


trained_weight = case("a weight that is trained", trained, did=[most("exp", 0, NEVER), most("t", 0, NEVER)])


def plain_chain(length: int) -> Case:
    @core
    @case(
        "plain: a long expression",
        graph(..., (2, 3), w=(3,), b=(3,)),
        did=[most("tanh", 0, NEVER), most("neg", 1, NEVER)],
        cost=[nodes(7, "An unused constant still takes memory. Erase it.", dead=True)],
    )
    def program(m: Any, x: fx.Proxy) -> fx.Proxy:
        w = m.w
        for i in range(length):
            w = torch.tanh(w + i) * m.b
        return -(x * w) + w

    return program


def plain_drawn(rng: random.Random) -> Case:
    op = rng.choice((torch.exp, torch.sigmoid, torch.neg, torch.cos))

    @core
    @case(
        f"plain: {op.__name__} of a weight, drawn",
        graph(..., (2, rows := rng.randrange(3, 9)), w=(rows,)),
        did=[most(op.__name__, 0, NEVER)],
    )
    def program(m: Any, x: fx.Proxy) -> fx.Proxy:
        return torch.tanh(x) * op(m.w)

    return program


@core
@case(
    "plain: two results, and a weight that is read as it is",
    graph(..., (2, 3), w=(3,)),
    did=[most("exp", 0, NEVER), most("tanh", 0, NEVER)],
)
def plain_two(m: Any, x: fx.Proxy) -> tuple:
    e = torch.exp(m.w)
    return x * e, x + torch.tanh(e), x - m.w


def limits(rows: int) -> list[Case]:
    """Return programs with a matrix of `rows` × `rows`, and limits beside its size."""
    matrix = 4 * rows * rows

    @case(
        "large on the way to small",
        graph(..., (2, rows), u=(rows,)),
        4096,
        spared=[least("expand", 1, "Its result is over the limit."), least("sum", 1, "Its operand is not folded.")],
    )
    def large_then_small(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x + m.u.expand(5000, rows).sum(0)

    return [
        case(
            "exactly the limit",
            graph(at_the_limit, (rows, rows), u=(rows,), v=(rows,)),
            matrix,
            did=[most("mul", 1, "Its bytes are not more than the limit."), most("exp", 0, NEVER)],
        ),
        case(
            "one byte under",
            graph(at_the_limit, (rows, rows), u=(rows,), v=(rows,)),
            matrix - 1,
            did=[most("exp", 0, NEVER)],
            spared=[constants(matrix - 1, BLOWN), least("mul", 2, BLOWN)],
        ),
        large_then_small,
    ]


def grids(rows: int) -> Case:
    @case(
        "two results over the limit",
        graph(..., (2, 3), u=(rows,), v=(rows,)),
        8 * rows * rows - 1,
        spared=[least("meshgrid", 1, f"Its two results together have {8 * rows * rows} bytes.")],
    )
    def program(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x + torch.meshgrid(m.u, m.v, indexing="ij")[0].sum()

    return program


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    rows = rng.choice((6, 10))
    return [
        plain_chain(random.Random(seed + 1).randrange(2, 6)),
        plain_two,
        plain_drawn(random.Random(seed + 2)),
        layer,
        by_name,
        through_a_view,
        written_result,
        modules,
        *limits(rows),
        larger_than_memory,
        sizes,
        returned,
        read_then_written,
        layer_written,
        statistics,
        summed,
        grids(rows),
        also_plain,
        names_taken,
        numbers_alone,
        parts_taken,
        compared,
        size_returned,
        input_by_name,
        doubles,
        empty,
        impure,
        by_functions,
        taken_apart,
        other_dtypes,
        trained_weight,
        *generated("constant-folding", rng, 4, 25, NEVER, only=("constant", "pointwise", "views", "random", "dead")),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _size(meta):
    if hasattr(meta, "dtype"):
        return meta.shape.numel() * meta.dtype.itemsize
    return sum(map(_size, meta)) if isinstance(meta, tuple | list) else 0


def _put(gm, node, value):
    """Return a get_attr node of a new buffer that holds `value`."""
    name = next(name for i in itertools.count() if not hasattr(gm, name := f"c{i}_{node.name}"))
    gm.register_buffer(name, value.detach().clone())
    with gm.graph.inserting_before(node):
        new = gm.graph.get_attr(name)
    new.meta = dict(node.meta)
    return new


def _fold(gm, small, varies=effects):
    """Fold node by node, in order; a folded node becomes a get_attr at once, so that the next one sees a constant."""
    memory = written(gm.graph)
    parts = fx.Interpreter(gm, garbage_collect_values=False)
    known = parts.env  # nodes whose value is known, tensors or not
    for node in list(gm.graph.nodes):
        if node.op == "get_attr" and node not in memory:
            known[node] = operator.attrgetter(node.target)(gm)
        if node.op == "get_attr" or node in memory or varies(node) or not all(n in known for n in node.all_input_nodes):
            continue
        if not small(node.meta.get("tensor_meta")):
            continue
        with torch.no_grad():
            value = parts.run_node(node)
        if isinstance(value, torch.Tensor):
            new = _put(gm, node, value)
            known[new] = value
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
        elif isinstance(value, bool | int | float | torch.Size):
            for user in list(node.users):
                user.args, user.kwargs = map_arg(
                    (user.args, user.kwargs), lambda n, node=node, value=value: value if n is node else n
                )
            gm.graph.erase_node(node)
        else:
            known[node] = value
    for node in reversed(gm.graph.nodes):
        if not node.users and node in known:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("turns each node into a constant at once, so that later nodes see one, and sweeps at the end")
def one_by_one(gm, limit=1 << 20):
    return _fold(gm, lambda meta: _size(meta) <= limit)


MISSING = object()


def _call(gm, node, args, kwargs):
    """Run a node on constant operands."""
    with torch.no_grad():
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return (gm.get_submodule(node.target) if node.op == "call_module" else node.target)(*args, **kwargs)


def _fill_in(gm, node, old, value):
    """Put the value of an operand into the graph: a tensor as a buffer, for all its readers, others into the node."""
    if isinstance(value, torch.Tensor):
        old.replace_all_uses_with(_put(gm, old, value))
    elif not isinstance(value, tuple | list) or isinstance(value, torch.Size):
        node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda n: value if n is old else n)


@right("asks from the readers down: what is this operand on every call? and remembers the answers")
def on_demand(gm, limit=1 << 20):
    memory = written(gm.graph)

    @cache
    def value(node):
        if node in memory or effects(node) or any(value(n) is MISSING for n in node.all_input_nodes):
            return MISSING
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(gm)
        if _size(node.meta.get("tensor_meta")) > limit:
            return MISSING
        return _call(gm, node, *map_arg((node.args, node.kwargs), value))

    dead = []
    for node in list(gm.graph.nodes):
        if value(node) is not MISSING:
            dead.append(node)
            continue
        for old in node.all_input_nodes:
            if old.op != "get_attr" and value(old) is not MISSING:
                _fill_in(gm, node, old, value(old))
    for node in reversed(dead):
        if not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@wrong("spared", "constant operands make a constant: a draw over a weight is frozen to one drawn value")
def freezes_noise(gm, limit=1 << 20):
    return _fold(gm, lambda meta: _size(meta) <= limit, varies=lambda node: effects(node) - {"draws"})


@wrong("same", "runs the graph on the example inputs and keeps whatever does not read an input directly", core=True)
def folds_the_example(gm, limit=1 << 20):
    class Record(fx.Interpreter):
        def run_node(self, node):
            values[node] = super().run_node(node)
            return values[node]

    values = {}
    Record(gm).run(*gm.meta["inputs"])
    for node in list(gm.graph.nodes):
        if not node.op.startswith("call") or effects(node) or any(n.op == "placeholder" for n in node.all_input_nodes):
            continue
        if isinstance(values[node], torch.Tensor) and values[node].nbytes <= limit:
            node.replace_all_uses_with(_put(gm, node, values[node]))
            gm.graph.erase_node(node)
    return gm


SMALL = 'nbytes(node.meta.get("tensor_meta")) <= limit'
COMPUTED = "interpreter.run_node(node)"
FOLD = f"constant[node] = {COMPUTED}"

ignores_writes = edited("spared", "takes a parameter for a constant, even one that the program itself writes into")(
    ("memory = written(gm.graph)", "memory = set()")
)
ignores_later_writes = edited(
    "spared", "asks only what was written before: the next call reads the weight after the write"
)(
    (
        "memory = ...",
        (
            'writers = [n for n in gm.graph.nodes if "writes" in effects(n)]\n'
            "memory = {n for n in ... if writers and n > writers[0]}"
        ),
    )
)
copies_parameters = edited("cost", "takes a parameter for a constant to fold: it is copied into a buffer")(
    ('node.op == "get_attr" or all(... for user in node.users)', "all(... for user in node.users)")
)
flat_names = edited("valid", "looks for a parameter on the top module only: it may lie in a part, at lin.weight")(
    (FOLD, f'constant[node] = getattr(gm, node.target) if node.op == "get_attr" else {COMPUTED}')
)
ignores_the_limit = edited("spared", "folds whatever it can, and ignores the limit")((SMALL, "True"))
looks_too_late = edited(
    "valid", "computes first and then looks at the size, or catches the error: a huge constant takes all memory"
)(
    ("not varies and (...)", "not varies"),
    (
        "constant[node] = ...",
        (
            'value = ...\nif node.op == "get_attr" or nbytes(node.meta.get("tensor_meta")) <= limit:\n'
            "    constant[node] = value"
        ),
    ),
)
counts_elements = edited("spared", "compares elements, not bytes, with the limit")(("... * meta.dtype.itemsize", "..."))
tensors_only = edited("did", "folds tensors only: the size of a weight, and what follows from it, stays in the graph")(
    ("bool | int | float | torch.Size", "()")
)
one_step = edited(
    "did", "looks one step deep: a node counts only if its operands are get_attr nodes from the start", core=True
)(("n not in constant", 'n.op != "get_attr" or n not in constant'))
leaves_leftovers = edited(
    "cost", "leaves the weights it folded, and every step on the way, behind as unused constants", core=True
)(("reversed(constant)", "()"))
parameters = edited("did", "makes parameters of what it folds, which an optimizer would train")(
    (
        "gm.register_buffer(name, value.clone())",
        "gm.register_parameter(name, nn.Parameter(value.clone()))",
    )
)
positional = edited("did", "leaves a call with operands by name alone")(
    ("varies = ...", 'varies = ... or (node.op == "call_function" and bool(node.kwargs))')
)
weights_only = edited("did", "a constant is made of weights: what is made of numbers alone stays")(
    ("varies = ...", 'varies = ... or not (node.all_input_nodes or node.op == "get_attr")')
)

attributes = edited("did", "sets an attribute of gm, which no state_dict holds and no .to() moves")(
    ("gm.register_buffer(name, value.clone())", "setattr(gm, name, value.clone())")
)
floats = edited("same", "turns each constant into float32")(("value.clone()", "value.clone().float()"))
state_names = edited("valid", "looks for free names among parameters and buffers: a part has a name, too")(
    ("hasattr(gm, name)", "name in gm.state_dict()")
)
assertions = edited("spared", "an assertion about constants is not worth a node")(
    ("effects(node)", 'effects(node) - {"stops"}')
)
bare_dropouts = edited("did", "takes each dropout for a draw, whether it is switched on or not")(
    ("varies = ...", "varies = ... or node.target is F.dropout")
)
untrained = edited("did", "leaves weights that an optimizer trains alone")(
    ("varies = ...", 'varies = ... or (node.op == "get_attr" and operator.attrgetter(node.target)(gm).requires_grad)')
)
unnamed = edited("valid", "asks only the positional operands whether they are constant")(
    ("n not in constant", "n not in constant and n not in node.kwargs.values()")
)
no_limit_of_zero = edited("spared", "a limit of 0 is no limit")(
    (SMALL, f"{SMALL.removesuffix('limit')}(limit or 1 << 20)")
)
some_elements = edited("did", "leaves empty tensors alone")(
    ("isinstance(value, torch.Tensor)", "isinstance(value, torch.Tensor) and value.numel()")
)
no_flags = edited("did", "puts integers, floats and shapes into operands, but no booleans")(
    ("isinstance(value, bool | int | float | torch.Size)", "type(value) in (int, float, torch.Size)")
)
calls_only = edited("did", "puts numbers into calls, and not into the output")(
    ("list(node.users)", '[user for user in node.users if user.op != "output"]')
)

by_suffix = edited("spared", "only methods with names that end in _ write")(
    (
        "memory = written(gm.graph)",
        'writers = [n for n in gm.graph.nodes if n.op == "call_method" and n.target.endswith("_")]\n'
        "memory = written(gm.graph) if writers else set()",
    )
)
four_bytes = edited("spared", "counts four bytes for each number, whatever its dtype")(
    ("... * meta.dtype.itemsize", "... * 4")
)
no_attributes = edited("did", "folds sizes, and leaves what is taken from a shape")(
    ("varies = ...", "varies = ... or node.target is getattr")
)


@plain("functions of attributes of gm: no limit, numbers, methods, draws or writes")
def functions_only(gm, limit=0):
    values = {}
    for node in list(gm.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(gm, node.target)
        elif node.op == "call_function" and all(n in values for n in node.all_input_nodes):
            value = node.target(*map_arg(node.args, values.__getitem__))
            gm.register_buffer(f"constant_{node.name}", value)
            with gm.graph.inserting_before(node):
                constant = gm.graph.get_attr(f"constant_{node.name}")
            values[constant] = value
            node.replace_all_uses_with(constant)
            gm.graph.erase_node(node)
    for node in values:
        if node.op == "get_attr" and not node.users:
            gm.graph.erase_node(node)
    return gm


EQUIVALENT = {
    ("folded.meta = dict(node.meta)", "pass"): "shapes on the result are for the next pass",
    ("dict(node.meta)", "node.meta"): "the node whose dictionary it shares is erased",
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
    ("sum(...) if ... else 0", "sum(...) if ... else 1"): "a number of one byte is under any limit",
}
