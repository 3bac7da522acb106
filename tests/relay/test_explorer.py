"""The Pass Explorer on a module of Relay."""

import torch
from torch import nn

from passlab.explorer.states import States
from passlab.relay import relay, tvm


def module():
    x = relay.var("x", shape=(4, 4))
    left, right = (relay.nn.relu(relay.multiply(x, relay.const(2.0))) for _ in range(2))
    return tvm.IRModule.from_expr(relay.Function([x], relay.sigmoid(relay.add(left, right))))


def test_a_fused_kernel_has_the_lines_of_all_that_it_computes():
    states = States(module(), (), ["EliminateCommonSubexpr", "FuseOps"])
    fused = states.state((0, 1))
    assert states.figures(fused).launches == 1 and states.verdict(fused)[0] is True
    kernel = next(row for row in fused.rows if row.sign == "+")
    texts = " ".join(states.source.lines[i].text for i in states.lines(kernel))
    assert all(op in texts for op in ("multiply", "nn.relu", "add", "sigmoid"))


def test_each_pass_of_the_catalogue_returns_a_module():
    states = States(module(), (), [])
    for number, it in enumerate(states.passes):
        assert not states.state((number,)).problem, it.name


class Repeats(nn.Module):
    def forward(self, x):
        y = torch.relu(x * 2)
        return torch.sigmoid(y + torch.relu(x * 2))


def test_torch_s_passes_and_relay_s_in_one_list():
    states = States(Repeats(), (torch.randn(4, 4),), ["cse", "to_relay", "relay.FuseOps", "to_relax"])
    arrived, fused = states.state((0, 1)), states.state((0, 1, 2))
    assert [states.figures(state).launches for state in (states.first, arrived, fused)] == [6, 4, 1]
    assert states.verdict(arrived)[0] is True and states.verdict(fused)[0] is True
    kernel = next(row for row in fused.rows if row.sign == "+")
    lines = [states.source.lines[i].text.strip() for i in states.lines(kernel)]
    assert set(lines) == {"y = torch.relu(x * 2)", "return torch.sigmoid(y + torch.relu(x * 2))"}
    assert states.state((3,)).problem.startswith("This process uses the TVM of Relay (0.17)")
