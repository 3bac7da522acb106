"""Hidden cases and answers of day02.counterexample."""

from __future__ import annotations

import operator

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day02.counterexample import cases as visible
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    """Return the visible cases again: the answer is a graph, and there is nothing to draw anew."""
    return visible()


# ---------------------------------------------------------------------------------------------------- answers

X = torch.tensor([[-2.0, 0.3], [1.0, 8.1]])


def _traced(name, programs):
    program, *inputs = programs[name]
    return fx.symbolic_trace(program), tuple(inputs)


RIGHT = {
    "fuse_add_relu": (lambda x, y: (torch.relu(x + y), x + y)[0] * 1, X, X),
    "cancel_transposes": (lambda x: x.transpose(0, 1).transpose(0, 2), torch.randn(2, 2, 2)),
    "drop_round_trips": (lambda x: x.int().float(), X),
    "relu_in_place": (lambda x: torch.relu(x.view(2, 2)), X),
    "relu_before_pool": (lambda x: torch.relu(F.avg_pool2d(x, 2, 1)), X.reshape(1, 1, 2, 2)),
    "merge_relus": (lambda x: torch.relu(F.leaky_relu(x)), X),
}


def _two_outputs(x, y):
    total = torch.add(x, y, alpha=0.5)
    return F.relu(total), total


@right("other graphs: two outputs, functions instead of methods, a slope, a square cube")
def others(name):
    return _traced(name, RIGHT | {"fuse_add_relu": (_two_outputs, X, 1 - X)})


@right("builds the graphs by hand, node by node")
def by_hand(name):
    graph = fx.Graph()
    x, inputs = graph.placeholder("x"), (X,)
    if name == "fuse_add_relu":
        total = graph.call_function(operator.add, (x, x))
        relu = graph.call_function(torch.relu, (total,))
        graph.output(graph.call_function(torch.sub, (relu, total)))
    elif name == "cancel_transposes":
        inputs = (torch.arange(24.0).reshape(2, 3, 4),)
        one = graph.call_function(torch.transpose, (x, 0, 2))
        graph.output(graph.call_function(torch.transpose, (one, 1, 2)))
    elif name == "drop_round_trips":
        inputs = (torch.tensor([3.7, 1e9]),)
        graph.output(graph.call_method("double", (graph.call_method("bfloat16", (x,)),)))
    elif name == "relu_in_place":
        row = graph.call_method("flatten", (x,))
        graph.output((graph.call_function(torch.relu, (row,)), x))
    elif name == "relu_before_pool":
        inputs = (X.reshape(1, 1, 2, 2),)
        graph.output(graph.call_function(torch.relu, (graph.call_function(F.avg_pool2d, (x, (1, 2))),)))
    else:
        graph.output(graph.call_function(F.relu6, (graph.call_function(F.leaky_relu, (x,)),)))
    return fx.GraphModule(nn.Module(), graph), inputs


def _shared(x):
    total = x + x
    return torch.relu(total) - total


GOOD = RIGHT | {"fuse_add_relu": (_shared, X)}


def _with(name, **changed):
    return _traced(name, GOOD | changed)


@wrong("did", "takes the pattern itself, on which the pass is right")
def the_pattern(name):
    return _with(name, fuse_add_relu=(lambda x: torch.relu(x + 1), X))


@wrong("cost", "buries the counterexample in a long program")
def long_program(name):
    gm, inputs = _with(name)
    output = next(n for n in gm.graph.nodes if n.op == "output")
    last = output.all_input_nodes[0]
    with gm.graph.inserting_before(output):
        for _ in range(6):
            last = gm.graph.call_function(torch.mul, (last, 1.5))
    output.args = (last,)
    return gm, inputs


hidden_by_relu = edited("did", "gives the sum a second user that is a ReLU as well and hides the difference")(
    ("torch.relu(total) + total", "torch.relu(total) + total.relu()")
)
same_dimensions = edited(
    "did", "transposes the same two dimensions back in the other order, or crashes, which everybody would see"
)(("....transpose(1, 2)", "....transpose(1, 0)"))
exact_numbers = edited("did", "takes numbers that half can hold: the round trip loses nothing")(
    ("lambda x: ...(), x", "lambda x: ...(), x.sign()")
)
max_pool = edited("did", "takes a max pool, for which the law holds")(("F.avg_pool2d", "F.max_pool2d"))
positive = edited("did", "takes only positive numbers, on which every ReLU is the identity")(
    ("(example,)", "(example.abs().clamp(max=5),)")
)
the_input_itself = edited("did", "applies ReLU to the input itself, which the pass does not touch")(
    ("torch.relu(x.view(-1))", "torch.relu(x) + x")
)
not_traced = edited("valid", "returns the function instead of a graph, or a tensor instead of a tuple of inputs")(
    ("fx.symbolic_trace(program)", "program")
)
does_not_run = edited("valid", "inputs of a shape on which the graph does not run")(
    ("torch.randn(2, 3, 4)", "torch.randn(())")
)


#: What a learner hands in is a program: many others do as well.
EQUIVALENT = {
    ("... + total", "... - total"): "other numbers, or another program, break the pass as well",
    ("[-2.0, 0.3], [1.0, 8.1]", "[-2.0, 0.3], [1.0, 9.1]"): "other numbers, or another program, break the pass as well",
    ("[-2.0, 0.3], [1.0, 8.1]", "[-2.0, 0.3], [2.0, 8.1]"): "other numbers, or another program, break the pass as well",
    ("[-2.0, 0.3]", "[-2.0, 1.3]"): "other numbers, or another program, break the pass as well",
    ("[-2.0, 0.3]", "[-3.0, 0.3]"): "other numbers, or another program, break the pass as well",
    ("torch.randn(2, 3, 4)", "torch.randn(2, 3, 5)"): "other numbers, or another program, break the pass as well",
    ("torch.randn(2, 3, 4)", "torch.randn(2, 4, 4)"): "other numbers, or another program, break the pass as well",
    ("torch.randn(2, 3, 4)", "torch.randn(3, 3, 4)"): "other numbers, or another program, break the pass as well",
    ("....transpose(1, 2)", "....transpose(2, 2)"): "other numbers, or another program, break the pass as well",
    ("x.transpose(0, 1)", "x.transpose(0, 2)"): "other numbers, or another program, break the pass as well",
    ("x.transpose(0, 1)", "x.transpose(1, 1)"): "other numbers, or another program, break the pass as well",
}
