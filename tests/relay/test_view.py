"""Views of Relay."""

from __future__ import annotations

import numpy as np
import pytest

from passlab import diff, view
from passlab.relay import relay, tvm
from tests.support.views import elsewhere, ops, plain


@pytest.fixture(scope="module")
def seen() -> dict:
    """What came of each module; made once, and the tests look at it."""
    seen = {}
    x, w, b = relay.var("x", shape=(2, 4)), relay.var("w", shape=(8, 4)), relay.var("b", shape=(8,))
    dense = relay.nn.dense(x, w)
    tiny = tvm.IRModule.from_expr(relay.Function([x, w, b], relay.nn.relu(relay.nn.bias_add(dense, b))))
    seen["tiny"] = plain(tiny)
    seen["function"] = plain(tiny["main"])
    try:
        tiny["main"].body.checked_type  # noqa: B018
        seen["changed"] = True
    except ValueError:
        seen["changed"] = False
    fused = relay.transform.FuseOps(2)(relay.transform.InferType()(tiny))
    seen["fused"] = plain(fused)
    seen["diff"] = diff(tiny, fused).text
    seen["fused anf"] = plain(relay.transform.ToANormalForm()(fused))  # this pass changes the module that it is given

    p0 = relay.var("p0", shape=(2, 4))
    unit = relay.Function([p0], relay.nn.relu(p0)).with_attr("Composite", "passlab.relu")
    seen["composite"] = plain(
        tvm.IRModule.from_expr(relay.Function([x], unit(relay.reshape(x, (4, 2)) + relay.const(1.5))))
    )

    shared = relay.tanh(x)
    seen["shared"] = plain(relay.Function([x], shared * shared))

    y, c = relay.var("y", shape=(relay.Any(), 4), dtype="float16"), relay.var("c", shape=(), dtype="bool")
    branch = relay.If(c, relay.nn.relu(y), relay.negative(y))
    parts = relay.split(y, 2, 1)
    mixed = relay.add(relay.TupleGetItem(relay.Tuple([branch, y]), 0), relay.concatenate([parts[0], parts[1]], 1))
    mixed = tvm.IRModule.from_expr(relay.Function([y, c], mixed))
    seen["mixed"] = plain(mixed)
    seen["let"] = plain(relay.transform.ToANormalForm()(mixed))

    three = relay.const(np.ones((3,), "float32"))
    seen["ill"] = plain(tvm.IRModule.from_expr(relay.Function([x], relay.add(x, three))))

    z, q = relay.var("z", shape=(2, 2)), relay.var("q", shape=(2, 2))
    g = relay.GlobalVar("g")
    two = tvm.IRModule({g: relay.Function([z], relay.tanh(z))})
    two["main"] = relay.Function([q], g(g(q)))
    seen["calls"] = plain(two)
    n = relay.var("n", shape=(2, 2))
    endless = tvm.IRModule({g: relay.Function([n], g(relay.tanh(n)), relay.TensorType((2, 2)))})
    seen["recursive"] = plain(endless)

    seen["views"] = [view(m) for m in (tiny, fused, mixed, two)]

    cell = relay.RefCreate(x)
    seen["cells"] = plain(
        relay.Function([x], relay.Let(relay.var("r"), relay.RefWrite(cell, relay.tanh(x)), relay.RefRead(cell)))
    )

    e = x
    for _ in range(3000):
        e = relay.tanh(e)
    seen["deep"] = len(view(relay.Function([x], e)))
    lets = x
    for i in range(3000, 0, -1):
        lets = relay.Let(relay.var(f"v{i}"), relay.tanh(x), lets)
    seen["deep lets"] = len(view(relay.Function([x], lets)))
    return seen


def test_tiny(seen):
    tiny = seen["tiny"]
    assert tiny["ir"] == "Relay" and tiny["name"] == "main"
    assert ops(tiny) == ["Var", "Var", "Var", "nn.dense", "nn.bias_add", "nn.relu"]
    assert tiny["nodes"]["%0"] == [
        *("nn.dense", "compute", ["x", "w"], "float32[2, 8]", 64, "%0 = nn.dense(%x, %w)", {})
    ]
    assert tiny["nodes"]["w"][1:5] == ["data", [], "float32[8, 4]", 128]
    assert tiny["outputs"] == ["%2"] and tiny["nodes"]["%1"][6] == {"axis": "1"}
    assert "nn.relu(%1)" in tiny["text"], "the numbers are those of Relay's own text"
    assert tiny["row"][3:] == ["yes", "yes", "none in this graph", "tensor operators"]


def test_a_function_is_its_own_module(seen):
    assert seen["function"]["nodes"] == seen["tiny"]["nodes"]


def test_types_are_inferred_on_a_copy(seen):
    assert seen["changed"] is False


def test_a_primitive_function_is_one_node(seen):
    values = "nn.dense, nn.bias_add, nn.relu"
    for form in ("fused", "fused anf"):
        (op, kind, inputs, type, *_, attrs) = next(n for n in seen[form]["nodes"].values() if n[1] == "compute")
        assert (op, kind, inputs, type) == ("fusion", "compute", ["x", "w", "b"], "float32[2, 8]")
        assert attrs == {"fused": values}
        assert len(seen[form]["nodes"]) == 4 and seen[form]["row"][-1] == "kernels"
    assert "+ %0 = fusion" in seen["diff"] and "- %2 = nn.relu" in seen["diff"]


def test_a_composite_function_has_its_name(seen):
    nodes = seen["composite"]["nodes"].values()
    kinds = [(n[0], n[1]) for n in nodes if n[1] != "data"]
    assert kinds == [("reshape", "shape"), ("add", "compute"), ("passlab.relu", "compute")]
    (constant,) = (n for n in nodes if n[0] == "Constant")
    assert constant[3:6] == ["float32[]", 4, "constant_0 = 1.5"]


def test_a_shared_result_is_one_node(seen):
    assert ops(seen["shared"]) == ["Var", "tanh", "multiply"] and seen["shared"]["nodes"]["%1"][2] == ["%0"]


def test_branches_tuples_and_unknown_dimensions(seen):
    nodes = seen["mixed"]["nodes"]
    (condition, then, otherwise) = next(n for n in nodes.values() if n[0] == "If")[2]
    assert condition == "c" and nodes[then][0] == "nn.relu" and nodes[otherwise][0] == "negative"
    assert nodes[then][6]["block"] != nodes[otherwise][6]["block"]
    assert nodes["y"][3:5] == ["float16[?, 4]", None]
    split = next(n for n in nodes.values() if n[0] == "split")
    assert split[1] == "shape" and split[3] == "(float16[?, 2], float16[?, 2])"
    items = [n[6]["index"] for n in nodes.values() if n[0] == "TupleGetItem"]
    assert sorted(items) == ["0", "0", "1"]
    assert seen["mixed"]["row"][5] == "If, 2 blocks" and seen["mixed"]["ssa"] == ""


def test_a_let_gives_names(seen):
    assert sorted(ops(seen["let"])) == sorted(ops(seen["mixed"]))
    assert all(id.startswith(("x", "y", "c")) for id in seen["let"]["nodes"])


def test_an_ill_typed_module_is_shown_without_types(seen):
    op, _, inputs, type, *_, attrs = seen["ill"]["nodes"]["%0"]
    assert (op, inputs, type) == ("add", ["x", "constant_0"], "") and "InferType" in attrs["error"]


def test_calls_of_other_functions_are_inlined(seen):
    assert ops(seen["calls"]) == ["Var", "tanh", "tanh"] and seen["calls"]["nodes"]["%1"][2] == ["%0"]
    assert ops(seen["recursive"]) == ["Var", "tanh", "Call"]
    assert seen["recursive"]["row"][5] == "Call"


def test_cells_that_are_written_break_ssa(seen):
    assert seen["cells"]["ssa"].startswith("RefWrite changes a value")
    assert [n[1] for n in seen["cells"]["nodes"].values()].count("memory") == 3


def test_depth_needs_no_recursion(seen):
    assert seen["deep"] == 3001 and seen["deep lets"] == 3001


def test_a_graph_is_plain_data_that_needs_no_tvm(seen, tmp_path):
    assert elsewhere(seen["views"], tmp_path) == [6, 4, 13, 3]
