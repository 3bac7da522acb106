"""The live ranges of what a Relax module allocates."""

from __future__ import annotations

import torch

from passlab import models
from passlab.relax.measure import live_ranges
from passlab.tvm.importers import relax_module
from passlab.tvm.measure import allocations


class Skip(torch.nn.Module):
    def forward(self, x):
        first = torch.relu(x)  # read again at the end, through a view
        return torch.tanh(torch.exp(first)).reshape(-1) + first.reshape(-1)


def test_a_view_lengthens_a_live_range():
    relu, exp, tanh, add = live_ranges(relax_module(Skip().eval(), torch.randn(2, 3)))
    assert [size for *_, size in (relu, exp, tanh, add)] == [24] * 4
    assert relu[2] == tanh[2] > tanh[1] > exp[1], "the last add reads both"
    assert relu[1] < exp[1] < relu[2] and exp[2] <= tanh[2]
    assert add[2] > tanh[2], "the result is live in the return"


def test_a_field_of_a_tuple_ends_with_its_kernel():
    row = models.ZOO["unet"]
    module = relax_module(row.build(), *row.inputs())
    ranges = live_ranges(module)
    assert (len(ranges), sum(size for *_, size in ranges)) == (allocations(module).count, allocations(module).bytes)
    statistics = [(lower, upper) for _, lower, upper, size in ranges if size == 4 * 8]
    assert statistics and all(upper == lower + 1 for lower, upper in statistics), "nothing reads what batch_norm keeps"
