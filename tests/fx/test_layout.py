"""Layout rules: which op wants what, what converts, and where two layouts meet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import trace
from passlab.fx.layout import ANY, NCHW, NHWC, clashes, converts, is_image, wants


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 36, 2)
        self.bias = nn.Parameter(torch.zeros(1, 4, 1, 1))

    def forward(self, x):
        y = self.conv(x.to(memory_format=torch.channels_last))
        y = torch.relu(y + self.bias)
        return self.fc(y.contiguous().flatten(1)), F.dropout(x, 0.5, True)


x = torch.randn(2, 3, 6, 6)


def nodes(gm) -> dict[str, fx.Node]:
    return {node.name: node for node in gm.graph.nodes}


def test_wants_and_converts():
    result = nodes(trace(Net(), x))
    expected = {"x": NCHW, "conv": NHWC, "add": ANY, "relu": ANY, "flatten": NCHW, "fc": NCHW, "output": NCHW}
    assert {name: wants(result[name]) for name in expected} == expected
    assert wants(result["dropout"]) == NCHW, "what draws, draws in the order of memory"
    assert {name: converts(node) for name, node in result.items() if converts(node)} == {"to": NHWC, "contiguous": NCHW}


def test_images_are_four_dimensional_and_computed():
    result = nodes(trace(Net(), x))
    images = {name for name, node in result.items() if is_image(node)}
    assert images == {"x", "to", "conv", "add", "relu", "contiguous", "dropout"}


def test_no_clash_where_it_is_converted():
    assert clashes(trace(Net(), x), x) == []


def test_clashes_are_named():
    gm = trace(Net(), x)
    result = nodes(gm)
    result["conv"].replace_input_with(result["to"], result["x"])
    (clash,) = clashes(gm, x)
    assert (clash.reader.name, clash.operand.name, clash.have, clash.want) == ("conv", "x", NCHW, NHWC)

    gm = trace(Net(), x)
    result = nodes(gm)
    result["flatten"].replace_input_with(result["contiguous"], result["relu"])
    (clash,) = clashes(gm, x)
    assert (clash.reader.name, clash.have, clash.want) == ("flatten", NHWC, NCHW)


def test_two_layouts_that_meet():
    class Meet(nn.Module):
        def forward(self, x):
            return (torch.relu(x.to(memory_format=torch.channels_last)) + x).contiguous()

    (clash,) = clashes(trace(Meet(), x), x)
    assert (clash.reader.name, clash.operand.name, clash.have, clash.want) == ("add", "x", NCHW, NHWC)
