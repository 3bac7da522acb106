"""What a node does besides computing: each row says what torch does, and `test_writes_are_what_torch_does` asks it."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.fx.effects import EFFECTS, effects, may_alias, memory_order, module_effects, root, viewed, writes, written

aten = torch.ops.aten


def spelled(call):
    """A test's name that is the same in every process: functions by name, not by address."""
    return " ".join(getattr(part, "__name__", None) or repr(part) for part in call)


def unknown(x):
    return x


def node(target, *rest, **kwargs):
    """A node that calls `target` on the inputs x, y; a string is a method."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    args = [{"x": x, "y": y}.get(a, a) if isinstance(a, str) else a for a in (rest or ("x",))]
    kwargs = {k: {"x": x, "y": y}.get(v, v) if isinstance(v, str) else v for k, v in kwargs.items()}
    call = graph.call_method if isinstance(target, str) else graph.call_function
    return call(target, tuple(args), kwargs)


PURE = [
    (torch.relu,),
    (F.relu, "x", False),
    (operator.add, "x", "y"),
    (torch.add, "x", 1),
    ("sum", "x", 1),
    ("view", "x", -1),
    ("size", "x", 0),
    ("float",),
    (getattr, "x", "shape"),
    (operator.getitem, "x", 0),
    (F.dropout, "x", 0.5, False),
    (torch.dropout, "x", 0.5, False),
    (F.interpolate, "x"),
    (F.batch_norm, "x", "y", "y"),
    (F.scaled_dot_product_attention, "x", "x", "y"),
    (aten.mul.Tensor, "x", "y"),
    (torch.zeros, 3),
]
DRAWS = [
    (F.dropout, "x"),
    (F.dropout, "x", 0.5, True),
    (F.dropout2d, "x"),
    (torch.dropout, "x", 0.5, True),
    (torch.rand_like,),
    (torch.randn, 3),
    (torch.bernoulli,),
    ("bernoulli",),
    (torch.multinomial, "x", 2),
    (F.rrelu, "x", 0.1, 0.3, True),
    (F.gumbel_softmax,),
    (aten.rand_like.default,),
    (aten.native_dropout.default, "x", 0.5, True),
]
WRITES = [
    ("add_", "x", 1),
    ("zero_",),
    ("copy_", "x", "y"),
    ("masked_fill_", "x", "y", 0.0),
    ("clamp_", "x", 0.0),
    ("__setitem__", "x", 0, 1.0),
    (operator.setitem, "x", 0, 1.0),
    (operator.iadd, "x", 1),
    (F.relu, "x", True),
    (F.relu_,),
    (F.hardtanh, "x", -1, 1, True),
    (torch.relu_,),
    (aten.add_.Tensor, "x", "y"),
]
#: Operators of ATen whose names Python's own functions have, too: their schemas decide.
VIEWS = [
    (aten.slice.Tensor, "x"),
    (aten.slice, "x", 0, 1, 2),
    (aten.select.int, "x", 0, 1),
    (aten.view.default, "x", [6]),
]
COPIES = [(aten.abs.default, "x"), (aten.round.default, "x"), (aten.mul.Tensor, "x", "y"), (slice, 1, 2)]


@pytest.mark.parametrize("call", PURE, ids=spelled)
def test_pure(call):
    assert effects(node(*call)) == frozenset()


@pytest.mark.parametrize("call", DRAWS, ids=spelled)
def test_draws(call):
    assert effects(node(*call)) == {"draws"}


@pytest.mark.parametrize("call", WRITES, ids=spelled)
def test_writes(call):
    value = node(*call)
    assert effects(value) == {"writes"}
    assert [n.name for n in writes(value)] == ["x"]
    assert may_alias(value)


@pytest.mark.parametrize("call", VIEWS, ids=spelled)
def test_views_of_aten_may_alias(call):
    assert may_alias(node(*call))
    assert effects(node(*call)) == frozenset()


@pytest.mark.parametrize("call", COPIES, ids=spelled)
def test_what_computes_aliases_nothing(call):
    assert not may_alias(node(*call))


def test_a_write_through_an_aten_slice_reaches_its_base():
    graph = fx.Graph()
    x = graph.placeholder("x")
    base = graph.call_function(aten.mul.Tensor, (x, 2))
    part = graph.call_function(aten.slice.Tensor, (base, 0, 0, 1))
    graph.call_function(aten.add_.Tensor, (part, 1))
    graph.output(base)
    assert base in written(graph)


def test_keywords_write_too():
    assert [n.name for n in writes(node(torch.add, "x", 1, out="y"))] == ["y"]
    assert [n.name for n in writes(node(F.relu, "x", inplace=True))] == ["x"]
    assert writes(node(F.relu, "x", inplace=False)) == []
    assert {n.name for n in writes(node(F.batch_norm, "x", "y", "y", training=True))} == {"y"}
    assert effects(node("uniform_")) == {"writes", "draws"}
    assert effects(node(F.dropout, "x", p=0.5, training=False)) == frozenset()
    assert effects(node(F.dropout, "x", p=0.0)) == frozenset()
    assert effects(node(F.scaled_dot_product_attention, "x", "x", "y", dropout_p=0.1)) == {"draws"}


def test_what_is_not_known_is_not_pure():
    assert effects(node(unknown)) == {"unknown"}
    assert effects(node(print)) == {"unknown"}
    assert effects(node(torch.manual_seed, 0)) == {"unknown"}
    assert effects(node("register_hook")) == {"unknown"}
    assert effects(node(torch._assert, "x", "message")) == {"stops"}
    assert all(effects(node(*call)) <= set(EFFECTS) for call in PURE + DRAWS + WRITES)


def module_node(module: nn.Module) -> fx.Node:
    graph = fx.Graph()
    value = graph.call_module("part", (graph.placeholder("x"),))
    root = nn.Module()
    root.part = module
    graph.output(value)
    return next(n for n in fx.GraphModule(root, graph).graph.nodes if n.op == "call_module")


def test_modules_are_taken_in_the_mode_they_are_in():
    cases = {
        "draws": [nn.Dropout(), nn.LSTM(2, 2, 2, dropout=0.5), nn.RReLU(), nn.Sequential(nn.Tanh(), nn.Dropout())],
        "writes": [nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Sequential(nn.Tanh(), nn.ReLU(inplace=True))],
    }
    for word, modules in cases.items():
        for module in modules:
            assert module_effects(module.train()) == {word}, module
    for module in (nn.Dropout(), nn.BatchNorm2d(3), nn.LSTM(2, 2, 2, dropout=0.5), nn.RReLU()):
        assert module_effects(module.eval()) == frozenset(), module
    for module in (nn.Linear(2, 2), nn.Conv2d(1, 1, 1), nn.Dropout(0.0), nn.BatchNorm2d(3, track_running_stats=False)):
        assert module_effects(module.train()) == frozenset(), module

    class Own(nn.Module):
        pass

    assert module_effects(Own()) == {"unknown"}
    graph = fx.symbolic_trace(nn.Sequential(nn.Dropout()))
    assert module_effects(graph) == {"draws"}


def test_modules_that_give_their_operand_back():
    assert may_alias(module_node(nn.Identity())) and may_alias(module_node(nn.Flatten()))
    assert not may_alias(module_node(nn.Linear(2, 2)))
    assert [n.name for n in writes(module_node(nn.ReLU(inplace=True)))] == ["x"]


@pytest.mark.parametrize("call", [c for c in WRITES + PURE if c[0] not in (torch.zeros,)], ids=spelled)
def test_writes_are_what_torch_does(call):
    """Run each row: operands change just where `writes` says so, and memory is shared only where `may_alias` does."""
    item = node(*call)
    values = {"x": torch.linspace(-2, 1, 4).reshape(2, 2), "y": torch.linspace(0.5, 1, 4).reshape(2, 2)}
    if item.target == "masked_fill_":
        values["y"] = values["y"] > 0.7
    if item.target is F.interpolate:
        values["x"] = values["x"].reshape(1, 2, 2)
    if item.target is F.batch_norm:
        values["y"] = torch.tensor([0.5, 1.0])
    old = {name: value.clone() for name, value in values.items()}
    kwargs = {"scale_factor": 2.0} if item.target is F.interpolate else {}
    args = fx.node.map_arg(item.args, lambda n: values[n.name])
    result = getattr(args[0], item.target)(*args[1:]) if item.op == "call_method" else item.target(*args, **kwargs)
    changed = {name for name in values if not torch.equal(values[name], old[name])}
    assert changed == {n.name for n in writes(item)}
    if isinstance(result, torch.Tensor):
        shared = any(result.untyped_storage().data_ptr() == v.untyped_storage().data_ptr() for v in values.values())
        assert may_alias(item) or not shared


def names(nodes) -> set[str]:
    return {n.name for n in nodes}


def test_written_follows_views_both_ways():
    graph = fx.Graph()
    x = graph.placeholder("x")
    fresh = graph.call_function(torch.relu, (x,))
    view = graph.call_method("view", (fresh, -1))
    row = graph.call_function(operator.getitem, (view, 0))
    other = graph.call_method("reshape", (fresh, 2, 2))
    copy = graph.call_method("clone", (view,))
    write = graph.call_method("add_", (row, 1))
    graph.output((other, copy))
    assert names(written(graph)) == names([fresh, view, row, other, write])


def test_two_inputs_may_be_one_tensor():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    fresh = graph.call_function(torch.relu, (y,))
    write = graph.call_method("add_", (x, 1))
    graph.output((y, fresh))
    assert names(written(graph)) == names([x, y, write])


def test_written_knows_one_attribute_read_twice_and_shared_storage():
    root = nn.Module()
    root.register_buffer("a", torch.zeros(4))
    root.register_buffer("part", root.a[:2])
    root.register_buffer("b", torch.zeros(4))
    graph = fx.Graph()
    first, again, part, b = (graph.get_attr(name) for name in ("a", "a", "part", "b"))
    write = graph.call_method("add_", (first, 1))
    graph.output((again, part, b))
    gm = fx.GraphModule(root, graph)
    assert names(written(gm.graph)) == names([first, again, part, write])


def test_a_module_in_training_mode_writes_its_own_statistics():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.bn(x) + self.bn.weight

    gm = fx.symbolic_trace(Net().train())
    assert names(written(gm.graph)) == {"bn", "bn_weight"}
    assert written(fx.symbolic_trace(Net().eval()).graph) == set()


def test_a_module_reads_the_weights_that_it_holds():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            before = self.linear(x) + self.other(x)
            self.linear.weight.view(-1).add_(1)
            return before + self.linear(x)

    graph = fx.symbolic_trace(Net()).graph
    assert names(written(graph)) == {"linear", "linear_1", "linear_weight", "view", "add_"}
    assert order_of(graph) == {"add_": {"linear", "view"}, "linear_1": {"add_"}}


def test_a_graph_without_writes_has_nothing_written():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.relu, (graph.call_method("view", (x, -1)),)))
    assert written(graph) == set()


def order_of(graph):
    """Node → the nodes it must stay behind, by name; without those that need not stay behind anything."""
    return {node.name: names(before) for node, before in memory_order(graph).items() if before}


def test_reads_stay_on_their_side_of_a_write():
    graph = fx.Graph()
    x, other = graph.placeholder("x"), graph.get_attr("w")
    y = graph.call_function(torch.relu, (x,))
    early = graph.call_function(torch.exp, (y,))
    view = graph.call_method("view", (y, -1))
    graph.call_method("add_", (view, 1))
    graph.call_function(torch.tanh, (y,))
    graph.call_method("mul_", (y, 2))
    graph.call_function(torch.sin, (other,))
    graph.output((early, y))
    assert order_of(graph) == {"add_": {"exp", "view"}, "tanh": {"add_"}, "mul_": {"add_", "tanh"}, "output": {"mul_"}}


def test_draws_keep_their_order_and_a_graph_without_effects_has_none():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.rand_like, (x,))
    graph.call_function(F.dropout, (x, 0.5, True))
    graph.call_function(F.dropout, (x, 0.5, False))
    graph.output(graph.call_function(torch.relu, (x,)))
    assert order_of(graph) == {"dropout": {"rand_like"}}


def test_views_lead_to_what_holds_their_memory():
    graph = fx.Graph()
    x = graph.placeholder("x")
    parts = graph.call_function(aten.split.Tensor, (x, 2))
    part = graph.call_function(operator.getitem, (parts, 0))
    turned = graph.call_function(aten.t.default, (part,))
    y = graph.call_function(aten.sin.default, (turned,))
    flat = graph.call_function(aten._unsafe_view.default, (y, [-1]))
    largest = graph.call_function(aten.max.dim, (x, 0))
    values = graph.call_function(operator.getitem, (largest, 0))
    assert [viewed(node) for node in (x, part, turned, y, flat, values)] == [None, x, part, None, y, None]
    assert [root(node) for node in (x, part, turned, y, flat, values)] == [x, x, x, y, y, values]
