"""The codec on graphs that torch.compile captured: symbolic sizes and tensors without data, which their notes hold."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from autograder.engine.wire import Refused, decode, encode
from autograder.engine.wire.symbols import Symbols
from passlab import cost, equivalent, view
from passlab.capture import capture, lower
from tests.engine.test_wire_fuzz import graph, payload, row


def program(x, bias):
    x.add_(bias)
    y = x.relu().reshape(-1, 2)
    return y * x.shape[0], x[1:], y.softmax(-1)


def captured(dynamic):
    return capture(program, torch.randn(6, 4), torch.randn(4), dynamic=dynamic).graphs[0]


def lowered(dynamic):
    return lower(program, torch.randn(6, 4), torch.randn(4), dynamic=dynamic).forward


def noted(node):
    """What the notes of a node say, as text."""
    value = node.meta.get("val", node.meta.get("example_value"))
    meta = node.meta.get("tensor_meta")
    message = [str(meta and (meta.shape, meta.stride, meta.dtype))]
    if isinstance(value, torch.Tensor):
        return [*message, str(tuple(value.shape)), str(value.stride()), value.dtype, value.device, value.requires_grad]
    return [*message, str(value), getattr(getattr(value, "node", None), "hint", None)]


@pytest.mark.parametrize("make", [captured, lowered])
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_captured_graph_travels_with_its_sizes(make, dynamic):
    gm = make(dynamic)
    back = decode(encode(gm))
    assert [noted(node) for node in back.graph.nodes] == [noted(node) for node in gm.graph.nodes]
    assert [node.type for node in back.graph.nodes] == [node.type for node in gm.graph.nodes]
    assert view(back).counts() == view(gm).counts() and cost(back) == cost(gm)
    x, bias = torch.randn(6, 4), torch.randn(4)
    sizes = (6, 4) if dynamic else ()
    sizes = sizes[: len(gm.graph.find_nodes(op="placeholder")) - 2]
    assert equivalent(gm, back, (*sizes, x, bias))


def test_one_symbol_is_one_symbol_again():
    gm = decode(encode(lowered(True)))
    rows, columns, x, bias = (node.meta["val"] for node in gm.graph.find_nodes(op="placeholder"))
    assert x.shape[0] is rows or x.shape[0].node.expr == rows.node.expr
    assert x.shape[1].node.expr == columns.node.expr == bias.shape[0].node.expr != rows.node.expr
    assert (x + bias).shape[0].node.expr == rows.node.expr  # what follows can be computed without data
    assert rows > 5 and rows != columns and rows == 6 and int(columns) == 4  # and a symbol can be asked


def test_what_a_pass_makes_of_a_symbol_travels():
    gm = lowered(True)
    first, *_ = gm.graph.find_nodes(op="placeholder")
    first.meta["val"] = first.meta["val"] * 2 + 1
    back = decode(encode(gm))
    value = back.graph.find_nodes(op="placeholder")[0].meta["val"]
    assert str(value) == str(first.meta["val"]) and value.node.hint == 13


@pytest.mark.parametrize(
    "value", [lambda: Symbols().size("s0", 3), lambda: Symbols().tensor((2,), (1,), torch.int8, False)]
)
def test_a_size_or_a_tensor_without_a_value_is_not_an_answer(value):
    with pytest.raises(Refused, match="cannot leave your notebook"):
        encode([value()])


def test_a_symbol_as_an_operand_is_named():
    gm = fx.symbolic_trace(lambda x: torch.relu(x))
    relu = next(node for node in gm.graph.nodes if node.op == "call_function")
    relu.args = (Symbols().size("s0", 3),)
    with pytest.raises(Refused, match=r"Node relu contains a torch\.SymInt"):
        encode(gm)


def said(*values):
    """A payload of a graph with these notes."""
    return graph(*(row(name=f"x{at}", notes=["d", "val", value]) for at, value in enumerate(values)))


@pytest.mark.parametrize(
    "harm",
    [
        payload(["sy", "s0", 3]),
        payload(["ft", ["l", 2], ["l", 1], ["dt", "float32"], False]),
        said(["sy", "s0\nimport os", 3]),
        said(["sy", '"', 3]),
        said(["sy", "", 3]),
        said(["sy", "s0", "3"]),
        said(["sy", "s0", 2**63 - 1]),
        said(["sy", "s0"]),
        said(["sy", "s0", 3], ["sy", "s0", 4]),
        said(["ft", ["l", 2], ["l", 1, 1], ["dt", "float32"], False]),
        said(["ft", ["l", -2], ["l", 1], ["dt", "float32"], False]),
        said(["ft", ["l", []], ["l", 1], ["dt", "float32"], False]),
        said(["ft", ["l", 2], ["l", 1], 5, False]),
        said(["ft", ["l", 2], ["l", 1], ["dt", "int8"], True]),
        said(["ft", ["l", ["sy", "s0", -3]], ["l", 1], ["dt", "int8"], False]),
    ],
)
def test_hostile_notes_are_refused(harm):
    with pytest.raises(Refused):
        decode(harm)
