"""Groups that are one call of a library."""

import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from passlab import trace
from passlab.capstone import Compiled, build, library
from passlab.capstone.building import _backend, device_of
from passlab.capstone.comparing import one_thread
from passlab.capstone.compiled import with_shapes


class Around(nn.Module):
    """A layer whose input is added to its result, from either side."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return torch.relu(self.layer(x) + x) if isinstance(self.layer, nn.Conv2d) else x + self.layer(x)


def test_what_a_layer_reads_may_be_added_to_its_result():
    """conv(x) + x: the group reads one value, and the library's call takes it twice."""
    cases = (nn.Conv2d(4, 4, 3, padding=1), torch.randn(1, 4, 8, 8)), (nn.Linear(64, 64), torch.randn(64, 64))
    for layer, x in cases:
        gm = trace(Around(layer).eval(), x)
        group = [node.name for node in gm.graph.nodes if node.op.startswith("call_")]
        program = build(Compiled(gm, [group]), (x,))
        torch.testing.assert_close(program(x), gm(x), rtol=1e-4, atol=1e-5)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(4, 4, 3, padding=1, stride=1), nn.Linear(8, 8)

    def forward(self, x):
        x = torch.relu(self.conv(x) + x * 2)
        return nn.functional.silu(self.linear(x)) + self.linear(x)


class Added(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, y):
        return torch.relu(self.conv(x) + y)


GROUPS = {"conv with all": ["conv", "add", "relu"], "linear and silu": ["linear", "silu"], "linear": ["linear_1"]}


def match(gm, group):
    return library.match(gm, [node for node in gm.graph.nodes if node.name in group])


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_groups_of_a_library_are_the_same_on_a_gpu(group):
    x = torch.randn(2, 4, 8, 8)
    gm = with_shapes(trace(Layers().eval(), x), (x,))
    local = match(gm, group)
    assert local is not None
    with FakeTensorMode():
        for node in gm.graph.nodes:
            if isinstance(value := node.meta.get("val"), torch.Tensor):
                node.meta["val"] = torch.empty(value.shape, device="cuda")
    remote = match(gm, group)
    assert (remote.head.kind, remote.activation, remote.addend) == (local.head.kind, local.activation, local.addend)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_what_runs_on_a_gpu_computes_what_the_group_does(group):
    """Torch's own operators, which are the same on both devices."""
    x = torch.randn(2, 4, 8, 8)
    gm = with_shapes(trace(Layers().eval(), x), (x,))
    result = match(gm, group)
    values = [torch.randn(node.meta["val"].shape) for node in (result.head.input, result.addend) if node is not None]
    run, images = library.call(result)
    torch.testing.assert_close(library.plain(result)(*values), run(*values), rtol=1e-4, atol=1e-5)
    assert images == (result.head.kind == "conv")


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(("channels", "batch"), [(4, 1), (16, 1), (16, 2)], ids=["thin", "small", "for oneDNN"])
def test_each_way_to_compute_a_convolution_computes_what_the_graph_does(channels, batch, last):
    conv = nn.Conv2d(channels, 8, 3, padding=1, stride=2)
    x, y = torch.randn(batch, channels, 9, 9), torch.randn(batch, 8, 5, 5)
    gm = with_shapes(trace(Added(conv).eval(), x, y), (x, y))
    run, images = library.call(match(gm, ["conv", "add", "relu"]), last)
    torch.testing.assert_close(run(x, y), gm(x, y), rtol=1e-4, atol=1e-5)
    assert images == last


@pytest.mark.parametrize(
    ("shape", "kernel", "last"),
    [((1, 8, 8, 8), 3, False), ((2, 8, 8, 8), 3, True), ((1, 8, 8, 8), 5, True), ((1, 64, 32, 32), 3, True)],
    ids=["small", "batch", "large kernel", "large"],
)
def test_one_convolution_for_onednn_decides_the_layout_of_all_images(shape, kernel, last):
    x = torch.randn(shape)
    model = nn.Sequential(nn.Conv2d(shape[1], 8, kernel, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    with one_thread():
        assert library.channels_last([with_shapes(trace(model, x), (x,))]) == last


def test_a_program_runs_where_its_inputs_are():
    with FakeTensorMode():
        remote = torch.empty(3, device="cuda")
    assert device_of((torch.ones(2), [remote])).type == "cuda" and device_of((1, torch.ones(2))).type == "cpu"


def test_a_tvm_without_cuda_leaves_kernels_to_triton(monkeypatch):
    assert _backend(torch.device("cpu")) == "tvm"
    monkeypatch.setitem(sys.modules, "passlab.relax", None)
    assert _backend(torch.device("cuda")) == "triton"
