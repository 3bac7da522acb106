"""Day 1, one residual block in two IRs: a small exporter that knows which nodes it merged and split, and the judge.

`torch.onnx.export` takes seconds and does not record what became of a node. This exporter covers the layers of residual
blocks, does with them what torch's does (a test compares the two), and keeps the record.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import fx, nn

from passlab.exercises.day01._shared import net, traced
from passlab.judge import Case, Finding, and_more
from passlab.judge.forms import why_not_a_dict, why_not_names
from passlab.judge.words import shown

WORDS = ("same", "merged", "split", "gone")

#: One FX operation, one ONNX node of this type.
ONE_TO_ONE = {
    operator.add: "Add", torch.add: "Add", operator.mul: "Mul", torch.relu: "Relu", F.relu: "Relu",
    torch.sigmoid: "Sigmoid", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid", nn.AdaptiveAvgPool2d: "GlobalAveragePool",
}  # fmt: skip


class _Exporter:
    """Write the ONNX nodes for one FX graph. `record`: FX name → (word, ONNX node names)."""

    def __init__(self, gm: fx.GraphModule, fold: bool, gelu_is_one: bool, rng: random.Random | None):
        self.gm, self.fold, self.gelu_is_one, self.rng = gm, fold, gelu_is_one, rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.value: dict[fx.Node, str] = {}
        self.record: dict[str, tuple[str, list[str]]] = {}
        self.numbers = rng.sample(range(1000), 400) if rng else None
        self.bias_first = rng is not None and rng.random() < 0.5  # as torch's older exporter writes it

    def fresh(self, readable: str) -> str:
        return f"n{self.numbers.pop()}" if self.numbers else readable

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append an ONNX node and return the name of its value."""
        name = self.fresh(f"node_{kind}_{len(self.nodes)}")
        self.nodes.append(helper.make_node(kind, inputs, [self.fresh(f"val_{len(self.nodes)}")], name, **attributes))
        return self.nodes[-1].output[0]

    def weight(self, name: str, tensor: torch.Tensor) -> str:
        name = self.fresh(name)
        self.weights[name] = tensor.detach().numpy()
        return name

    def export(self) -> None:
        skipped = set()
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.value[node] = node.name
            elif node.op != "output" and node not in skipped:
                called = self.gm.get_submodule(node.target) if node.op == "call_module" else node.target
                norm = self._norm_after(node, called)
                start = len(self.nodes)
                self.value[node] = self._one(node, called, norm)
                names = [new.name for new in self.nodes[start:]]
                if norm is None:
                    self.record[node.name] = ({0: "gone", 1: "same"}.get(len(names), "split"), names)
                else:
                    skipped.add(norm)
                    self.value[norm] = self.value[node]
                    self.record |= {node.name: ("merged", names), norm.name: ("merged", names)}

    def _norm_after(self, node: fx.Node, called: Any) -> fx.Node | None:
        """Return the batch norm that can be folded into this convolution (its only consumer), or None."""
        reader = next(iter(node.users), None)
        if not self.fold or not isinstance(called, nn.Conv2d) or len(node.users) != 1 or reader.op != "call_module":
            return None
        return reader if isinstance(self.gm.get_submodule(reader.target), nn.BatchNorm2d) else None

    def _one(self, node: fx.Node, called: Any, norm: fx.Node | None) -> str:
        x = self.value[node.all_input_nodes[0]]
        if kind := ONE_TO_ONE.get(called, ONE_TO_ONE.get(type(called))):
            return self.node(kind, *(self.value[used] for used in node.args if isinstance(used, fx.Node)))
        return getattr(self, f"_{type(called).__name__.lower()}")(node.target, called, x, norm)

    def _conv2d(self, name: str, conv: nn.Conv2d, x: str, norm: fx.Node | None) -> str:
        weight, bias = conv.weight, conv.bias if conv.bias is not None else torch.zeros(conv.out_channels)
        if norm is not None:
            bn = self.gm.get_submodule(norm.target)
            scale = bn.weight / torch.sqrt(bn.running_var + bn.eps)
            weight, bias = weight * scale[:, None, None, None], (bias - bn.running_mean) * scale + bn.bias
        names = self.weight(f"{name}.weight", weight), self.weight(f"{name}.bias", bias)
        sizes = dict(strides=list(conv.stride), pads=list(conv.padding) * 2, kernel_shape=list(conv.kernel_size))
        return self.node("Conv", x, *names, **sizes)

    def _batchnorm2d(self, name: str, bn: nn.BatchNorm2d, x: str, _: None) -> str:
        parts = ("weight", "bias", "running_mean", "running_var")
        names = [self.weight(f"{name}.{part}", getattr(bn, part)) for part in parts]
        return self.node("BatchNormalization", x, *names, epsilon=bn.eps)

    def _linear(self, name: str, linear: nn.Linear, x: str, _: None) -> str:
        product = self.node("MatMul", x, self.weight(f"{name}.weight", linear.weight.T))
        bias = self.weight(f"{name}.bias", linear.bias)
        return self.node("Add", *((bias, product) if self.bias_first else (product, bias)))

    def _layernorm(self, name: str, norm: nn.LayerNorm, x: str, _: None) -> str:
        names = [self.weight(f"{name}.{part}", getattr(norm, part)) for part in ("weight", "bias")]
        return self.node("LayerNormalization", x, *names, epsilon=norm.eps)

    def _silu(self, name: str, called: nn.SiLU, x: str, _: None) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def _gelu(self, name: str, called: nn.GELU, x: str, _: None) -> str:
        if self.gelu_is_one:
            return self.node("Gelu", x)
        root, one, half = (self.weight(f"const_{n:.2f}_{len(self.nodes)}", torch.tensor(n)) for n in (2**0.5, 1.0, 0.5))
        erf = self.node("Add", self.node("Erf", self.node("Div", x, root)), one)
        return self.node("Mul", self.node("Mul", x, erf), half)

    def _relu6(self, name: str, called: nn.ReLU6, x: str, _: None) -> str:
        return self.node("Clip", x, *(self.weight(f"{name}.{n}", torch.tensor(float(n))) for n in (0, 6)))

    def _dropout(self, name: str, called: nn.Dropout, x: str, _: None) -> str:
        return x

    _identity = _dropout

    def model(self) -> onnx.ModelProto:
        graph_inputs = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        returned = next(node for node in self.gm.graph.nodes if node.op == "output").all_input_nodes

        def info(node: fx.Node) -> onnx.ValueInfoProto:
            shape = list(node.meta["tensor_meta"].shape)
            return helper.make_tensor_value_info(self.value[node], TensorProto.FLOAT, shape)

        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        nodes = self._reordered() if self.rng else self.nodes
        graph = helper.make_graph(nodes, "block", [*map(info, graph_inputs)], [*map(info, returned)], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def _reordered(self) -> list[onnx.NodeProto]:
        """Return the nodes in another order in which each still comes after its operands."""
        pending = {name for node in self.nodes for name in node.output}
        rest, order = list(self.nodes), []
        while rest:
            ready = [node for node in rest if not any(name in pending for name in node.input)]
            order.append(self.rng.choice(ready))
            rest.remove(order[-1])
            pending.difference_update(order[-1].output)
        return order


def export(
    gm: fx.GraphModule, *, fold: bool = True, gelu_is_one: bool = True, seed: int | None = None
) -> tuple[onnx.ModelProto, dict[str, tuple[str, list[str]]]]:
    """Return the block as ONNX, and what became of each of its operations.

    `fold`: batch norms go into the convolutions before them. With a `seed`, names mean nothing, the nodes come in
    another order, and a bias may be the first operand of its sum.
    """
    exporter = _Exporter(gm, fold, gelu_is_one, None if seed is None else random.Random(seed))
    exporter.export()
    return exporter.model(), exporter.record


def case(name: str, make: Callable[[], nn.Module], shape: tuple, about: tuple[str, ...], **options: Any) -> Case:
    def build() -> tuple:
        (gm,) = traced(make, shape)()
        return gm, export(gm, **options)[0]

    def expect() -> dict:
        return export(traced(make, shape)()[0], **options)[1]

    return Case(name, build, about, expect=expect)


def trained_norm(width: int) -> nn.BatchNorm2d:
    """Return a batch norm whose statistics differ from the defaults."""
    norm = nn.BatchNorm2d(width)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return norm


def conv_block() -> nn.Module:
    """Return a ResNet block with a convolution on its shortcut, SiLU and dropout."""

    def forward(self, x):
        y = self.drop(self.act(self.bn1(self.conv1(x))))
        return torch.relu(self.bn2(self.conv2(y)) + self.norm(self.shortcut(x)))

    convs = dict(conv1=nn.Conv2d(2, 3, 3, padding=1), conv2=nn.Conv2d(3, 3, 3, padding=1), shortcut=nn.Conv2d(2, 3, 1))
    norms = {name: trained_norm(3) for name in ("bn1", "bn2", "norm")}
    return net(forward, **convs, **norms, act=nn.SiLU(), drop=nn.Dropout())


def mlp_block() -> nn.Module:
    """Return the MLP of a transformer block."""

    def forward(self, x):
        return x + self.drop(self.down(self.act(self.up(self.norm(x)))))

    return net(
        forward, norm=nn.LayerNorm(4), up=nn.Linear(4, 8), act=nn.GELU(), down=nn.Linear(8, 4), drop=nn.Dropout()
    )


def gate_block() -> nn.Module:
    """Return a batch norm, then a gate: a sigmoid and a product that are not a SiLU; one convolution is read twice."""

    def forward(self, x):
        y = self.conv(torch.relu(self.first(x)))
        return x + self.last(y) * torch.sigmoid(y)

    return net(forward, first=trained_norm(3), conv=nn.Conv2d(3, 3, 1), last=trained_norm(3))


def cases() -> list[Case]:
    both = ("valid", "did", "spared")
    return [
        case("a convolution block", conv_block, (1, 2, 4, 4), both),
        case("batch norms kept, nodes in another order", conv_block, (1, 2, 4, 4), both, fold=False, seed=1),
        case("a transformer's MLP, exported for an old opset", mlp_block, (1, 2, 4), both, gelu_is_one=False),
        case("look-alikes, names that say nothing", gate_block, (1, 3, 4, 4), ("valid", "spared"), seed=3),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `did`: what was merged, split or dropped is found. `spared`: what kept its node is “same”."""
    gm, model = case.build()
    expected = case.expect()
    types = {node.name: node.op_type for node in model.graph.node}
    form = "a dict from FX node name to (word, ONNX node names)"
    kind = "an operation of the FX graph (inputs and the output have no entry)"
    broken = why_not_a_dict(
        value, form, expected, "entry", kind, lambda name, e: _why_not_an_entry(name, e, types), label="The key {!r}"
    )
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    for verdict in ("did", "spared"):
        message, mark = "", ()
        for name, (word, nodes) in expected.items():
            about = "spared" if word == "same" else "did"
            if about == verdict and (value[name][0] != word or set(value[name][1]) != set(nodes)):
                message, mark = _wrong(name, expected, value[name], types), (name,)
                break
        yield Finding(verdict, not message, message, before=gm, mark=mark)


def _wrong(name: str, expected: dict, entry: tuple, types: dict[str, str]) -> str:
    word, nodes = expected[name]
    spelled = [f"{node} ({types[node]})" for node in nodes]
    truth = {
        "same": f"one ONNX node does its work, and only its work: {and_more(spelled)}",
        "merged": f"it shares the ONNX node {and_more(spelled)} with "
        + and_more(other for other, (_, shared) in expected.items() if shared == nodes and other != name),
        "split": f"its work is split over {and_more(spelled, 8)}",
        "gone": "it has no ONNX node",
    }[word]
    answer = f"{entry[0]!r} with {and_more(f'{node} ({types[node]})' for node in entry[1]) or 'no node'}"
    return f"{name} is {word!r}: {truth}. You returned {answer}."


def _why_not_an_entry(name: str, entry: Any, types: dict) -> str:
    """Return why a value is not a word and names of ONNX nodes."""
    if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[1], list | tuple | set):
        return f"The entry of {name} must be like ('merged', ['node_Conv_0']); it is {shown(entry)}."
    if entry[0] not in WORDS:
        return f"The word of {name} is {shown(entry[0])}; the words are {', '.join(WORDS)}."
    if reason := why_not_names(entry[1], types, f"The entry of {name}", owner="the ONNX graph"):
        return reason
    repeated = next((part for part, times in Counter(entry[1]).items() if times > 1), None)
    return f"The entry of {name} holds {repeated} more than once." if repeated is not None else ""
