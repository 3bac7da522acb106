"""Bounds: never below what happens, and reached where they say so; plans, migration and the picture."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from passlab import equivalent, trace, view
from passlab.models import ZOO
from passlab.quantization import (
    QuantizationError,
    accumulators,
    channels,
    clipping,
    dequantize,
    errors,
    float_copies,
    fold,
    functional,
    grid,
    insert,
    layer_errors,
    layers_of,
    migrate,
    move,
    network_errors,
    observe,
    output_error,
    overflow,
    overflowing_inputs,
    plan,
    proved_ranges,
    quantize,
    random_network,
    weight_bytes,
)
from passlab.quantization.bounds import Accumulator
from passlab.quantization.graphs import prune
from passlab.quantization.picture import splits

ZOO_NETS = ["mlp", "convnet", "gpt"]


def prepared(model, *inputs):
    net = functional(trace(model.eval(), *inputs))
    return net, insert(net, observe(net, [inputs]))


def of_zoo(name):
    row = ZOO[name]
    return prepared(row.build(), *row.inputs(8))


def box(net, low=-1.0, high=1.0):
    return {node.target: (low, high) for node in net.graph.find_nodes(op="placeholder")}


# ------------------------------------------------------------------------------------------------------ accumulators


def test_bits_of_an_accumulator():
    assert Accumulator(-1, 0).bits == 1
    assert Accumulator(-128, 127).bits == 8
    assert Accumulator(-129, 0).bits == 9
    assert Accumulator(0, 128).bits == 9


@pytest.mark.parametrize("offset", [-2.0, 2.0])
def test_the_bound_of_a_small_layer_is_its_largest_sum(offset):
    """All 2^4 corners of the grid: a linear function is largest at one."""
    x, linear = torch.randn(32, 4), nn.Linear(4, 3)
    nn.init.constant_(linear.bias, offset)
    _, qdq = prepared(nn.Sequential(linear), x)
    ((name, bound),) = accumulators(qdq).items()
    integers = fold(qdq)
    weight = next(b for b in integers.buffers() if b.dtype == torch.int8 and b.dim() == 2).long()
    bias = next(b for b in integers.buffers() if b.dtype == torch.int32).long()
    zero = next(n for n in qdq.graph.nodes if n.name == name).args[0].args[2]
    corners = torch.tensor(list(itertools.product([-128 - zero, 127 - zero], repeat=4)))
    products = corners[:, None] * weight
    most = products.clamp(min=0).sum(2) + bias.clamp(min=0)  # partial sums, in the worst order
    least = products.clamp(max=0).sum(2) + bias.clamp(max=0)
    assert bound == (least.min(), most.max())


def test_an_input_that_overflows_is_built_where_the_bound_fails():
    class Long(nn.Module):
        def forward(self, x):
            return F.linear(x, self.weight)

    model = Long()
    model.weight = nn.Parameter(torch.ones(1, 80_000))
    x = torch.rand(1, 80_000)
    net = functional(trace(model, x))
    qdq = insert(net, {node.name: (0.0, 1.0 if node.name == "x" else 80_000.0) for node in net.graph.nodes})
    assert accumulators(qdq)["linear"].bits == 33
    result = overflow(qdq, "linear")
    assert result.sum == 255 * 127 * 80_000 and result.held == result.sum - 2**32
    inputs = (result.inputs.float() + 128) / 255
    assert qdq(inputs[None]).item() == pytest.approx(80_000, rel=0.01)
    assert fold(qdq)(inputs[None]).item() == 0  # it wraps around to a negative sum


def test_there_is_no_overflow_within_the_bound():
    _, qdq = of_zoo("convnet")
    for name, bound in accumulators(qdq).items():
        assert overflow(qdq, name, bound.bits) is None
        result = overflow(qdq, name, bound.bits - 3)
        assert result is not None and result.held != result.sum and bound.low <= result.sum <= bound.high


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_inputs_of_the_network_that_overflow_are_searched(name):
    net, qdq = of_zoo(name)
    qdq = move(qdq)
    for layer, bound in accumulators(qdq).items():
        assert overflowing_inputs(net, qdq, layer, box(net, -3, 3), bound.bits) is None
        (x,) = overflowing_inputs(net, qdq, layer, box(net, -3, 3), bound.bits - 5)
        assert x.shape == ZOO[name].inputs(8)[0].shape and x.abs().max() <= 3


def test_bad_names_of_layers():
    net, qdq = of_zoo("mlp")
    with pytest.raises(QuantizationError, match="'conv' is not a quantized linear or convolution; there are linear, "):
        overflow(qdq, "conv")
    int4 = insert(net, observe(net, [ZOO["mlp"].inputs()]), bits=4, group=16)
    with pytest.raises(QuantizationError, match="accumulator for each group"):
        overflow(int4, "linear")
    assert all(bound.bits <= 17 for bound in accumulators(int4).values())  # 16 · 255 · 7 < 2^15


# ------------------------------------------------------------------------------------------------- errors of a layer


@pytest.mark.parametrize("name", ZOO_NETS)
def test_measured_searched_and_proved_errors_are_in_this_order(name):
    _, qdq = of_zoo(name)
    batches = [ZOO[name].inputs(8, seed) for seed in range(3)]
    for row in layer_errors(move(qdq), batches).values():
        assert 0 < row.measured <= row.bound and row.searched <= row.bound
        assert row.searched > 0.8 * row.bound  # the bound of one layer is nearly reached


def test_the_search_finds_what_all_inputs_show():
    """A layer of two inputs: all 65,536 pairs of integers are tried."""
    torch.manual_seed(3)
    x = torch.randn(64, 2)
    _, qdq = prepared(nn.Sequential(nn.Linear(2, 3)), x)
    (row,) = layer_errors(qdq).values()
    input_grid = next(n for n in qdq.graph.nodes if n.name == "linear").args[0].args[1:3]
    pairs = torch.cartesian_prod(torch.arange(-128, 128), torch.arange(-128, 128))
    real = (pairs - input_grid[1]) * input_grid[0]
    (worst,) = layer_errors(qdq, [(real.float(),)]).values()
    assert worst.measured <= row.bound
    assert row.searched >= 0.7 * worst.measured


# ----------------------------------------------------------------------------------------------- errors of a network


@pytest.mark.parametrize("name", ["mlp", "convnet", "gpt", 0, 5, 9])
def test_no_input_in_range_has_an_error_above_the_bound(name):
    net = random_network(name, 4) if isinstance(name, int) else of_zoo(name)[0]
    example = net.meta["inputs"] if isinstance(name, int) else ZOO[name].inputs(4)
    inputs = box(net)
    batches = [tuple(x.clamp(-1, 1) for x in example)]
    for ranges in (observe(net, batches), proved_ranges(net, inputs)):
        raw = insert(net, ranges)
        bound, integers = output_error(net, raw, inputs), fold(move(raw))
        assert math.isfinite(bound)
        sizes = example[0].shape
        for x in (torch.rand(sizes) * 2 - 1, torch.randint(0, 2, sizes) * 2.0 - 1, torch.ones(sizes)):
            assert (integers(x) - net(x)).abs().max() <= bound


def test_an_error_through_a_clipped_grid_counts_what_is_cut_off():
    net, _ = of_zoo("mlp")
    narrow = {name: (low / 4, high / 4) for name, (low, high) in observe(net, [ZOO["mlp"].inputs(64)]).items()}
    inputs = box(net)
    raw = insert(net, narrow)
    x = torch.rand(256, 16) * 2 - 1
    error = float((fold(move(raw))(x) - net(x)).abs().max())
    assert 0.1 < error <= output_error(net, raw, inputs)


def test_a_float_graph_has_no_error():
    net, _ = of_zoo("mlp")
    bits = {node.name: 32 for node in layers_of(net)}
    assert output_error(net, insert(net, {}, bits), box(net)) < 1e-4


def test_an_operation_without_a_rule_is_named():
    class Sine(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.sin(self.linear(x))

    net, qdq = prepared(Sine(), torch.randn(4, 4))
    with pytest.raises(QuantizationError, match=r"sin calls sin, .*bounds.RULES"):
        network_errors(net, qdq, box(net))


# -------------------------------------------------------------------------------------------------------------- plan


def test_a_plan_is_the_best_of_all():
    net, _ = of_zoo("mlp")
    inputs = box(net)
    ranges = proved_ranges(net, inputs)
    names = [node.name for node in layers_of(net)]
    every = {}
    for numbers in itertools.product((4, 8, 32), repeat=len(names)):
        qdq = insert(net, ranges, dict(zip(names, numbers, strict=True)), group=16)
        every[numbers] = weight_bytes(qdq).stored, output_error(net, qdq, inputs)
    for budget in (3.0, 10.0, 60.0, 1e6):
        chosen = plan(net, ranges, inputs, budget)
        fewest = min(nbytes for nbytes, error in every.values() if error <= budget)
        assert chosen.optimal and chosen.bytes == fewest and chosen.error <= budget
        assert every[tuple(chosen.bits[name] for name in names)] == (chosen.bytes, chosen.error)


def test_a_plan_that_is_cut_short_says_so():
    net, _ = of_zoo("mlp")
    ranges = proved_ranges(net, box(net))
    chosen = plan(net, ranges, box(net), 10.0, limit=2)
    assert not chosen.optimal and chosen.error <= 10


def test_layers_with_one_weight_have_one_number_of_bits():
    shared = nn.Linear(16, 16)
    net, _ = prepared(nn.Sequential(shared, nn.ReLU(), shared), torch.randn(8, 16))
    chosen = plan(net, proved_ranges(net, box(net)), box(net), 1e6)
    assert set(chosen.bits.values()) == {4} and chosen.bytes == 16 * 16 // 2 + 16 * 4


def test_budgets_that_cannot_be_kept_are_refused():
    net, _ = of_zoo("convnet")
    ranges = proved_ranges(net, box(net))
    for budget in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(QuantizationError, match="it is a positive number"):
            plan(net, ranges, box(net), budget)
    with pytest.raises(QuantizationError, match="Even with all weights in float"):
        plan(net, ranges, box(net), 1e-9)


# ----------------------------------------------------------------------------------------------------------- migrate


class Outliers(nn.Module):
    """A norm whose channel 5 is 60 times as large as the others, read by two layers."""

    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 8)
        with torch.no_grad():
            self.norm.weight[5] *= 60
            self.a.weight[:, 5] /= 60
            self.b.weight[:, 5] /= 60

    def forward(self, x):
        y = self.norm(x)
        return self.a(y), self.b(y)


def test_migration_keeps_the_function_and_lowers_the_error():
    x = torch.randn(64, 32)
    net = functional(trace(Outliers().eval(), x))
    moved = migrate(net, [(x,)])
    assert equivalent(net, moved, (x,), rtol=1e-4, atol=1e-5)

    def error(gm):
        out = fold(move(insert(gm, observe(gm, [(x,)]))))(x)
        return float((out[0] - net(x)[0]).square().mean().sqrt().detach())

    assert error(moved) < error(net) / 4
    ranges = observe(moved, [(x,)])
    spread = ranges["layer_norm"][1] - ranges["layer_norm"][0]
    assert spread < 0.5 * (observe(net, [(x,)])["layer_norm"][1] - observe(net, [(x,)])["layer_norm"][0])


def test_alpha_1_flattens_the_activations_and_alpha_0_the_weights():
    x = torch.randn(64, 32)
    net = functional(trace(Outliers().eval(), x))
    for alpha, flat in ((1.0, "activation"), (0.0, "weight")):
        moved = migrate(net, [(x,)], alpha)
        values = {}
        fx_run = torch.fx.Interpreter(moved, garbage_collect_values=False)
        fx_run.run(x)
        norm = next(n for n in moved.graph.nodes if n.name == "layer_norm")
        weights = [fx_run.env[user.args[1]].abs().amax(0) for user in norm.users]
        values["activation"] = fx_run.env[norm].abs().amax(0)
        values["weight"] = torch.stack(weights).amax(0)
        assert values[flat].max() == pytest.approx(values[flat].min().item(), rel=1e-4)


def test_a_norm_that_something_else_reads_stays():
    row = ZOO["vit"]
    net = functional(trace(row.build(), *row.inputs()))
    moved = migrate(net, [row.inputs()])
    last = [n for n in moved.graph.nodes if "layer_norm" in n.name][-1]  # a slice reads it
    assert "migrated" not in last.args[2].target
    assert sum("migrated" in n.args[2].target for n in moved.graph.nodes if "layer_norm" in n.name) == 6


def test_bad_input_of_migrate():
    net, qdq = of_zoo("gpt")
    with pytest.raises(QuantizationError, match=r"alpha is 1.5"):
        migrate(net, [ZOO["gpt"].inputs()], 1.5)
    with pytest.raises(QuantizationError, match="No batch"):
        migrate(net, [])
    with pytest.raises(QuantizationError, match="quantized already"):
        migrate(qdq, [ZOO["gpt"].inputs()])


# ------------------------------------------------------------------------------------------------- measures, picture


def test_bytes_and_copies_of_a_network():
    net, qdq = of_zoo("gpt")
    assert weight_bytes(net) == (4 * 49_152, 4 * 49_152)
    assert weight_bytes(qdq).stored == 49_152 + 4 * (192 + 64 + 256 + 64)
    assert float_copies(qdq) != [] and float_copies(fold(move(qdq))) == []
    prune(net)


def test_the_picture_shows_three_numbers_of_each_layer():
    _, qdq = of_zoo("mlp")
    rows = layer_errors(qdq, [ZOO["mlp"].inputs()])
    picture = errors(rows)
    for name, row in rows.items():
        assert f"{row.bound / row.step:.3g}" in next(line for line in str(picture).splitlines() if name in line.split())
    svg = picture.svg
    for word in ("linear_2", "measured", "searched", "bound"):
        assert word in svg
    with pytest.raises(ValueError, match="no layer to draw"):
        errors({})


# -------------------------------------------------------------------------------------------------------------- ONNX


def run_onnx(model, *inputs):
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in model.graph.input]
    return torch.from_numpy(
        ReferenceEvaluator(model).run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})[0]
    )


@pytest.mark.parametrize("case", [*range(8), "mlp", "convnet", "int4"])
def test_onnx_computes_the_same(case):
    from passlab.quantization.onnx_format import to_onnx

    options = {}
    if isinstance(case, int):
        net = random_network(case, 4)
        x = net.meta["inputs"]
    else:
        row = ZOO["mlp" if case == "int4" else case]
        net, x = functional(trace(row.build(), *row.inputs())), row.inputs()
        options = {"bits": 4, "group": 16} if case == "int4" else {}
    qdq = insert(net, observe(net, [x]), **options)
    step = qdq.graph.output_node().args[0].args[1]
    model = to_onnx(qdq)
    assert (run_onnx(model, *x) - qdq(*x)).abs().max() <= 1.01 * step
    ops = {node.op for node in view(model)}
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops


def test_what_onnx_cannot_hold_is_named():
    from passlab.quantization.onnx_format import to_onnx

    _, qdq = of_zoo("mlp")
    with pytest.raises(QuantizationError, match="calls integer_linear, which has no ONNX form"):
        to_onnx(fold(qdq))
    assert grid(0, 1).bits == 8


def test_clipping_splits_the_error_of_a_grid():
    values = torch.cat([torch.linspace(-1, 1, 1000), torch.tensor([8.0])])
    rows = splits(values, bits=4)
    on = grid(-rows[4].end, rows[4].end, 4)
    error = (dequantize(quantize(values, *on), *on) - values).square().double()
    assert rows[4].end == 1 and math.isclose(rows[4].total, float(error.mean()), rel_tol=1e-6)
    assert math.isclose(rows[4].clipping, (8 - on.scale * (7 - on.zero_point)) ** 2 / 1001, rel_tol=1e-6)
    assert rows[-1].clipping == 0
    few, many = clipping(values, bits=(4, 8)), clipping(values, bits=(8,))
    assert len(str(few).splitlines()) == 3 and str(many).splitlines()[1] in str(few)
    assert "8 bits: best to end at" in few.svg and "outside: clipping" in few.svg


def test_fewer_bits_want_a_narrower_grid():
    values = torch.randn(4096, generator=torch.Generator().manual_seed(0)) ** 3
    best = [min(splits(values, bits), key=lambda row: row.total).end for bits in (8, 6, 4, 3)]
    assert best == sorted(best, reverse=True) and best[0] > best[-1]


def test_channels_are_shown_as_shares_of_the_widest():
    picture = channels({"weights": torch.tensor([4.0, 1.0, 1.9, 2.1])})
    assert str(picture).splitlines()[1] == "weights: 50% below a half"
    assert "channels, sorted" in picture.svg


def test_pictures_need_something_to_show():
    with pytest.raises(ValueError, match="empty"):
        clipping(torch.zeros(0))
    with pytest.raises(ValueError, match="nothing to draw"):
        channels({})
    with pytest.raises(QuantizationError, match="NaN"):
        clipping(torch.tensor([1.0, math.nan]))
