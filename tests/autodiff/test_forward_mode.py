"""Derivatives along a direction, and products with a Hessian, against torch.func."""

import pytest
import torch

from passlab.autodiff import DifferentiationError, joint, jvp
from passlab.capture import lower


def network(x, w):
    h = (x @ w).tanh()
    return (h * h).sum(), h.exp() / (1 + h.exp())


def test_it_is_torchs_forward_mode():
    values, changes = (torch.randn(3, 4), torch.randn(4, 5)), (torch.randn(3, 4), torch.randn(4, 5))
    result = jvp(lower(network, *values).forward)(*values, *changes)
    outputs, derivatives = torch.func.jvp(network, values, changes)
    for one, other in zip(result, [*outputs, *derivatives], strict=True):
        torch.testing.assert_close(one, other)


def test_no_gradient_is_left_in_the_graph():
    values = torch.randn(3, 4), torch.randn(4, 5)
    names = [node.name for node in jvp(lower(network, *values).forward).graph.find_nodes(op="placeholder")]
    assert len(names) == 4 and all(name.startswith("change_") for name in names[2:])


def test_inputs_with_the_same_gradient_keep_their_own_changes():
    graph = jvp(lower(lambda x, y: (x + y).sin(), torch.ones(3), torch.ones(3)).forward)
    x, y, dx, dy = (torch.randn(3) for _ in range(4))
    torch.testing.assert_close(graph(x, y, dx, dy)[1], (x + y).cos() * (dx + dy))


def test_a_product_with_the_hessian_is_forward_over_reverse():
    def loss(x):
        return (x.sin() * x * x).sum()

    x, v = torch.randn(5), torch.randn(5)
    gradient = joint(lower(loss, x).forward)
    both = jvp(gradient)  # inputs: x, the gradient of the loss, and a change of each
    derivative, product = both(x, torch.tensor(1.0), v, torch.tensor(0.0))[-2:]
    torch.testing.assert_close(derivative, torch.func.grad(loss)(x) @ v)
    torch.testing.assert_close(product, torch.func.hessian(loss)(x) @ v)


def test_what_the_first_pass_brings_in_is_named():
    image, kernel = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    graph = lower(torch.nn.functional.conv2d, image, kernel).forward
    with pytest.raises(DifferentiationError, match=r"convolution_backward.* has no rule"):
        jvp(graph)
