"""The Pass Explorer on a module of Relax."""

import torch
from torch import nn

from passlab.explorer.states import States
from passlab.relax import relax


class Repeats(nn.Module):
    def forward(self, x):
        y = torch.relu(x * 2)
        return torch.sigmoid(y + torch.relu(x * 2))


def module():
    from tvm.relax.frontend.torch import from_exported_program

    return from_exported_program(torch.export.export(Repeats(), (torch.randn(4, 4),)))


def test_tvm_s_passes_run_by_name_and_as_they_are():
    passes = ["EliminateCommonSubexpr", "LegalizeOps", "AnnotateTIROpPattern", relax.transform.FuseOps()]
    states = States(module(), (), passes)
    assert [it.code for it in states.passes[2:4]] == ["'AnnotateTIROpPattern'", "FuseOps"]
    merged, legal, patterns, fused = (states.state(tuple(range(n))) for n in (1, 2, 3, 4))
    assert merged.summary == "3 removed, 1 rewired"
    assert [states.figures(state).launches for state in (states.first, merged, legal)] == [6, 4, 4]
    assert patterns.summary == "the same nodes, with other weights or attributes"
    assert states.figures(fused).launches < 4, "FuseOps has read the patterns"
    assert states.verdict(fused)[0] is True

    texts = [line.text for line in states.source.lines]
    relu = next(row for row in legal.rows if row.sign == "+" and "relu" in row.text)
    assert [texts[i] for i in states.lines(relu)] == ["lv1 = R.nn.relu(lv)", "lv3 = R.nn.relu(lv2)"]


def test_each_pass_of_the_catalogue_returns_a_module():
    states = States(module(), (), [])
    for number, it in enumerate(states.passes):
        assert not states.state((number,)).problem, it.name


def test_torch_s_passes_relax_s_and_a_learner_s_in_one_list():
    def eager(gm):
        return gm

    passes = ["cse", eager, "to_relax", "relax.LegalizeOps", "relax.AnnotateTIROpPattern", "relax.FuseOps", "to_relay"]
    states = States(Repeats(), (torch.randn(4, 4),), passes)
    merged, arrived, fused, relay = (states.state(tuple(range(n))) for n in (1, 3, 6, 7))
    assert not states.state((0, 1)).changed
    assert merged.summary == "2 removed, 1 rewired" and arrived.summary == "converted to Relax"
    assert [states.figures(state).launches for state in (states.first, arrived, fused)] == [6, 4, 1]
    assert states.verdict(arrived)[0] is True and states.verdict(fused)[0] is True
    relu = next(row for row in arrived.rows if "R.nn.relu" in row.text)
    lines = [states.source.lines[i].text.strip() for i in states.lines(relu)]
    assert lines == ["y = torch.relu(x * 2)", "return torch.sigmoid(y + torch.relu(x * 2))"]
    assert relay.problem == "It works on torch.fx, and here the program is in Relax: move it up."


def test_the_other_tvm_is_refused_in_one_sentence():
    problem = States(Repeats(), (torch.randn(4, 4),), ["to_relay"]).state((0,)).problem
    assert problem.startswith("This process uses the TVM of Relax") and "Restart the kernel" in problem
