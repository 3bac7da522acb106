"""Programs of torch.fx as terms: they come back, and what laws make of them computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from passlab import equivalent, models, trace
from passlab.egraph import EGraph, Law, cheapest_shared, saturate
from passlab.egraph.programs import Types, launch, number, program_of, terms_of, typed

LAWS = [
    Law("x + y = y + x", ("add", "?x", "?y"), ("add", "?y", "?x")),
    Law("x · y = y · x", ("mul", "?x", "?y"), ("mul", "?y", "?x")),
    Law(
        "x · z + y · z = (x + y) · z",  # over the reals; false at infinities
        ("add", ("mul", "?x", "?z"), ("mul", "?y", "?z")),
        ("mul", ("add", "?x", "?y"), "?z"),
        both=True,
    ),
    Law("x · 1 = x", ("mul", "?x", number(1)), "?x"),
    Law("x + x = x · 2", ("add", "?x", "?x"), ("mul", "?x", number(2)), both=True),
    Law("relu relu x = relu x", ("relu", ("relu", "?x")), ("relu", "?x")),
    Law("−(−x) = x", ("neg", ("neg", "?x")), "?x"),
]


def best(gm, laws=LAWS):
    graph = EGraph(Types(gm))
    roots = terms_of(gm, graph)
    report = saturate(graph, typed(laws), nodes=5_000, rounds=8)
    terms, launches, proved = cheapest_shared(graph, roots, launch)
    assert proved, report
    return program_of(terms, gm), launches


@pytest.mark.parametrize("name", ["mlp", "convnet", "residual", "gpt"])
def test_a_model_comes_back_as_it_was(name):
    model = models.ZOO[name]
    gm = trace(model.build(), *model.inputs(1))
    graph = EGraph(Types(gm))
    roots = terms_of(gm, graph)
    terms, launches, _ = cheapest_shared(graph, roots, launch)
    after = program_of(terms, gm)
    calls = sum(node.op.startswith("call_") for node in gm.graph.nodes)
    assert launches == sum(node.op.startswith("call_") for node in after.graph.nodes) <= calls
    assert equivalent(gm, after, model.inputs(1))


PROGRAMS = {
    "a common factor": (lambda x, y, z: x * z + z * y, 2),
    "a factor behind a sign": (lambda x, y, z: x.mul(z).neg().neg() + y * z, 2),
    "one becomes the other": (lambda x, y, z: (torch.relu(torch.relu(x * 1)), x.relu() * y), 2),
    "twice is a sum": (lambda x, y, z: (x + x) * z + y * (z * 2), 3),
    "two results share a part": (lambda x, y, z: (x * z + y * z, (y + x) * z), 2),
    "a result that is an input": (lambda x, y, z: [x * 1, {"y": y}], 0),
}


class Called(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y, z):
        return self.body(x, y, z)


@pytest.mark.parametrize("name", PROGRAMS)
def test_laws_find_the_fewest_launches(name):
    body, least = PROGRAMS[name]
    inputs = tuple(torch.randn(2, 3, dtype=torch.float64) for _ in "xyz")
    gm = trace(Called(body), *inputs)
    after, launches = best(gm)
    assert launches == least == sum(node.op.startswith("call_") for node in after.graph.nodes)
    torch.testing.assert_close(after(*inputs), gm(*inputs))


def test_a_law_is_not_applied_where_it_changes_the_type():
    whole, real = torch.ones(3, dtype=torch.int64), torch.ones(2, 3)
    one = Law("x · 1.0 = x", ("mul", "?x", number(1.0)), "?x")
    first = Law("x + y = x", ("add", "?x", "?y"), "?x")
    for law, body, least in (
        (one, lambda x, y, z: (x * 1.0, y * 1.0), 1),  # an integer becomes a float
        (first, lambda x, y, z: (x + y, y + x), 1),  # x is broadcast; of two laws that are false, the types show one
    ):
        assert best(trace(Called(body), whole, real, real), [law])[1] == least
    gm = trace(Called(lambda x, y, z: x + y), whole, real, real)
    graph = EGraph(Types(gm))
    terms_of(gm, graph)
    with pytest.raises(TypeError, match="A law made a value of type"):
        saturate(graph, [first])


def test_what_is_no_term_is_refused():
    def writes(x, y, z):
        x.add_(y)
        return x * z

    inputs = (torch.ones(2), torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="has effects"):
        terms_of(trace(Called(writes), *inputs), EGraph())
    with pytest.raises(ValueError, match="Input x has no shape: trace the model with inputs"):
        Types(torch.fx.symbolic_trace(Called(lambda x, y, z: x + y)))
