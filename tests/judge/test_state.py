"""One answer leaves the process as it found it, so that it cannot spoil the next."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from torch import fx
from torch.nn.modules import module

from passlab import exercises
from passlab.fx.reader import trace
from passlab.judge import Case, Exercise, Finding, judge
from passlab.judge.guards import preserve_process_state


def left():
    """Return the state in which a change would show."""
    return (
        random.random(),
        float(np.random.rand()),
        torch.rand(1, device="cpu").item(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.get_deterministic_debug_mode(),
        torch.empty(1).device,
        dict(module._global_forward_hooks),
        dict(fx._symbolic_trace._wrapped_fns_to_patch),
        torch._C._len_torch_function_stack(),
        os.getcwd(),
        os.environ.get("PASSLAB_LEFT"),
        np.geterr(),
    )


CHANGES = {
    "seeds": lambda: (random.seed(1), np.random.seed(1), torch.manual_seed(1)),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "gradients": lambda: torch.set_grad_enabled(False),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "device": lambda: torch.set_default_device("meta"),
    "mode": lambda: torch.overrides.BaseTorchFunctionMode().__enter__(),
    "hook": lambda: module.register_module_forward_hook(lambda *_: None),
    "wrapped": lambda: fx._symbolic_trace._wrapped_fns_to_patch.update({(1, "f"): {}}),
    "folder": lambda: os.chdir("/"),
    "environment": lambda: os.environ.update(PASSLAB_LEFT="1"),
    "errors": lambda: np.seterr(all="raise"),
}


def seeded():
    random.seed(0), np.random.seed(0), torch.manual_seed(0)


@pytest.mark.parametrize("name", CHANGES)
def test_what_an_answer_changes_is_put_back(name):
    with preserve_process_state():
        seeded()
        before = left()
        seeded()
        with preserve_process_state():
            CHANGES[name]()
        assert left() == before
        seeded()
        CHANGES[name]()
        if name != "seeds":
            assert left() != before, "the test does not see this change"


def test_a_case_is_run_and_judged_in_an_unchanged_process():
    def change(case, value):
        torch.set_default_dtype(torch.float64)
        yield Finding("did", True)

    def answer():
        torch.manual_seed(1)
        return torch.get_default_dtype() is torch.float32

    exercise = Exercise("day00.state", "", {"did": 1}, 1, 1, ("", "", ""))
    state = torch.get_rng_state()
    for part, value in (("cases", lambda: [Case("one", tuple)] * 2), ("judge", change)):
        object.__setattr__(exercise, part, value)
    assert judge(exercise, answer).ok
    assert torch.get_default_dtype() is torch.float32 and torch.equal(torch.get_rng_state(), state)


def test_a_node_that_says_it_is_wrapped_spoils_no_later_trace():
    def poison(gm):
        for node in gm.graph.nodes:
            if node.op == "call_function":
                node.meta["is_wrapped"] = True
        gm.recompile()
        return gm

    exercise = exercises.find("day03.dce")
    assert not judge(exercise, poison).ok
    traced = trace(lambda x: torch.relu(x) + 1, torch.ones(2))
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
