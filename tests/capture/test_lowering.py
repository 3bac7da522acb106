"""Forward and backward graphs, and passes that run on them behind torch.compile."""

import copy

import pytest
import torch
from torch import fx, nn

from passlab import bytes_moved, cost, equivalent, models, view
from passlab.autodiff import partition as cut
from passlab.capture import backend, capture, lower, min_cut, save_all


def test_a_forward_and_a_backward_graph_and_what_is_between():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4)
    low = lower(model, x)
    parameters = dict(model.named_parameters())
    assert low.outputs == 1 and {value.dtype for value in low.saved} == {"float32"}
    # The input (3 x 4), the second weight (2 x 8), the first layer's result and that of GELU (3 x 8 each).
    assert sorted(value.shape for value in low.saved) == [(2, 8), (3, 4), (3, 8), (3, 8)]
    assert low.saved_bytes == 4 * (16 + 12 + 24 + 24)
    out, *saved = low.forward(*_inputs(low.forward, model, x))
    gradients = low.backward(*saved, torch.ones_like(out))
    model(x).sum().backward()
    expected = [parameter.grad for parameter in parameters.values()]
    results = [g for g in gradients if g is not None]
    for gradient in expected:
        assert any(g.shape == gradient.shape and torch.allclose(g, gradient, atol=1e-5) for g in results)


def _inputs(graph, model, x):
    """Return parameters and the input in the order of a lowered graph's placeholders, told apart by their shapes."""
    values = {tuple(value.shape): value.detach() for value in [*model.parameters(), x]}
    return [values[tuple(node.meta["val"].shape)] for node in graph.graph.find_nodes(op="placeholder")]


def test_without_a_gradient_there_is_only_a_forward_graph():
    low = lower(lambda x: x.sin(), torch.ones(3))
    assert (low.backward, low.joint, low.saved) == (None, None, ())


def test_writes_become_results():
    def written(x):
        x.mul_(2)
        return x + 1

    graph = lower(written, torch.ones(3)).forward
    assert not [node for node in view(graph) if node.attrs.get("mutates")]
    assert len(graph.graph.find_nodes(op="output")[0].args[0]) == 2


@pytest.mark.parametrize("name", ["mlp", "convnet", "attention", "gpt"])
def test_the_cut_saves_no_more_than_saving_all(name):
    it = models.ZOO[name]
    model, inputs = it.build(), it.inputs()
    cut = lower(model, *inputs, gradients=True, partition=min_cut)
    everything = lower(model, *inputs, gradients=True, partition=save_all)
    assert 0 < cut.saved_bytes <= everything.saved_bytes
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_more_than_one_graph_is_refused_with_the_place():
    def two(x):
        y = x + 1
        print(end="")
        return y * 2

    with pytest.raises(ValueError, match=r"captured as one graph; this one is 2\. It breaks at line \d+, `print"):
        lower(two, torch.ones(3))
    with pytest.raises(TypeError, match="gradients=True is for a module"):
        lower(torch.sin, torch.ones(3), gradients=True)


@pytest.mark.parametrize("function", [lambda x: 1, len])
def test_a_function_of_which_nothing_is_captured_is_refused(function):
    with pytest.raises(ValueError, match=r"one graph; of \S+, nothing is captured: .*\. Lower a function of tensors"):
        lower(function, torch.ones(3))


def test_lowered_graphs_have_costs_also_with_symbols():
    low = lower(lambda x: x.relu() * x.shape[0], torch.ones(3, 4), dynamic=True)
    assert cost(low.forward).launches == 2
    assert int(bytes_moved(low.forward)) == 2 * 2 * 48
    graph = capture(lambda x: x.reshape(-1, x.shape[0]) * 2, torch.ones(3, 4), dynamic=True).graphs[0]
    assert int(bytes_moved(graph)) == 2 * 48
    sizes = [5, 4, torch.ones(5, 4)]
    assert equivalent(graph, graph, tuple(sizes))


def test_a_size_that_became_a_constant_is_found():
    graph = capture(lambda x: x.reshape(-1, x.shape[0]) * 2, torch.ones(3, 4), dynamic=True).graphs[0]
    wrong = fx.GraphModule(graph, fx.Graph())
    values = {}
    for node in graph.graph.nodes:
        values[node] = wrong.graph.node_copy(node, lambda n: values[n])
    reshape = next(node for node in wrong.graph.nodes if node.target == "reshape")
    reshape.args = (*reshape.args[:-1], 3)
    wrong.recompile()
    inputs = tuple(
        torch.ones(3, 4)
        if isinstance(node.meta["example_value"], torch.Tensor)
        else node.meta["example_value"].node.hint
        for node in graph.graph.find_nodes(op="placeholder")
    )
    assert equivalent(graph, graph, inputs)
    assert not equivalent(graph, wrong, inputs)


def double_negations(gm):
    """Remove neg(neg(x))."""
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.neg.default and node.args[0].target is node.target:
            node.replace_all_uses_with(node.args[0].args[0])
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    return gm


def test_passes_run_on_forward_and_backward_graphs():
    own = backend(double_negations)
    x = torch.randn(3, requires_grad=True)
    torch.compiler.reset()
    y = torch.compile(lambda x: x.neg().neg().sin(), backend=own)(x)
    y.sum().backward()
    assert torch.equal(y, x.sin()) and torch.allclose(x.grad, x.cos())
    assert [stage.kind for stage in own.stages] == ["forward", "backward"]
    for stage in own.stages:  # the backward graph computes the argument of cos anew
        negations = [
            sum(n.target is torch.ops.aten.neg.default for n in g.graph.nodes) for g in (stage.before, stage.after)
        ]
        assert negations[0] >= 2 and negations[1] == 0


def test_written_inputs_stay_written_behind_a_backend():
    def written(x):
        x.mul_(2)
        return x + 1

    x, y = torch.ones(3), torch.ones(3)
    torch.compiler.reset()
    assert torch.equal(torch.compile(written, backend=backend(double_negations))(x), written(y))
    assert torch.equal(x, y)


def test_a_compiler_gets_the_graph_and_its_inputs():
    seen = []

    def compiler(gm, inputs):
        seen.append([tuple(t.shape) for t in inputs])
        return gm.forward

    torch.compiler.reset()
    own = backend(compiler=compiler)
    torch.compile(lambda x: x.sin(), backend=own)(torch.ones(3, 2))
    assert seen == [[(3, 2)]] and own.stages[0].kind == "inference"


def test_a_pass_that_returns_something_else_is_named():
    def broken(gm):
        return 3

    torch.compiler.reset()
    with pytest.raises(TypeError, match=r"backend wants passes, which are functions; got int\."):
        backend([broken, 3])
    with pytest.raises(Exception, match=r"The pass broken returned int; a pass returns a GraphModule or None\."):
        torch.compile(lambda x: x.sin(), backend=backend(broken))(torch.ones(3))


def written_and_returned(x, y):
    x.mul_(2)
    return y + x, x.sum()


def results(gm, change):
    """Replace the tuple that a graph returns."""
    (output,) = gm.graph.find_nodes(op="output")
    output.args = (tuple(change(list(output.args[0]))),)


def retarget(gm, old, new):
    for node in gm.graph.find_nodes(op="call_function", target=old):
        node.target = new


def without_the_first_input(gm):
    first = gm.graph.find_nodes(op="placeholder")[0]
    with gm.graph.inserting_after(first):
        first.replace_all_uses_with(gm.graph.call_function(torch.ops.aten.ones.default, ([3],)))
    gm.graph.erase_node(first)


def in_another_order(gm):
    first, second = [node for node in gm.graph.nodes if node.op == "call_function"][:2]
    second.append(first)


#: Name of a pass that does harm → (the pass, what the error says).
HARM = {
    "lost": (
        lambda gm: results(gm, lambda old: [old[0], old[2]]),
        r"After the pass lost, the inference graph is not valid\. It has 2 outputs where it had 3\. Lost: output 1, "
        "`add`",
    ),
    "lost_write": (
        lambda gm: results(gm, lambda old: old[1:]),
        r"Lost: output 0, `mul` \(written into the caller's tensor `arg0_1`\)\.",
    ),
    "none": (lambda gm: results(gm, lambda old: [old[0], None, old[2]]), r"output 1, `add`, was float32\[3\] and is"),
    "other_shape": (
        lambda gm: results(gm, lambda old: [*old[:2], old[0]]),
        r"output 2, `sum_1`, was float32\[\] and is now `mul`, float32\[3\]",
    ),
    "other_inputs": (without_the_first_input, "Its inputs were `arg0_1`, `arg1_1` and are now `arg1_1`"),
    "other_order": (in_another_order, "Node add uses mul before it is defined"),
    "no_output": (
        lambda gm: gm.graph.erase_node(gm.graph.find_nodes(op="output")[0]),
        "the inference graph is not valid. It has no output node",
    ),
    "in_place": (
        lambda gm: retarget(gm, torch.ops.aten.mul.Tensor, torch.ops.aten.mul_.Tensor),
        "Node `mul` writes into the input `arg0_1`, which is a tensor of the caller",
    ),
    "swapped": (
        lambda gm: results(gm, lambda old: [old[1], old[0], old[2]]),
        r"After the pass swapped, the inference graph computes something else: output 0, `mul` \(written into the "
        r"caller's tensor `arg0_1`\) at \[0\] is 2 before and 3 after",
    ),
}


@pytest.mark.parametrize("name", HARM)
def test_a_pass_that_does_harm_is_named_with_the_output_or_the_node(name):
    change, sentence = HARM[name]

    def harmful(gm):
        change(gm)

    harmful.__name__ = name
    torch.compiler.reset()
    with pytest.raises(Exception, match=sentence):
        torch.compile(written_and_returned, backend=backend(double_negations, harmful))(torch.ones(3), torch.ones(3))


def split(forward=list, backward=list):
    """Return a partition whose two graphs have their lists of results changed."""

    def partition(joint, inputs, **known):
        parts = save_all(joint, inputs, **known)
        for part, change in zip(parts, (forward, backward), strict=True):
            results(part, change)
        return parts

    return partition


#: Partitions that return the first two results of a graph in each other's places.
OUTPUTS_EXCHANGED = split(forward=lambda old: [old[1], old[0], *old[2:]])
GRADIENTS_EXCHANGED = split(backward=lambda old: old[::-1])

#: Name of a partition that does not split the joint graph → (the partition, what the error says).
SPLITS = {
    "output_lost": (
        split(forward=lambda old: old[1:]),
        r"takes \d, what is saved and 2 tangents\. Lost: output 0, `sin`\.",
    ),
    "saved_unread": (
        split(forward=lambda old: [*old, old[0]]),
        r"returns \d values, the 2 outputs and what it saves, and the backward graph takes \d, ",
    ),
    "gradient_lost": (
        split(backward=lambda old: old[:1]),
        r"The backward graph returns 1 gradient; the joint graph has 2\. Lost: gradient 1, `",
    ),
    "outputs_swapped": (
        OUTPUTS_EXCHANGED,
        r"Its output 0, `sin`, was float32\[3, 4\] and is now `sum_1`, float32\[\]",
    ),
    "gradients_swapped": (
        GRADIENTS_EXCHANGED,
        r"Its gradient 0, `\w+`, was float32\[3, 4\] and is now `\w+`, float32\[4, 4\]",
    ),
    "nothing": (lambda *_, **__: None, "must return two GraphModules, .*; it returned None"),
    "one": (lambda joint, *_, **__: (joint,), "must return two GraphModules"),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_partition_that_does_not_split_the_joint_graph_is_named(name):
    partition, sentence = SPLITS[name]
    partition.__name__ = name
    x, w = torch.ones(3, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)

    def layer(x, w):
        return torch.sin(x @ w), x.sum()

    torch.compiler.reset()
    with pytest.raises(Exception, match=f"The partition {name} does not split the joint graph. .*{sentence}"):
        torch.compile(layer, backend=backend(partition=partition))(x, w)
    with pytest.raises(ValueError, match=f"^The partition {name} does not split"):
        lower(layer, x, w, partition=partition)


#: Name of a partition that returns results of one form in each other's places → (the partition, what the error says).
EXCHANGED = {
    "outputs_exchanged": (
        OUTPUTS_EXCHANGED,
        r"It returns output 1, `cos`, in the place of output 0, `sin`\.",
    ),
    "gradients_exchanged": (
        GRADIENTS_EXCHANGED,
        r"It returns gradient 1, `\w+`, in the place of gradient 0, `\w+`\.",
    ),
}


def waves(x, y):
    return torch.sin(x), torch.cos(y)


@pytest.mark.parametrize("name", EXCHANGED)
def test_results_of_one_form_in_each_others_places_are_named(name):
    partition, sentence = EXCHANGED[name]
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    with pytest.raises(Exception, match=sentence):
        lower(waves, x, y, partition=partition)


def test_a_cut_that_saves_what_is_overwritten_is_named():
    """Torch's own minimum cut: eager computes with the old numbers, and so must the backward graph."""

    def scaled(x, scale):
        y = (x * scale.expand(8, 3).sin()).sum()
        scale.mul_(3)
        return y

    x, scale = torch.ones(8, 3, requires_grad=True), torch.ones(3)
    with pytest.raises(ValueError, match=r"min_cut .* saves `(\w+)`, in the memory of the input `\1`, .* overwritten"):
        lower(scaled, x, scale, partition=min_cut)
    assert [value.shape for value in lower(scaled, x, scale, partition=cut).saved] == [(8, 3)]


@pytest.mark.parametrize("partition", [save_all, min_cut, cut])
def test_no_partition_that_splits_a_joint_graph_is_refused(partition):
    def twice(x, y):
        return x.sin(), x.sin(), y + x, x + y, x.cos().sum(), torch.rand_like(x), torch.rand_like(x)

    assert lower(twice, *(torch.randn(3, requires_grad=True) for _ in "xy"), partition=partition).outputs == 7


def test_all_results_are_compared_on_demand():
    def minus(gm):
        retarget(gm, torch.ops.aten.add.Tensor, torch.ops.aten.sub.Tensor)

    torch.compiler.reset()
    x, y = torch.ones(3), torch.ones(3)
    torch.compile(written_and_returned, backend=backend(minus))(
        x, y
    )  # its first result is wrong, what it writes is not
    assert torch.equal(x, 2 * torch.ones(3))
    torch.compiler.reset()
    with pytest.raises(ValueError, match=r"After the pass minus, .* output 1, `add` at \[0\] is 3 before and -1 after"):
        torch.compile(written_and_returned, backend=backend(double_negations, minus, check=True))(x.fill_(1), y)


def test_a_wrong_backward_graph_and_a_wrong_compiler_are_found():
    def cosine(gm):
        retarget(gm, torch.ops.aten.cos.default, torch.ops.aten.sin.default)

    def compiler(gm, inputs):
        return lambda *values: [value * 2 for value in gm(*values)]

    x = torch.ones(3, requires_grad=True)
    torch.compiler.reset()
    y = torch.compile(lambda x: x.sin(), backend=backend(cosine, check=True))(x)
    with pytest.raises(ValueError, match=r"After the pass cosine, the backward graph computes .*output 0, `mul` at"):
        y.sum().backward()
    torch.compiler.reset()
    with pytest.raises(ValueError, match="After the compiler, the inference graph computes something else"):
        torch.compile(lambda x: x.sin(), backend=backend(compiler=compiler, check=True))(torch.ones(3))


def test_operations_are_decomposed_before_the_passes():
    aten = torch.ops.aten
    table = torch._decomp.get_decompositions([aten.silu.default, aten.silu_backward.default])
    x = torch.randn(4, requires_grad=True)
    for decompositions, expected in (({}, True), (table, False)):
        torch.compiler.reset()
        own = backend(decompositions=decompositions)
        torch.compile(torch.nn.functional.silu, backend=own)(x).sum().backward()
        called = {node.target for stage in own.stages for node in stage.after.graph.nodes}
        assert (aten.silu.default in called) == (aten.silu_backward.default in called) == expected


def test_graphs_with_symbols_are_compared_without_inputs_to_try():
    low = lower(lambda x: (x.reshape(-1) * x.shape[0]).sum(), torch.ones(3, 2, requires_grad=True), dynamic=True)
    assert equivalent(low.forward, low.forward)
    changed = fx.GraphModule(low.forward, low.forward.graph)
    changed.graph = copy.deepcopy(low.forward.graph)
    retarget(changed, torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor)
    assert not equivalent(low.forward, changed)
