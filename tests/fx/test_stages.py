"""The small passes that pipelines are built of: what each does, and what it leaves to the others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from passlab import equivalent, random_graph, trace
from passlab.fx.stages import STAGES


def traced(body, **parts):
    module = type("Program", (nn.Module,), {"forward": body})()
    for name, part in parts.items():
        setattr(module, name, nn.Parameter(part, requires_grad=False))
    return trace(module, torch.linspace(-1, 1, 6).reshape(2, 3))


@pytest.mark.parametrize(
    ("stage", "body", "left"),
    [
        ("fold", lambda m, x: x + torch.tanh(m.w) * 2, "placeholder get_attr get_attr call_function output"),
        ("fold", lambda m, x: x + torch.exp(m.w), 5),
        ("simplify", lambda m, x: torch.where(x > 0, m.w, m.w), 4),
        ("simplify", lambda m, x: torch.neg(torch.neg(x)), 3),
        ("cse", lambda m, x: torch.relu(x) + torch.relu(x), 4),
        ("cse", lambda m, x: x * 1 + x * 1.0, 5),
        ("dce", lambda m, x: (torch.exp(torch.tanh(x)), x)[1], 2),
        ("scale", lambda m, x: x * 3 * 5, 3),
        ("double", lambda m, x: x * 2, 3),
    ],
)
def test_each_stage(stage, body, left):
    gm = traced(body, w=torch.ones(2, 3))
    after = STAGES[stage](gm)
    assert after is gm
    ops = [node.op for node in gm.graph.nodes]
    assert ops == left.split() if isinstance(left, str) else len(ops) == left


def test_scale_multiplies_the_numbers():
    gm = STAGES["scale"](traced(lambda m, x: x * 2 * 2))
    assert [node.args for node in gm.graph.nodes if node.op == "call_function"] == [(next(iter(gm.graph.nodes)), 4)]


@pytest.mark.parametrize("stage", STAGES)
def test_stages_keep_meaning_on_pure_graphs(stage):
    for seed in range(15):
        before, after = (random_graph(seed, 15, random=False) for _ in range(2))
        after = STAGES[stage](after)
        assert equivalent(before, after, atol=1e-5, rtol=1e-5, trials=("given", "sizes")), seed


@pytest.mark.parametrize("stage", ["fold", "simplify", "cse", "dce", "double"])
def test_a_second_run_changes_nothing(stage):
    gm = random_graph(3, 30, random=False)
    once = str(STAGES[stage](gm).graph)
    assert str(STAGES[stage](gm).graph) == once
