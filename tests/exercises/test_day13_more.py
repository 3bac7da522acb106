"""Day 13, exercises 3 to 6: sentences for broken answers, and cases that are what Dynamo hands over."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from autograder.authoring import answers
from passlab.capture import capture
from passlab.exercises.day13 import backend, decompose, functionalize, one_graph
from passlab.fx.patterns import canonical
from passlab.given.day13.backend import elementwise, is_number, kernel
from passlab.given.day13.decompose import LARGE, SMALL
from passlab.given.day13.functionalize import COMPUTES, VIEWS, aten, put_back
from tests.support.judged import lost, sentence_of

# ---------------------------------------------------------------------------------------------------- a backend


@pytest.mark.parametrize("case", backend.cases(), ids=lambda case: case.name)
def test_the_cases_are_as_dynamo_hands_them_over(case):
    """The graph of a case, run under Dynamo, is captured with the same operations. (Dynamo orders the inputs.)"""
    (gm,) = case.build()
    at = {
        node.name: value for node, value in zip(gm.graph.find_nodes(op="placeholder"), gm.meta["inputs"], strict=True)
    }
    tensors = [name for name in at if isinstance(at[name], torch.Tensor)]

    def function(*arguments):
        values = dict(zip(tensors, arguments, strict=True))
        return gm(*[values.get(name, arguments[0].shape[0]) for name in at])

    (graph,) = capture(function, *[at[name] for name in tensors], dynamic=True).graphs
    message = [[str(node.target) for node in it.graph.nodes if node.op.startswith("call")] for it in (gm, graph)]
    assert [t for t in message[1] if "getitem" not in t] == [t for t in message[0] if "getitem" not in t]
    assert any(node.type is torch.SymInt for node in graph.graph.find_nodes(op="placeholder"))


def product_in_a_kernel(gm):
    (node,) = [n for n in gm.graph.nodes if n.target is torch.matmul]
    call = kernel(gm, [node])
    assert call.op == "call_module"
    return gm


def two_results(gm):
    call = kernel(gm, [n for n in gm.graph.nodes if elementwise(n)][:1])
    inside = gm.get_submodule(call.target).graph
    (output,) = inside.find_nodes(op="output")
    output.args = ((output.args[0], output.args[0]),)
    return gm


def an_argument_less(gm):
    call = kernel(gm, [n for n in gm.graph.nodes if elementwise(n)][:1])
    call.args = ()
    return gm


def a_layer(gm):
    gm.layer = torch.nn.ReLU()
    (node,) = [n for n in gm.graph.nodes if n.target == "relu" or n.target is torch.relu]
    with gm.graph.inserting_before(node):
        node.replace_all_uses_with(gm.graph.call_module("layer", node.args))
    gm.graph.erase_node(node)
    return gm


def an_input_less(gm):
    node = gm.graph.find_nodes(op="placeholder")[0]
    for user in list(node.users):
        user.replace_input_with(node, 3)
    gm.graph.erase_node(node)
    return gm


def a_result_less(gm):
    (output,) = gm.graph.find_nodes(op="output")
    output.args = (output.args[0][:1],)
    return gm


@pytest.mark.parametrize(
    ("answer", "name", "verdict", "sentence"),
    [
        (
            product_in_a_kernel,
            "an input is written between",
            "valid",
            "holds matmul, which does not compute element by",
        ),
        (two_results, "a chain, with sizes", "valid", "The kernel kernel_0 must have one result."),
        (an_argument_less, "a chain, with sizes", "valid", "kernel_0 takes 2 values; node kernel_0 gives another"),
        (a_layer, "a chain, with sizes", "valid", "Node layer calls 'layer', which is not a kernel."),
        (an_input_less, "a chain, with sizes", "valid", "The inputs changed: the program took (s0, x)"),
        (a_result_less, "a chain, with sizes", "valid", "The program returned 2 values and now returns 1 value"),
        (lambda gm: gm, "a chain, with sizes", "did", "take 3 launches; 1 is enough. Not in a kernel yet: mul, relu"),
    ],
)
def test_what_a_backend_does_wrong_is_named(answer, name, verdict, sentence):
    result = lost("day13.backend", answer, name)
    assert result[0] == verdict and sentence in result[1], result


def test_a_kernel_with_two_results_is_refused():
    gm = fx.symbolic_trace(lambda x: (x.relu(), x.relu().neg()))
    inside = next(n for n in gm.graph.nodes if n.target == "relu")
    with pytest.raises(ValueError, match="relu cannot be inside a kernel: output reads it"):
        kernel(gm, [inside, next(n for n in gm.graph.nodes if n.target == "neg")])


def test_arithmetic_of_sizes_is_not_an_operation():
    def function(x):
        return x * (x.shape[0] * 2), x.numel() + 1

    (graph,) = capture(function, torch.randn(3, 4), dynamic=True).graphs
    assert [n.name for n in graph.graph.nodes if elementwise(n)] == ["mul_1"]
    assert is_number(next(n for n in graph.graph.nodes if n.name == "mul"))


def test_the_reference_runs_behind_torch_compile():
    into_kernels = answers.reference("day13.backend")
    seen = []

    def ours(gm, inputs):
        into_kernels(gm)
        seen.append([n.op for n in gm.graph.nodes if n.op.startswith("call")])
        return gm

    def function(x, y):
        z = torch.relu(x * x.shape[0] + y)
        y.add_(1)
        return torch.tanh(z) @ y.T, z

    torch.compiler.reset()
    fast = torch.compile(function, backend=ours, dynamic=True)
    for rows in (5, 7):
        x, y = torch.randn(2, rows, 4)
        before = x.clone(), y.clone()
        for arguments, expected in zip(fast(x, y), function(*before), strict=True):
            torch.testing.assert_close(arguments, expected)
        assert torch.equal(y, before[1])
    assert seen == [["call_module", "call_method", "call_module", "call_function", "call_function"]]


# ---------------------------------------------------------------------------------------------------- without writes


@pytest.mark.parametrize("target", sorted(VIEWS, key=str), ids=str)
def test_what_is_put_back_is_where_the_view_looks(target):
    options = {
        aten.select.int: (1, 2),
        aten.slice.Tensor: (1, 1, 3),
        aten.transpose.int: (0, 1),
        aten.unsqueeze.default: (1,),
        aten.view.default: ([2, 6],),
    }[target]
    x = torch.arange(12.0).reshape(3, 4)
    gm = functionalize.program(lambda x: (x,), "x")
    (placeholder,) = gm.graph.find_nodes(op="placeholder")
    view = gm.graph.call_function(target, (placeholder, *options))
    expected = x.clone()
    target(expected, *options).mul_(-1)

    graph = fx.Graph()
    whole, part = graph.placeholder("whole"), graph.placeholder("part")
    graph.output(put_back(graph, view, whole, part))
    assert torch.equal(fx.GraphModule({}, graph)(x, -target(x, *options)), expected)


def test_what_only_computes_is_what_is_written():
    for written, computed in COMPUTES.items():
        operands = (torch.ones(2), *([torch.full((2,), 3.0)] * (len(written._schema.arguments) > 1)))[:2]
        if len([a for a in written._schema.arguments if a.type.isSubtypeOf(torch._C.TensorType.get())]) == 1:
            operands = operands[:1]
        expected = computed(*operands)
        assert torch.equal(written(*[t.clone() for t in operands]), expected)


def copied_first(gm):
    gm = answers.reference("day13.functionalize")(gm)
    copy = next(n for n in gm.graph.nodes if n.target is aten.copy_.default)
    rest = [n for n in gm.graph.nodes if n.op == "call_function" and n is not copy]
    rest[-1].append(copy) if rest[-1] is not copy.args[1] else None
    with gm.graph.inserting_after(copy):
        later = gm.graph.call_function(aten.neg.default, (copy.args[0],))
    (output,) = gm.graph.find_nodes(op="output")
    output.args = ((*output.args[0][:1], later),)
    return gm


def copied_twice(gm):
    gm = answers.reference("day13.functionalize")(gm)
    copy = next(n for n in gm.graph.nodes if n.target is aten.copy_.default)
    with gm.graph.inserting_after(copy):
        gm.graph.call_function(aten.copy_.default, copy.args)
    return gm


@pytest.mark.parametrize(
    ("answer", "name", "verdict", "sentence"),
    [
        (copied_first, "an input is written", "did", "copies before the end"),
        (copied_twice, "an input is written", "spared", "The epilogue copies into x more than once."),
        (lambda gm: gm, "a row is written", "did", "Node mul__tensor still writes"),
    ],
)
def test_what_functionalisation_does_wrong_is_named(answer, name, verdict, sentence):
    assert sentence in sentence_of(verdict, "day13.functionalize", answer, name)


def test_aotautograd_makes_the_same_of_a_case():
    """The reference and torch's functionalisation agree: the same results, and the same values written."""
    from torch.func import functionalize as of_torch

    for case in functionalize.cases():
        (gm,) = case.build()
        arguments = [[value.clone() for value in gm.meta["inputs"]] for _ in range(2)]
        own = answers.reference("day13.functionalize")(case.build()[0])(*arguments[0])
        for one, other in zip((*own, *arguments[0]), (*of_torch(gm)(*arguments[1]), *arguments[1]), strict=True):
            torch.testing.assert_close(one, other)


# ---------------------------------------------------------------------------------------------------- few operations


def wider(gm):
    gm = answers.reference("day13.decompose")(gm)
    node = next(n for n in gm.graph.nodes if n.target is torch.sum)
    node.kwargs = {"dtype": torch.float64}
    return gm


def a_row_less(gm):
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(torch.sum, (output.args[0], 0)),)
    return gm


def not_running(gm):
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = (gm.graph.call_function(torch.sum, (output.args[0], 7)),)
    return gm


@pytest.mark.parametrize(
    ("answer", "name", "verdict", "sentence"),
    [
        (wider, "softmax, ordinary numbers", "spared", "The result is in float64; the operation keeps float32."),
        (wider, "softmax, ordinary numbers", "did", "sum_1 may not be given a dtype"),
        (
            a_row_less,
            "softmax, ordinary numbers",
            "same",
            "should be a tensor of shape (3, 5); it is a tensor of shape",
        ),
        (not_running, "softmax, ordinary numbers", "same", "The graph does not run: IndexError"),
        (lambda gm: gm, "hypot, large", "did", "hypot_default should be gone: hypot cannot be left."),
    ],
)
def test_what_a_decomposition_does_wrong_is_named(answer, name, verdict, sentence):
    assert sentence in sentence_of(verdict, "day13.decompose", answer, name)


@pytest.mark.parametrize("case", decompose.cases(), ids=lambda case: case.name)
def test_the_operations_themselves_are_accurate_enough(case):
    """Nothing is asked of a formula that torch's own operation does not keep."""
    (gm,) = case.build()
    assert not decompose._why_not_equal(gm, gm) and not decompose._why_not_accurate(gm, gm)


def test_small_and_large_operations_have_nothing_in_common():
    graph = fx.Graph()
    assert not {canonical(graph.call_function(target)) for target in LARGE} & SMALL
    for call in (operator.add, torch.add, aten.add.Tensor, operator.truediv, aten.div.Tensor, torch.Tensor.exp):
        assert canonical(graph.call_function(call)) in SMALL, call


# ---------------------------------------------------------------------------------------------------- one graph


def edited(change):
    """An answer: what the reference returns, after a change."""

    def answer(steps):
        gm = answers.reference("day13.one-graph")(steps)
        change(gm)
        return gm

    return answer


def other_name(gm):
    gm.graph.find_nodes(op="placeholder")[0].target = "other"


def one_result(gm):
    (output,) = gm.graph.find_nodes(op="output")
    output.args = (output.args[0][0],)


def a_sum(gm):
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_function(torch.sum, output.args[0]),),)


def stops(gm):
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_function(torch.sum, (output.args[0][0], 7)),),)


def a_module(gm):
    gm.add_module("layer", torch.nn.ReLU())
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_module("layer", output.args[0]),),)


def detached(gm):
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_method("detach", output.args[0]),),)


@pytest.mark.parametrize(
    ("change", "verdict", "sentence"),
    [
        (other_name, "valid", "The inputs of the graph should be x; they are other."),
        (one_result, "valid", "The graph should return a tuple of 1 tensor, the state after the last step."),
        (a_module, "valid", "Node layer refers to a part of the module."),
        (a_sum, "same", "For x = [1, 2], the new x should be a tensor of shape (2,)."),
        (stops, "same", "the graph does not run: IndexError"),
        (detached, "did", "For x = [1, 2], the gradient of x is [0, 0] and should be [3, 3]."),
    ],
)
def test_what_one_graph_does_wrong_is_named(change, verdict, sentence):
    assert sentence in sentence_of(verdict, "day13.one-graph", edited(change), one_graph.cases()[0].name)


def test_where_ends_a_gradient_even_if_it_is_nan():
    """What the text says: chosen once, the gradient is NaN; chosen twice, it is not, whatever is put in its place."""
    for inner, finite in ((lambda p, x: x, False), (lambda p, x: torch.where(p, x, 0.0), True)):
        x = torch.zeros(1, requires_grad=True)
        p = x.sum() > 0
        torch.where(p, torch.sqrt(inner(p, x)), x * 3).backward()
        assert bool(x.grad.isfinite()) is finite


def test_the_program_is_captured_as_one_graph_without_breaks():
    for case in one_graph.cases():
        (steps,) = case.build()
        gm = answers.reference("day13.one-graph")(steps)
        program = capture(gm, *case.expect[0])
        assert len(program.graphs) == 1 and not program.breaks
