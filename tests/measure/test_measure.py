"""Measuring: counts reasoned by hand, nothing asserted on the clock but its arithmetic."""

from __future__ import annotations

import re
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.passes.shape_prop import ShapeProp

from passlab import measure, models
from passlab.measure import bytes_moved, cost, launches, peak_memory, timed

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

KB4 = 1024 * 4  # 1024 float32


class AddRelu(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)


def traced(function_or_module):
    if isinstance(function_or_module, nn.Module):
        return torch.fx.symbolic_trace(function_or_module)
    graph = torch.fx.Tracer().trace(function_or_module)
    return torch.fx.GraphModule({}, graph)


def vector(n=1024):
    return torch.randn(n)


def test_add_relu_by_hand():
    gm, x, y = traced(AddRelu()), vector(), vector()
    # add reads x and y and writes one (3); relu reads one and writes one (2).
    assert bytes_moved(gm, x, y) == 3 * KB4 + 2 * KB4
    assert bytes_moved(gm, x, y).detail == {"add": 3 * KB4, "relu": 2 * KB4}
    result = launches(gm, x, y)
    assert result == 2 and result.detail == {"aten.add": 1, "aten.relu": 1} and result.device == "cpu"
    assert repr(result) == "2 launches on cpu: aten.add, aten.relu" and f"{result}" == "2"
    assert repr(bytes_moved(gm, x, y)) == "20,480 bytes moved" and repr(peak_memory(gm, x, y)) == "8,192 bytes on cpu"
    # The sum and its relu are alive together; x and y were there before.
    assert peak_memory(gm, x, y) == 2 * KB4
    assert cost(gm, x, y) == measure.Cost(nodes=2, launches=2, bytes=5 * KB4)


def test_views_and_allocations_are_free():
    def f(x):
        y = x.view(32, 32).t().unsqueeze(0).expand(3, 32, 32)
        x.new_empty(1000)
        return y, x.contiguous(), F.dropout(x, 0.5, training=False), x.to(torch.float32)

    assert launches(f, vector()) == 0 and bytes_moved(traced(f), vector()) == 0
    assert peak_memory(f, vector()) == 4000  # the empty one is memory all the same


def test_a_copy_is_not_free():
    def f(x):
        return x.view(32, 32).t().reshape(1024), x.view(32, 32).t().contiguous(), x.to(torch.float64)

    assert launches(f, vector()) == 3
    assert launches(lambda x: x.clone().view(32, 32).t_(), vector()) == 1  # t_ writes no element
    assert bytes_moved(traced(f), vector()) == 2 * KB4 + 2 * KB4 + 3 * KB4


def test_long_lists_of_kernels_are_cut():
    many = measure.Measured(8, "launches", "cpu", {"a": 1, "b": 3, "c": 1, "d": 1, "e": 1, "f": 1})
    assert repr(many) == "8 launches on cpu: b ×3, a, c, d, e and 1 more"
    assert repr(measure.Measured(1, "launches", "cpu", {"a": 1})) == "1 launch on cpu: a"


def test_in_place_writes_count():
    def f(x):
        y = x * 2
        y.add_(1)
        return x.mul_(3)

    x = vector()
    before = x.clone()
    # x*2 reads one and writes one, and so do the two in place.
    assert cost(traced(f), x) == measure.Cost(nodes=3, launches=3, bytes=6 * KB4)
    assert torch.equal(x, before)
    assert peak_memory(f, x) == KB4


def test_the_same_operand_twice_is_read_once():
    assert bytes_moved(traced(lambda x: x * x), vector()) == 2 * KB4


def test_weights_are_read_and_batch_norm_reads_four_vectors():
    linear = nn.Linear(8, 4)
    assert bytes_moved(traced(nn.Sequential(linear)), torch.randn(2, 8)) == 4 * (16 + 32 + 4 + 8)
    norm = nn.Sequential(nn.BatchNorm2d(3).eval())
    assert bytes_moved(traced(norm), torch.randn(1, 3, 2, 2)) == 4 * (12 + 12 + 4 * 3)


def test_graph_as_get_attr_or_as_module_moves_the_same():
    model, x = models.tiny(), torch.randn(2, 8)
    exported = torch.export.export(model, (x,))
    expected = 4 * ((16 + 64 + 8 + 16) + (16 + 16))
    assert bytes_moved(traced(model), x) == expected
    assert bytes_moved(exported) == expected
    assert bytes_moved(model, x) == expected
    assert bytes_moved(traced(model).graph, x) == expected
    assert cost(exported) == cost(traced(model), x)
    assert launches(exported) == launches(exported, x) == launches(model, x) == 2
    assert peak_memory(exported) == peak_memory(model, x)


def test_shapes_may_come_from_the_graph():
    gm = traced(AddRelu())
    with pytest.raises(ValueError, match="input 'x' is not known"):
        bytes_moved(gm)
    ShapeProp(gm).propagate(vector(), vector())
    assert bytes_moved(gm) == 5 * KB4
    gm.meta["inputs"] = (vector(8), vector(8))
    assert bytes_moved(gm) == 5 * 32


def test_the_view_of_another_ir_is_priced_by_its_nodes():
    from passlab import graph

    nodes = (
        graph.Node("x", "input", "data", (), (8,), "float32", 32),
        graph.Node("t", "reshape", "shape", ("x",), (2, 4), "float32", 32),
        graph.Node("r", "relu", "compute", ("t",), (2, 4), "float32", 32),
    )
    assert bytes_moved(graph.Graph("g", "toy", nodes, ("r",))) == 64
    for type, why in (
        ((None, None), "its shape is unknown. Give it a shape of numbers in the program."),
        (((2, "n"), "float32"), "its shape is [2, n]. Give it"),
        ((None, "sequence"), "a value of type sequence has no fixed size."),
    ):
        unknown = (*nodes, graph.Node("s", "sum", "compute", ("r",), *type))
        with pytest.raises(ValueError, match=re.escape(f"cannot count node 's': {why}")):
            bytes_moved(graph.Graph("g", "toy", unknown, ("s",)))


@pytest.mark.parametrize("name", ["convnet", "residual", "resnet18"])
def test_conv_nets_launch_one_kernel_per_node(name):
    """Every call of these is one kernel, but for `flatten` in ResNet, a view."""
    gm, inputs = traced(models.ZOO[name].build()), models.ZOO[name].inputs()
    result = cost(gm, *inputs)
    assert result.launches == result.nodes - (name == "resnet18")


def test_inference_mode_and_no_grad_and_grad_count_alike():
    model, inputs = models.ZOO["gpt"].build(), models.ZOO["gpt"].inputs()
    plain = launches(model, *inputs)
    with torch.no_grad():
        assert launches(model, *inputs).detail == plain.detail
    with torch.inference_mode():
        assert launches(model, *inputs).detail == plain.detail


def test_measuring_a_graph_leaves_it_alone():
    norm = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout()).train()
    gm, x = traced(norm), torch.randn(2, 3, 4, 4)
    state = {name: t.clone() for name, t in gm.state_dict().items()}
    random = torch.random.get_rng_state()
    cost(gm, x)
    assert all(torch.equal(t, state[name]) for name, t in gm.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random)


def test_peak_memory_follows_lives():
    def chain(x):
        for _ in range(5):
            x = x + 1
        return x

    def hoard(x):
        return [x + i for i in range(5)]

    assert peak_memory(chain, vector()) == 2 * KB4
    assert peak_memory(hoard, vector()) == 5 * KB4
    assert peak_memory(lambda x: (x + 1).view(32, 32).t(), vector()) == KB4


def test_compiled_code_is_refused_not_miscounted():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with pytest.raises(ValueError, match=r"torch\.compile"):
        launches(compiled, vector())
    with pytest.raises(ValueError, match=r"torch\.compile"):
        peak_memory(lambda x: compiled(x), vector())


def test_compiled_code_stays_compiled_after_a_measurement_is_refused():
    runs = []
    compiled = torch.compile(lambda x: x + 1, backend=lambda gm, _: lambda *args: runs.append(1) or gm(*args))
    with pytest.raises(ValueError, match=r"torch\.compile"):
        launches(compiled, vector())
    compiled(vector())
    assert runs == [1]


class Decides(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_errors_say_what_to_do():
    with pytest.raises(TypeError, match="wants a function or a module"):
        launches(vector())
    with pytest.raises(RuntimeError, match="bytes_moved: the graph does not run on these inputs"):
        bytes_moved(traced(AddRelu()), vector(8), vector(9))
    for count in (bytes_moved, cost):
        with pytest.raises(TypeError, match="Give the model that was scripted"):
            count(torch.jit.trace(AddRelu(), (vector(8), vector(8))), vector(8), vector(8))
        with pytest.raises(ValueError, match=r"torch\.fx cannot trace Decides"):
            count(Decides(), vector(8))
    with pytest.raises(TypeError, match=r"cost wants a torch graph .* got str. Import it into one of these"):
        cost("a string")
    with pytest.raises(TypeError, match="functions by name"):
        timed([len])
    with pytest.raises(ValueError, match="at least 2 repeats"):
        timed({"a": list}, repeats=1)
    with pytest.raises(RuntimeError, match="'b' raised ZeroDivisionError"):
        timed({"a": lambda: 1, "b": lambda: 1 / 0})


class Clock:
    """A clock that only moves when a candidate runs."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def candidate(self, name, *durations):
        def run():
            self.calls.append(name)
            self.now += durations[min(self.calls.count(name), len(durations)) - 1]

        return run


def test_timing_arithmetic(monkeypatch):
    """Warm-up is not counted; turns are interleaved and rotate; the ratio is taken round by round."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    # 2 warm-up calls and 1 to size the turn, then 4 rounds. The machine is slow in round 3.
    result = timed(
        {
            "a": clock.candidate("a", 9, 9, 9, 1.0, 1.0, 5.0, 1.0),
            "b": clock.candidate("b", 9, 9, 9, 2.0, 2.0, 10.0, 2.0),
        },
        repeats=4,
        warmup=2,
    )
    assert clock.calls == ["a"] * 3 + ["b"] * 3 + ["a", "b", "b", "a"] * 2
    assert result["a"].median == 1.0 and result["a"].min == 1.0 and result["a"].ratio == 1.0
    assert result["b"].median == 2.0 and result["b"].ratio == 2.0
    assert result["a"].iqr == 1.0  # quartiles of 1, 1, 1, 5: 1 and 2
    assert result.repeats == 4 and result.device.startswith("cpu, ")
    with pytest.raises(KeyError, match="the candidates are a, b"):
        result["c"]


def test_timing_shows_itself():
    rows = (measure.Row("eager", 2e-3, 1e-4, 1.9e-3, 1.0), measure.Row("<mine>", 1e-6, 0.0, 5e-10, 0.0005))
    shown = measure.Timing(rows, "cpu, 1 thread", 25)
    assert repr(shown).splitlines() == [
        "        median  spread (IQR)  minimum  ratio to eager",
        "eager     2 ms        100 µs   1.9 ms            1.00",
        "<mine>    1 µs          0 ns   0.5 ns            0.00",
        "25 interleaved repeats on cpu, 1 thread",
    ]
    assert "&lt;mine&gt;" in shown._repr_html_() and "<mine>" not in shown._repr_html_()


@cuda
def test_on_cuda():
    gm, x, y = traced(AddRelu()), vector().cuda(), vector().cuda()
    result = launches(gm, x, y)
    assert result == 2 and result.device.startswith("cuda")
    assert bytes_moved(gm, x, y) == 5 * KB4 and peak_memory(gm, x, y) == 2 * KB4
    assert timed({"eager": gm}, x, y, repeats=3).device.startswith("cuda")
    assert launches(torch.compile(gm), x, y) == 1
