"""Ranges hold on every input, and the plans that follow from them are safe."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from passlab import models, trace
from passlab.dataflow.precision import extremes, overflow, plan, run, values
from passlab.dataflow.ranges import UNIT, Unsupported, ranges
from tests.support.called import Called


class Program(nn.Module):
    def __init__(self, body, **parts):
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.body(self, x)


def traced(body, *shape, **parts):
    return trace(Program(body, **parts).requires_grad_(False).eval(), torch.randn(shape))


@pytest.mark.parametrize("name", [n for n in models.ZOO if n != "resnet50"])
def test_no_value_of_the_zoo_leaves_its_range(name):
    model = models.ZOO[name]
    gm = trace(model.build(), *model.inputs(1))
    bounds = ranges(gm, {n.target: (-2.0, 1.0) for n in gm.graph.nodes if n.op == "placeholder"})
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        x = 3 * torch.rand(model.inputs(1)[0].shape, generator=rng) - 2
        results = values(gm, {}, (x > -0.5) * 3.0 - 2 if seed else x)
        for node, it in bounds.items():
            for value in results[node] if isinstance(results[node], list | tuple) else [results[node]]:
                if isinstance(value, torch.Tensor):
                    assert it.low <= float(value.min()) <= float(value.max()) <= it.high, node


def test_a_layer_reaches_both_ends():
    """One output, whose gradient points to the very corner; among several, the search may follow a lesser one."""
    gm = traced(lambda m, x: m.layer(x), 2, 6, layer=nn.Linear(6, 1))
    bounds = ranges(gm, {"x": (-1.0, 3.0)})["layer"]
    for up, end in ((True, bounds.high), (False, bounds.low)):
        x = extremes(gm, {"x": (-1.0, 3.0)}, "layer", up=up)
        results = gm(*x)
        assert math.isclose(float(results.max() if up else results.min()), end, rel_tol=1e-4)


def test_what_is_one_value_is_squared():
    bounds = ranges(traced(lambda m, x: x * x, 2, 3), {"x": (-2.0, 1.0)})["mul"]
    assert -1e-6 < bounds.low <= 0 and math.isclose(bounds.high, 4, rel_tol=1e-5)


@pytest.mark.parametrize("rising", [torch.tanh, torch.relu, torch.erf, torch.sqrt, F.relu6], ids=lambda f: f.__name__)
def test_what_is_0_at_0_begins_there(rising):
    gm = trace(Called(lambda x: rising((x**2).sum(1))), torch.randn(3, 4))
    for unit in UNIT.values():
        assert [r.low for name, r in ranges(gm, {"x": (-9.0, 2.0)}, unit).items() if name != "x"] == [0, 0, 0]


def test_a_quotient_by_what_may_be_zero_is_unknown():
    bounds = ranges(traced(lambda m, x: torch.relu(1 / x), 2, 3), {"x": (-1.0, 1.0)})
    assert bounds["truediv"].low == -math.inf and bounds["relu"].high == math.inf and bounds["relu"].low > -1e-6


def test_an_operation_without_a_row_is_named():
    with pytest.raises(Unsupported, match="Node erfinv calls erfinv"):
        ranges(traced(lambda m, x: torch.erfinv(x), 2, 3), {"x": (-1.0, 1.0)})


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda x: F.gelu(x, approximate="tanh"), (8, 8)),
        (nn.GELU("tanh"), (8, 8)),
        (lambda x: F.dropout(x + 3, 0.5), (8, 8)),
        (nn.Dropout(0.9).train(), (8, 8)),
        (lambda x: torch.sub(x, x * 0.5, alpha=3), (8, 8)),
        (nn.Linear(6, 4), (2, 3, 4, 6)),
        (nn.Conv2d(2, 4, 3), (2, 6, 6)),
        (lambda x: F.conv2d(x, torch.arange(-9.0, 9).reshape(1, 2, 3, 3), torch.ones(1), 2, 1), (3, 2, 6, 6)),
        (nn.BatchNorm2d(2, affine=False).eval(), (3, 2, 4, 4)),
        (lambda x: F.silu(x * 0.5), (8, 8)),
        (nn.SiLU(), (8, 8)),
        (lambda x: F.hardswish(x) + F.hardsigmoid(x), (8, 8)),
        (nn.Hardswish(), (8, 8)),
        (nn.GroupNorm(2, 4), (3, 4, 5)),
        (lambda x: F.layer_norm(x, (6,), torch.arange(6.0), eps=1e-6), (8, 6)),
        (lambda x: F.normalize(x, dim=-1), (8, 6)),
        (lambda x: x.norm(p=2, dim=(0, 1), keepdim=True), (8, 6)),
        (lambda x: F.scaled_dot_product_attention(x, x * 3, x - 1), (2, 5, 4)),
        (lambda x: F.linear(x, torch.arange(12.0).reshape(2, 6) - 5, torch.ones(2)), (8, 6)),
        (lambda x: torch.addcmul(x, x, x - 1, value=-2), (8, 6)),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
        (nn.BatchNorm1d(4).eval(), (2, 4, 9)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
        (lambda x: x.unbind(1)[2].roll(1).repeat(2), (4, 3)),
        (lambda x: x.reshape(x.shape[0] // 2, -1) * torch.arange(1, x.shape[1] * 2 + 1), (4, 3)),
        (lambda x: torch.abs(x + 1), (8, 8)),
        (lambda x: torch.minimum(x, x.flip(0)), (8, 8)),
        (lambda x: torch.clamp(x, -1, 2), (8, 8)),
        (lambda x: torch.sqrt(torch.abs(x)), (8, 8)),
        (lambda x: torch.log(x * x + 1), (8, 8)),
        (lambda x: torch.erf(x), (8, 8)),
        (lambda x: torch.sin(x) + torch.cos(x), (8, 8)),
        (lambda x: F.leaky_relu(x, 0.2), (8, 8)),
        (nn.AvgPool2d(3, 2, padding=1), (2, 3, 7, 7)),
        (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 7, 7)),
        (lambda x: F.pad(x, (1, 1), value=9.0), (8, 8)),
        (lambda x: torch.amin(x, 1), (8, 8)),
        (lambda x: x.split(3, 1)[1] + x[:, ::3], (8, 9)),
    ],
)
def test_no_other_form_of_an_operation_leaves_its_range(model, size):
    torch.manual_seed(0)
    for parameter in Called(model).parameters():
        nn.init.normal_(parameter)
    ends = torch.where(torch.rand(size) < 0.5, -3.0, 3.0)
    gm = trace(Called(model), ends)
    last = list(gm.graph.nodes)[-2].name
    bounds = ranges(gm, {"x": (-3.0, 3.0)})[last]
    for x in (ends, torch.empty(size).uniform_(-3, 3), torch.linspace(-3, 3, ends.numel()).reshape(size)):
        y = gm(x).detach()
        assert bounds.low <= float(y.min()) and float(y.max()) <= bounds.high


@pytest.mark.parametrize(
    ("model", "form"),
    [
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), "with the padding reflect"),
        (nn.BatchNorm2d(2, track_running_stats=False).eval(), "with a batch norm in training mode"),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), "with the mode bicubic"),
        (lambda x: F.softmax(x), "with no dim"),
        (lambda x: F.leaky_relu(x, -1.0), "with the slope"),
        (lambda x: torch.pow(x, x), "with an exponent that is not a constant"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "in an unknown form"),
    ],
)
def test_a_form_without_a_rule_is_named(model, form):
    with pytest.raises(Unsupported, match=f"Node .* calls .* {form}"):
        ranges(trace(Called(model), torch.randn(1, 2, 6, 6)), {"x": (-3.0, 3.0)})


def test_bad_inputs_have_their_sentences():
    gm = traced(lambda m, x: torch.relu(x), 2, 3)
    with pytest.raises(ValueError, match="Input x has no range"):
        ranges(gm, {})
    with pytest.raises(ValueError, match=r"range of input x is 1\.0 … 0\.0"):
        ranges(gm, {"x": (1.0, 0.0)})
    with pytest.raises(ValueError, match="Input x has no shape"):
        ranges(torch.fx.symbolic_trace(Program(lambda m, x: x + 1)), {"x": (0.0, 1.0)})


def test_a_plan_is_safe_where_half_overflows():
    gm = traced(lambda m, x: torch.tanh((x * 300) * x), 2, 3)
    span = {"x": (-30.0, 30.0)}
    safe = plan(gm, span)
    assert safe["mul"] == torch.float16 and safe["mul_1"] == torch.float32
    broken = overflow(gm, dict.fromkeys(safe, torch.float16), span)
    assert broken.node == "mul_1" and overflow(gm, safe, span) is None
    assert torch.isfinite(run(gm, safe, *broken.inputs)).all()


def test_partial_sums_count():
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.data = torch.tensor([[40000.0, -40000.0]])
    gm = traced(lambda m, x: m.layer(x), 1, 2, layer=layer)
    assert ranges(gm, {"x": (1.0, 1.0)})["layer"].high < 1
    assert plan(gm, {"x": (1.0, 1.0)})["layer"] == torch.float32


def test_half_widens_more_than_single():
    gm = traced(lambda m, x: torch.exp(x), 2, 3)
    wide, narrow = (ranges(gm, {"x": (0.0, 1.0)}, UNIT[d])["exp"].high for d in (torch.float16, torch.float32))
    assert wide > narrow > math.e


def test_rounding_moves_no_number_across_zero():
    gm = trace(Called(lambda x: (torch.relu(x), (x * x).sum(-1))), torch.randn(2, 6))
    bounds = ranges(gm, {"x": (-3.0, 3.0)})
    assert bounds["relu"].low == bounds["mul"].low == bounds["sum_1"].low == 0


def test_an_input_may_keep_its_default():
    class Attention(nn.Module):
        def forward(self, x, mask=None):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    gm = trace(Attention(), torch.randn(2, 5, 4))
    assert ranges(gm, {"x": (-1.0, 1.0)})["scaled_dot_product_attention"].high < 1.001
