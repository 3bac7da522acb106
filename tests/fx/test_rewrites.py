"""Rewrites into one library op: what each must find, what it must leave, and that the program means the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import replace_pattern
from torch.nn import functional as F

from passlab import equivalent, models, random_graph, trace
from passlab.fx.cases import graph, live
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import op_name
from passlab.fx.rewrites import conv_bn_relu, gemm, layer_norm, residual, rms_norm

ALL = (gemm, conv_bn_relu, layer_norm, rms_norm, residual)


def ops(gm) -> list[str]:
    return [op_name(node, gm) for node in live(gm) if node.op.startswith("call")]


def check(rewrite, build, expected: str):
    """The ops after the rewrite, by name; and a valid graph that computes the same."""
    after = check_same(rewrite, build)
    assert ops(after) == expected.split()
    return after


def check_same(rewrite, build):
    """The graph after the rewrite, which is valid and computes the same."""
    before, after = build(), rewrite(build())
    assert not why_not_valid(before, after)
    result = equivalent(before, rebuild(after))
    assert result, result.reason
    return after


# ---------------------------------------------------------------------------------------------------- GEMM


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (lambda a, b, c: a @ b + c, {}),
        (lambda a, b, c: c + torch.mm(a, b), {}),
        (lambda a, b, c: 2 * (a @ b) + c * 3, {"alpha": 2, "beta": 3}),
        (lambda a, b, c: torch.add(c, a.matmul(b), alpha=0.5), {"alpha": 0.5}),
        (lambda a, b, c: a.mm(b) / 4 - c, {"alpha": 0.25, "beta": -1}),
        (lambda a, b, c: c * 2 - (a @ b) * 3, {"alpha": -3, "beta": 2}),
        (lambda a, b, c: torch.sub(c, 2 * (a @ b) / 4, alpha=3), {"alpha": -1.5}),
        (lambda a, b, c: torch.mul(0.5, torch.matmul(a, b)).mul(2.0).add(c.div(2)), {"beta": 0.5}),
    ],
)
def test_gemm_finds_its_numbers_wherever_they_stand(body, options):
    after = check(gemm, graph(lambda m, a, b, c: body(a, b, c), (3, 4), (4, 5), (3, 5)), "addmm")
    (node,) = [n for n in after.graph.nodes if n.op == "call_function"]
    assert [n.name for n in node.args] == ["c", "a", "b"] and dict(node.kwargs) == options


def test_gemm_of_stacks_and_with_a_smaller_c():
    stack = graph(lambda m, a, b, c: torch.bmm(a, b) * 2 - c, (2, 3, 4), (2, 4, 5), (5,))
    check(gemm, stack, "baddbmm")
    check(gemm, graph(lambda m, a, b: a @ b + m.v, (3, 4), (4, 5), v=(5,)), "addmm")
    check(gemm, graph(lambda m, a, b: (a @ b + m.v) @ b.t() + a, (3, 4), (4, 5), v=(5,)), "addmm t addmm")


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (lambda m, a, b, c: a @ b + m.wide, "matmul add"),
        (lambda m, a, b, c: a @ b + m.fine, "matmul add"),
        (lambda m, a, b, c: 0 * (a @ b) + c, "mul matmul add"),
        (lambda m, a, b, c: a @ b + c * 0, "matmul mul add"),
        (lambda m, a, b, c: a @ b + 1, "matmul add"),
        (lambda m, a, b, c: m.stack @ b + c, "matmul add"),
        (lambda m, a, b, c: (a @ b) * m.c + c, "matmul mul add"),
        (lambda m, a, b, c: 1 / (a @ b) + c, "matmul truediv add"),
    ],
)
def test_gemm_leaves_what_is_none(body, left):
    fine = torch.ones(3, 5, dtype=torch.float64)
    parts = {"wide": (2, 3, 5), "stack": (2, 3, 4), "fine": fine, "c": (3, 5)}
    build = graph(body, (3, 4), (4, 5), (3, 5), **parts)
    assert sorted(ops(check_same(gemm, build))) == sorted(left.split())


def test_gemm_leaves_products_that_are_read_or_operands_that_are_written():
    def read(m, a, b, c):
        y, z = a @ b, a @ b
        return y + c, y, z + z

    def written(m, a, b, c):
        y = a @ b
        a.add_(1)
        return y + c

    shapes = (3, 4), (4, 5), (3, 5)
    assert "addmm" not in ops(check_same(gemm, graph(read, *shapes)))
    assert "addmm" not in ops(check_same(gemm, graph(written, *shapes)))


# ---------------------------------------------------------------------------------------------------- conv, bn, relu


def blocks(**options):
    norm = nn.BatchNorm2d(4, **options)
    if norm.running_mean is not None:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return norm


def test_the_result_of_a_rewrite_is_not_read_after_a_later_write():
    def twice(m, x):
        first = x @ m.w + m.b
        product = first @ m.w
        first.add_(1)
        return product + m.b, first

    before = graph(twice, (2, 4), w=(4, 4), b=(4,))
    after = gemm(before())
    assert sum(node.target is torch.addmm for node in after.graph.nodes) == 1
    assert equivalent(before(), after)


def test_conv_bn_relu_is_one_module_and_the_model_keeps_its_weights():
    def body(m, x):
        x = torch.relu(m.bn(m.conv(x)))
        x = m.relu(m.other(m.grouped(x)))
        return m.bn(m.conv(x)).relu()

    parts = {
        "conv": lambda: nn.Conv2d(4, 4, 3, padding=1, bias=False),
        "grouped": lambda: nn.Conv2d(4, 4, 3, 1, 2, 2, groups=2, padding_mode="circular"),
        "bn": blocks,
        "other": lambda: blocks(affine=False),
        "relu": nn.ReLU,
    }
    build = graph(body, (2, 4, 6, 6), **parts)
    gm = build()
    old = {name: tensor.clone() for name, tensor in gm.state_dict().items()}
    values = dict(gm.named_parameters()) | dict(gm.named_buffers())
    check(conv_bn_relu, build, "ConvReLU2d ConvReLU2d ConvReLU2d")
    conv_bn_relu(gm)
    assert all(torch.equal(values[name], tensor) for name, tensor in old.items())


@pytest.mark.parametrize(
    ("body", "training"),
    [
        (lambda m, x: torch.relu(m.bn(m.conv(x))), True),
        (lambda m, x: torch.relu(m.free(m.conv(x))), False),
        (lambda m, x: torch.sigmoid(m.bn(m.conv(x))), False),
        (lambda m, x: torch.relu(m.bn(torch.relu(m.conv(x)))), False),
        (lambda m, x: (lambda y: torch.relu(m.bn(y)) + y)(m.conv(x)), False),
        (lambda m, x: (lambda y: torch.relu(y) + y)(m.bn(m.conv(x))), False),
        (lambda m, x: (lambda y, _: torch.relu(m.bn(y)))(m.conv(x), x.add_(1)), False),
    ],
)
def test_conv_bn_relu_leaves_what_is_none(body, training):
    parts = {"conv": lambda: nn.Conv2d(4, 4, 1), "bn": blocks, "free": lambda: blocks(track_running_stats=False)}
    build = graph(body, (2, 4, 5, 5), training=training, **parts)
    assert ops(conv_bn_relu(build())) == ops(build())


# ---------------------------------------------------------------------------------------------------- norms


def centre(x):
    return x - x.mean(-1, keepdim=True)


LAYER_NORMS = {
    "var": lambda m, x: centre(x) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * m.w + m.b,
    "correction": lambda m, x: m.b + m.w * (centre(x) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 0.1)),
    "no bias": lambda m, x: centre(x) / (1e-3 + torch.var(x, dim=-1, keepdim=True, correction=0)).sqrt() * m.w,
    "nothing": lambda m, x: centre(x) / torch.sqrt(x.var(1, unbiased=False, keepdim=True) + 1e-5),
    "squares": lambda m, x: (lambda c: c / ((c**2).mean(-1, keepdim=True) + 1e-5).sqrt() * m.w + m.b)(centre(x)),
    "twice": lambda m, x: centre(x) * torch.rsqrt(torch.mean(centre(x).pow(2), dim=-1, keepdim=True) + 1e-5),
}


@pytest.mark.parametrize("name", LAYER_NORMS)
def test_layer_norm_in_its_spellings(name):
    check(layer_norm, graph(LAYER_NORMS[name], (3, 4), w=(4,), b=(4,)), "layer_norm")


def test_norms_over_two_dimensions():
    def layer(m, x):
        mean = x.mean((-2, -1), keepdim=True)
        return (x - mean) / torch.sqrt(x.var((1, 2), keepdim=True, unbiased=False) + 1e-5) * m.w + m.b

    after = check(layer_norm, graph(layer, (2, 3, 4), w=(3, 4), b=(3, 4)), "layer_norm")
    assert [n.args[1] for n in after.graph.nodes if n.op == "call_function"] == [(3, 4)]


RMS_NORMS = {
    "rsqrt": lambda m, x: m.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    "sqrt": lambda m, x: x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + 1e-6) * m.w,
    "plain": lambda m, x: (1e-6 + torch.square(x).mean(dim=-1, keepdim=True)).rsqrt() * x,
}


@pytest.mark.parametrize("name", RMS_NORMS)
def test_rms_norm_in_its_spellings(name):
    check(rms_norm, graph(RMS_NORMS[name], (3, 4), w=(4,)), "rms_norm")


@pytest.mark.parametrize(
    "body",
    [
        lambda m, x: centre(x) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),  # n - 1 in the denominator
        lambda m, x: centre(x) / (torch.sqrt(x.var(-1, unbiased=False, keepdim=True)) + 1e-5),
        lambda m, x: centre(x) / torch.sqrt(x.var(0, unbiased=False, keepdim=True) + 1e-5),
        lambda m, x: (x - x.mean(0, keepdim=True)) / torch.sqrt(x.var(0, unbiased=False, keepdim=True) + 1e-5),
        lambda m, x: (x - m.y.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5),
        lambda m, x: x * torch.rsqrt(m.y.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda m, x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6),
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) - 1e-6),
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6),
        lambda m, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + (-1e-6)),
        lambda m, x: x / torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda m, x: (lambda s: (x * torch.rsqrt(s + 1e-6), s))(x.pow(2).mean(-1, keepdim=True)),
        lambda m, x: (lambda r, _: x * r)(torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), x.mul_(2)),
    ],
)
def test_norms_leave_what_is_none(body):
    build = graph(body, (4, 4), y=(4, 4))
    assert ops(rms_norm(layer_norm(build()))) == ops(build())


def test_a_centred_value_that_is_read_is_the_x_of_an_rms_norm():
    build = graph(
        lambda m, x: (lambda c: (c / torch.sqrt((c * c).mean(-1, keepdim=True) + 1e-5), c))(centre(x)), (3, 4)
    )
    assert ops(layer_norm(build())) == ops(build())
    check(rms_norm, build, "mean sub rms_norm")


@pytest.mark.parametrize("weight", [(1,), (4, 1), (4, 4)])
def test_a_weight_of_another_shape_stays_outside(weight):
    build = graph(lambda m, x: m.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), (4, 4), w=weight)
    check(rms_norm, build, "rms_norm mul")


# ---------------------------------------------------------------------------------------------------- residual


def test_residual_gives_sum_and_norm_and_the_next_sum_reads_the_first():
    def body(m, x, y):
        s = x + m.one(y)
        t = s + torch.tanh(m.norm(s))
        return F.layer_norm(t, (4,), m.w, None, 0.1) + t

    parts = {"one": lambda: nn.Linear(4, 4), "norm": lambda: nn.LayerNorm(4), "w": (4,)}
    expected = "Linear add_layer_norm getitem getitem tanh add_layer_norm getitem getitem add"
    check(residual, graph(body, (2, 4), (2, 4), **parts), expected)


@pytest.mark.parametrize(
    "body",
    [
        lambda m, x, y: m.norm(x + m.b),
        lambda m, x, y: m.norm(torch.add(x, y, alpha=2)),
        lambda m, x, y: m.norm(x - y),
        lambda m, x, y: m.norm(x + 1),
        lambda m, x, y: m.norm(x + m.narrow),
        lambda m, x, y: (lambda s: F.layer_norm(s, (4,), torch.tanh(m.b)))(x + y),
        lambda m, x, y: (lambda s, _: m.norm(s))(x + y, x.add_(1)),
    ],
)
def test_residual_leaves_what_is_none(body):
    build = graph(body, (2, 4), (2, 4), norm=lambda: nn.LayerNorm(4), b=(4,), narrow=torch.ones(2, 4).half())
    assert ops(residual(build())) == ops(build())


# ---------------------------------------------------------------------------------------------------- all


def test_the_blocks_of_a_transformer():
    model = models.ZOO["gpt"]
    before, after = (trace(model.build(), *model.inputs()) for _ in range(2))
    for rewrite in ALL:
        after = rewrite(after)
    assert ops(after).count("add_layer_norm") == 1 and "LayerNorm" in ops(after), "the first norm has no sum before it"
    assert equivalent(before, rebuild(after))


@pytest.mark.parametrize("seed", range(25))
def test_all_rewrites_keep_the_meaning_of_random_graphs(seed):
    before, after = (random_graph(seed, 30, mutation=seed % 2 == 0) for _ in range(2))
    for rewrite in ALL:
        after = rewrite(after)
    assert not why_not_valid(before, after)
    result = equivalent(before, rebuild(after), trials=("given", "double", "sizes"))
    assert result, result.reason


def test_the_matcher_of_torch_finds_the_one_spelling_it_is_given():
    """Why the rewrites match by hand: the same law as a pattern misses the other order, and takes what is written."""

    def pattern(a, b, c):
        return a @ b + c

    def fused(a, b, c):
        return torch.addmm(c, a, b)

    def body(m, a, b, c):
        y = a @ b
        a.add_(1)
        return y + c

    shapes = (3, 4), (4, 5), (3, 5)
    plain, turned = (graph(f, *shapes)() for f in (lambda m, a, b, c: a @ b + c, lambda m, a, b, c: c + a @ b))
    assert len(replace_pattern(plain, pattern, fused)) == 1 and ops(plain) == ["addmm"]
    assert len(replace_pattern(turned, pattern, fused)) == 0
    harmed = graph(body, *shapes)()
    assert len(replace_pattern(harmed, pattern, fused)) == 1
    assert not equivalent(graph(body, *shapes)(), rebuild(harmed))
