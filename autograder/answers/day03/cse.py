"""Hidden cases and answers of day03.cse."""

from __future__ import annotations

import operator
import random
import re
import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.node import map_arg
from torch.fx.passes.dialect.common.cse_pass import CSEPass

from autograder.answers.day03._shared import generated, zoo
from autograder.authoring.answers import edited, plain, right, wrong
from passlab.fx.cases import call, case, graph, least, most, read, store
from passlab.fx.effects import effects, written
from passlab.judge import Case, core, drawn

# ---------------------------------------------------------------------------------------------------- hidden cases


ONCE = "The same value is computed more than once."
OTHER = "They are not the same value."
ATEN = torch.ops.aten
DREW = "Your CSE merged two random draws, but each call draws new numbers."
#: What a key of raw operands loses: a slice can be hashed from Python 3.12 on, and 1 equals True.
RAW = "valid" if sys.version_info < (3, 12) else "same"
TIME = "The program writes between these two reads: they read the same memory at different times."
ZEROS = torch.zeros(3)
LAYERS: dict[str, Any] = {"one": lambda: nn.Linear(3, 3), "two": lambda: nn.Linear(3, 3), "drop": nn.Dropout}


@drawn
def plain_towers(rng: random.Random) -> list[Case]:
    height = rng.randrange(3, 20)

    def tower(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = b = x
        for i in range(height):
            a, b = torch.tanh(a + i), torch.tanh(b + i)
        return a * b

    return [core(case("plain: a tower", graph(tower, (2, 3)), did=[most(op, height, ONCE) for op in ("tanh", "add")]))]


@core
@case(
    "plain: three alike and two not",
    graph(..., (2, 3), w=(3, 3)),
    did=[most("matmul", 1, ONCE, dead=True), most("clamp", 2, ONCE, dead=True)],
    spared=[least("clamp", 2, OTHER)],
)
def plain_three(m: Any, x: fx.Proxy) -> fx.Proxy:
    a, b, c = x @ m.w, x @ m.w, x @ m.w
    return torch.clamp(a, max=1) + torch.clamp(b, min=1) * torch.clamp(c, max=1)


@case(
    "one module twice, and its like",
    graph(..., (2, 3), training=True, **LAYERS),
    did=[most("Linear", 2, ONCE)],
    spared=[
        least("Linear", 2, "Two modules of one class have weights of their own."),
        least("Dropout", 2, DREW),
    ],
)
def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
    shared = m.one(x) * m.one(x)
    return shared + m.two(x) + m.drop(x) * m.drop(x)


@case("zero and minus zero", graph(..., (2, 3)), spared=[least("mul", 2, OTHER), least("clamp", 2, OTHER)])
def zeros(m: Any, x: fx.Proxy) -> tuple:
    return 1 / (x * 0.0), 1 / (x * -0.0), torch.clamp(x, 0, None), torch.clamp(x, None, 0)


@case("six deep", graph(..., (2, 3)), did=[most("tanh", 6, ONCE), most("add", 6, ONCE)])
def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = b = x
    for i in range(6):
        a, b = torch.tanh(a + i), torch.tanh(b + i)
    return a * b


@case(
    "operators by overload",
    graph(..., (2, 3)),
    did=[most("mul", 2, ONCE)],
    spared=[least("rand_like", 2, DREW)],
)
def overloads(m: Any, x: fx.Proxy) -> fx.Proxy:
    a, b = call(ATEN.mul.Tensor, x, x), call(ATEN.mul.Tensor, x, x)
    c, d = call(ATEN.rand_like.default, x), call(ATEN.rand_like.default, x)
    return a + b + c * d


@case("written through a view", graph(..., (2, 3)), spared=[least("mul", 2, TIME)])
def views(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    flat = y.view(-1)
    before = y * 2
    flat.add_(1)
    return before + y * 2


@case("an attribute is written", graph(..., (2, 3), steps=torch.zeros(3)), spared=[least("mul", 3, TIME)])
def attribute(m: Any, x: fx.Proxy) -> fx.Proxy:
    before = x + read(x, "steps") * 2
    read(x, "steps").add_(1)
    return before * (x + read(x, "steps") * 2)


@case("a row is written", graph(..., (2, 3)), spared=[least("sum", 2, TIME), least("getitem", 2, TIME)])
def stored(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x * 1.5
    first = y[0].sum()
    store(y, 0, 2.0)
    return y * first + y[0].sum()


@case("an assertion between", graph(..., (2, 3)), did=[most("exp", 1, "An assertion writes nothing.")])
def asserting(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    torch._assert(x.dim() == 2, "two dimensions, please")
    return a + torch.exp(x)


@case(
    "a batch norm in training mode",
    graph(..., (4, 3), training=True, bn=lambda: nn.BatchNorm1d(3)),
    spared=[least("BatchNorm1d", 2, "Each call updates the running statistics.")],
)
def norm(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.bn(x) + m.bn(x)


@case(
    "keywords in another order",
    graph(..., (2, 3)),
    did=[most("sum", 1, ONCE), most("softmax", 2, ONCE)],
    spared=[least("softmax", 2, OTHER)],
)
def keywords(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = F.softmax(input=x, dim=-1, dtype=torch.float64)
    b = torch.sum(x, dim=[0, 1], keepdim=True) + F.softmax(dim=-1, dtype=torch.float64, input=x)
    return a * b + torch.sum(x, keepdim=True, dim=[0, 1]) + F.softmax(input=x, dim=-1, dtype=torch.float32)


@case(
    "reads after the last write",
    graph(..., (2, 3), steps=torch.zeros(3)),
    did=[
        most("get_attr", 1, "They are the same memory."),
        most("sum", 1, "Nothing writes between these reads."),
        most("relu", 1, "Nothing writes into what these read."),
    ],
)
def read_again(m: Any, x: fx.Proxy) -> fx.Proxy:
    read(x, "steps").add_(1)
    twice = read(x, "steps").sum() * read(x, "steps").sum()
    relus = torch.relu(x)
    read(x, "steps").mul_(2)
    return x * twice + relus * torch.relu(x)


@case("one operand is written", graph(..., (2, 3)), spared=[least("sub", 2, TIME)])
def half_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    y, z = torch.relu(x), torch.tanh(x)
    before = y - z
    y.add_(1)
    return before * (y - z)


@case(
    "a layer's weight is written",
    graph(..., (3, 3), one=LAYERS["one"], two=LAYERS["two"]),
    did=[most("Linear", 3, "Nothing writes into the second layer's weights.")],
    spared=[least("Linear", 3, TIME)],
)
def weights(m: Any, x: fx.Proxy) -> fx.Proxy:
    before = m.one(x) + m.two(x)
    read(x, "one.weight").view(-1).mul_(2)
    return before * (m.one(x) - m.two(x))


@case(
    "statistics of a batch norm in training mode",
    graph(..., (4, 3), training=True, bn=lambda: nn.BatchNorm1d(3)),
    spared=[least("abs", 2, "Between these two reads the batch norm updates its running mean.")],
)
def statistics(m: Any, x: fx.Proxy) -> fx.Proxy:
    before = read(x, "bn.running_mean").abs()
    return m.bn(x) * before + read(x, "bn.running_mean").abs()


@case(
    "a call that nothing is known about",
    graph(..., (4, 2), steps=torch.zeros(3)),
    spared=[least("sum", 2, "Nothing is known about the call between these reads, so it may write.")],
)
def unknown(m: Any, x: fx.Proxy) -> fx.Proxy:
    read(x, "steps").add_(1)
    before = read(x, "steps").sum()
    return before * torch.pca_lowrank(x, 2)[0] + read(x, "steps").sum()


@case(
    "a draw and an assertion between",
    graph(..., (2, 3), steps=torch.zeros(3)),
    did=[most("sum", 1, "Neither a draw nor an assertion writes into what these read.")],
)
def draw_between(m: Any, x: fx.Proxy) -> fx.Proxy:
    read(x, "steps").add_(1)
    before = read(x, "steps").sum()
    torch._assert(x.dim() == 2, "two dimensions, please")
    return before * torch.rand_like(x) + read(x, "steps").sum()


@case(
    "spelled alike",
    graph(..., (3, 3), tanh=lambda: nn.Hardtanh()),
    spared=[least("getitem", 8, OTHER), least("tanh", 1, OTHER), least("stack", 2, OTHER)],
)
def spelled_alike(m: Any, x: fx.Proxy) -> tuple:
    parts = x[0:1], x[0, 1, None], call(operator.getitem, x, (0, 1)), x[[0, 1]], x[1:], x[:1], x[1:2], x[::1]
    return *parts, m.tanh(x), x.tanh(), torch.stack([x, x * 2]), torch.stack([x * 2, x])


@case(
    "sizes",
    graph(..., (2, 3)),
    did=[most("size", 2, ONCE), most("getattr", 2, ONCE), most("getitem", 2, ONCE)],
    spared=[least("size", 2, OTHER), least("getattr", 2, OTHER), least("getitem", 2, OTHER)],
)
def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
    rows, columns = x.size(0) + x.size(0), x.size(1) + x.shape[1]
    return x.to(x.dtype).reshape(x.shape[1] * x.shape[0]) * (rows + columns)


@case("sizes of one tensor before those of another", graph(..., (2, 3), (4,)), spared=[least("add", 2, OTHER)])
def sizes_in_order(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    xy, yx = x.shape + y.shape, y.shape + x.shape
    return (x[:, :, None] * y).reshape(xy), (x * y[:, None, None]).reshape(yx)


@case(
    "keywords that Python calls equal",
    graph(..., torch.arange(3)),
    spared=[least("clamp", 2, OTHER), least("sum", 2, OTHER)],
)
def equal_keywords(m: Any, n: fx.Proxy) -> tuple:
    clamped = torch.clamp(n, min=1), torch.clamp(n, min=1.0)
    return *clamped, torch.sum(n, dim=0, keepdim=True), torch.sum(n, dim=0, keepdim=False)


@case(
    "views after the last write",
    graph(..., (2, 3), (3, 2)),
    did=[most("view", 1, "Nothing is written after these two."), most("tanh", 1, "Nothing is written after these.")],
)
def late_views(m: Any, x: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    y.add_(1)
    return torch.tanh(y.view(-1)) * torch.tanh(y.view(-1))


@case(
    "copies that look like views",
    graph(..., (2, 3)),
    spared=[least("reshape", 2, "This reshape copies, and the program writes between the two copies.")],
)
def copies(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    before = y.t().reshape(-1)
    y.add_(1)
    return before * y.t().reshape(-1)


@case("the last dimension and the one before", graph(..., (2, 3)), spared=[least("softmax", 2, OTHER)])
def last_dimensions(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.softmax(x, -1) - torch.softmax(x, -2)


@case("steps and axes", graph(..., (3, 3)), spared=[least("getitem", 4, OTHER), least("pad", 2, OTHER)])
def indices(m: Any, x: fx.Proxy) -> tuple:
    padded = 1 / F.pad(x, (1, 1), value=0.0), 1 / F.pad(x, (1, 1), value=-0.0)
    return x[0:], x[0::2], x[..., 0], x[None, 0], *padded


@case("a mask and positions", graph(..., (2, 3)), spared=[least("getitem", 2, OTHER)])
def masks(m: Any, x: fx.Proxy) -> tuple:
    return x[[False, True]], x[[0, 1]]


@case(
    "attributes and modules with the same contents",
    graph(..., (2, 3), low=lambda: nn.LeakyReLU(0.1), high=lambda: nn.LeakyReLU(0.5), **LAYERS, v=ZEROS, w=ZEROS),
    spared=[least("get_attr", 4, OTHER), least("LeakyReLU", 2, OTHER)],
)
def contents(m: Any, x: fx.Proxy) -> tuple:
    weights = x @ read(x, "one.weight"), x @ read(x, "two.weight")
    return *weights, x + read(x, "v"), x * read(x, "w"), m.low(x), m.high(x)


@case("an assignment between", graph(..., (2, 3)), spared=[least("sum", 2, TIME)])
def assigned(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    before = y.sum()
    store(y, 0, 2.0)
    return before * y.sum()


@case("a write by out= between", graph(..., (2, 3)), spared=[least("sum", 2, TIME)])
def into_out(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    before = y.sum()
    torch.add(x, 1, out=y)
    return before * y.sum()


@case("a twin that nothing uses", graph(..., (2, 3)), did=[most("exp", 1, ONCE, dead=True)])
def unused(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    torch.exp(x)
    return a + 1


gpt = case("GPT, where nothing is common", zoo("gpt"), spared=[least("Linear", 4, OTHER)])


@drawn
def random_graphs(rng: random.Random) -> Iterable[Case]:
    return generated("cse", rng, 5, 30, ONCE)


# ---------------------------------------------------------------------------------------------------- answers


def _spell(arg):
    """Return an operand as text."""
    if isinstance(arg, fx.Node):
        return f"%{id(arg)}"
    if isinstance(arg, tuple | list):
        return f"{'[' if isinstance(arg, list) else '('}{', '.join(map(_spell, arg))}"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{k}: {_spell(arg[k])}' for k in sorted(arg))}"
    if isinstance(arg, slice):
        return f"slice {_spell((arg.start, arg.stop, arg.step))}"
    return f"{type(arg).__name__} {arg!r}"


def _epochs(gm):
    """Yield every node and, if it may be merged, the number of writes before it if it reads written memory, else 0."""
    memory, writes = written(gm.graph), 0
    last = max((n for n in gm.graph.nodes if effects(n) & {"writes", "unknown"}), default=None)
    for node in list(gm.graph.nodes):
        writes += bool(effects(node) & {"writes", "unknown"})
        stays = effects(node) or (node in memory and node.op != "get_attr" and node < last)
        yield node, None if stays else writes if any(n in memory for n in node.all_input_nodes) else 0


def _merge(gm, kwargs=True, spell=_spell):
    """Merge nodes by a key spelled as text."""
    first, merged = {}, {}
    for node, when in _epochs(gm):
        node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda n: merged.get(n, n))
        key = (node.op, node.target, spell(node.args), spell(node.kwargs) if kwargs else "", when)
        if when is not None and first.setdefault(key, node) is not node:
            merged[node] = first[key]
    for node in reversed(merged):
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("spells the key as text")
def as_text(gm):
    return _merge(gm)


@right("makes a new graph, and never puts the same node into it twice")
def hash_consing(gm):
    graph, new, table = fx.Graph(), {}, {}
    for node, when in _epochs(gm):
        args, kwargs = map_arg((node.args, node.kwargs), new.__getitem__)
        key = (node.op, node.target, _spell(args), _spell(kwargs), when)
        if when is None or key not in table:
            table[key] = graph.node_copy(node, new.__getitem__)
        new[node] = table[key]
    return fx.GraphModule(gm, graph)


@right("merges one pair at a time and starts over, until there is no pair left")
def pair_by_pair(gm):
    def pair():
        first = {}
        for node, when in _epochs(gm):
            key = (node.op, node.target, _spell(node.args), _spell(node.kwargs), when)
            if when is not None and first.setdefault(key, node) is not node:
                return first[key], node
        return None

    while (match := pair()) is not None:
        match[1].replace_all_uses_with(match[0])
        gm.graph.erase_node(match[1])
    return gm


@plain("the text of a node is its key: effects and writes are not looked at")
def text_of_the_node(gm):
    first = {}
    for node in list(gm.graph.nodes):
        key = (node.op, node.target, str(node.args), str(node.kwargs))
        if node.op != "placeholder" and first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
            gm.graph.erase_node(node)
    return gm


@wrong("spared", "the key is (target, operands): keywords are not looked at", core=True)
def no_keywords(gm):
    return _merge(gm, kwargs=False)


@wrong("spared", "a slice is its first and last position: x[0:] and x[0::2] are the same")
def without_steps(gm):
    return _merge(gm, spell=lambda arg: re.sub(r"(slice \([^,]*, [^,]*), [^,]*", r"\1", _spell(arg)))


@wrong("spared", "compares lists as Python does: the mask [False, True] and the positions [0, 1]")
def lists_by_equality(gm):
    def spell(arg):
        text = _spell(arg)
        return text.replace("bool True", "int 1").replace("bool False", "int 0") if "[" in text else text

    return _merge(gm, spell=spell)


@wrong("did", "leaves a node alone that nothing uses, also if it is a twin")
def used_only(gm):
    graph, unused = gm.graph, {n for n in gm.graph.nodes if not n.users}
    first, merged = {}, {}
    for node, when in _epochs(gm):
        node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda n: merged.get(n, n))
        key = (node.op, node.target, _spell(node.args), _spell(node.kwargs), when)
        if when is not None and node not in unused and first.setdefault(key, node) is not node:
            merged[node] = first[key]
    for node in reversed(merged):
        graph.erase_node(node)
    return gm


@wrong(RAW, "torch ships this pass")
def torch_ships_it(gm):
    return CSEPass()(gm).graph_module


ARGS, KWARGS = "repr(node.args)", "repr(sorted(node.kwargs.items()))"

merges_draws = edited("spared", "takes two dropouts of one value for the same value")(
    ("effects(node) or ...", 'effects(node) - {"draws"} or ...')
)
ignores_time = edited("spared", "takes two reads for equal whatever is written between them")(
    ("epoch if ... else None", "None")
)
ignores_twins = edited("spared", "two equal values stay equal, even if one of them is written later")(
    ("effects(node) or (...)", "effects(node)")
)


def _operand(instead):
    """Return an edit: each operand `a` goes into the key as another value."""
    return ARGS, f"repr(fx.node.map_aggregate(node.args, lambda a: {instead}))"


python_equality = edited("spared", "takes numbers that Python calls equal for the same operand: 1, 1.0 and True")(
    _operand("float(a) if isinstance(a, int) else a")
)
equal_keywords_merge = edited("spared", "compares keywords as Python does: min=1 and min=1.0")(
    (KWARGS, "frozenset((k, str(v) if isinstance(v, list) else v) for k, v in node.kwargs.items())")
)
nodes_only = edited("spared", "only operands that are nodes count: x * 2 and x * 3 are the same", core=True)(
    _operand("a if isinstance(a, fx.Node) else None")
)
by_hash = edited("spared", "takes operands for equal if their hashes are: -1 and -2")(
    _operand("a if isinstance(a, fx.Node | float) else hash((type(a), a))")
)
last_name = edited("spared", "names an attribute without the module it belongs to")(
    ("node.target, when", 'node.target.split(".")[-1] if node.op == "get_attr" else node.target, when')
)
attributes_by_value = edited("spared", "two attributes that hold the same numbers now are one")(
    (
        "node.target, when",
        'operator.attrgetter(node.target)(gm).tolist().__repr__() if node.op == "get_attr" else node.target, when',
    )
)
no_assignment = edited("spared", "y[0] = 2 is no method, so it writes nothing")(
    ("epoch += ...", "epoch += bool(effects(node) & CHANGE) and node.target is not operator.setitem")
)
no_out = edited("spared", "a call writes its operands, not its keyword out=")(
    ("epoch += ...", 'epoch += bool(effects(node) & CHANGE) and "out" not in node.kwargs')
)
list_or_tuple = edited(
    "spared", "takes look-alikes for the same: a list and a tuple, a slice and a tuple, m.tanh(x) and x.tanh()"
)((ARGS, 'repr(node.args).replace("[", "(").replace("]", ")")'))
any_order = edited("same", "sorts the operands of every +: those of two sizes, too, which it joins")(
    (ARGS, 'repr(sorted(node.args, key=repr) if getattr(node.target, "__name__", "") == "add" else node.args)')
)
any_write = edited("did", "a write ends all equality, also of values whose memory nothing writes")(
    ("epoch if ... else None", "epoch")
)
ignores_weights = edited("spared", "a call of a module reads its operands only, and not its weights")(
    ("written(gm.graph), 0", '{n for n in written(gm.graph) if n.op != "call_module"}, 0')
)
leaves_duplicates = edited("did", "redirects the users, and leaves the duplicates in the graph", core=True)(
    ("for node in duplicates: ...", "for node in (): ...")
)
modules_by_class = edited("spared", "modules of one class do the same thing")(
    ("node.target, when", 'type(gm.get_submodule(node.target)) if node.op == "call_module" else node.target, when')
)
one_level = edited("did", "compares the operands as they were before merging: misses twins of twins", core=True)(
    ("node.args, node.kwargs = ...", "old = node.args, node.kwargs\nnode.args, node.kwargs = ..."),
    (f"{ARGS}, {KWARGS}", "repr(old)"),
)
no_modules = edited("did", "functions and methods only: misses calls of one module on the same value")(
    ("effects(node) or ...", 'node.op == "call_module" or effects(node) or ...')
)
afraid = edited("did", "merges nothing after a write, whatever it writes, and takes an assertion for a write")(
    ("memory, epoch = written(gm.graph), 0", "memory, epoch, afraid = written(gm.graph), 0, set()"),
    ("epoch += ...", 'epoch += ...\nafraid |= effects(node) - {"signature", "draws"}'),
    ("effects(node) or ...", "effects(node) or afraid or ..."),
)
tensors_only = edited("did", "merges tensors alone: a size is looked up again and again")(
    ("effects(node) or ...", 'effects(node) or "tensor_meta" not in node.meta or ...')
)
no_late_views = edited("did", "takes every view of written memory for another value, also after the last write")(
    ("node in memory and epoch < changes", "node in memory")
)
views_are_references = edited(
    "spared", "takes view and reshape for references like get_attr: two are one, whatever is written"
)(
    ("changing and ...", 'changing and node.target not in ("view", "reshape", "t") and ...'),
    ("when = epoch if ... else None", 'when = epoch if node.target not in ("view", "reshape", "t") and ... else None'),
)
raw_key = edited(RAW, "uses the operands themselves as the key: a slice cannot be hashed before Python 3.12")(
    (f"{ARGS}, {KWARGS}", "node.args, tuple(sorted(node.kwargs.items()))")
)

EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
    ("written(gm.graph), 0", "written(gm.graph), 1"): "the numbers only have to differ",
}
