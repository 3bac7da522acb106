"""Joint graphs against torch's own backward pass, and what is refused."""

import pytest
import torch
from torch import fx, nn

from autograder.bench.training import same_gradients
from passlab import equivalent, models
from passlab.autodiff import DifferentiationError, joint
from passlab.capture import lower
from passlab.graph import view

aten = torch.ops.aten


def _gradients(gm, inputs, wrt=None):
    """Return (found, expected): outputs' gradients by the joint graph and by torch, for the same random tangents."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    fixed = _statistics(gm)
    leaves = [x.clone() for x in inputs]
    for x, node in zip(leaves, placeholders, strict=True):
        x.requires_grad_(x.is_floating_point() and node not in fixed)
    outputs = gm(*leaves)
    ends = [out for out in outputs if isinstance(out, torch.Tensor) and out.is_floating_point()]
    ends = list({id(out): out for out in ends}.values())
    tangents = [torch.randn(out.shape, generator=torch.Generator().manual_seed(i)) for i, out in enumerate(ends)]
    floats = [x for x in leaves if x.requires_grad]
    wrt = [node.name for x, node in zip(leaves, placeholders, strict=True) if x.requires_grad] if fixed else wrt
    pairs = [(out, g) for out, g in zip(ends, tangents, strict=True) if out.requires_grad]
    expected = torch.autograd.grad([o for o, _ in pairs], floats, [g for _, g in pairs], allow_unused=True)
    expected = [torch.zeros_like(x) if g is None else g for x, g in zip(floats, expected, strict=True)]
    result = joint(gm, wrt)(*inputs, *tangents)
    return result[len(outputs) :], expected


def _statistics(gm):
    """Return the inputs that are means and variances of a batch norm: torch has no gradients for these."""
    norms = [node for node in gm.graph.nodes if "batch_norm" in str(node.target)]
    return {part for node in norms for part in node.args[3:5]}


def _lowered(model, inputs):
    """Return the functional graph of a model with values for its placeholders: parameters and inputs, by shape."""
    gm = lower(model, *inputs).forward
    gen = torch.Generator().manual_seed(0)
    return gm, [_like(node.meta["val"], gen) for node in gm.graph.find_nodes(op="placeholder")]


@pytest.mark.parametrize("name", ["mlp", "skip", "attention", "gpt", "lstm"])
def test_models_of_the_zoo(name):
    it = models.ZOO[name]
    gm, values = _lowered(it.build(), it.inputs())
    result, expected = _gradients(gm, values)
    assert len(result) == len(expected) > 0
    for g, right in zip(result, expected, strict=True):
        torch.testing.assert_close(g, right, rtol=1e-3, atol=1e-4)


def chain(x, y):
    z = x * y
    return (z.sin() + z * z).sum(), z.t()


def test_consumers_add_their_gradients():
    gm = lower(chain, torch.randn(3, 4), torch.randn(3, 4)).forward
    result, expected = _gradients(gm, [torch.randn(3, 4), torch.randn(3, 4)])
    for g, right in zip(result, expected, strict=True):
        torch.testing.assert_close(g, right)


def test_the_joint_graph_holds_the_forward_graph_and_only_pure_operations():
    gm = lower(chain, torch.randn(3, 4), torch.randn(3, 4)).forward
    whole = joint(gm)
    names = [node.name for node in whole.graph.find_nodes(op="placeholder")]
    assert names[:2] == [node.name for node in gm.graph.find_nodes(op="placeholder")]
    assert all(name.startswith("tangent_") for name in names[2:]) and len(names) == 4
    assert all("val" in node.meta for node in whole.graph.nodes if node.op != "output")
    assert all(node.users for node in whole.graph.nodes if node.op == "call_function")
    assert all(isinstance(n.target, torch._ops.OpOverload) for n in whole.graph.nodes if n.op == "call_function")


def test_torch_makes_the_same_function_of_it():
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2), nn.Softmax(-1)), torch.randn(3, 4)
    torchs = lower(model, x.clone().requires_grad_(), gradients=True).joint
    own = joint(lower(model.requires_grad_(False), x).forward)
    values = [torch.randn(node.meta["val"].shape) for node in torchs.graph.find_nodes(op="placeholder")]
    order = [node.meta["val"].shape for node in own.graph.find_nodes(op="placeholder")]
    assert order == [v.shape for v in values]
    assert equivalent(torchs, own, tuple(values))
    wrong = fx.GraphModule(own, own.graph)
    node = next(n for n in wrong.graph.nodes if n.target is aten.mul.Tensor)
    node.target = aten.add.Tensor
    wrong.recompile()
    assert not equivalent(torchs, wrong, tuple(values))


@pytest.mark.parametrize("seed", range(16))
def test_gradients_of_drawn_graphs_are_torchs(seed):
    """In float64, at zeros, infinities and NaN, too. Graphs 10 and 15 hold aten.copy."""
    assert same_gradients(seed)


def _like(val, gen):
    if val.is_floating_point():
        return torch.rand(val.shape, generator=gen, dtype=val.dtype) + 0.1
    return torch.zeros(val.shape, dtype=val.dtype)


def test_inputs_that_reach_nothing_get_zeros_and_wrt_chooses():
    gm = lower(lambda x, y: x.sin() + 0 * y.detach(), torch.randn(3), torch.randn(3)).forward
    first, second = (node.name for node in gm.graph.find_nodes(op="placeholder"))
    x, y, g = torch.randn(3), torch.randn(3), torch.randn(3)
    assert torch.equal(joint(gm)(x, y, g)[2], torch.zeros(3))
    (only,) = joint(gm, [first])(x, y, g)[1:]
    torch.testing.assert_close(only, g * x.cos())
    with pytest.raises(DifferentiationError, match=f"'z', which is not an input; inputs: {first}, {second}"):
        joint(gm, ["z"])


def test_integers_have_no_gradient_but_let_others_through():
    gm = lower(lambda x, i: x[i] * i, torch.randn(5), torch.tensor([1, 1, 3])).forward
    x, i = torch.randn(5), torch.tensor([1, 1, 3])
    result, expected = _gradients(gm, [x, i])
    torch.testing.assert_close(result[0], expected[0])
    with pytest.raises(DifferentiationError, match="is not a tensor of floats"):
        joint(gm, [gm.graph.find_nodes(op="placeholder")[1].name])


def test_an_operation_without_a_rule_is_named_with_its_line():
    gm = lower(lambda x: torch.special.bessel_j0(x) + 1, torch.randn(3)).forward
    with pytest.raises(DifferentiationError, match=r"special_bessel_j0.*has no rule.* line \d+.*bessel_j0\(x\)"):
        joint(gm)


def test_an_operation_without_a_rule_off_the_way_does_not_matter():
    gm = lower(lambda x: (x.sin(), torch.special.bessel_j0(x.detach())), torch.randn(3)).forward
    x = torch.randn(3)
    grads = joint(gm)(x, torch.ones(3), torch.zeros(3))[2:]
    torch.testing.assert_close(grads[0], x.cos())


def test_writes_modules_and_complex_numbers_are_refused():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.randn(3)
    written = graph.call_function(aten.mul_.Tensor, (x, 2.0))
    written.meta["val"] = torch.randn(3)
    graph.output([written])
    with pytest.raises(DifferentiationError, match=r"mul_.* writes in place .*make the graph functional"):
        joint(fx.GraphModule({}, graph))
    with pytest.raises(DifferentiationError, match=r"no 'val'. Make the graph with passlab\.capture\.lower"):
        joint(fx.symbolic_trace(nn.Linear(2, 2)))
    for other in (lambda x: x.sin(), nn.Linear(2, 2)):
        with pytest.raises(DifferentiationError, match=rf"got a {type(other).__name__}\. .* passlab\.capture\.lower"):
            joint(other)
    gm = lower(lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j), torch.randn(3, 2)).forward
    with pytest.raises(DifferentiationError, match=r"is complex|has no rule"):
        joint(gm)


def test_outputs_without_any_float_are_refused():
    gm = lower(lambda x: (x.argmax(0), x > 0), torch.randn(3, 4)).forward
    with pytest.raises(DifferentiationError, match=r"No output is .* floats \(argmax: int64 and gt: bool\): integers"):
        joint(gm)
    gm = lower(lambda i: i + 1, torch.arange(3)).forward
    assert len(joint(gm)(torch.arange(3))) == 1  # there is no input that wants a gradient
    gm = lower(lambda x: (x * 1j).real, torch.randn(3)).forward
    with pytest.raises(DifferentiationError, match=r"mul is complex; these rules are for real numbers"):
        joint(gm)


def test_symbols_stay_symbols():
    gm = lower(lambda x: (x * x.shape[0]).sum(0), torch.ones(3, 4), dynamic=True).forward
    whole = joint(gm)
    assert any("s" in str(node.type) for node in view(whole))
    sizes = iter([5, 4])
    placeholders = gm.graph.find_nodes(op="placeholder")
    inputs = [torch.ones(5, 4) if isinstance(n.meta["val"], torch.Tensor) else next(sizes) for n in placeholders]
    result = whole(*inputs, torch.ones(4))[-1]
    assert torch.equal(result, torch.full((5, 4), 5.0))
