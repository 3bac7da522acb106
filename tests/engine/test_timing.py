"""The race: programs built and timed in a confined process, each competitor at its own risk."""

import pytest
import torch
from torch.fx import symbolic_trace

from autograder.engine import wire
from autograder.engine.timing import ModelTimer, TimingError
from passlab.capstone import Compiled
from passlab.capstone.families import drawn
from passlab.capstone.reference import compile


@pytest.fixture(scope="module")
def race():
    with ModelTimer(repeats=2, leave_out=("torch.compile", "TVM")) as racing:
        yield racing


def test_only_what_computes_the_same_has_a_time(race):
    """A compiled model beside one that was not compiled, one that drops a layer, no data at all, and broken bytes."""
    model = drawn("mlp", 3)
    arguments = wire.encode((model.graph(), model.inputs))
    other = model.graph()
    layers = ((node, other.get_submodule(node.target)) for node in other.graph.find_nodes(op="call_module"))
    act = next(node for node, layer in layers if not list(layer.parameters()))
    act.replace_all_uses_with(act.args[0])
    entries = {
        "good": wire.encode(compile(model.graph(), model.inputs)),
        "plain": wire.encode(Compiled(model.graph())),
        "other": wire.encode(Compiled(other)),
        "list": wire.encode([1]),
        "bytes": b"no value",
    }
    rows = race.run(arguments, entries)
    assert rows.keys() == {"eager", "reference", *entries}
    assert rows["good"]["seconds"] > 0 and rows["good"]["launches"] < rows["plain"]["launches"]
    assert rows["plain"]["launches"] == rows["eager"]["launches"] and rows["eager"]["ratio"] == 1
    assert rows["reference"]["launches"] == rows["good"]["launches"]
    for name, message in (
        ("other", "other numbers than eager"),
        ("list", "not a Compiled"),
        ("bytes", "not a Compiled"),
    ):
        assert rows[name]["seconds"] is None and message in rows[name]["missing"], rows[name]


def test_truth_values_are_compared_too(race):
    same, other = symbolic_trace(lambda x: torch.gt(x, 0)), symbolic_trace(lambda x: torch.lt(x, 0))
    entries = {"same": wire.encode(Compiled(same)), "other": wire.encode(Compiled(other))}
    rows = race.run(wire.encode((same, (torch.arange(-3.0, 4.0),))), entries)
    assert rows["same"]["seconds"] > 0 and "other numbers than eager" in rows["other"]["missing"]


def test_a_model_that_draws_is_compared_by_the_same_draws(race):
    """And one that draws fewer numbers before is not the same."""
    fewer, more = (
        symbolic_trace(lambda x: torch.dropout(x, 0.5, True)),
        symbolic_trace(lambda x: torch.dropout(torch.rand_like(x), 0.5, True) * 0 + torch.dropout(x, 0.5, True)),
    )
    entries = {"fewer": wire.encode(Compiled(fewer)), "more": wire.encode(Compiled(more))}
    rows = race.run(wire.encode((fewer, (torch.ones(16, 24),))), entries)
    assert rows["fewer"]["seconds"] > 0 and "other numbers than eager" in rows["more"]["missing"]


def test_a_model_that_nothing_can_run_says_so(race):
    with pytest.raises(TimingError, match="ended with every competitor"):
        race.run(wire.encode((1, ())), {})
