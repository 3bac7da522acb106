"""The Pass Explorer on a module of Relay."""

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
