"""Hidden cases and answers of day04.linear-act.

Most wrong answers are one working pass with one piece of care taken away.
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
from autograder.authoring.answers import reference, right, wrong
from passlab.exercises.day04._shared import calls
from passlab.exercises.day04.linear_act import layers, layers_at_most, layers_made
from passlab.fx.cases import case, graph, read
from passlab.fx.effects import written
from passlab.fx.ops import linear_act
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


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    width = rng.choice((3, 4, 6))
    spelled = "A product, a sum and an activation, in one of their spellings."

    def drawn(number: int) -> Case:
        plan, wanted = [], Counter()
        for i in range(5):
            name, end = rng.choice(ENDS) if i < 4 else ("relu", lambda y: F.relu(y, inplace=True))
            whole, product, total = rng.choice(WHOLE), rng.choice(PRODUCTS), rng.choice(SUMS)
            plan.append((whole if rng.random() < 0.4 else None, product, total, end))
            wanted.update([name] * bool(name))

        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            for whole, product, total, end in plan:
                x = end(whole(m, x, m.w, m.b) if whole else total(product(x, m.w), m.b))
            return x

        square = (width, width)
        layer = {"layer": lambda: nn.Linear(*square), "unbiased": lambda: nn.Linear(*square, bias=False)}
        build = graph(body, (5, width), w=square, b=(width,), **layer)
        expect = {
            "did": [layers_made(spelled, **wanted)],
            "spared": [layers_at_most("Some of these functions are not in linear_act.", **wanted)],
            "cost": [calls(few_calls("day04.linear-act", build), "One node for each layer.")],
        }
        return case(f"drawn, number {number}", build, **expect)

    def of_zoo(name: str) -> Case:
        wanted = {a: len(found) for a, found in layers(reference("day04.linear-act")(zoo(name)())).items()}
        return case(
            f"zoo: {name}",
            zoo(name),
            did=[layers_made("Its layers are modules.", **wanted)],
            spared=[layers_at_most("Not every layer ends in an activation.", **wanted)],
        )

    def shared(m: Any, x: fx.Proxy) -> tuple:
        h = m.gelu(m.fc(x))
        return m.silu(m.fc(h)), m.silu(m.fc(h) * 2), m.fc(h)

    def vector(m: Any, x: fx.Proxy) -> tuple:
        y = x @ m.w.t()
        z = F.linear(x, m.w)
        return torch.relu(y + y), torch.relu(z + m.b) + torch.relu(torch.add(z, 1.0))

    def written(m: Any, x: fx.Proxy) -> tuple:
        y = m.fc(x)
        x.mul_(2)
        z = F.linear(y, m.w)
        read(x, "w").add_(1)
        return torch.relu(y), F.gelu(z)

    def options(m: Any, x: fx.Proxy) -> tuple:
        wt = m.w.t()
        return (
            torch.relu(torch.addmm(m.b, x, wt, alpha=2)),
            torch.relu(torch.addmm(m.full, x, wt)),
            torch.relu(torch.sub(x @ wt, m.b)),
            torch.relu((x @ wt + m.b) + m.b),
            torch.relu(x @ wt + m.full),
            torch.relu(torch.addmm(m.b, x, m.w)),
        )

    def batched(m: Any, x: fx.Proxy) -> tuple:
        return torch.relu(x @ m.stack.mT + m.b), torch.relu(torch.bmm(x, m.stack.transpose(1, 2)) + m.b)

    def types(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
        return torch.relu(x @ m.w.t() + m.narrow), torch.relu(n @ m.whole.t())

    def deep(m: Any, x: fx.Proxy) -> tuple:
        h = F.silu(m.block.fc(x))
        return torch.relu(h @ m.w.t() + m.b), m.w.t() * 2

    def block() -> nn.Module:
        made = nn.Module()
        made.fc = nn.Linear(4, 4)
        return made

    def fc() -> nn.Module:
        return nn.Linear(4, 4)

    whole = torch.arange(16).reshape(4, 4) - 8
    return [
        *(drawn(i + 1) for i in range(5)),
        of_zoo("vit"),
        case(
            "one module, four calls",
            graph(shared, (2, 4), fc=fc, silu=lambda: nn.SiLU(inplace=True), gelu=lambda: nn.GELU("tanh")),
            did=[layers_made("A module may be called from several places.", silu=1, gelu_tanh=1)],
            spared=[layers_at_most("The other calls of the module are other layers.", silu=1, gelu_tanh=1)],
            cost=[calls(6, "The layers share the module's parameters with its other calls.")],
        ),
        case(
            "more dimensions, a nested module, and a transposition with another reader",
            graph(deep, (2, 3, 4), block=block, w=(4, 4), b=(4,)),
            did=[layers_made("x may have any number of dimensions.", silu=1, relu=1)],
            cost=[calls(4, "The transposition is read elsewhere, too.")],
        ),
        case(
            "a value that is its own bias",
            graph(vector, (4,), w=(4, 4), b=(4,)),
            spared=[layers_at_most("Each of these products is read twice.")],
        ),
        case(
            "written in between",
            graph(written, (4, 4), fc=fc, w=(4, 4)),
            spared=[layers_at_most("The program writes into what the layer reads, before the activation comes.")],
        ),
        case(
            "options and other sums",
            graph(options, (4, 4), w=(4, 4), b=(4,), full=(4, 4)),
            spared=[layers_at_most("alpha, a difference, two biases, a matrix, a weight as it is: none is a layer.")],
        ),
        case(
            "a weight for each of the batch",
            graph(batched, (2, 3, 4), stack=(2, 4, 4), b=(4,)),
            spared=[layers_at_most("linear_act takes one matrix for all of the batch.")],
        ),
        case(
            "integers, and a bias of another dtype",
            graph(types, (3, 4), torch.arange(12).reshape(3, 4), w=(4, 4), narrow=torch.ones(4).half(), whole=whole),
            spared=[layers_at_most("Operands are of one floating-point dtype.")],
        ),
        *written_graphs(rng),
    ]


# ---------------------------------------------------------------------------------------------------- answers

CARE = {
    "one reader",
    "read once",
    "order",
    "options",
    "bias shape",
    "bias dtype",
    "second bias",
    "transposed",
    "methods",
    "tanh form",
    "writes",
    "matrix",
    "addmm",
    "exact",
    "exact module",
    "subclass",
    "module writes",
    "share",
    "erase",
    "bias",
}
MATMUL = (operator.matmul, torch.matmul, torch.mm, "matmul", "mm")
ADD = (operator.add, torch.add, "add")
TURN = (torch.t, "t", torch.transpose, "transpose")
RELU, SILU, GELU = (torch.relu, F.relu, "relu"), (F.silu,), (F.gelu,)


def _meta(node):
    return node.meta["tensor_meta"]


class _Matcher:
    def __init__(self, gm, care):
        self.gm, self.care = gm, care

    def is_(self, node, ops):
        if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method") or node.target not in ops:
            return False
        return "methods" in self.care or node.op == "call_function"

    def module(self, node, kind):
        if not isinstance(node, fx.Node) or node.op != "call_module":
            return None
        module = self.gm.get_submodule(node.target)
        return module if type(module) is kind or ("subclass" not in self.care and isinstance(module, kind)) else None

    def activation(self, node):
        for name, ops, kind in (("relu", RELU, nn.ReLU), ("silu", SILU, nn.SiLU), ("gelu", GELU, nn.GELU)):
            module = self.module(node, kind)
            if module is None and not self.is_(node, ops):
                continue
            form = module.approximate if kind is nn.GELU and module else node.kwargs.get("approximate")
            return "gelu_tanh" if name == "gelu" and form == "tanh" and "tanh form" in self.care else name
        if "exact module" not in self.care and node.op == "call_module":
            return "relu" if "relu" in type(self.gm.get_submodule(node.target)).__name__.lower() else None
        if "exact" not in self.care and node.op == "call_function" and "relu" in str(node.target):
            return "relu"
        return None

    def free(self, node):
        """May the value of the node go away?"""
        if not isinstance(node, fx.Node) or ("one reader" in self.care and len(node.users) > 1):
            return False
        reader = next(iter(node.users))
        return "read once" not in self.care or sum(a is node for a in reader.args) == 1

    def weight(self, node):
        if self.is_(node, TURN) or (isinstance(node, fx.Node) and node.target is getattr):
            return node.args[0]
        return node if "transposed" not in self.care and isinstance(node, fx.Node) else None

    def product(self, node):
        """(x, weight, bias, own nodes); weight and bias of a module are tensors with a path."""
        module = self.module(node, nn.Linear)
        if module is not None:
            path = node.target
            return node.args[0], f"{path}.weight", f"{path}.bias" if module.bias is not None else None, [node]
        if not isinstance(node, fx.Node):
            return None
        if node.target is F.linear:
            names = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | dict(node.kwargs)
            return names["input"], names["weight"], names.get("bias"), [node]
        if self.is_(node, MATMUL) and (weight := self.weight(node.args[1])) is not None:
            return node.args[0], weight, None, [node, node.args[1]]
        addmm = "addmm" in self.care and node.target is torch.addmm
        if addmm and (not node.kwargs or "options" not in self.care):
            weight = self.weight(node.args[2])
            return weight and (node.args[1], weight, node.args[0], [node, node.args[2]])
        return None

    def layer(self, node):
        if self.is_(node, ADD) and (not node.kwargs or "options" not in self.care):
            orders = (node.args, node.args[::-1]) if "order" in self.care else (node.args,)
            for y, b in orders:
                found = self.product(y)
                if found is None or not isinstance(b, fx.Node) or not self.free(y):
                    continue
                x, weight, bias, own = found
                if bias is not None and "second bias" in self.care:
                    continue
                if self.fits(x, weight, b):
                    return x, weight, b if "bias" in self.care else bias, [node, *own]
            return None
        found = self.product(node)
        return found if found and self.fits(*found[:3]) else None

    def tensor(self, value):
        return operator.attrgetter(value)(self.gm) if isinstance(value, str) else _meta(value)

    def fits(self, x, weight, bias):
        w = self.tensor(weight)
        if len(w.shape) != 2 and "matrix" in self.care:
            return False
        if "bias dtype" in self.care and not (w.dtype.is_floating_point and _meta(x).dtype == w.dtype):
            return False
        if bias is None:
            return True
        b = self.tensor(bias)
        shape = tuple(b.shape) == tuple(w.shape[:1]) or "bias shape" not in self.care
        return shape and (b.dtype == w.dtype or "bias dtype" not in self.care)


def _read(gm, value, share=True):
    if not isinstance(value, str):
        return value
    if share:
        return gm.graph.get_attr(value)
    name = "copy_of_" + value.replace(".", "_")
    gm.register_parameter(name, nn.Parameter(operator.attrgetter(value)(gm).detach().clone()))
    return gm.graph.get_attr(name)


def _memory(gm):
    """The nodes whose memory is written, and the paths of the parameters among them."""
    memory = written(gm.graph)
    return memory | {n.target for n in memory if n.op == "get_attr"}


def _fuse(gm, *dropped, matcher=_Matcher):
    care = CARE - set(dropped)
    match, memory = matcher(gm, care), _memory(gm) if "writes" in care else set()
    memory = memory if "module writes" in care else {n for n in memory if isinstance(n, fx.Node)}
    for node in list(gm.graph.nodes):
        name = match.activation(node) if node.op.startswith("call") else None
        if name is None or not node.args or not match.free(node.args[0]):
            continue
        found = match.layer(node.args[0])
        if not found or any(n in memory for n in found[:3]):
            continue
        x, weight, bias, own = found
        with gm.graph.inserting_before(node):
            weight, bias = (_read(gm, value, "share" in care) for value in (weight, bias))
            new = gm.graph.call_function(linear_act, (x, weight, bias), {"activation": name})
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
        for dead in own:
            if "erase" in care and not dead.users:
                gm.graph.erase_node(dead)
    gm.recompile()
    return gm


@right("one class that matches, with the activation as a keyword")
def by_class(gm):
    return _fuse(gm)


@right("copies the graph node by node, and copies a whole layer where its activation stands")
def rebuilt(gm):
    match, memory = _Matcher(gm, CARE), _memory(gm)
    found = {}
    for node in gm.graph.nodes:
        name = match.activation(node) if node.op.startswith("call") else None
        layer = match.layer(node.args[0]) if name and match.free(node.args[0]) else None
        if layer and not any(n in memory for n in layer[:3]):
            found[node] = (name, layer)
    graph, copies = fx.Graph(), {}
    for node in gm.graph.nodes:
        if node not in found:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        name, (x, weight, bias, _) = found[node]
        weight, bias = (
            graph.create_node("get_attr", n) if isinstance(n, str) else copies.get(n) for n in (weight, bias)
        )
        copies[node] = graph.call_function(linear_act, (copies[x], weight, bias, name))
    gone = {id(n) for _, layer in found.values() for n in layer[3]}
    for node in reversed([n for n in copies if id(n) in gone]):
        if not copies[node].users:
            graph.erase_node(copies[node])
    return fx.GraphModule(gm, graph)


@wrong("spared", "does not ask who else reads the product: it stays, and is computed twice")
def any_readers(gm):
    return _fuse(gm, "one reader", "erase")


@wrong("same", "gives every reader of the product the activation")
def for_all_readers(gm):
    match = _Matcher(gm, CARE - {"one reader"})
    for node in list(gm.graph.nodes):
        name = match.activation(node) if node.op.startswith("call") else None
        found = match.layer(node.args[0]) if name else None
        if not found:
            continue
        x, weight, bias, own = found
        with gm.graph.inserting_before(own[0]):
            weight, bias = _read(gm, weight), _read(gm, bias)
            new = gm.graph.call_function(linear_act, (x, weight, bias, name))
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
        own[0].replace_all_uses_with(new)
    return gm


@wrong("spared", "y + y is read by one node, but twice")
def reads_counted_by_nodes(gm):
    return _fuse(gm, "read once", "erase")


@wrong("same", "GELU is GELU: the tanh form becomes the erf form")
def one_gelu(gm):
    return _fuse(gm, "tanh form")


@wrong("spared", "takes whatever is added for the bias: a column, a number, a whole matrix")
def any_shape(gm):
    return _fuse(gm, "bias shape")


@wrong("same", "does not look at dtypes: a bias in double made the sum double")
def any_dtype(gm):
    return _fuse(gm, "bias dtype")


@wrong("same", "leaves the added bias out")
def loses_the_bias(gm):
    return _fuse(gm, "bias")


@wrong("same", "a layer that has a bias gets the second one in its place")
def second_bias_wins(gm):
    return _fuse(gm, "second bias")


@wrong("same", "reads add(y, b, alpha=2) as y + b")
def ignores_options(gm):
    return _fuse(gm, "options")


@wrong("same", "takes x @ w for x @ w.t(); with a square weight nothing complains")
def any_weight(gm):
    return _fuse(gm, "transposed")


@wrong("same", "does not ask what is written between the product and the activation")
def ignores_writes(gm):
    return _fuse(gm, "writes")


@wrong("same", "asks what is written of nodes, and forgets the parameters that a module reads")
def ignores_written_modules(gm):
    return _fuse(gm, "module writes")


@wrong("spared", "isinstance(module, nn.Linear): a subclass may do something else")
def any_subclass(gm):
    return _fuse(gm, "subclass")


@wrong("same", "a module with relu in the name of its class is relu: nn.ReLU6")
def modules_by_name(gm):
    return _fuse(gm, "exact module")


@wrong("same", "whatever has relu in its name is relu: relu6 and leaky_relu")
def by_name(gm):
    return _fuse(gm, "exact")


@wrong("did", "y + b, and never b + y")
def one_order(gm):
    return _fuse(gm, "order")


@wrong("did", "functions and operators only: y.relu() is not seen")
def no_methods(gm):
    return _fuse(gm, "methods")


class _ModulesOnly(_Matcher):
    """Knows a layer as nn.Linear."""

    def product(self, node):
        return super().product(node) if self.module(node, nn.Linear) is not None else None


@wrong("did", "a linear layer is an nn.Linear")
def modules_only(gm):
    return _fuse(gm, matcher=_ModulesOnly)


@wrong("cost", "copies the parameters of a module instead of reading them where they are")
def copies_parameters(gm):
    return _fuse(gm, "share")


@wrong("cost", "leaves the product and the sum in the graph, dead")
def leaves_dead_nodes(gm):
    return _fuse(gm, "erase")


@wrong("valid", "forgets to return the graph")
def returns_nothing(gm):
    _fuse(gm)
