"""The search for faults: it finds what was planted, keeps quiet where nothing is, and tells what a report needs."""

from __future__ import annotations

import itertools
import os
import signal

import pytest
import torch
from torch import fx
from typer.testing import CliRunner

from passlab.hunt import TARGETS, Target, hunt
from passlab.hunt.__main__ import app
from passlab.hunt.faults import Fault, differ
from passlab.hunt.forked import Crash, forked
from passlab.hunt.search import failure


def swapped(gm: fx.GraphModule, inputs: tuple) -> fx.GraphModule:
    """Swap the operands of each subtraction."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.sub):
        node.args = node.args[::-1]
    gm.recompile()
    return gm


def crashing(gm: fx.GraphModule, inputs: tuple) -> fx.GraphModule:
    if gm.graph.find_nodes(op="call_function", target=torch.sub):
        raise KeyError("sub")
    return gm


def killing(gm: fx.GraphModule, inputs: tuple) -> fx.GraphModule:
    if gm.graph.find_nodes(op="call_function", target=torch.sub):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm


def refusing(gm: fx.GraphModule, inputs: tuple) -> fx.GraphModule:
    raise ValueError("Unsupported function sub")


def target(apply, **changes) -> Target:
    return Target("planted", "The same function.", apply, **changes)


def test_a_planted_fault_is_one_small_fault_that_both_oracles_see():
    faults = hunt(target(swapped), graphs=40)
    assert faults, "forty graphs have subtractions"
    assert all(fault.kind == "values" and "sub" in fault.operations for fault in faults)
    assert min(len(fault.operations) for fault in faults) == 1
    assert "float64 agrees with eager" in min(faults, key=lambda fault: len(fault.operations)).second
    assert sum(len(fault.seeds) for fault in faults) == len({seed for fault in faults for seed in fault.seeds})


def test_a_crash_is_a_fault_and_a_refusal_is_none():
    crashes = hunt(target(crashing), graphs=40)
    assert crashes and all(fault.kind == "KeyError" and fault.operations == ["sub"] for fault in crashes)
    assert hunt(target(refusing, refuses=("Unsupported",)), graphs=5) == []
    assert {fault.kind for fault in hunt(target(refusing), graphs=5)} == {"ValueError"}


def test_native_code_that_crashes_is_a_fault_and_the_hunt_goes_on():
    faults = hunt(target(killing, native=("json",)), graphs=40)
    assert [(fault.kind, fault.operations) for fault in faults] == [("crash", ["sub"])]
    assert faults[0].message == "The process is ended by SIGSEGV." and len(faults[0].seeds) > 1
    assert "torch.export" in faults[0].second
    assert hunt(target(refusing, refuses=("Unsupported",), native=("json",)), graphs=3) == []


def test_what_runs_in_a_child_returns_raises_and_ends(monkeypatch):
    assert forked(lambda: [1, 2]) == [1, 2]
    with pytest.raises(RuntimeError, match="KeyError: 'a'"):
        forked(lambda: {}["a"])
    monkeypatch.setattr("passlab.hunt.forked.SECONDS", 0.1)
    for endless in (signal.pause, lambda: all(itertools.repeat(1))):
        with pytest.raises(Crash, match="ended by its limit of time"):
            forked(endless)


def test_a_right_pass_raises_no_alarm():
    assert hunt(target(lambda gm, inputs: gm), graphs=40) == []
    assert hunt("dce", graphs=40) == []


def test_one_fault_has_one_signature_whatever_the_operation():
    def signature(body, kind="values", message=""):
        gm = fx.symbolic_trace(body)
        return Fault(TARGETS["cse"], kind, message, gm, "").signature

    add = signature(lambda n: (torch.add(n, 1), torch.add(n, 1.0)))
    assert add == signature(lambda n: (torch.pow(n, 2), torch.pow(n, 2.0)))
    assert add != signature(lambda n: (torch.add(n, 1), torch.add(n, 2)))
    assert signature(lambda x: torch.sub(x, x, alpha=2)) == signature(lambda x: torch.add(x, x, alpha=3), "form")
    assert signature(lambda x: torch.sin(x)) != signature(lambda x: torch.cos(x))
    assert signature(lambda x: torch.sin(x)) != signature(lambda x: torch.sin(x), "form")
    assert signature(lambda x: x.add_(1) * 2) == signature(lambda x: torch.sin(x.view(-1).mul_(2)))
    texts = [signature(lambda x: x + 1, "KeyError", text) for text in ("no 'a' at 3", "no 'b' at 12", "no room")]
    assert texts[0] == texts[1] != texts[2]


def test_a_report_has_the_graph_the_promise_and_the_versions():
    report = hunt(target(swapped), graphs=40)[0].report()
    for part in ("def forward", "Promised: The same function.", f"torch {torch.__version__}", "Seeds of"):
        assert part in report


def test_a_difference_is_named_by_its_kind():
    one = torch.tensor([1.0, 2.0])
    assert differ([one], [one + 1e-6]) is None
    assert differ([one], [one.double()]) == ("form", "Output 0 is float64[2] instead of float32[2].")
    assert differ([one], []) == ("form", "It returns 0 tensors instead of 1.")
    assert differ([one], [torch.tensor([1.0, 3.0])]) == ("values", "Output 0[1] is 3 instead of 2.")
    nan = torch.tensor([float("nan")])
    assert differ([nan], [nan]) is None and differ([nan], [one[:1]]) is not None


def test_torchs_cse_with_its_own_list_merges_a_draw_made_in_place():
    """Its list has `bernoulli`, and not `bernoulli_`: the list of writes is as short."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(graph.call_method("bernoulli_", (graph.call_method("clone", (x,)), 0.5)) for _ in range(2)))
    gm = fx.GraphModule({}, graph)
    gm.meta["inputs"] = (torch.ones(100),)
    kind, _ = failure(TARGETS["cse-aten"], gm) or ("", "")
    assert kind == "values"


def test_the_command_names_its_targets():
    run = CliRunner().invoke(app, ["nothing"])
    assert run.exit_code == 2 and "There is no target 'nothing'. There are: cse, cse-aten," in run.output
    run = CliRunner().invoke(app, ["dce", "--graphs", "2"])
    assert run.exit_code == 0 and "0 faults." in run.output
