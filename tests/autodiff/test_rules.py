"""Each rule against torch's own derivative, in float64, on ordinary numbers and at the edges."""

import math

import pytest
import torch

from passlab.autodiff import CONSTANT, RULES, fit

aten = torch.ops.aten


def t(*shape, seed=0, low=-2.0, high=2.0):
    gen = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=gen, dtype=torch.float64) * (high - low) + low


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-300, math.inf, -math.inf, math.nan, 6.0, 0.5], dtype=torch.float64)
INDEX = torch.tensor([2, 0, 2, 1])
X, Y, COLUMN, POSITIVE = t(3, 4), t(3, 4, seed=1), t(3, 1, seed=2), t(3, 4, low=0.1)
IMAGE, KERNEL = t(2, 3, 6, 5), t(4, 3, 3, 3, seed=1)
TIES = torch.tensor([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 2.0]], dtype=torch.float64)

#: Operation → arguments, with which the rule and torch are compared.
SAMPLES = {
    aten.add.Tensor: [(X, Y), (X, COLUMN), (X, t()), ((X, Y), {"alpha": 2.5})],
    aten.add.Scalar: [(X, 3.0)],
    aten.sub.Tensor: [(X, Y), (COLUMN, X), ((X, Y), {"alpha": 3})],
    aten.sub.Scalar: [(X, 3.0)],
    aten.rsub.Scalar: [(X, 3.0), (X, 3.0, 2.0)],
    aten.mul.Tensor: [(X, Y), (X, COLUMN), (t(4), X), (EDGES, EDGES.flip(0))],
    aten.mul.Scalar: [(X, 3.0)],
    aten.div.Tensor: [(X, POSITIVE), (COLUMN, POSITIVE), (EDGES, EDGES.flip(0))],
    aten.div.Scalar: [(X, 3.0)],
    aten.neg.default: [(X,)],
    aten.reciprocal.default: [(X,), (EDGES,)],
    aten.pow.Tensor_Scalar: [(X, 2), (X, 0), (EDGES, 2), (EDGES, 1), (POSITIVE, 0.5), (EDGES, 3)],
    aten.sqrt.default: [(POSITIVE,), (EDGES,)],
    aten.rsqrt.default: [(POSITIVE,), (EDGES,)],
    aten.exp.default: [(X,), (EDGES,)],
    aten.expm1.default: [(X,), (EDGES,)],
    aten.log.default: [(POSITIVE,), (EDGES,)],
    aten.log1p.default: [(POSITIVE,), (EDGES,)],
    aten.sin.default: [(X,), (EDGES,)],
    aten.cos.default: [(X,), (EDGES,)],
    aten.erf.default: [(X,), (EDGES,)],
    aten.tanh.default: [(X,), (EDGES,)],
    aten.sigmoid.default: [(X,), (EDGES,)],
    aten.silu.default: [(X,)],
    aten.gelu.default: [(X,), ((X,), {"approximate": "tanh"}), (EDGES,)],
    aten.softplus.default: [(X,), (X, 2.0, 1.0), (EDGES,)],
    aten.relu.default: [(X,), (EDGES,)],
    aten.leaky_relu.default: [(X,), (X, 0.3), (EDGES,)],
    aten.hardtanh.default: [(X,), (EDGES, 0.0, 6.0)],
    aten.abs.default: [(X,), (EDGES,)],
    aten.clamp.default: [(X, -1.0, 1.0), (EDGES, 0.0, 6.0), (X, None, 1.0), (X, 0.5)],
    aten.clamp_min.default: [(X, 0.5), (EDGES, 0.0)],
    aten.clamp_max.default: [(X, 0.5), (EDGES, 6.0)],
    aten.maximum.default: [(X, Y), (X, COLUMN), (TIES, TIES.flip(1)), (EDGES, EDGES.flip(0)), (EDGES, EDGES)],
    aten.minimum.default: [(X, Y), (X, COLUMN), (TIES, TIES.flip(1)), (EDGES, EDGES.flip(0)), (EDGES, EDGES)],
    aten.where.self: [(X > 0, X, Y), (X > 0, X, COLUMN), (EDGES > 0, EDGES, EDGES.flip(0))],
    aten.masked_fill.Scalar: [(X, Y > 0, 7.0)],
    aten.nan_to_num.default: [(EDGES, 0.5, 2.0, -2.0)],
    aten.clone.default: [(X,)],
    aten.alias.default: [(X,)],
    aten._to_copy.default: [((X.float(),), {"dtype": torch.float64}), ((X,), {"dtype": torch.float32})],
    aten.view.default: [(X, [2, 6]), (X, [-1])],
    aten._unsafe_view.default: [(X, [2, 6])],
    aten.t.default: [(X,)],
    aten.transpose.int: [(IMAGE, 1, -1)],
    aten.permute.default: [(IMAGE, [2, 0, 3, 1]), (IMAGE, [-1, 0, 1, 2])],
    aten.expand.default: [(COLUMN, [3, 5]), (COLUMN, [2, 3, 5]), (COLUMN, [-1, 5])],
    aten.unsqueeze.default: [(X, 1), (X, -1)],
    aten.squeeze.dim: [(COLUMN, 1), (X, 1)],
    aten.squeeze.dims: [(t(1, 3, 1), [0, 2])],
    aten.select.int: [(X, 1, 2), (X, 0, -1)],
    aten.slice.Tensor: [(X,), (X, 1, 1, 3), (X, 0, 0, 9, 2), (X, 1, -2)],
    aten.cat.default: [([X, Y],), ([X, COLUMN], 1), ([X, Y], -1)],
    aten.stack.default: [([X, Y],), ([X, Y], 1), ([X, X], -1)],
    aten.unbind.int: [(X,), (X, 1)],
    aten.split.Tensor: [(X, 2), (X, 3, 1)],
    aten.split_with_sizes.default: [(X, [1, 2]), (X, [1, 3], 1)],
    aten.constant_pad_nd.default: [(X, [1, 2]), (X, [1, 0, 2, 1], 3.0), (X, [-1, 2])],
    aten.reflection_pad2d.default: [(IMAGE, [1, 2, 0, 1])],
    aten.replication_pad2d.default: [(IMAGE, [1, 2, 0, 1])],
    aten.slice_scatter.default: [(X, t(3, 2, seed=5), 1, 1, 3), (X, t(2, 4, seed=5), 0, 0, 9, 2)],
    aten.flip.default: [(X, [0, 1])],
    aten.index.Tensor: [(X, [INDEX]), (X, [None, INDEX])],
    aten._unsafe_index.Tensor: [(X, [INDEX])],
    aten.gather.default: [(X, 1, torch.tensor([[0, 0], [3, 1], [2, 2]]))],
    aten.embedding.default: [(X, INDEX), (X, INDEX, 2)],
    aten.sum.default: [(X,), (t(),)],
    aten.sum.dim_IntList: [(IMAGE, [1, 3]), (X, [-1], True), (X, [], False)],
    aten.mean.default: [(X,)],
    aten.mean.dim: [(IMAGE, [-1, -2]), (X, [0], True), (X, None)],
    aten.cumsum.default: [(X, 1), (X, 0)],
    aten.amax.default: [(TIES, [1]), (TIES, [0, 1], True), (X,)],
    aten.amin.default: [(TIES, [1]), (TIES, [0, 1], True), (X,)],
    aten.max.dim: [(TIES, 1), (TIES, 0, True)],
    aten.linalg_vector_norm.default: [(X,), (X, 2, [1]), (torch.zeros(3, 2, dtype=torch.float64), 2, [1], True)],
    aten.mm.default: [(X, t(4, 5, seed=3))],
    aten.bmm.default: [(t(2, 3, 4), t(2, 4, 5, seed=1))],
    aten.addmm.default: [
        (t(5, seed=4), X, t(4, 5, seed=3)),
        ((t(3, 5, seed=4), X, t(4, 5, seed=3)), {"beta": 2, "alpha": 3}),
    ],
    aten._softmax.default: [(X, 1, False), (X, 0, False)],
    aten._log_softmax.default: [(X, 1, False)],
    aten.convolution.default: [
        (IMAGE, KERNEL, t(4, seed=2), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        (IMAGE, KERNEL, None, [2, 1], [0, 1], [1, 1], False, [0, 0], 1),
        (IMAGE, t(3, 2, 3, 3), t(6, seed=2), [2, 2], [0, 0], [1, 1], True, [1, 0], 3),
    ],
    aten.max_pool2d_with_indices.default: [(IMAGE, [2, 2], [2, 1]), (IMAGE, [3, 3], [2, 2], [1, 1])],
    aten.avg_pool2d.default: [(IMAGE, [2, 2], [2, 1]), (IMAGE, [3, 3], [2, 2], [1, 1], False, False)],
    aten._adaptive_avg_pool2d.default: [(IMAGE, [2, 3]), (IMAGE, [1, 1])],
    aten.upsample_nearest2d.vec: [(IMAGE, None, [2.0, 2.0]), (IMAGE, [9, 7], None)],
    aten.native_layer_norm.default: [
        (X, [4], t(4, seed=1), t(4, seed=2), 1e-5),
        (IMAGE, [6, 5], None, None, 1e-5),
    ],
    aten._native_batch_norm_legit_no_training.default: [
        (IMAGE, t(3, seed=1), t(3, seed=2), t(3, seed=3), t(3, seed=4, low=0.5), 0.1, 1e-5),
    ],
}
CASES = [(op, sample) for op, samples in SAMPLES.items() for sample in samples]


def _arguments(sample):
    return sample if isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[1], dict) else (sample, {})


def _tensors(value):
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()]


def _compare(op, sample, used=lambda i: True):
    """Compare the rule's gradients with torch's, for random gradients of the results that are used."""
    args, kwargs = _arguments(sample)
    fixed = (
        (3, 4) if op is aten._native_batch_norm_legit_no_training.default else ()
    )  # mean and variance have no gradient

    def leaf(x, i):
        free = isinstance(x, torch.Tensor) and x.is_floating_point() and i not in fixed
        return x.detach().clone().requires_grad_() if free else x

    args = [[leaf(x, i) for x in arg] if isinstance(arg, list) else leaf(arg, i) for i, arg in enumerate(args)]
    out = op(*args, **kwargs)
    results = out if isinstance(out, (list, tuple)) else [out]
    first = op in (aten.native_layer_norm.default, aten._native_batch_norm_legit_no_training.default)
    grads = [
        t(*r.shape, seed=9 + i).to(r.dtype) if r.is_floating_point() and used(i) and (i == 0 or not first) else None
        for i, r in enumerate(results)
    ]
    pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
    leaves = [x for arg in args for x in _tensors(arg) if x.requires_grad]
    expected = torch.autograd.grad([r for r, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
    with torch.no_grad():
        plain = [
            [x.detach() if isinstance(x, torch.Tensor) else x for x in a]
            if isinstance(a, list)
            else a.detach()
            if isinstance(a, torch.Tensor)
            else a
            for a in args
        ]
        values = tuple(r.detach() for r in results)
        several = isinstance(out, (list, tuple))
        back = RULES[op].apply(
            tuple(grads) if several else grads[0], values if several else values[0], *plain, **kwargs
        )
    items = []
    for arg, gradient in zip(args, [*back, *[None] * len(args)], strict=False):
        parts = arg if isinstance(arg, list) else [arg]
        gradients = gradient if isinstance(arg, list) and gradient is not None else [gradient] * len(parts)
        items += [
            (x, g) for x, g in zip(parts, gradients, strict=True) if isinstance(x, torch.Tensor) and x.requires_grad
        ]
    assert len(items) == len(expected)
    for (x, g), right in zip(items, expected, strict=True):
        right = torch.zeros_like(x) if right is None else right
        g = torch.zeros_like(x) if g is None else fit(g, x)
        torch.testing.assert_close(g, right, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize(("op", "sample"), CASES, ids=[f"{op}-{i}" for i, (op, _) in enumerate(CASES)])
def test_the_rule_is_torchs(op, sample):
    _compare(op, sample)


@pytest.mark.parametrize("op", [aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default])
def test_results_that_nothing_uses_give_zeros(op):
    _compare(op, SAMPLES[op][0], used=lambda i: i == 1)


def test_every_rule_has_a_sample_and_a_law():
    assert set(SAMPLES) | {aten.copy.default} == set(RULES)
    assert all(rule.law for rule in RULES.values())
    assert not set(RULES) & CONSTANT


def test_a_copy_passes_the_gradient_to_the_new_value_alone():
    """torch has no derivative of aten.copy, which it makes of a write when it makes a graph functional."""
    old, new = RULES[aten.copy.default].apply(X, COLUMN.expand(3, 4), Y, COLUMN)
    assert old is None and torch.equal(fit(new, COLUMN), X.sum(1, keepdim=True))


def test_what_was_broadcast_is_summed_and_keeps_its_dtype():
    x = torch.ones(3, 1, dtype=torch.float32)
    g = fit(torch.ones(2, 3, 4, dtype=torch.float64), x)
    assert g.dtype == torch.float32 and torch.equal(g, torch.full((3, 1), 8.0))
