"""Hidden cases and answers of day01.match-onnx."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day01 import match_onnx as exporting
from passlab.exercises.day01._shared import net
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _image_block(rng: random.Random) -> nn.Module:
    """Return some layers on an image, a gate now and then, and the input added at the end."""
    parts, steps = {}, []
    for i in range(rng.randint(4, 7)):
        kind = rng.choice(["conv", "conv norm", "conv norm", "norm", "act", "act", "drop", "gate", "twice"])
        name = f"{kind[:4].strip()}{i}"
        if kind in ("conv", "conv norm", "twice"):
            parts[name] = nn.Conv2d(3, 3, 3, padding=1, bias=rng.random() < 0.5)
        if kind in ("conv norm", "norm", "twice"):
            parts[f"{name}n"] = exporting.trained_norm(3)
        if kind == "act":
            parts[name] = rng.choice([nn.SiLU, nn.SiLU, nn.ReLU, nn.ReLU6, nn.GELU, nn.Sigmoid])()
        if kind == "drop":
            parts[name] = rng.choice([nn.Dropout, nn.Identity])()
        if kind == "gate":
            parts[name], parts[f"{name}p"] = nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1)
        steps.append((kind, name))
    shortcut = rng.random() < 0.5
    if shortcut:
        parts |= dict(shortcut=nn.Conv2d(3, 3, 1), shortcut_norm=exporting.trained_norm(3))
    written_out = rng.random() < 0.5
    tail = rng.choice([torch.relu, F.relu, lambda y: y])

    def forward(self, x):
        y = torch.sigmoid(x) * x if written_out else x
        for kind, name in steps:
            part = getattr(self, name, None)
            if kind == "twice":
                z = part(y)
                y = getattr(self, f"{name}n")(z) + z
            elif kind == "gate":
                y = y * torch.sigmoid(part(getattr(self, f"{name}p")(y)))
            else:
                y = part(y) if part is not None else y
                y = getattr(self, f"{name}n")(y) if hasattr(self, f"{name}n") else y
        return tail(y + (self.shortcut_norm(self.shortcut(x)) if shortcut else x))

    return net(forward, **parts)


def _token_block(rng: random.Random) -> nn.Module:
    """Return the MLP of a transformer block, once or twice, with some activation."""
    times, acts = rng.choice((1, 2)), [nn.GELU, nn.SiLU, nn.ReLU, nn.GELU]
    parts = {}
    for i in range(times):
        parts |= {f"norm{i}": nn.LayerNorm(4), f"up{i}": nn.Linear(4, 6), f"act{i}": rng.choice(acts)()}
        parts |= {f"down{i}": nn.Linear(6, 4), f"drop{i}": nn.Dropout(), f"again{i}": nn.GELU()}

    def forward(self, x):
        for i in range(times):
            y = getattr(self, f"act{i}")(getattr(self, f"up{i}")(getattr(self, f"norm{i}")(x)))
            y = getattr(self, f"drop{i}")(getattr(self, f"down{i}")(y))
            x = torch.add(y, x) if i else x + getattr(self, f"again{i}")(y)
        return x

    return net(forward, **parts)


def _ends_in_dropout() -> nn.Module:
    def forward(self, x):
        return self.drop(self.identity(self.norm(self.conv(x)) + self.other(x)))

    parts = dict(conv=nn.Conv2d(3, 3, 1), norm=exporting.trained_norm(3), other=nn.Conv2d(3, 3, 1))
    return net(forward, **parts, identity=nn.Identity(), drop=nn.Dropout())


def _branches() -> nn.Module:
    """Return a SiLU of a sigmoid, and four convolutions of it that only their readers tell apart."""

    def forward(self, x):
        y = self.act(torch.sigmoid(x))
        return torch.add(self.fourth(y), self.second(y)) * (self.first(y) + self.third(y)) + x

    return net(forward, act=nn.SiLU(), **{name: nn.Conv2d(3, 3, 1) for name in ("first", "second", "third", "fourth")})


def _twins() -> nn.Module:
    """Return pairs of layers side by side, so that the parts of one stand between those of the other."""

    def forward(self, x):
        y = self.gelu(self.up[0](x)) * self.gelu(self.up[1](x))
        return x + self.down[0](self.silu(y)) * self.down[1](self.silu(y * x))

    pairs = {name: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for name in ("up", "down")}
    return net(forward, **pairs, gelu=nn.GELU(), silu=nn.SiLU())


def _one_to_one() -> nn.Module:
    """Return the layers that the other cases have only by chance, and a convolution that is called twice."""

    def forward(self, x):
        y = self.six(self.conv(F.relu(self.conv(x))))
        return torch.add(self.gelu(y) * self.sigmoid(self.pool(y)), self.relu(self.identity(x)))

    acts = dict(six=nn.ReLU6(), gelu=nn.GELU(), sigmoid=nn.Sigmoid(), relu=nn.ReLU(), identity=nn.Identity())
    return net(forward, conv=nn.Conv2d(3, 3, 1), pool=nn.AdaptiveAvgPool2d(1), **acts)


def hidden(seed: int) -> list[Case]:
    both, image, tokens = ("valid", "did", "spared"), (1, 3, 4, 4), (1, 2, 4)

    def drawn(make: Callable[[random.Random], nn.Module], i: int) -> Callable[[], nn.Module]:
        return lambda: make(random.Random(seed * 100 + i))

    cases = []
    for i in range(6):
        options = dict(fold=i % 3 != 2, gelu_is_one=i % 2 == 0, seed=seed * 10 + i)
        cases.append(exporting.case(f"image block {i}", drawn(_image_block, i), image, ("valid",), **options))
    for i in range(3):
        options = dict(gelu_is_one=i == 2, seed=seed * 10 + i)
        cases.append(exporting.case(f"token block {i}", drawn(_token_block, i), tokens, both, **options))
    return [
        *cases,
        exporting.case("renamed and reordered", exporting.conv_block, (1, 2, 4, 4), both, seed=seed),
        exporting.case("four convolutions of one value", _branches, image, both, seed=2),
        exporting.case("twins", _twins, tokens, both, gelu_is_one=False, seed=9),
        exporting.case("one to one", _one_to_one, image, both, seed=seed + 2),
        exporting.case("ends in a dropout", _ends_in_dropout, image, both, seed=seed + 1),
    ]


# ---------------------------------------------------------------------------------------------------- answers

SPLIT = {nn.Linear: ["MatMul", "Add"], nn.SiLU: ["Sigmoid", "Mul"], nn.GELU: ["Div", "Erf", "Add", "Mul", "Mul"]}
GONE = (nn.Dropout, nn.Identity)
NAMES = {
    "Conv2d": "Conv", "BatchNorm2d": "BatchNormalization", "ReLU": "Relu", "ReLU6": "Clip", "Sigmoid": "Sigmoid",
    "LayerNorm": "LayerNormalization", "AdaptiveAvgPool2d": "GlobalAveragePool", "relu": "Relu", "sigmoid": "Sigmoid",
    "add": "Add", "mul": "Mul", "GELU": "Gelu", "SiLU": "Mul", "Linear": "Add",
}  # fmt: skip


class _Model:
    """The two graphs, and what one asks about them."""

    def __init__(self, gm, model):
        self.gm, self.nodes = gm, list(model.graph.node)
        self.weights = {weight.name for weight in model.graph.initializer}
        self.maker = {name: node for node in self.nodes for name in node.output}
        self.end = model.graph.output[0].name
        self.working = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]

    def module(self, node):
        return self.gm.get_submodule(node.target) if node.op == "call_module" else None

    def kind(self, node):
        """Return the ONNX type to expect for a node."""
        module = self.module(node)
        return NAMES.get(type(module).__name__ if module is not None else node.target.__name__)

    def reads(self, node):
        return [name for name in node.input if name not in self.weights]


def _backwards(gm, model, merged="both"):
    """Unify FX nodes with ONNX values from the output on; `merged`: what to say of a folded batch norm."""
    m, matches = _Model(gm, model), {}

    def gelu(at):
        half = m.maker[at]
        times = m.maker[m.reads(half)[0]]
        plus = next(m.maker[v] for v in m.reads(times) if v in m.maker and m.maker[v].op_type == "Add"
                    and m.maker[m.reads(m.maker[v])[0]].op_type == "Erf")  # fmt: skip
        erf = m.maker[m.reads(plus)[0]]
        div = m.maker[m.reads(erf)[0]]
        return [half, times, plus, erf, div], m.reads(div)

    def unify(node, at):
        if node.op == "placeholder" or node.name in matches:
            return
        module, operand = m.module(node), node.all_input_nodes[0]
        if isinstance(module, GONE):
            matches[node.name] = ("gone", [])
            return unify(operand, at)
        top = m.maker[at]
        if isinstance(module, nn.BatchNorm2d) and top.op_type == "Conv":
            entry = ("merged", [top.name])
            matches[node.name] = entry if merged == "both" else ("gone", [])
            matches[operand.name] = entry if merged == "both" else ("same", [top.name])
            return unify(operand.all_input_nodes[0], top.input[0])
        if isinstance(module, nn.Linear):
            product = m.maker[m.reads(top)[0]]
            parts, reads = [top, product], m.reads(product)
        elif isinstance(module, nn.SiLU):
            sigmoid = next(m.maker[v] for v in top.input if v in m.maker and m.maker[v].op_type == "Sigmoid"
                           and m.maker[v].input[0] in top.input)  # fmt: skip
            parts, reads = [top, sigmoid], [sigmoid.input[0]]
        elif isinstance(module, nn.GELU) and top.op_type == "Mul":
            parts, reads = gelu(at)
        else:
            parts, reads = [top], m.reads(top)
        matches[node.name] = ("same" if len(parts) == 1 else "split", [part.name for part in parts])
        for operand, value in zip([a for a in node.args if isinstance(a, fx.Node)], reads, strict=True):
            unify(operand, value)

    *_, output = gm.graph.nodes
    unify(output.args[0], m.end)
    return matches


@right("one recursive function that unifies an FX node with an ONNX value, with a pattern for each operation")
def by_patterns(gm, model):
    return _backwards(gm, model)


@right("runs both on one input: values that are equal belong together, and what lies between them is the work")
def by_running(gm, model):
    m, inputs = _Model(gm, model), torch.randn(gm.meta["inputs"][0].shape, generator=torch.Generator().manual_seed(5))
    names = [name for node in m.nodes for name in node.output]
    graph = type(model)()
    graph.CopyFrom(model)
    del graph.graph.output[:]
    graph.graph.output.extend(type(model.graph.output[0])(name=name) for name in names)
    results = ReferenceEvaluator(graph).run(None, {model.graph.input[0].name: inputs.numpy()})
    known = dict(zip(names, results, strict=True)) | {model.graph.input[0].name: inputs.numpy()}
    values = {}

    class Run(fx.Interpreter):
        def run_node(self, node):
            values[node] = super().run_node(node)
            return values[node]

    with torch.no_grad():
        Run(gm).run(inputs)

    place, matches = {}, {}
    for node in values:  # two nodes may give equal values; each takes the first that is free
        if node.op == "placeholder":
            place[node] = model.graph.input[0].name
            continue
        value, free = values[node].numpy(), set(known) - set(place.values())
        close = (n for n, v in known.items() if v.shape == value.shape and np.allclose(v, value, 1e-4, 1e-5))
        idle = isinstance(m.module(node), GONE)
        place[node] = place[node.args[0]] if idle else next((n for n in close if n in free), None)
    for node in m.working:
        operands = [place[a] for a in node.all_input_nodes]
        at = place[node]
        if at is None:  # folded away: it shares the node of its reader
            matches[node.name] = ("merged", [m.maker[place[next(iter(node.users))]].name])
        elif at in operands and isinstance(m.module(node), GONE):
            matches[node.name] = ("gone", [])
        elif None in operands:
            matches[node.name] = ("merged", [m.maker[at].name])
        else:
            todo, parts = [at], []
            while todo:
                part = m.maker.get(name := todo.pop())
                if part is not None and part.name not in parts and (name == at or name not in operands):
                    parts.append(part.name)
                    todo += m.reads(part)
            matches[node.name] = ("same" if len(parts) == 1 else "split", parts)
    return matches


@wrong("did", "a batch norm that went into a convolution is taken for one that was dropped")
def norm_is_gone(gm, model):
    return _backwards(gm, model, merged="norm is gone")


@wrong("spared", "says merged wherever a batch norm follows a convolution, without a look at the ONNX graph")
def merged_by_rule(gm, model):
    matches, m = _backwards(gm, model), _Model(gm, model)
    for node in m.working:
        operand = node.all_input_nodes[0]
        if type(m.module(node)) is nn.BatchNorm2d and type(m.module(operand)) is nn.Conv2d:
            matches[node.name] = matches[operand.name] = ("merged", matches[operand.name][1])
    return matches


@wrong("spared", "pairs the nodes of one type in the order in which the lists have them")
def in_list_order(gm, model):
    m = _Model(gm, model)
    matches, left = {}, {}
    for part in m.nodes:
        left.setdefault(part.op_type, []).append(part.name)
    for node in m.working:
        module = m.module(node)
        types = SPLIT.get(type(module), [m.kind(node)])
        types = ["Gelu"] if isinstance(module, nn.GELU) and left.get("Gelu") else types
        follows = isinstance(module, nn.BatchNorm2d) and isinstance(m.module(node.all_input_nodes[0]), nn.Conv2d)
        if isinstance(module, GONE):
            matches[node.name] = ("gone", [])
        elif follows and not left.get("BatchNormalization"):
            operand = node.all_input_nodes[0].name
            matches[node.name] = matches[operand] = ("merged", matches[operand][1])
        else:
            names = [left[kind].pop(0) for kind in types if left.get(kind)]
            matches[node.name] = ("same" if len(names) == 1 else "split", names)
    return matches


@wrong("spared", "finds ONNX nodes by the names of their weights, which an exporter may change")
def by_weight_names(gm, model):
    m, matches = _Model(gm, model), _backwards(gm, model)
    for node in m.working:
        if node.op == "call_module" and matches[node.name][0] == "same" and list(m.module(node).parameters()):
            named = [part.name for part in m.nodes if any(i.startswith(f"{node.target}.") for i in part.input)]
            matches[node.name] = ("same", named)
    return matches


@wrong("spared", "every Mul that a Sigmoid feeds is taken for half of a SiLU, gates too")
def gates_are_silus(gm, model):
    matches = _backwards(gm, model)
    for node in gm.graph.nodes:
        gate = node.all_input_nodes[-1] if getattr(node.target, "__name__", "") == "mul" else None
        if gate is not None and getattr(gate.target, "__name__", "") == "sigmoid":
            matches[node.name] = matches[gate.name] = ("split", matches[node.name][1] + matches[gate.name][1])
    return matches


@wrong("valid", "gives the names of values in the place of names of nodes")
def values_not_nodes(gm, model):
    outputs = {part.name: part.output[0] for part in model.graph.node}
    return {name: (word, [outputs[n] for n in nodes]) for name, (word, nodes) in _backwards(gm, model).items()}


@wrong("did", "takes the first Sigmoid that a SiLU's product reads for its own, though the input may come from one")
def first_sigmoid(gm, model):
    m, matches = _Model(gm, model), _backwards(gm, model)
    for node in m.working:
        if type(m.module(node)) is nn.SiLU:
            top = next(part for part in m.nodes if part.name == matches[node.name][1][0])
            feeding = [m.maker[v] for v in top.input if v in m.maker and m.maker[v].op_type == "Sigmoid"]
            matches[node.name] = ("split", [top.name, feeding[0].name])
    return matches


@wrong(
    "did", "takes the parts of a split operation by their types, the nearest in the list: twins share it out wrongly"
)
def nearest_parts(gm, model):
    m, matches = _Model(gm, model), _backwards(gm, model)
    for node in m.working:
        word, names = matches[node.name]
        if word == "split":
            before = m.nodes[: 1 + max(i for i, part in enumerate(m.nodes) if part.name in names)]
            left, matches[node.name] = list(SPLIT[type(m.module(node))]), ("split", [])
            for part in reversed(before):
                if part.op_type in left:
                    left.remove(part.op_type)
                    matches[node.name][1].append(part.name)
    return matches


@wrong("valid", "calls a node by the module that it calls: a module may have two calls, and a path has dots")
def by_path(gm, model):
    m, matches = _Model(gm, model), _backwards(gm, model)
    return {node.target if m.module(node) else node.name: matches[node.name] for node in m.working}


@wrong("valid", "names a node once for each path that leads to it")
def once_for_each_path(gm, model):
    entries = _backwards(gm, model).items()
    return {name: (word, nodes + nodes[-1:] if word == "split" else nodes) for name, (word, nodes) in entries}


last_part_only = edited("did", "looks for one ONNX node for every FX node: finds only the last part of a split one")(
    ('("same" if len(nodes) == 1 else "split", nodes)', '("same", nodes[:1])')
)
dropout_has_a_node = edited("did", "gives an operation that does nothing the node that makes its value")(
    ('("gone", []), value[node]', '("same", [top.name]) if top else ("gone", []), value[node]')
)
gelu_is_one_node = edited("did", "does not know that GELU may be written out")(
    ("{nn.Linear: ..., nn.SiLU: ..., nn.GELU: ...}", "{nn.Linear: ..., nn.SiLU: ...}"),
    (
        "if ... or node.name in entries: ...",
        """
        if ... or node.name in entries: ...
        if value.get(node) not in maker:
            entries[node.name] = ("gone", [])
            continue
        """,
    ),
)

EQUIVALENT = {
    ("isinstance(a, fx.Node)", "True"): "an operand that is not a node stands last, and nothing asks for its value",
}
