"""Symbolic shapes and constraints say what running the network says."""

from __future__ import annotations

import random

import pytest
import torch
from torch import fx, nn

from passlab import models
from passlab.dataflow.shapes import Mismatch, Unsupported, exported, runs, shapes

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", [n for n in models.ZOO if n != "resnet50"])
def test_constraints_accept_what_runs(name):
    module, (x,) = models.ZOO[name].build(), models.ZOO[name].inputs(2)
    names = [f"s{k}" for k in range(x.dim())]
    gm = fx.symbolic_trace(module)
    place = next(n.target for n in gm.graph.nodes if n.op == "placeholder")
    found, rng = shapes(gm, {place: names}), random.Random(0)
    last = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0].name
    for _ in range(12):
        sizes = [rng.choice((n, n, n, n + 1, 2 * n, 5)) for n in x.shape]
        named = dict(zip(names, sizes, strict=True))
        assert found.accepts(named) == runs(module, [sizes]), (sizes, found.refusing(named))
        if found.accepts(named):
            assert found.at(last, named) == tuple(module(torch.zeros(sizes)).shape)


def test_a_u_net_wants_multiples_of_eight():
    found = shapes(fx.symbolic_trace(models.ZOO["unet"].build()), {"x": ("b", 1, "h", "h")})
    assert [h for h in range(2, 40) if found.accepts({"b": 2, "h": h})] == [8, 16, 24, 32]
    assert "h % 2 == 0" in repr(found.constraints)


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

    found = shapes(fx.symbolic_trace(Model()), {"x": ("b", "n")})
    assert found.at("getitem", {"b": 4, "n": 6}) == (6,)
    assert found.at("stack", {"b": 4, "n": 6}) == (6, 2)
    assert found.at("view", {"b": 4, "n": 6}) == (6, 1)
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
