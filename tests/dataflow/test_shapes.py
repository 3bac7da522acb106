"""Symbolic shapes and constraints say what running the network says."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import models
from passlab.dataflow.shapes import Mismatch, Unsupported, exported, runs, shapes
from tests.support.called import Called


@pytest.mark.parametrize("name", [n for n in models.ZOO if n != "resnet50"])
def test_constraints_accept_what_runs(name):
    module, (x,) = models.ZOO[name].build(), models.ZOO[name].inputs(2)
    names = [f"s{k}" for k in range(x.dim())]
    gm = fx.symbolic_trace(module)
    place = next(n.target for n in gm.graph.nodes if n.op == "placeholder")
    result, rng = shapes(gm, {place: names}), random.Random(0)
    last = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0].name
    for _ in range(12):
        sizes = [rng.choice((n, n, n, n + 1, 2 * n, 5)) for n in x.shape]
        named = dict(zip(names, sizes, strict=True))
        assert result.accepts(named) == runs(module, [sizes]), (sizes, result.refusing(named))
        if result.accepts(named):
            assert result.at(last, named) == tuple(module(torch.zeros(sizes)).shape)


def test_a_u_net_wants_multiples_of_eight():
    result = shapes(fx.symbolic_trace(models.ZOO["unet"].build()), {"x": ("b", 1, "h", "h")})
    assert [h for h in range(2, 40) if result.accepts({"b": 2, "h": h})] == [8, 16, 24, 32]
    assert "h % 2 == 0" in repr(result.constraints)


def test_export_refuses_a_size_of_one_inside():
    convnet, inputs = models.ZOO["convnet"].build(), models.ZOO["convnet"].inputs(2)
    ours = shapes(fx.symbolic_trace(convnet), {"x": ("b", 3, "h", "w")})
    assert ours.accepts({"b": 2, "h": 32, "w": 5}) and runs(convnet, [(2, 3, 32, 5)])
    assert not runs(exported(convnet, inputs).module(), [(2, 3, 32, 5)])


def test_indices_and_negative_dimensions():
    class Model(nn.Module):
        def forward(self, x):
            row = x[1]
            return torch.stack([row, row], -1), row.view(x.shape[1], 1), x.size()[0]

    result = shapes(fx.symbolic_trace(Model()), {"x": ("b", "n")})
    assert result.at("getitem", {"b": 4, "n": 6}) == (6,)
    assert result.at("stack", {"b": 4, "n": 6}) == (6, 2)
    assert result.at("view", {"b": 4, "n": 6}) == (6, 1)
    with pytest.raises(Unsupported, match="Node getitem: the index slice"):
        shapes(fx.symbolic_trace(lambda x: x[::2]), {"x": ("b", "n")})


def test_bad_graphs_have_their_sentences():
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 6)))
    with pytest.raises(Mismatch, match="Node _1 cannot run"):
        shapes(gm, {"input": ("n", 3), "input_1": ("n", 3)})
    with pytest.raises(ValueError, match="has no sizes"):
        shapes(gm, {})
    with pytest.raises(Unsupported, match="which has no rule"):
        shapes(
            fx.symbolic_trace(nn.Sequential(nn.PixelShuffle(2))), {"input": ("n", 4, 2, 2), "input_1": ("n", 4, 2, 2)}
        )


def _with_an_assertion(x):
    torch._assert(x.ndim == 4, "an image")
    torch._assert(x.shape[2] % 2 == 0, "an even height")
    return x.flatten(2)


FORMS = {
    "pool with dilation": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "pool, rounded up": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "pool, rounded up, padded": lambda x: F.max_pool2d(x, 2, 2, 1, ceil_mode=True),
    "pool of a pair": nn.MaxPool2d((3, 2), (2, 1), (1, 0)),
    "average pool": lambda x: F.avg_pool2d(x, (2, 3), padding=(1, 1)),
    "average pool as a module": nn.AvgPool2d(3, 2, ceil_mode=True),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive pool, half left": nn.AdaptiveAvgPool2d((None, 3)),
    "same padding": nn.Conv2d(4, 2, 3, padding="same", dilation=2),
    "valid padding": nn.Conv2d(4, 2, (3, 1), padding="valid"),
    "transposed, dilated": nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1, dilation=2),
    "by one and a half": lambda x: F.interpolate(x, scale_factor=1.5),
    "two scales": lambda x: F.interpolate(x, scale_factor=(2.0, 0.5)),
    "to a size": lambda x: F.interpolate(x, size=(5, 7)),
    "upsample": nn.Upsample(scale_factor=2),
    "silu": lambda x: F.silu(torch.clamp(x, 0, 1).abs().sqrt()),
    "one more dimension": lambda x: x.unsqueeze(-1).unsqueeze(1),
    "one less": lambda x: x.unsqueeze(2).squeeze(2),
    "nothing to squeeze": lambda x: x.squeeze(1),
    "maximum": lambda x: torch.maximum(x, x.amax(-1, keepdim=True)),
    "power of a tensor": lambda x: torch.pow(x.sum(0), x),
    "split": lambda x: torch.split(x, 3, 1)[1],
    "indices": lambda x: x[..., None, 0] + x[:, 1:3:2, 0, None],
    "sizes of a split": lambda x: x.split([1, 3], 1)[1],
    "slices of symbols": lambda x: x[:, :, :3, -4:],
    "slices up to a size": lambda x: F.pad(x, (1, 2, 0, 3))[:, :, : x.shape[2], 1 : x.shape[3] + 1] + x,
    "padding": lambda x: F.pad(x, (1, 2, 0, 3)),
    "less than nothing": lambda x: F.pad(x, (-3, 0)),
    "a mirror": lambda x: F.pad(x, (3, 2, 0, 1), mode="reflect"),
    "asserted": _with_an_assertion,
    "sizes in a list": lambda x: x.reshape(x.shape[:2] + (-1,)),  # noqa: RUF005  (as models write it)
    "sizes divided": lambda x: x.new_zeros(x.shape[2] // 3 + 1, x.size(3) % 3 + 1),
    "an arange": lambda x: torch.arange(1, x.shape[3] + 1, device=x.device).to(torch.float32) + x,
    "indices in a tensor": lambda x: x[:, torch.zeros(2, 3, dtype=torch.int64, device=x.device)],
    "layer norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,), torch.ones(4), eps=1e-6),
    "group norm": nn.GroupNorm(2, 4),
    "functions for modules": lambda x: F.linear(x, torch.ones(3, x.shape[-1])),
    "a convolution as a function": lambda x: F.conv2d(x, torch.ones(6, 2, 3, 2), None, (2, 1), 1, groups=2),
    "the same with equal sizes": lambda x: F.conv2d(x, torch.ones(6, 4, 3, 2), torch.ones(6), padding="same"),
    "expanded": lambda x: x.amax(1, keepdim=True).expand_as(x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1]),
    "unbind": lambda x: x.unbind(1)[2],
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "as another": lambda x: x.transpose(2, 3).reshape_as(x),
    "a norm": lambda x: F.hardswish(F.normalize(x)).norm(p=2, dim=(2, 3), keepdim=True),
    "a sum and a product": lambda x: torch.addcmul(x, x, x.sum(-1, keepdim=True)),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_an_operation_has_the_shape_that_it_makes(name):
    module, rng = Called(FORMS[name]).eval(), random.Random(0)
    gm = fx.symbolic_trace(module)
    result, last = shapes(gm, {"x": ("b", 4, "h", "w")}), [*gm.graph.nodes][-2].name
    count = 0
    for _ in range(30):
        named = {"b": rng.randint(2, 4), "h": rng.randint(2, 9), "w": rng.randint(2, 9)}
        sizes = (named["b"], 4, named["h"], named["w"])
        assert result.accepts(named) == runs(module, [sizes]), (sizes, result.refusing(named))
        if result.accepts(named):
            count += 1
            assert result.at(last, named) == tuple(module(torch.zeros(sizes)).shape)
    assert count > 5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
        lambda x: F.max_pool2d(x, 2).squeeze(2),
        lambda x: torch.split(x, 2, 0)[0],
        lambda x: torch.stack([x, x[:, :1]]),
        lambda x: x.transpose(0, 7),
        lambda x: F.max_pool2d(x, 2, padding=2),
    ],
)
def test_a_form_without_a_rule_is_named(function):
    with pytest.raises((Unsupported, Mismatch), match="Node "):
        shapes(fx.symbolic_trace(Called(function)), {"x": ("b", 4, "h", "w")})
