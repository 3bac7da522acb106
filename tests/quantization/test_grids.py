"""Grids for ranges, and ranges by calibration."""

import math

import pytest
import torch
from torch import fx, nn

from passlab import trace
from passlab.models import ZOO
from passlab.quantization import (
    QuantizationError,
    dequantize,
    functional,
    grid,
    observe,
    proved_ranges,
    quantize,
    weight_scales,
)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    "ends", [(-1.0, 1.0), (0.0, 6.0), (-3.0, 0.0), (2.0, 5.0), (-5.0, -2.0), (-1e-30, 1e30), (-0.1, 9.7)]
)
def test_a_grid_covers_its_range_and_has_0(ends, bits):
    on = grid(*ends, bits)
    x = torch.tensor([min(ends[0], 0.0), max(ends[1], 0.0), 0.0])
    back = dequantize(quantize(x, *on), *on)
    assert back[2] == 0
    assert ((back - x).abs() <= on.scale * 0.5001).all()


def test_a_grid_is_no_wider_than_it_must_be():
    assert grid(-1.28, 1.27).scale == pytest.approx(0.01, rel=1e-6)
    assert grid(0.0, 25.5) == pytest.approx((0.1, -128, 8), rel=1e-6)
    assert grid(2.0, 25.5) == grid(0.0, 25.5)
    assert grid(-1.0, 12.7, symmetric=True) == pytest.approx((0.1, 0, 8), rel=1e-6)


def test_a_range_of_nothing_but_0():
    assert grid(0.0, 0.0) == (1.0, 0, 8)


def test_a_scale_is_never_0():
    assert grid(0.0, 1e-300).scale > 0
    assert torch.tensor(grid(0.0, 1e-44).scale) > 0


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((1.0, -1.0), "empty"),
        ((math.inf, -math.inf), "empty"),
        ((0.0, math.inf), "infinite"),
        ((-math.inf, 0.0), "infinite"),
        ((math.nan, 1.0), "NaN"),
        ((0.0, math.nan), "NaN"),
        ((-1e308, 1e308), "does not fit in a float32"),
    ],
)
def test_ranges_without_a_grid_are_refused(ends, message):
    with pytest.raises(QuantizationError, match=f"relu_3 has the range .*{message}"):
        grid(*ends, where="relu_3")


def test_scales_of_weights():
    w = torch.tensor([[1.27, -0.2, 0.0, 0.4], [0.0, 0.0, 0.0, 0.0], [0.1, -2.54, 0.3, 1.0]])
    assert weight_scales(w).tolist() == pytest.approx([0.01, 1.0, 0.02])
    assert weight_scales(w, axis=1).tolist() == pytest.approx([0.01, 0.02, 0.3 / 127, 1 / 127])
    assert weight_scales(w, axis=None).item() == pytest.approx(0.02)
    assert weight_scales(w, 4, group=2)[0].tolist() == pytest.approx([1.27 / 7, 0.4 / 7])
    with pytest.raises(QuantizationError, match="4 inputs cannot be cut into groups of 3"):
        weight_scales(w, 4, group=3)
    with pytest.raises(QuantizationError, match="NaN or infinite"):
        weight_scales(torch.tensor([[1.0, math.nan]]))


def test_observed_are_the_ends_over_all_batches():
    gm = fx.symbolic_trace(nn.ReLU())
    ranges = observe(gm, [(torch.tensor([-3.0, 1.0]),), (torch.tensor([0.0, 2.0]),)])
    (x, relu, _) = gm.graph.nodes
    assert ranges[x.name] == (-3, 2) and ranges[relu.name] == (0, 2)


def test_a_percentile_leaves_outliers_out():
    gm = fx.symbolic_trace(nn.Identity())
    x = torch.cat([torch.linspace(-1, 1, 999), torch.tensor([1000.0])])
    name = next(iter(gm.graph.nodes)).name
    assert observe(gm, [(x,)])[name] == (-1, 1000)
    low, high = observe(gm, [(x,)], percentile=99)[name]
    assert -1 < low < -0.98 and 0.98 < high < 1


def test_a_nan_in_one_batch_is_seen():
    gm = fx.symbolic_trace(nn.ReLU())
    batches = [(torch.tensor([1.0]),), (torch.tensor([math.nan]),), (torch.tensor([2.0]),)]
    assert all(math.isnan(end) for ends in observe(gm, batches).values() for end in ends)


def test_calibration_without_data_is_refused():
    gm = fx.symbolic_trace(nn.ReLU())
    with pytest.raises(QuantizationError, match="No batch"):
        observe(gm, [])
    for percentile in (50, 101, math.nan):
        with pytest.raises(QuantizationError, match="above 50 and at most 100"):
            observe(gm, [(torch.zeros(1),)], percentile=percentile)


def test_a_batch_without_elements_is_refused():
    net = functional(trace(nn.Linear(2, 2).eval(), torch.zeros(1, 2)))
    with pytest.raises(QuantizationError, match="Input 0 of batch 1 has no elements, so no range"):
        observe(net, [(torch.ones(1, 2),), (torch.ones(0, 2),)])


@pytest.mark.parametrize(("low", "high", "word"), [(1, 0, "empty"), (0, math.inf, "infinite"), (math.nan, 0, "NaN")])
def test_no_range_is_proved_from_none(low, high, word):
    net = functional(trace(nn.Linear(2, 2).eval(), torch.zeros(1, 2)))
    (x,) = net.graph.find_nodes(op="placeholder")
    with pytest.raises(QuantizationError, match=f"{x.name} has the range .*{word}"):
        proved_ranges(net, {x.name: (low, high)})


def test_proved_ranges_hold_the_observed_ones():
    row = ZOO["convnet"]
    net = functional(trace(row.build(), *row.inputs()))
    inputs = {net.graph.find_nodes(op="placeholder")[0].target: (-1.0, 1.0)}
    proved = proved_ranges(net, inputs)
    for name, (low, high) in observe(net, [(torch.rand(64, 3, 16, 16) * 2 - 1,)]).items():
        assert proved[name][0] <= low <= high <= proved[name][1]
