"""A compiled model between processes: as data, with nothing else, and examined where it may run."""

from __future__ import annotations

import pytest
import torch

from autograder.engine import wire
from passlab import trace
from passlab.capstone import Compiled, examined, why_not_compiled
from passlab.capstone.families import drawn
from passlab.capstone.reference import compile
from passlab.fx import isolation
from passlab.memory.plan import Plan


class Own(Compiled):
    pass


def test_a_compiled_model_travels_and_costs_the_same_there():
    model = drawn("convnet", 2)
    compiled = compile(model.graph(), model.inputs)
    other = wire.decode(wire.encode(compiled))
    assert type(other) is Compiled and type(other.plan) is Plan
    assert (other.groups, other.schedules, other.plan) == (compiled.groups, compiled.schedules, compiled.plan)
    assert why_not_compiled(model.graph(), other) == ""
    assert examined(other, model.inputs) == examined(compiled, model.inputs)


@pytest.mark.parametrize(
    "change",
    [
        lambda gm: Own(gm),
        lambda gm: Compiled(gm, [], {"add": {"tile": torch.load}}),
        lambda gm: Compiled(gm, [["add", 1]]),
        lambda gm: Compiled(gm, ["add"]),
        lambda gm: Compiled(gm, [], {"add": 3}),
        lambda gm: Compiled(gm, plan=Plan(["x"], {}, 0)),
        lambda gm: Compiled(gm, plan=Plan(("x",), {"x": 0.5}, 0)),
        lambda gm: Compiled(trace(lambda x: torch.segment_reduce(x, "sum", lengths=x, unsafe=True))),
    ],
)
def test_what_is_not_data_of_the_declared_types_is_refused(change):
    with pytest.raises(wire.Refused):
        wire.decode(wire.encode(change(trace(lambda x: x + 1, X))))


X = torch.ones(4)


def test_a_returned_model_is_examined_elsewhere(monkeypatch):
    compiled = Compiled(trace(lambda x: x + 1, X))
    local = examined(compiled, (X,))
    requests = []
    monkeypatch.setattr(isolation, "_run", lambda *a, **k: None)
    monkeypatch.setattr(isolation, "_call", lambda name, arguments: requests.append(name) or {"broken": "there"})
    assert examined(compiled, (X,)) == local and not requests  # trusted: nothing is marked
    for node in compiled.graph.graph.nodes:
        isolation.mark(node)
    assert examined(compiled, (X,)) == {"broken": "there"}
    assert requests == ["passlab.capstone.counting.counted"] and requests[0] in isolation.CONFINED
