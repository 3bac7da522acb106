"""Groups that are one call of a library."""

import torch
from torch import nn

from passlab import trace
from passlab.capstone import Compiled, build


class Around(nn.Module):
    """A layer whose input is added to its result, from either side."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return torch.relu(self.layer(x) + x) if isinstance(self.layer, nn.Conv2d) else x + self.layer(x)


def test_what_a_layer_reads_may_be_added_to_its_result():
    """conv(x) + x: the group reads one value, and the library's call takes it twice."""
    cases = (nn.Conv2d(4, 4, 3, padding=1), torch.randn(1, 4, 8, 8)), (nn.Linear(64, 64), torch.randn(64, 64))
    for layer, x in cases:
        gm = trace(Around(layer).eval(), x)
        group = [node.name for node in gm.graph.nodes if node.op.startswith("call_")]
        program = build(Compiled(gm, [group]), (x,))
        torch.testing.assert_close(program(x), gm(x), rtol=1e-4, atol=1e-5)
