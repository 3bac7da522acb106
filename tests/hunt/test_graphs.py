"""Graphs of the patterns that passes look for."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from passlab.fx.judge import why_not_valid
from passlab.hunt import drawn_graph
from passlab.hunt.graphs import PATTERNS, Sketch

GRAPHS = [drawn_graph(seed) for seed in range(24)]


@pytest.mark.parametrize("pattern", dict.fromkeys(PATTERNS), ids=lambda f: f.__name__.strip("_"))
def test_a_pattern_can_be_drawn_in_all_its_forms(pattern):
    """Sometimes an operation has no form for proxies; that must be seldom."""
    drawn = 0
    for seed in range(30):
        sketch = Sketch(random.Random(seed))
        try:
            pattern(sketch)
        except (TypeError, RuntimeError):
            continue
        drawn += bool(sketch.outputs)
    assert drawn >= 24


def test_graphs_run_and_are_the_same_each_time():
    for seed, gm in enumerate(GRAPHS):
        again = drawn_graph(seed)
        assert str(again.graph) == str(gm.graph) and why_not_valid(gm, again) == ""
        assert all(map(torch.equal, again.meta["inputs"], gm.meta["inputs"]))


def test_graphs_have_what_breaks_passes():
    modules = {type(part) for gm in GRAPHS for part in gm.modules()}
    assert {nn.Conv2d, nn.Linear, nn.BatchNorm2d} <= modules
    calls = {getattr(node.target, "__name__", node.target) for gm in GRAPHS for node in gm.graph.nodes}
    assert {"softmax", "matmul", "erf", "add_", "rand_like", "getattr"} <= calls
    assert any(sum(node.op.startswith("call") for node in gm.graph.nodes) > 1000 for gm in GRAPHS)
