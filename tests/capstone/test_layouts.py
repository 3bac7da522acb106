"""Values and parameters that are stored in another order of their dimensions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from passlab import trace
from passlab.capstone import BadCompiled, Compiled, build, counts, examined, grouped, why_not_compiled
from passlab.capstone.layouts import strides_of, with_strides
from passlab.memory.plan import planned

LAST = [0, 2, 3, 1]
X = torch.randn(2, 3, 8, 6)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x) + x


def images():
    return trace(Images().eval(), X)


def test_a_layout_is_an_order_of_dimensions():
    assert strides_of((2, 3, 8, 6), LAST) == X.to(memory_format=torch.channels_last).stride()
    assert with_strides(X, X.stride()) is X
    assert torch.equal(with_strides(X, strides_of(X.shape, [3, 2, 1, 0])), X)


def test_a_conversion_is_one_launch_and_its_bytes():
    gm = trace(lambda x: torch.relu(x).sum((1, 2, 3)), X)
    plain, last = (counts(Compiled(gm, layouts=layouts), (X,)) for layouts in ({}, {"x": LAST}))
    assert last.launches == plain.launches + 1 and last.bytes == plain.bytes + 2 * X.nbytes
    assert counts(Compiled(gm, layouts={"x": [0, 1, 2, 3]}), (X,)) == plain, "it lies like that already"


def test_what_follows_from_channels_last_is_free_and_the_caller_gets_what_the_model_gives():
    gm = images()
    only, more = (
        counts(Compiled(gm, layouts=dict.fromkeys(names, LAST)), (X,)) for names in (["x"], ["x", "first", "relu"])
    )
    assert only == more
    program = build(Compiled(gm, layouts={"x": LAST}), (X,))
    assert [program.kinds[name] for name in ("x_stored", "add_stored")] == ["torch operator"] * 2
    torch.testing.assert_close(program(X), gm(X), rtol=1e-4, atol=1e-5)
    assert program(X).stride() == gm(X).stride()


def test_a_parameter_is_stored_when_the_program_is_built():
    gm = images()
    layouts = {"first.weight": LAST, "second.weight": LAST}
    compiled = Compiled(gm, layouts=layouts)
    assert examined(compiled, (X,), gm)["differs"] == ""
    steps = grouped(gm, [], (X,), layouts)
    first = next(node for node in steps.graph.nodes if node.name == "first")
    weight = steps.get_submodule(first.target).gm.get_submodule("first").weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and gm.first.weight.is_contiguous()
    torch.testing.assert_close(build(compiled, (X,))(X), gm(X), rtol=1e-4, atol=1e-5)


def test_a_constant_may_be_stored_transposed():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(5, 7))

        def forward(self, x):
            return x @ self.w

    x = torch.randn(4, 5)
    gm = trace(Product().eval(), x)
    compiled = Compiled(gm, layouts={"w": [1, 0]})
    assert counts(compiled, (x,)) == counts(Compiled(gm), (x,))
    program = build(compiled, (x,))
    assert program.graph.w.stride() == (1, 5) and gm.w.stride() == (7, 1)
    torch.testing.assert_close(program(x), gm(x))


def test_a_plan_is_for_the_steps_with_their_conversions():
    gm, layouts = images(), {"x": LAST}
    plan = planned(grouped(gm, [], (X,), layouts), X)
    assert "x_stored" in plan.offsets
    assert examined(Compiled(gm, plan=plan, layouts=layouts), (X,), gm)["broken"] == ""
    assert (
        "missing in the order"
        in examined(Compiled(gm, plan=planned(grouped(gm, [], (X,)), X), layouts=layouts), (X,))["broken"]
    )


def test_a_value_that_a_group_shares_is_converted_for_the_others():
    gm = trace(lambda x: (lambda y: torch.relu(y) + F.max_pool2d(y, 1))(x * 2), X)
    layouts = {"mul": LAST}
    steps = grouped(gm, [["mul", "relu"]], (X,), layouts)
    (pool,) = (node for node in steps.graph.nodes if node.name.startswith("max_pool"))
    assert pool.args[0].name == "mul_stored"
    assert examined(Compiled(gm, [["mul", "relu"]], layouts=layouts), (X,), gm)["differs"] == ""


@pytest.mark.parametrize(
    ("layouts", "sentence"),
    [
        ([], "Compiled.layouts must be a dict from names to orders of dimensions; got []."),
        (
            {"firts": LAST},
            "There is a layout for 'firts', which is neither a value nor a parameter of the graph. Did you mean fir",
        ),
        (
            {"first.wight": LAST},
            "There is a layout for 'first.wight', which is neither a value nor a parameter of the graph.",
        ),
        ({"output": LAST}, "There is a layout for 'output'"),
        ({"x": "NHWC"}, "The layout of x is NHWC; it must list each of its dimensions once, the outermost first"),
        ({"x": [0, 2, 3, 3]}, "The layout of x is [0, 2, 3, 3]; it must list each"),
        ({"x": [1, 2, 3, 4]}, "The layout of x is [1, 2, 3, 4]; it must list each"),
        ({"x": [True, False]}, "The layout of x is [True, False]; it must list each"),
    ],
)
def test_a_layout_in_another_form_gets_a_sentence(layouts, sentence):
    gm = images()
    assert why_not_compiled(gm, Compiled(gm, layouts=layouts)).startswith(sentence)


def parts(x):
    return x.chunk(2)[0] + 1


def written(x):
    y = x * 2
    y.add_(1)
    return y


def viewed(x):
    return (x * 2).view(2, -1)


@pytest.mark.parametrize(
    ("function", "groups", "layouts", "sentence"),
    [
        (
            lambda x: torch.relu(x),
            [],
            {"x": [0, 2, 1]},
            "The layout of x is [0, 2, 1], and its value has 4 dimensions.",
        ),
        (parts, [], {"chunk": [0]}, "There is a layout for chunk, which is not a tensor."),
        (written, [], {"mul": LAST}, "Node mul is written: a copy in another layout would not change with it."),
        (
            lambda x: torch.relu(x * 2),
            [["mul", "relu"]],
            {"mul": LAST},
            "Node mul is only read inside its group, whose kernel never stores it.",
        ),
        (
            lambda x: F.dropout(x, 0.5, True),
            [],
            {"x": LAST},
            "Node dropout draws random numbers in the order of memory",
        ),
        (viewed, [], {"mul": LAST}, "Node view does not run:"),
        (lambda x: torch.relu(x), [["relu"], ["relu"]], {"x": LAST}, "Node 'relu' is in two groups"),
    ],
    ids=["rank", "no tensor", "written", "inside a group", "draws", "viewed", "groups first"],
)
def test_a_layout_that_cannot_be_gets_a_sentence(function, groups, layouts, sentence):
    compiled = Compiled(trace(function, X), groups, layouts=layouts)
    assert why_not_compiled(None, compiled) == ""
    assert examined(compiled, (X,))["broken"].startswith(sentence)
    with pytest.raises(BadCompiled):
        build(compiled, (X,))


def test_a_graph_that_depends_on_strides_is_told_that_it_differs():
    gm = trace(lambda x: torch.as_strided(x * 2, (4,), (1,)), X)
    result = examined(Compiled(gm, layouts={"mul": LAST}), (X,), gm)
    assert result["differs"].startswith("With its layouts the program returns something else than its graph: output")
