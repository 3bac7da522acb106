"""A group of operations that is to be one kernel: what is refused, and its source. Tests that build one
are in tests/relax."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import passlab
from passlab import kernels
from passlab.kernels import illegal, subgraph
from passlab.kernels import triton as kernel_triton
from passlab.kernels.primitives import Unsupported, primitives


def test_triton_source_is_python():
    def group(x, y):
        return torch.relu(x * 2 + y).sigmoid(), torch.where(x > y, x, 0.0).to(torch.float16)

    program = primitives(torch.fx.symbolic_trace(group), (torch.randn(5, 7).t(), torch.randn(5)))
    text = kernel_triton.source(program, ["x", "y"], (), "group")
    compile(text, "group", "exec")
    assert text.count("tl.load(") == 2 and text.count("tl.store(") == 2 and "@triton.jit" in text
    with pytest.raises(Unsupported, match=r"'sum_1'.*Triton"):
        program = primitives(torch.fx.symbolic_trace(lambda x: x.sum(-1)), (torch.randn(5, 7),))
        kernel_triton.source(program, ["x"], (), "group")


def test_on_a_gpu_no_product_is_fused_into_a_sum_and_no_subnormal_number_is_lost(tmp_path, monkeypatch):
    """Triton makes PTX without a GPU. By itself it fuses x·x - y·y, which is inf where torch has NaN."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    program = primitives(torch.fx.symbolic_trace(lambda x, y: (x * x - y * y).ceil()), (torch.randn(8), torch.randn(8)))
    text = kernel_triton.source(program, ["x", "y"], (), "group")
    group = kernel_triton.load_source(text, "group").group
    signature = dict.fromkeys(("x", "y", "out0"), "*fp32") | {"BLOCK": "constexpr"}

    def ptx(**options: bool) -> str:
        source = ASTSource(group, signature, {"BLOCK": 128})
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]

    assert re.search(r"\bfma\.", ptx()) and ".ftz" in ptx()
    text = ptx(**kernel_triton.AS_TORCH)
    assert "mul." in text and not re.search(r"\bfma\.|\.ftz", text)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_kernel_is_started_as_torch_computes_unless_it_is_interpreted(monkeypatch, compiled):
    triton = pytest.importorskip("triton")
    calls = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *tensors, **how: calls.append((grid, tensors, how))

    if compiled:
        monkeypatch.setattr(triton, "JITFunction", Kernel)
    monkeypatch.setattr(kernel_triton, "load_source", lambda text, name: SimpleNamespace(group=Kernel()))
    kernel_triton.launcher("", "group", (3,), {"BLOCK": 8})("x", "y")
    assert calls == [((3,), ("x", "y"), {"BLOCK": 8} | (kernel_triton.AS_TORCH if compiled else {}))]


# Errors: one sentence that names the node


class Mixed(nn.Module):
    def forward(self, x, y):
        a = x * 2
        b = torch.relu(a)
        c = b @ y
        d = c + a
        return d.add_(1), torch.rand_like(d) + d.half() * b.double()


@pytest.fixture(scope="module")
def mixed():
    return passlab.trace(Mixed(), torch.randn(4, 4), torch.randn(4, 4))


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([["mul", "relu"]], None),
        ([["mul", "nope"]], "There is no node 'nope'"),
        ([["mul"], ["relu", "mul"]], "Node 'mul' is in two groups"),
        ([["mul", "mul"]], "Node 'mul' is in its group twice"),
        ([["x", "mul"]], "Node 'x' is an input"),
        ([[]], "A group must be a non-empty list"),
        ("mul", "Groups must be a list of lists of node names; got str"),
        ([["relu", "add"]], "'relu' leaves it, and the path through 'matmul' re-enters it at 'add'"),
        ([["mul", "relu", "add"]], "the path through 'matmul'"),
        ([["add_"]], "Node 'add_' has a side effect"),
        ([["rand_like"]], "Node 'rand_like' has a side effect"),
        ([["mul_1"]], "Node 'mul_1' mixes 'half' (float16) and 'double' (float64): put a cast before it."),
        ([["matmul"]], "No kernel can be made of node 'matmul'"),
    ],
)
def test_illegal_names_the_node(mixed, groups, said):
    result = illegal(mixed, groups)
    assert (result is None) if said is None else (said in result and "\n" not in result), result


def test_a_cycle_through_another_group_is_one():
    def crossing(x):
        a, b = x + 1, x * 2
        return torch.relu(a) - b, torch.relu(b) - a

    gm = passlab.trace(crossing, torch.randn(3))
    names = [node.name for node in gm.graph.nodes if node.op == "call_function"]
    assert names == ["add", "mul", "relu", "sub", "relu_1", "sub_1"]
    assert illegal(gm, [["add", "relu_1"], ["mul", "relu"]]).count("has a cycle") == 1
    assert illegal(gm, [["add", "relu"], ["mul", "relu_1"]]) is None


def across_a_write(x):
    y = x * 2
    early = torch.sin(y) + 1
    y.add_(x)
    return early * (y + 1)


def across_draws(x):
    a = torch.sin(x)
    b, c = torch.rand_like(a), torch.rand_like(x)
    return torch.cos(c) + b


def through_a_view(x):
    y = x * 2
    v = y.view(16)
    v.add_(1)
    return y * 3


@pytest.mark.parametrize(
    ("function", "groups", "said"),
    [
        (across_a_write, [["sin", "add", "add_1", "mul_1"]], "the path through 'add_' re-enters it at 'add_1'"),
        (across_a_write, [["mul", "sin", "add"], ["add_1", "mul_1"]], None),
        (across_draws, [["sin", "cos"]], "the path through 'rand_like', 'rand_like_1' re-enters it at 'cos'"),
        (across_draws, [["cos", "add"], ["sin"]], None),
        (through_a_view, [["mul", "view"]], "Node 'view' is a view of memory that the program writes"),
        (through_a_view, [["mul"], ["mul_1"]], None),
    ],
)
def test_groups_keep_the_order_of_writes_and_draws(function, groups, said):
    result = illegal(passlab.trace(function, torch.randn(4, 4)), groups)
    assert (result is None) if said is None else said in (result or ""), result


def gates(x):
    one, other = torch.tanh(x).chunk(2, -1)
    return torch.sigmoid(one) * other


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([["tanh", "chunk", "getitem", "getitem_1", "sigmoid", "mul"]], None),
        ([["sigmoid", "mul"]], None),
        ([["tanh", "chunk"]], "Node 'chunk' makes a tuple, and 'getitem', which reads it, is not in the group"),
        ([["chunk", "getitem", "sigmoid"]], "Node 'chunk' makes a tuple, and 'getitem_1', which reads it, is not in"),
        ([["getitem", "sigmoid"]], "Node 'getitem' reads 'chunk', a tuple"),
        ([["chunk", "getitem", "getitem_1"], ["sigmoid", "mul"]], None),
    ],
)
def test_a_tuple_stays_in_its_group(groups, said):
    """Groups asked for one at a time, where many are, are refused in the same words."""
    gm = passlab.trace(gates, torch.randn(4, 4))
    why_not = kernels.kernel_check(gm, list(gm.graph.nodes))
    for result in (illegal(gm, groups), illegal(gm, groups, why_no_kernel=why_not)):
        assert (result is None) if said is None else said in (result or ""), result


def test_a_tuple_of_one_tensor_is_one():
    gm = passlab.trace(lambda x: torch.sigmoid(x.chunk(1, -1)[0]) * 2, torch.randn(4, 4))
    why_not = kernels.kernel_check(gm, list(gm.graph.nodes))
    assert "Node 'getitem' reads 'chunk', a tuple" in illegal(gm, [["getitem", "sigmoid"]], why_no_kernel=why_not)
    assert "Node 'chunk' makes a tuple" in illegal(gm, [["chunk"]])
    assert illegal(gm, [["chunk", "getitem", "sigmoid", "mul"]], why_no_kernel=why_not) is None


def test_a_tuple_that_nothing_reads_is_no_kernel():
    gm = passlab.trace(lambda x: (x * 2, x.chunk(2, -1))[0], torch.randn(4, 4))
    assert "nothing reads it" in illegal(gm, [["chunk", "mul"]])


def test_devices_may_not_mix():
    gm = torch.fx.symbolic_trace(lambda x, y: x * 2 + y)
    x, y = torch.ones(3), torch.ones(3, device="meta")
    for node, value in zip(gm.graph.nodes, (x, y, x, x, None), strict=True):
        node.meta["val"] = value
    assert "'mul' on cpu and 'y' on meta" in illegal(gm, [["mul", "add"]])


def test_a_number_is_no_result_of_a_kernel():
    from passlab.capstone import groupable

    gm = passlab.trace(lambda x: (x * 2) + x.size(0), torch.randn(4, 3))
    why_not = groupable(gm, (torch.randn(4, 3),))
    assert why_not([["size"]]) == "Node 'size' makes 4, which is not a tensor: a kernel writes tensors only."
    assert "'size'" in why_not([["mul", "size", "add"]])


def test_no_kernel_of_what_stops_on_some_numbers():
    with pytest.raises(Unsupported, match=r"'floordiv'.*divides integers"):
        primitives(torch.fx.symbolic_trace(lambda x, y: x // y), (torch.ones(3).int(), torch.ones(3).int()))


def test_nodes_traced_once_tell_of_every_group_what_tracing_it_does():
    from passlab.capstone.compiled import with_shapes
    from passlab.capstone.families import drawn, generated

    counts = {True: 0, False: 0}
    for model in (drawn("attention", 1), drawn("unet", 2), drawn("lstm", 3), generated(4), generated(5)):
        gm, rng = with_shapes(model.graph(), model.inputs), random.Random(6)
        nodes = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        check = kernels.kernel_check(gm, nodes)
        for start in range(0, len(nodes), 4):
            group = [node.name for node in nodes[start : start + rng.randint(1, 6)]]
            reason = illegal(gm, [group])
            assert illegal(gm, [group], why_no_kernel=check) == reason, (model.name, group)
            counts[reason is None] += 1
    assert min(counts.values()) >= 10


def test_what_depends_on_the_rest_of_a_group_is_traced_with_it():
    gm = passlab.trace(lambda x: x // torch.full_like(x, 2), torch.ones(3).int())
    check = kernels.kernel_check(gm, list(gm.graph.nodes))
    divided = [node.name for node in gm.graph.nodes][-2]
    assert "divides integers" in illegal(gm, [[divided]], why_no_kernel=check)
    assert illegal(gm, [["full_like", divided]], why_no_kernel=check) is None


def test_a_group_cut_out_shares_its_weights():
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.ReLU())
    gm = passlab.trace(model, torch.randn(2, 3))
    part = subgraph(gm, ["_1", "_2"])
    assert part.meta["inputs_of"] == ["_0"] and part.meta["outputs_of"] == ["_2"]
    assert part.get_submodule("1").weight is gm.get_submodule("1").weight
    assert kernels.state(part).keys() == {"1.weight"}
