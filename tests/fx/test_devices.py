"""A program whose tensors are on the CPU, run on a device that a process can lose: "cpu:0" stands in for a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from passlab.equivalence import equivalent
from passlab.fx import programs
from passlab.fx.programs import RUNS, Program


@pytest.fixture
def places(monkeypatch):
    """The devices on which a program of `guarded` has run, in order."""
    monkeypatch.setattr(programs, "is_accelerator", lambda device: device == "cpu:0")
    seen, once = [], Program._run_once
    note = lambda self, *args, device, **how: seen.append(device) or once(self, *args, device=device, **how)  # noqa: E731
    monkeypatch.setattr(Program, "_run_once", note)
    RUNS.clear()
    return seen


def positive(x):
    torch._assert_async((x > 0).all())
    return x * 2


def test_what_fails_on_the_cpu_does_not_reach_the_device(places):
    failed = Program(positive).run((torch.zeros(3),), device="cpu:0")
    assert isinstance(failed.error, RuntimeError) and places == ["cpu"] and not +RUNS
    assert Program(positive).run((torch.ones(3),), device="cpu:0").error is None
    assert places == ["cpu", "cpu", "cpu:0"] and RUNS == {"cpu:0": 1}


def test_inputs_that_a_program_refuses_are_left_out_on_the_device(places):
    after = fx.symbolic_trace(lambda x: x + x)
    result = equivalent(
        positive, after, (torch.ones(3),), devices=["cpu:0"], trials=("given", "nonfinite", "structured")
    )
    assert result and "cpu:0" in places and places.count("cpu") > places.count("cpu:0")


def test_what_is_not_on_the_cpu_runs_on_the_device_only(places, monkeypatch):
    monkeypatch.setattr(programs, "copy_inputs", lambda args, device: args)
    assert Program(torch.relu).run((torch.ones(3, device="meta"),), device="cpu:0").error is None
    assert places == ["cpu:0"]
