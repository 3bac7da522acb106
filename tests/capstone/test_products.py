"""Products, convolutions and pools written as sums: the same numbers as torch's own, also at the edges."""

import math

import pytest
import torch
import torch.nn.functional as F

from passlab.capstone import products, training
from passlab.capture import lower

aten = torch.ops.aten
DOUBLE = {"dtype": torch.float64, "generator": torch.Generator().manual_seed(0)}


@pytest.mark.parametrize("turned", [False, True])
def test_products(turned):
    a, b, c = torch.randn(5, 7, **DOUBLE), torch.randn(7, 3, **DOUBLE), torch.randn(3, **DOUBLE)
    b = b.t().contiguous().t() if turned else b
    torch.testing.assert_close(products.mm(a, b), a @ b)
    torch.testing.assert_close(products.addmm(c, a, b), torch.addmm(c, a, b))
    torch.testing.assert_close(products.mm(a.expand(2, 5, 7), b.expand(2, 7, 3)), (a @ b).expand(2, 5, 3))


#: Shapes of images and filters, stride, padding, groups.
CONVOLUTIONS = [
    ((2, 3, 8, 7), (4, 3, 3, 3), (1, 1), (1, 1), 1),
    ((2, 3, 9, 8), (4, 3, 3, 3), (2, 2), (1, 1), 1),
    ((1, 2, 8, 8), (5, 2, 1, 1), (2, 1), (0, 0), 1),
    ((2, 2, 9, 9), (3, 2, 4, 2), (3, 2), (2, 0), 1),
    ((2, 4, 7, 8), (4, 1, 3, 3), (2, 2), (1, 1), 4),
]


@pytest.mark.parametrize(("image", "filters", "stride", "padding", "groups"), CONVOLUTIONS)
def test_convolutions_and_their_gradients(image, filters, stride, padding, groups):
    x, weight, bias = (torch.randn(shape, **DOUBLE) for shape in (image, filters, filters[:1]))
    how = (stride, padding, (1, 1), False, (0, 0), groups)
    y = aten.convolution(x, weight, bias, *how)
    torch.testing.assert_close(products.convolution(x, weight, bias, *how), y)
    torch.testing.assert_close(products.convolution(x, weight, None, *how), aten.convolution(x, weight, None, *how))
    g = torch.randn(y.shape, **DOUBLE)
    expected = aten.convolution_backward(g, x, weight, filters[:1], *how, [True] * 3)
    for mask in ([True] * 3, [False, True, False]):
        gradients = products.convolution_backward(g, x, weight, filters[:1], *how, mask)
        for gradient, other, asked in zip(gradients, expected, mask, strict=True):
            assert (gradient is not None) == asked
            if asked:
                torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1)), ((3, 2), (1, 3), (1, 0))]
)
@pytest.mark.parametrize("edge", ["numbers", "ties", "nan", "infinite"])
def test_pools_choose_the_element_that_torch_chooses(kernel, stride, padding, edge):
    x = torch.randn(2, 3, 9, 8, **DOUBLE)
    if edge == "ties":
        x = x.round()
    elif edge == "nan":
        x[x > 0.5] = math.nan
    elif edge == "infinite":
        x[x < 0.8] = -math.inf
    how = (kernel, stride, padding, (1, 1), False)
    y, places = aten.max_pool2d_with_indices(x, *how)
    value, place = products.max_pool(x, *how)
    torch.testing.assert_close(value, y, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(place, places)
    g = torch.randn(y.shape, **DOUBLE)
    torch.testing.assert_close(
        products.max_pool_backward(g, x, *how, places), aten.max_pool2d_with_indices_backward(g, x, *how, places)
    )


def test_pools_of_other_kinds_stay_whole():
    x = torch.randn(1, 1, 8, 8)
    assert products.max_pool(x, (3, 3), (2, 2), (1, 1), (2, 2)) is NotImplemented
    assert products.max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), True) is NotImplemented
    assert products.max_pool(x, (5, 5)) is NotImplemented


def test_the_gradient_of_an_enlarged_image():
    x = torch.zeros(2, 3, 4, 5, dtype=torch.float64)
    indices = [None, None, torch.tensor([0, 0, 1, 3, 3])[:, None], torch.tensor([4, 0, 0, 2])]
    values = torch.randn(2, 3, 5, 4, **DOUBLE)
    expected = aten._unsafe_index_put(x, indices, values, True)
    torch.testing.assert_close(products.put_together(x, indices, values, True), expected)


def test_small_products_become_sums_and_large_ones_stay():
    def f(x, weight, image, filters):
        return (x @ weight).relu(), F.conv2d(image, filters, padding=1), F.conv2d(image, filters, dilation=2)

    inputs = torch.randn(6, 5), torch.randn(5, 4), torch.randn(1, 2, 7, 7), torch.randn(3, 2, 3, 3)
    before = lower(f, *inputs).forward
    after = products.as_sums(lower(f, *inputs).forward)
    names = [str(node.target) for node in after.graph.nodes]
    assert "aten.mm.default" not in names and names.count("aten.convolution.default") == 1  # the dilated one
    after.recompile()
    for a, b in zip(after(*inputs), before(*inputs), strict=True):
        torch.testing.assert_close(a, b)
    large = lower(lambda x, y: x @ y, torch.ones(256, 256), torch.ones(256, 256)).forward
    assert [node.target for node in products.as_sums(large).graph.nodes if node.op == "call_function"] == [
        aten.mm.default
    ]


@pytest.mark.parametrize(
    ("filters", "whole"),
    [((257, 64, 1, 1), True), ((256, 64, 1, 1), False), ((32, 64, 3, 3), False)],  # 2^20 for 256 filters and 64 pixels
)
def test_a_convolution_that_is_a_product_of_matrices_stays_sooner(filters, whole):
    inputs = torch.randn(1, 64, 8, 8, requires_grad=True), torch.randn(filters, requires_grad=True)
    graphs = lower(lambda x, w: F.conv2d(x, w, padding=w.shape[-1] // 2), *inputs)
    for graph in (graphs.forward, graphs.backward):
        targets = {node.target for node in products.as_sums(graph).graph.nodes}
        assert (not targets.isdisjoint({aten.convolution.default, aten.convolution_backward.default})) == whole


def test_decompositions_hold_the_pools():
    known = training.decompositions()
    assert known[aten.max_pool2d_with_indices.default] is products.max_pool
    assert known[aten.max_pool2d_with_indices_backward.default] is products.max_pool_backward
