"""Op patterns: the forms of an operation have one name and one pattern; what does more than compute is opaque."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import trace
from passlab.fx.patterns import Pattern, canonical, pattern


def last(body, *inputs, **parts) -> fx.Node:
    """The node that the traced program returns."""
    root = type("Program", (nn.Module,), {"forward": body})()
    for name, part in parts.items():
        setattr(root, name, part)
    gm = trace(root.eval(), *(inputs or (torch.randn(2, 4, 6, 6),)))
    return next(iter(gm.graph.find_nodes(op="output"))).args[0]


FORMS = {
    "relu": [lambda m, x: torch.relu(x), lambda m, x: F.relu(x), lambda m, x: x.relu(), lambda m, x: m.part(x)],
    "add": [lambda m, x: x + 1, lambda m, x: torch.add(x, x), lambda m, x: x.add(x), lambda m, x: 2 + x],
    "div": [lambda m, x: x / 2, lambda m, x: torch.true_divide(x, 2), lambda m, x: x.divide(2)],
    "clamp": [lambda m, x: x.clamp(0, 1), lambda m, x: torch.clip(x, 0)],
    "to": [lambda m, x: x.half(), lambda m, x: x.to(torch.float64), lambda m, x: x.type(torch.int32)],
}


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_of_an_operation_have_one_name(name):
    assert {canonical(last(form, part=nn.ReLU())) for form in FORMS[name]} == {name}


def test_aten_operators_have_the_names_of_functions():
    graph = fx.Graph()
    x = graph.placeholder("x")
    aten = torch.ops.aten
    for target, name, kind in (
        (aten.add.Tensor, "add", Pattern.BROADCAST),
        (aten._softmax.default, "softmax", Pattern.OUT_ELEMWISE_FUSABLE),
        (aten._to_copy.default, "to", Pattern.ELEMWISE),
        (aten.relu_.default, "relu_", Pattern.OPAQUE),
    ):
        node = graph.call_function(target, (x,))
        assert (canonical(node), pattern(node)) == (name, kind)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (lambda m, x: torch.tanh(x), Pattern.ELEMWISE),
        (lambda m, x: F.gelu(x), Pattern.ELEMWISE),
        (lambda m, x: F.dropout(x, 0.5, False), Pattern.ELEMWISE),
        (lambda m, x: torch.where(x > 0, x, 0.0), Pattern.BROADCAST),
        (lambda m, x: torch.maximum(x, x[:, :1]), Pattern.BROADCAST),
        (lambda m, x: torch.max(x, -x), Pattern.BROADCAST),
        (lambda m, x: x.unsqueeze(0), Pattern.BROADCAST),
        (lambda m, x: x.transpose(1, 2), Pattern.INJECTIVE),
        (lambda m, x: torch.cat([x, x]), Pattern.INJECTIVE),
        (lambda m, x: x.chunk(2, 1)[0], Pattern.INJECTIVE),
        (lambda m, x: x.sum(1), Pattern.COMM_REDUCE),
        (lambda m, x: torch.max(x), Pattern.COMM_REDUCE),
        (lambda m, x: x @ x, Pattern.OUT_ELEMWISE_FUSABLE),
        (lambda m, x: m.conv(x), Pattern.OUT_ELEMWISE_FUSABLE),
        (lambda m, x: m.norm(x), Pattern.OUT_ELEMWISE_FUSABLE),
        (lambda m, x: torch.softmax(x, 1), Pattern.OUT_ELEMWISE_FUSABLE),
        (lambda m, x: F.dropout(x, 0.5, True), Pattern.OPAQUE),
        (lambda m, x: F.relu(x, inplace=True), Pattern.OPAQUE),
        (lambda m, x: x.add_(1), Pattern.OPAQUE),
        (lambda m, x: torch.rand_like(x), Pattern.OPAQUE),
        (lambda m, x: torch.cumsum(x, 1), Pattern.OPAQUE),
        (lambda m, x: x.size(0), Pattern.OPAQUE),
        (lambda m, x: x.size(0) * 2 + 1, Pattern.OPAQUE),
        (lambda m, x: x, Pattern.OPAQUE),
    ],
)
def test_patterns(body, kind):
    assert pattern(last(body, conv=nn.Conv2d(4, 4, 3), norm=nn.BatchNorm2d(4))) is kind


def test_a_batch_norm_that_trains_is_opaque():
    gm = fx.symbolic_trace(nn.Sequential(nn.BatchNorm2d(4)).train())
    assert pattern(next(iter(gm.graph.find_nodes(op="call_module", target="0")))) is Pattern.OPAQUE


def test_a_graph_without_shapes_is_judged_by_names():
    graph = fx.Graph()
    node = graph.call_function(operator.mul, (graph.placeholder("x"), 2))
    assert pattern(node) is Pattern.BROADCAST
