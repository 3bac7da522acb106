"""Hidden cases and answers of day04.linear-act.

Most wrong answers are the reference with one check left out.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.answers.day03._shared import zoo
from autograder.answers.day04._shared import few_calls, written_graphs
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.exercises.day04._shared import calls
from passlab.exercises.day04.linear_act import heir, layers, layers_at_most, layers_made
from passlab.fx.cases import case, graph, read
from passlab.fx.effects import written
from passlab.fx.ops import linear_act
from passlab.fx.patterns import canonical
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

#: Each is a product without bias, of x and a weight.
PRODUCTS = (
    lambda x, w: x @ w.t(),
    lambda x, w: x @ w.T,
    lambda x, w: x @ w.mT,
    lambda x, w: torch.mm(x, torch.t(w)),
    lambda x, w: torch.matmul(x, w.transpose(-1, -2)),
    lambda x, w: x.matmul(w.transpose(1, 0)),
    lambda x, w: x.mm(torch.transpose(w, 0, -1)),
    lambda x, w: F.linear(x, w),
    lambda x, w: F.linear(input=x, weight=w),
)
SUMS = (lambda y, b: y + b, lambda y, b: b + y, lambda y, b: torch.add(b, y), lambda y, b: y.add(b), lambda y, b: y)
WHOLE = (
    lambda m, x, w, b: F.linear(x, w, b),
    lambda m, x, w, b: F.linear(x, bias=b, weight=w),
    lambda m, x, w, b: torch.addmm(b, x, w.T),
    lambda m, x, w, b: m.layer(x),
    lambda m, x, w, b: m.unbiased(x) + b,
)
ENDS = (
    ("relu", torch.relu),
    ("relu", lambda y: y.relu()),
    ("gelu", F.gelu),
    ("gelu", lambda y: F.gelu(y, approximate="none")),
    ("gelu_tanh", lambda y: F.gelu(y, approximate="tanh")),
    ("silu", F.silu),
    ("", torch.tanh),
    ("", F.relu6),
    ("", lambda y: F.leaky_relu(y, 0.1)),
)


SPELLED = "A product, a sum and an activation, in one of their spellings."


def of_zoo(name: str) -> Case:
    counts = {a: len(nodes) for a, nodes in layers(reference("day04.linear-act")(zoo(name)())).items()}
    return case(
        f"zoo: {name}",
        zoo(name),
        did=[layers_made("Its layers are modules.", **counts)],
        spared=[layers_at_most("Not every layer ends in an activation.", **counts)],
    )


def block() -> nn.Module:
    module = nn.Module()
    module.fc = nn.Linear(4, 4)
    return module


def fc() -> nn.Module:
    return nn.Linear(4, 4)


WHOLE_CASE = torch.arange(16).reshape(4, 4) - 8


@case(
    "one module, four calls",
    graph(..., (2, 4), fc=fc, silu=lambda: nn.SiLU(inplace=True), gelu=lambda: nn.GELU("tanh")),
    did=[layers_made("A module may be called from several places.", silu=1, gelu_tanh=1)],
    spared=[layers_at_most("The other calls of the module are other layers.", silu=1, gelu_tanh=1)],
    cost=[calls(6, "The layers share the module's parameters with its other calls.")],
)
def shared(m: Any, x: fx.Proxy) -> tuple:
    h = m.gelu(m.fc(x))
    return m.silu(m.fc(h)), m.silu(m.fc(h) * 2), m.fc(h)


@case(
    "more dimensions, a nested module, and a transposition with another reader",
    graph(..., (2, 3, 4), block=block, relu=nn.ReLU, w=(4, 4), b=(4,)),
    did=[layers_made("x may have any number of dimensions.", silu=1, relu=1)],
    cost=[calls(4, "The transposition is read elsewhere, too.")],
)
def deep(m: Any, x: fx.Proxy) -> tuple:
    h, wt = F.silu(m.block.fc(x)), m.w.transpose(1, -2)
    return m.relu(h @ wt + m.b), wt * 2


@case(
    "a value that is its own bias",
    graph(..., (4,), w=(4, 4), b=(4,)),
    spared=[layers_at_most("Each of these products is read twice.")],
)
def vector(m: Any, x: fx.Proxy) -> tuple:
    y = x @ m.w.t()
    z = F.linear(x, m.w)
    return torch.relu(y + y), torch.relu(z + m.b) + torch.relu(torch.add(z, 1.0))


@case(
    "written in between",
    graph(..., (4, 4), fc=fc, other=fc, w=(4, 4)),
    did=[layers_made("The last layer reads nothing that is written.", relu=1)],
    spared=[layers_at_most("The program writes into what the layer reads, before the activation comes.", relu=1)],
)
def written_program(m: Any, x: fx.Proxy) -> tuple:
    t = torch.tanh(x)
    y, z = m.fc(x), F.linear(t, m.w)
    x.mul_(2)
    read(x, "w").add_(1)
    return torch.relu(y), F.gelu(z), torch.relu(m.other(t))


@case(
    "a weight and a bias that are computed",
    graph(..., (2, 4), (4, 4), w=(4, 4), b=(4,)),
    did=[layers_made("A weight is any matrix, and a bias any vector.", silu=1, relu=1)],
)
def computed(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    h = F.silu(x @ torch.tanh(m.w).t() + m.b * 2)
    return torch.relu(F.linear(h, y, y.sum(0)))


@case(
    "activations in place, one behind the other",
    graph(..., (2, 4), fc=fc, other=fc),
    did=[layers_made("Only fused activations write into what the layers read.", relu=2)],
)
def in_place(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.relu(m.other(F.relu(m.fc(x), inplace=True)), inplace=True)


@case(
    "a layer's result is written before the next one ends",
    graph(..., (2, 4), fc=fc, other=fc),
    did=[layers_made("The first layer reads nothing that is written.", relu=1)],
    spared=[layers_at_most("The program adds 1 to what the second layer reads, before its activation comes.", relu=1)],
)
def written_result(m: Any, x: fx.Proxy) -> tuple:
    h = torch.relu(m.fc(x))
    y = m.other(h)
    h.add_(1)
    return torch.relu(y), h


@case(
    "written by an activation that stays",
    graph(..., (2, 4), fc=fc),
    spared=[layers_at_most("The layer reads what an activation in place wrote that is not fused.")],
)
def written_before(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.gelu(m.fc(F.relu(torch.tanh(x), inplace=True)))


@case(
    "options and other sums",
    graph(..., (4, 4), w=(4, 4), b=(4,), full=(4, 4)),
    spared=[layers_at_most("alpha, a difference, two biases, a matrix, a number, a weight as it is: none is a layer.")],
)
def options(m: Any, x: fx.Proxy) -> tuple:
    wt = m.w.t()
    return (
        torch.relu(torch.addmm(m.b, x, wt, alpha=2)),
        torch.relu(torch.addmm(m.full, x, wt)),
        torch.relu(torch.sub(x @ wt, m.b)),
        torch.relu((x @ wt + m.b) + m.b),
        torch.relu(x @ wt + m.full),
        torch.relu(torch.addmm(m.b, x, m.w)),
        torch.relu(x @ wt + 1.0),
        torch.relu(x @ m.w.transpose(1, 1)),
        torch.relu(x @ m.w.real),
        torch.relu(x @ torch.transpose(m.w, dim0=0, dim1=0) + m.b),
    )


@case(
    "inputs, parameters and modules called like operations",
    graph(..., *[(4, 4)] * 4, t=(4, 4), silu=(4,), linear=nn.Tanh, addmm=lambda: nn.Bilinear(4, 4, 4)),
    spared=[layers_at_most("A name says nothing: look at what a node calls.")],
)
def names(m: Any, x: fx.Proxy, relu: fx.Proxy, add: fx.Proxy, mm: fx.Proxy) -> tuple:
    plain = torch.relu(add), F.silu(mm), torch.tanh(relu)
    return *plain, torch.relu(x @ m.t), torch.relu(m.linear(x)), torch.relu(m.addmm(x, x) + m.silu)


@case(
    "operands by name",
    graph(..., (2, 4), fc=fc, gelu=nn.GELU, w=(4, 4), b=(4,)),
    did=[layers_made("An operand may be given by its name.", relu=1, gelu=1)],
    cost=[calls(2, "One node for each layer.")],
)
def keywords(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.gelu(input=F.linear(input=F.relu(input=m.fc(input=x)), weight=m.w, bias=m.b))


@case(
    "a weight for each of the batch, and one row",
    graph(..., (4, 3, 4), stack=(4, 4, 4), b=(4,), row=(4,)),
    spared=[layers_at_most("The weight of a layer is one matrix.")],
)
def ranks(m: Any, x: fx.Proxy) -> tuple:
    return (
        torch.relu(x @ m.stack.mT),
        torch.relu(x.matmul(m.stack.transpose(1, 2)) + m.b),
        torch.relu(torch.bmm(x, m.stack.mT) + m.b),
        torch.relu(F.linear(x, m.row)),
        torch.relu(x @ m.row.t()),
    )


@case(
    "integers, and a bias of another dtype",
    graph(..., (3, 4), torch.arange(12).reshape(3, 4), w=(4, 4), narrow=torch.ones(4).half(), whole=WHOLE_CASE),
    spared=[layers_at_most("Operands are of one floating-point dtype.")],
)
def types(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
    return torch.relu(x @ m.w.t() + m.narrow), torch.relu(n @ m.whole.t())


@case(
    "results that others read",
    graph(..., (4, 4), fc=fc, w=(4, 4), b=(4,)),
    spared=[layers_at_most("A product or a sum that another node reads, or that is an output, must be kept.")],
)
def read_again(m: Any, x: fx.Proxy) -> tuple:
    y, z = m.fc(x), x @ m.w.t() + m.b
    return torch.relu(y) * y, F.silu(z), z


@case(
    "modules that are nearly layers and activations",
    graph(..., (4, 4), fc=fc, heir=heir, relu6=nn.ReLU6, elu=nn.ELU),
    spared=[layers_at_most("A layer is of type nn.Linear exactly, and relu6 and elu are other functions.")],
)
def nearly(m: Any, x: fx.Proxy) -> tuple:
    return F.silu(m.heir(x)), m.relu6(m.fc(x)), m.elu(m.fc(x))


@case(
    "a bias added to a bias",
    graph(..., (4, 4), fc=fc, w=(4, 4), b=(4,)),
    spared=[layers_at_most("A layer has one bias, as it is.")],
)
def two_biases(m: Any, x: fx.Proxy) -> tuple:
    return F.silu(m.b + m.fc(x)), torch.relu(F.linear(x, m.w, m.b) + m.b)


@case(
    "a bias with alpha",
    graph(..., (4, 4), w=(4, 4), b=(4,)),
    spared=[layers_at_most("alpha multiplies the bias: it is not added as it is.")],
)
def with_alpha(m: Any, x: fx.Proxy) -> tuple:
    return F.gelu(torch.add(x @ m.w.t(), m.b, alpha=3)), torch.relu((x @ m.w.T).add(m.b, alpha=3))


@case(
    "a module's weight is written",
    graph(..., (4, 4), fc=fc),
    spared=[layers_at_most("The program writes into the weight, before the activation comes.")],
)
def weight_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = m.fc(x)
    read(x, "fc.weight").mul_(2)
    return torch.relu(y)


@case(
    "an added bias is written",
    graph(..., (4, 4), w=(4, 4), b=(4,)),
    spared=[layers_at_most("The program writes into the bias, before the activation comes.")],
)
def bias_written(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = F.linear(x, m.w) + m.b
    read(x, "b").add_(1)
    return F.silu(y)


@case(
    "behind an activation in place that stays",
    graph(..., (4, 4), fc=fc, other=fc),
    spared=[layers_at_most("The first relu stays, so what it writes in place is written memory for the second.")],
)
def behind(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = m.fc(x)
    x.add_(1)
    return F.gelu(m.other(F.relu(y, inplace=True)))


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    width = rng.choice((3, 4, 6))

    def drawn(number: int) -> Case:
        plan, counts = [], Counter()
        for i in range(5):
            name, end = rng.choice(ENDS) if i < 4 else ("relu", lambda y: F.relu(y, inplace=True))
            WHOLE_CASE, product, total = rng.choice(WHOLE), rng.choice(PRODUCTS), rng.choice(SUMS)
            plan.append((WHOLE_CASE if rng.random() < 0.4 else None, product, total, end))
            counts.update([name] * bool(name))

        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            for WHOLE_CASE, product, total, end in plan:
                x = end(WHOLE_CASE(m, x, m.w, m.b) if WHOLE_CASE else total(product(x, m.w), m.b))
            return x

        square = (width, width)
        layer = {"layer": lambda: nn.Linear(*square), "unbiased": lambda: nn.Linear(*square, bias=False)}
        build = graph(body, (5, width), w=square, b=(width,), **layer)
        expect = {
            "did": [layers_made(SPELLED, **counts)],
            "spared": [layers_at_most("Some of these functions are not in linear_act.", **counts)],
            "cost": [calls(few_calls("day04.linear-act", build), "One node for each layer.")],
        }
        return case(f"drawn, number {number}", build, **expect)

    def every() -> Case:
        """Return each spelling of a product, a sum, a whole layer and an activation at least once."""
        ends = [end for _, end in ENDS]
        counts = Counter(name for name, _ in (*(ENDS[i % len(ENDS)] for i in range(len(PRODUCTS))), *ENDS) if name)

        def body(m: Any, x: fx.Proxy) -> tuple:
            layers = (SUMS[i % len(SUMS)](product(x, m.w), m.b) for i, product in enumerate(PRODUCTS))
            WHOLE_CASE = (WHOLE[i % len(WHOLE)](m, x, m.w, m.b) for i in range(len(ends)))
            return *(ends[i % len(ends)](y) for i, y in enumerate(layers)), *(
                end(y) for end, y in zip(ends, WHOLE_CASE, strict=True)
            )

        parts = {"w": (width, width), "b": (width,), "layer": lambda: nn.Linear(width, width)}
        build = graph(body, (5, width), **parts, unbiased=lambda: nn.Linear(width, width, bias=False))
        expect = {
            "did": [layers_made(SPELLED, **counts)],
            "spared": [layers_at_most("Some of these functions are not in linear_act.", **counts)],
        }
        return case("every spelling", build, **expect)

    return [
        *(drawn(i + 1) for i in range(5)),
        every(),
        of_zoo("vit"),
        shared,
        deep,
        vector,
        written_program,
        computed,
        in_place,
        written_result,
        written_before,
        options,
        names,
        keywords,
        ranks,
        types,
        read_again,
        nearly,
        two_biases,
        with_alpha,
        weight_written,
        bias_written,
        behind,
        *written_graphs(rng),
    ]


EQUIVALENT = {
    ('node.op == "get_attr"', "True"): "no other target is the path of a parameter",
    ("list(gm.graph.nodes)", "gm.graph.nodes"): "torch.fx allows to erase during a walk",
    ("gm.recompile()", "pass"): "the judge compiles the graph anew",
    ("fused.meta = node.meta", "pass"): "no rule asks for the shape of a layer",
    ('name == "gelu" and ...(...) == "tanh"', '...(...) == "tanh"'): "no other activation has this option",
    ("... - node.args[2]", "... + node.args[2]"): "a sum is odd where the difference is",
}

# ---------------------------------------------------------------------------------------------------- answers


def _is(node, *names):
    return isinstance(node, fx.Node) and canonical(node) in names


def _first(node):
    return node.args[0] if node.args else node.kwargs["input"]


class _Matcher:
    """Finds layers by the names of the operations."""

    def __init__(self, gm):
        self.gm = gm

    def activation(self, node):
        if not _is(node, "relu", "silu", "gelu"):
            return None
        options = vars(self.gm.get_submodule(node.target)) if node.op == "call_module" else node.kwargs
        return "gelu_tanh" if options.get("approximate") == "tanh" else canonical(node)

    def free(self, node):
        """Return whether the value of the node may go away."""
        if not isinstance(node, fx.Node) or len(node.users) > 1:
            return False
        reader = next(iter(node.users))
        return sum(a is node for a in (*reader.args, *reader.kwargs.values())) == 1

    def weight(self, node):
        dims = [*node.args[1:], *node.kwargs.values()]
        turned = _is(node, "t") or (_is(node, "transpose") and {d % 2 for d in dims} == {0, 1})
        return node.args[0] if turned or (_is(node, "getattr") and dims[0] in ("T", "mT")) else None

    def product(self, node):
        """Return (x, weight, bias, own nodes); weight and bias of a module are paths."""
        if _is(node, "linear") and node.op == "call_module":
            module, path = self.gm.get_submodule(node.target), node.target
            bias = f"{path}.bias" if module.bias is not None else None
            return (_first(node), f"{path}.weight", bias, [node]) if type(module) is nn.Linear else None
        if _is(node, "linear"):
            names = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | dict(node.kwargs)
            return names["input"], names["weight"], names.get("bias"), [node]
        if _is(node, "matmul", "mm") and (weight := self.weight(node.args[1])):
            return node.args[0], weight, None, [node, node.args[1]]
        if _is(node, "addmm") and not node.kwargs and (weight := self.weight(node.args[2])):
            return node.args[1], weight, node.args[0], [node, node.args[2]]
        return None

    def layer(self, node):
        """Return a product, or one without bias to which a bias is added, as `product` describes it, or None."""
        if not _is(node, "add") or node.kwargs:
            product = self.product(node)
            return product if product and self.fits(*product[:3]) else None
        for y, b in (node.args, node.args[::-1]):
            product = self.product(y)
            if (
                product
                and product[2] is None
                and isinstance(b, fx.Node)
                and self.free(y)
                and self.fits(*product[:2], b)
            ):
                x, weight, _, own = product
                return x, weight, b, [node, *own]
        return None

    def tensor(self, value):
        return operator.attrgetter(value)(self.gm) if isinstance(value, str) else value.meta["tensor_meta"]

    def fits(self, x, weight, bias):
        w = self.tensor(weight)
        if len(w.shape) != 2 or not w.dtype.is_floating_point or self.tensor(x).dtype != w.dtype:
            return False
        return bias is None or (self.tensor(bias).dtype, self.tensor(bias).shape) == (w.dtype, w.shape[:1])

    def all(self):
        """Return (activation's node, its name, the layer before it) of each layer that can be fused."""
        for node in list(self.gm.graph.nodes):
            name = self.activation(node)
            layer = self.layer(_first(node)) if name and self.free(_first(node)) else None
            if layer and not any(value in self.memory() for value in layer[:3]):
                yield node, name, layer

    def memory(self):
        """Return what the program writes now: a fused activation writes nothing."""
        nodes = written(self.gm.graph)
        return nodes | {node.target for node in nodes if node.op == "get_attr"}


def _fuse(gm, matcher=_Matcher, erase=True):
    for node, name, (x, weight, bias, own) in matcher(gm).all():
        with gm.graph.inserting_before(node):
            weight, bias = (gm.graph.get_attr(v) if isinstance(v, str) else v for v in (weight, bias))
            new = gm.graph.call_function(linear_act, (x, weight, bias), {"activation": name})
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        for dead in (node, *own) if erase else (node,):
            if not dead.users:
                gm.graph.erase_node(dead)
    gm.recompile()
    return gm


@right("one class that matches, with the activation as a keyword")
def by_class(gm):
    return _fuse(gm)


@right("copies the graph node by node, with a call for each layer, until nothing is left to fuse")
def rebuilt(gm):
    while layers := {node: (name, layer) for node, name, layer in _Matcher(gm).all()}:
        gm = _copy(gm, layers)
    return gm


def _copy(gm, layers):
    graph, copies = fx.Graph(), {}
    for node in gm.graph.nodes:
        if node not in layers:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        name, (x, weight, bias, _) = layers[node]
        weight, bias = (
            graph.create_node("get_attr", n) if isinstance(n, str) else copies.get(n) for n in (weight, bias)
        )
        copies[node] = graph.call_function(linear_act, (copies[x], weight, bias, name))
        copies[node].meta = dict(node.meta)
    inner = {id(n) for _, layer in layers.values() for n in layer[3]}
    for node in reversed([n for n in copies if id(n) in inner]):
        if not copies[node].users:
            graph.erase_node(copies[node])
    return fx.GraphModule(gm, graph)


@wrong("spared", "does not ask who else reads the product: it stays, and is computed twice")
def any_readers(gm):
    class Careless(_Matcher):
        def free(self, node):
            return isinstance(node, fx.Node)

    return _fuse(gm, Careless, erase=False)


one_gelu = edited("same", "GELU is GELU: the tanh form becomes the erf form")(('"gelu_tanh" if tanh else name', "name"))
any_shape = edited("spared", "takes any addend for a bias: a column, a matrix")(
    ("... and bias.shape == weight.shape[:1]", "...")
)
any_dtype = edited("same", "does not look at dtypes: a bias in double made the sum double")(
    ("len(...) != 2 or ...", "len(...) != 2"), ("bias.dtype == weight.dtype and ...", "...")
)
loses_the_bias = edited("same", "leaves the added bias out")(
    ("b, [node, *layer.nodes]", "layer.bias, [node, *layer.nodes]")
)
ignores_options = edited("same", "reads add(y, b, alpha=2) as y + b")(
    ("... or node.kwargs", "..."),
    (
        "if node.target is F.linear: ...\nif ...:\n    return None",
        "if node.target is F.linear: ...\nif node.op not in CALLS:\n    return None",
    ),
)
any_weight = edited("same", "takes x @ w for x @ w.t(); with a square weight nothing complains")(
    ("if ...:\n    return None\nattribute = ...", "if ...:\n    return node\nattribute = ..."),
    ("node.args[0] if attribute or turned else None", "node.args[0] if attribute or turned else node"),
)
ignores_writes = edited("same", "ignores writes between the product and the activation")(
    ("memory = written(gm.graph)", "memory = set()")
)
parameters_alone = edited(
    "did", "takes a layer for one of parameters: its weight is a get_attr, or belongs to a module"
)(("if not layer: ...", "if not layer or getattr(layer.weight, 'op', 'get_attr') != 'get_attr': ..."))
written_for_good = edited(
    "did", "takes what a fused activation in place has written for written by the program, still"
)(
    ("fused.meta = node.meta", 'fused.meta = node.meta | {"late": node in memory}'),
    (
        "any(n in memory for n in ...)",
        'any(n in memory or (isinstance(n, fx.Node) and n.meta.get("late")) for n in (x, weight, bias))',
    ),
)
asks_once = edited("same", "asks once what is written, and does not look at the new nodes")(
    ("memory = written(gm.graph)", "memory = start"),
    ("for node in list(gm.graph.nodes): ...", "start = written(gm.graph)\nfor node in list(gm.graph.nodes):\n    ..."),
)
writes_of_activations = edited("spared", "forgets that an activation in place writes, also where it stays")(
    (
        "any(n in memory for n in ...)",
        'any(n in memory and getattr(n, "target", None) is not F.relu for n in (x, weight, bias))',
    )
)
modules_by_name = edited("same", "a module with relu in the name of its class is relu: nn.ReLU6")(
    ("...(type(module))", '...(type(module), "relu" if "relu" in type(module).__name__.lower() else None)')
)
heirs = edited("spared", "takes a module of a subclass of nn.Linear for one of nn.Linear")(
    ("type(gm.get_submodule(node.target)) is nn.Linear", "isinstance(gm.get_submodule(node.target), nn.Linear)")
)
second_bias = edited("same", "adds a bias to a layer that has one, and loses the first")(
    ("layer and layer.bias is None and ...", "layer and ...")
)
forgets_the_bias = edited("same", "asks whether x and the weight are written, not the bias")(
    ("any(n in memory for n in (x, weight, bias))", "any(n in memory for n in (x, weight))")
)
unread_parameters = edited("same", "asks what is written among the nodes, not among a module's parameters")(
    ('memory |= {node.target for node in memory if node.op == "get_attr"}', "pass")
)
modules_only = edited("did", "a linear layer is an nn.Linear")(
    ("if node.target is F.linear: ...", "return None\nif node.target is F.linear: ...")
)


@wrong("cost", "copies the parameters of a module instead of reading them where they are")
def copies_parameters(gm):
    for node in by_class(gm).graph.find_nodes(op="get_attr"):
        if "." in node.target and any(reader.target is linear_act for reader in node.users):
            copy = nn.Parameter(operator.attrgetter(node.target)(gm).detach().clone())
            node.target = "copy_of_" + node.target.replace(".", "_")
            gm.register_parameter(node.target, copy)
    gm.recompile()
    return gm


leaves_dead_nodes = edited("cost", "leaves the product and the sum in the graph, dead")(("(node, *inner)", "(node,)"))
returns_nothing = edited("valid", "forgets to return the graph")(("return gm", "pass"))
