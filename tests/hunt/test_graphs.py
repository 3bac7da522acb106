"""Graphs of the patterns that passes look for."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import nn

from passlab.fx.effects import effects
from passlab.fx.judge import why_not_valid
from passlab.hunt import drawn_graph
from passlab.hunt.graphs import PATTERNS, Sketch, deck, sketched

GRAPHS = [drawn_graph(seed) for seed in range(24)]


@pytest.mark.parametrize("flags", [(True, True), (False, False)], ids=["any", "functional"])
def test_each_form_of_each_pattern_runs(flags):
    forms = deck(*flags)
    assert {pattern for pattern, _ in forms} == set(PATTERNS) and len(set(forms)) == len(forms)
    with torch.random.fork_rng(devices=[]):
        lost = [(f.__name__, form) for f, form in forms if sketched(Sketch(Random(1), *flags), [(f, form)]) is None]
    assert lost == []


def test_a_hundred_graphs_take_the_whole_deck(monkeypatch):
    taken = set()
    monkeypatch.setattr("passlab.hunt.graphs.sketched", lambda sketch, forms, long: taken.update(forms) or GRAPHS[0])
    for seed in range(100):
        drawn_graph(seed)
    assert set(deck(True, True)) <= taken


def test_a_form_differs_from_the_plain_one_in_its_own_place():
    picks = [("plain", "b", "c"), (1, 2)]
    for form, values in {-1: ["plain", 1], 0: ["b", 1], 1: ["c", 1], 2: ["plain", 2]}.items():
        sketch = Sketch(Random(0))
        sketch.form = form
        assert [sketch.pick(*options) for options in picks] == values
    sketch.form = None
    assert {sketch.pick(*picks[0]) for _ in range(100)} == set(picks[0])


def test_graphs_run_and_are_the_same_each_time():
    for seed, gm in enumerate(GRAPHS):
        again = drawn_graph(seed)
        assert str(again.graph) == str(gm.graph) and why_not_valid(gm, again) == ""
        assert all(map(torch.equal, again.meta["inputs"], gm.meta["inputs"]))


def test_a_functional_graph_only_computes():
    for seed in range(60):
        gm = drawn_graph(seed, mutation=False, random=False)
        assert {effect for node in gm.graph.nodes for effect in effects(node)} <= {"signature"}, seed


def test_graphs_have_what_breaks_passes():
    modules = {type(part) for gm in GRAPHS for part in gm.modules()}
    assert {nn.Conv2d, nn.Linear, nn.BatchNorm2d} <= modules
    calls = {getattr(node.target, "__name__", node.target) for gm in GRAPHS for node in gm.graph.nodes}
    assert {"softmax", "matmul", "erf", "add_", "rand_like", "transpose"} <= calls
    assert any(sum(node.op.startswith("call") for node in gm.graph.nodes) > 1000 for gm in GRAPHS)
