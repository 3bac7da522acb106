"""A group of operations as one kernel that is built and run."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import passlab
from passlab import bytes_moved, cost, equivalent, launches
from passlab.kernels import Kernel, Unsupported, fused, prim_func, subgraph
from passlab.kernels import code as kernel_code
from passlab.kernels import schedule as kernel_schedule
from passlab.kernels.primitives import primitives
from passlab.relax import tvm
from passlab.relax.cpu import blocks

inf, nan = float("inf"), float("nan")
EDGES = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1e-3, -1e-3, 3e4, -3e4, 1.0, -1.0])
TOLERANCE = {
    torch.float32: (3e-6, 3e-6),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float64: (1e-7, 1e-7),
}

pytestmark = pytest.mark.filterwarnings("ignore")


def values(shape, dtype=torch.float32, edges=True, seed=0):
    draw = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        low, high = (0, 2) if dtype == torch.bool else (-9, 9)
        return torch.randint(low, high, shape, generator=draw).to(dtype)
    x = torch.randn(shape, generator=draw).mul(3).to(dtype)
    if edges and x.numel() >= len(EDGES):
        x.view(-1)[: len(EDGES)] = EDGES[torch.randperm(len(EDGES), generator=draw)].to(dtype)
    return x


def same(function, *inputs, scale=1):
    gm = function if isinstance(function, torch.fx.GraphModule) else torch.fx.symbolic_trace(function)
    want, actual = function(*inputs), Kernel(gm)(*inputs)
    for w, g in zip(
        want if isinstance(want, tuple) else [want], actual if isinstance(actual, tuple) else [actual], strict=True
    ):
        assert g.dtype == w.dtype and g.shape == w.shape, (g.dtype, w.dtype, g.shape, w.shape)
        r, a = TOLERANCE.get(w.dtype, (0, 0))
        torch.testing.assert_close(g, w, rtol=r * scale, atol=a * scale, equal_nan=True)


# What is right: torch


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_product_with_zeros_that_were_moved_is_torchs(dtype, sign):
    """TVM simplifies the product of a zero that it sees and inf to 0."""
    x = EDGES.to(dtype)
    n = len(x)

    def moved(x):
        none = torch.full((2, n), 0.0 * sign, dtype=dtype)
        parts = torch.cat([none[0, :4], none[1, 4:]]), torch.cat([none[0, :4], -none[1, 4:]])
        padded = F.pad(none[0, : n - 2], (1, 1)), F.pad(none[0, : n - 2], (1, 1), value=-0.0), F.pad(x[:4], (0, n - 4))
        zeros = none[0], none.t().reshape(2, n)[1], *parts, *padded
        return *(x * many for many in zeros), x / none[1]

    gm = make_fx(moved)(x)
    same(gm, x)
    for want, actual in zip(moved(x), Kernel(gm)(x), strict=True):
        known = ~want.isnan()
        assert torch.equal(want.signbit()[known], actual.signbit()[known])


def test_one_operation_at_a_time_is_torchs():
    one = {
        "arithmetic": lambda x: (x * 2 + 1, 1 - x, 1 / x, -x, x.abs(), x * 0, x / 0, x - x, x / x, (x + 1e8) - 1e8),
        "library": lambda x: (x.exp(), x.log(), x.tanh(), torch.erf(x), x.sqrt(), x.rsqrt(), x.log1p(), x.expm1()),
        "activations": lambda x: (torch.relu(x), x.sigmoid(), F.silu(x), F.elu(x), F.leaky_relu(x), F.relu6(x)),
        "soft activations": lambda x: (F.softplus(x), F.hardswish(x)),
        "GELU": lambda x: (F.gelu(x.clamp(-50, 50)), F.gelu(x.clamp(-50, 50), approximate="tanh")),
        "powers": lambda x: (x**2, x**3, x**0.5, x**-1, 2**x, x**1.5),
        "rounding": lambda x: (x.floor(), x.ceil(), x.trunc(), x.round(), x.sign()),
        "divisions": lambda x: (x // 3, x % 3, x // -2, x % -3, torch.fmod(x, 2)),
        "division that cuts": lambda x: torch.div(x, 3, rounding_mode="trunc"),
        "comparisons": lambda x: (x == x, x != 1, x < 0, ~(x < 0.5), (x >= 1) | (x < 1), (x > 0) & (x < 2)),
        "truth": lambda x: (x.isnan(), x.isfinite(), x.bool(), x.masked_fill(x > 0, 2)),
        "choice": lambda x: torch.where(~(x < 0.5), 1.0, 2.0),
        "limits": lambda x: (x.clamp(-1, 1), x.clamp_min(0), torch.nan_to_num(x)),
        "casts": lambda x: (x.half(), x.bfloat16() + 1, x.double(), x.bool().float()),
    }
    for name, function in one.items():
        for dtype in (torch.float32, torch.bfloat16):
            if (name, dtype) == ("arithmetic", torch.bfloat16):
                continue  # torch rounds 1e8 to bfloat16 before it subtracts
            x = values((7, 13), dtype)
            assert name == "powers" or x.isnan().any()
            same(function, x[1:] if name == "powers" else x, scale=2)
    x = values((7, 13), torch.float16)
    same(lambda x: (x * 2 + 1, torch.relu(x), x > 0, x.exp(), x.sigmoid()), x)


def test_two_operands_broadcast_and_promote_as_in_torch():
    def two(x, y):
        return (x + y, x * y, torch.maximum(x, y), x > y, x != y, torch.where(x > y, x, y), x - (y + x))

    def floats(x, y):
        return (x / y, torch.pow(x, y), torch.atan2(x, y), torch.fmod(x, y), x % y, torch.lerp(x, x + y, 0.3))

    f32, f16, bf16, i32, i64 = torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64
    for a, b in [(f32, f32), (f32, f16), (bf16, bf16), (i32, f32), (i32, i64), (torch.float64, f32)]:
        same(two, values((7, 13), a), values((13,), b, seed=1), scale=2)
    same(floats, values((7, 13)), values((7, 1), seed=1), scale=5)
    same(lambda x, y: x / y, values((5,), i64), values((3, 1), i64, seed=1))

    def logic(x, y):
        return (x & y, x | y, x ^ y, ~x, x == y, x + y, x * 2, x.sum())

    same(logic, values((5, 9), torch.bool), values((9,), torch.bool, seed=1))
    same(
        lambda x: (x // 3, x % -3, -x, x.abs(), x.clamp(-2, 2), x**3, x.sum(), x.amax(0), x.float().mean(), x & 3),
        values((7, 9), i32),
    )
    same(lambda x, y: x * y + 1, values(()), values((3, 5)))
    same(lambda x, y: x * y, values(()), torch.tensor(2.5))


def test_outputs_that_share_what_they_are_made_of():
    def shares(x, y, z):
        x, y, z = (t.square() + 1 for t in (x, y, z))
        total = x + y + z
        return x / total, y / total, z / total

    for size in (5, 64, 100):
        same(shares, *(values((size,), edges=False, seed=n) for n in range(3)))


def test_reductions_alone_and_before_and_after_others():
    reducing = {
        "sums": lambda x: (x.sum(), x.sum(-1), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(-1), x.var(-1), x.std()),
        "extremes": lambda x: (x.amax(-1), x.amin(0), x.amax(), (x > 0).any(-1), (x > 0).all()),
        "softmax": lambda x: x.softmax(-1) * 2,
        "log softmax": lambda x: x.log_softmax(0),
        "layer norm": lambda x: torch.relu(F.layer_norm(x, x.shape[-1:])),
        "RMS norm": lambda x: F.rms_norm(x, x.shape[-1:]),
        "centred": lambda x: torch.relu(x - x.mean(0)),
        "several": lambda x: (x.sum(-1), x + 1, x.amax(-1, keepdim=True) + x),
        "product": lambda x: (x * 0.2).prod(-1),
    }
    for name, function in reducing.items():
        for shape in ((7, 13), (33, 1000)):
            same(function, values(shape, edges=False), scale=40 if name == "sums" else 4)
    same(reducing["extremes"], values((7, 96)))  # a NaN comes through
    same(reducing["softmax"], values((3, 70), torch.bfloat16))
    same(reducing["layer norm"], values((8, 64), torch.float16, edges=False))
    same(lambda x: x.mean((2, 3)), values((3, 6, 14, 14), edges=False))
    same(lambda x: x.sum((0, 2)), values((5, 6, 700), edges=False), scale=40)
    positive = torch.rand(1_000_003)  # no divisor to cut it by: what only grows must not swallow what is small
    result = float(Kernel(torch.fx.symbolic_trace(lambda x: x.sum()))(positive))
    assert abs(result / float(positive.double().sum()) - 1) < 1e-6


def test_memory_of_every_kind_is_read_where_it_is():
    def function(x, y):
        return torch.relu(x * 2 + y)

    base, line = values((40, 52)), values((40 * 52,))
    channels = values((2, 8, 5, 6)).to(memory_format=torch.channels_last)
    for x, y in [
        (base.t(), base.t()),
        (base[::2, 1:], base[1::2, :51]),
        (base[:1].expand(40, 52), base),
        (line[1:], line[:-1]),
        (line[3:1000], line[5:1002]),
        (channels, channels * 2),
        (values((4, 1, 6)), values((5, 1))),
        (values((262_147,)), values((262_147,))),
        (values((5,)).requires_grad_(), values((5,))),
    ]:
        same(function, x, y)
    assert Kernel(torch.fx.symbolic_trace(lambda x: torch.relu(x)))(channels).stride() == torch.relu(channels).stride()
    copies = Kernel(torch.fx.symbolic_trace(function))
    assert "clone" not in dict(launches(copies, line[3:1000], line[5:1002]).detail)
    assert list(launches(copies, base.t(), base.t()).detail.values()) == [1]
    for empty in (torch.ones(0, 5), torch.ones(3, 0)):
        same(lambda x: (x + 1, x.sum()), empty)
    x = values((8, 14))
    same(lambda x: (x.transpose(0, 1) + 1, x.reshape(-1) * 2, x[:, 1:] + 1, x[::2] * 2, x.unsqueeze(1) + x), x)
    same(lambda x: (x[0] + x, x.chunk(2, 0)[1] * 2, x.reshape(14, 8).relu(), x[-1] * x), x)


def test_what_is_read_often_is_computed_once():
    def doubling(times):
        def program(x):
            for _ in range(times):
                x = x + x * 0.01
            return x

        return program

    same(doubling(12), values((33,), edges=False), scale=20)
    text = prim_func(passlab.trace(doubling(12), torch.randn(8))).script()
    assert len(text) < 5_000, len(text)
    try:
        prim_func(passlab.trace(doubling(40), torch.randn(8)))
    except Unsupported as error:
        assert "split the group" in str(error), error
    else:
        raise AssertionError("TVM would take for ever")


def test_what_is_reduced_and_read_again_is_rounded_once():
    for shape in ((64, 128), (3, 5), (2, 7, 9)):
        x, y = values(shape, edges=False) * 1e9, values(shape, edges=False, seed=1)
        same(lambda x, y: (x * y).softmax(-1), x, y)
        same(lambda x, y: (-(x * y)).view(-1, x.shape[-1]).log_softmax(-1), x, y)
        same(lambda x, y: (x * y - (x * y).amin(0, keepdim=True) >= 0).all(), x, y)


def test_the_gradient_of_a_softmax_is_as_finite_as_eagers():
    """Where g·y and y·Σ g·y overflow, (g - Σ g·y)·y need not."""
    y = torch.tensor([[4.0, 0.0, -4.0]]).softmax(-1).expand(2, 3).contiguous()
    grad = torch.tensor([[-3.0e38, 3.0e38, 3.0e38], [1.0, -2.0, 3.0]])
    same(lambda g, y: torch.ops.aten._softmax_backward_data(g, 4 * y, -1, torch.float32), grad, y)


def test_the_gradient_of_a_softmax_has_the_type_of_the_gradient():
    """Eager on a CPU does not convert to the type that the call names, which a program in float64 does not change."""
    y = torch.randn(2, 3, dtype=torch.float64).softmax(-1)
    grad = 1e200 * torch.tensor([[1.0, -2.0, 4.0], [3.0, 0.0, -1.0]], dtype=torch.float64)
    same(lambda g, y: torch.ops.aten._softmax_backward_data(g, y, -1, torch.float32), grad, y)


def test_functions_are_computed_in_vectors_unless_they_are_nested_too_deep():
    def nested(function, times):
        def program(x):
            for _ in range(times):
                x = function(x)
            return x

        return passlab.trace(program, torch.randn(8))

    for function in (torch.exp, torch.tanh, torch.erf, F.gelu):
        library = f"T.{function.__name__}("
        assert library not in prim_func(nested(function, 1)).script(), function
        text = prim_func(nested(function, 9)).script()
        assert library in text or function is F.gelu, function
        assert len(text) < 20_000, (function, len(text))


def test_exp_is_exact_to_a_few_roundings():
    x = torch.cat([torch.linspace(-104, 89, 100_001), EDGES])
    whole = Kernel(torch.fx.symbolic_trace(lambda x: torch.exp(x)))(x)
    exact, least = torch.exp(x.double()), torch.finfo(torch.float32).tiny
    normal = (exact >= least) & exact.isfinite() & (exact <= torch.finfo(torch.float32).max)
    off = ((whole.double() - exact) / exact)[normal].abs().max()
    assert off < 2 * torch.finfo(torch.float32).eps, off
    torch.testing.assert_close(whole[~normal], torch.exp(x)[~normal], rtol=0, atol=least / 2**20, equal_nan=True)


def test_a_stage_by_rows_takes_no_more_steps():
    def steps(function):
        schedule = tvm.s_tir.Schedule(function)
        return sum(math.prod(kernel_schedule._sizes(schedule, schedule.get_loops(b))) for b in blocks(schedule))

    def by_row(x, y):
        return (x * y).softmax(-1)

    def by_column(x, y):
        return (x * y).softmax(0)

    for program in (by_row, by_column):
        function = prim_func(passlab.trace(program, torch.randn(48, 48), torch.randn(48, 48)))
        assert steps(kernel_schedule.on_cpu(function)) < 2 * steps(function), program


# Graphs


def test_fused_graphs_are_equivalent_and_cheaper():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.linear, self.norm = nn.Parameter(torch.randn(32)), nn.Linear(32, 32), nn.LayerNorm(32)

        def forward(self, x, y):
            a = torch.relu(x * self.scale + y)
            b = self.norm(self.linear(a)) + a
            return torch.sigmoid(b) * 2, a

    x, y = torch.randn(8, 32), torch.randn(8, 32)
    before = passlab.trace(Model().eval(), x, y)
    text = str(before.graph)
    after = fused(before, [["norm", "add_1", "sigmoid", "mul_1"], ["relu", "mul", "add"]])
    assert str(before.graph) == text
    assert equivalent(before, after), equivalent(before, after)
    small = 8 * 32 * 4
    assert cost(after, x, y).launches == cost(after, x, y).nodes == 3 and launches(before, x, y) == 8
    # x, y, scale and the result; linear's; its result, `a`, two vectors and the result
    assert bytes_moved(after, x, y) == (3 * small + 128) + (2 * small + 4 * (1024 + 32)) + (3 * small + 2 * 128)
    again = Kernel(subgraph(before, ["mul", "add", "relu"]))
    torch.testing.assert_close(again(x, y), before(x, y)[1])
    assert "x: T.Buffer((8, 32)" in again.source()
    assert again.variants == 1 and again(x[:5], y[:5]).shape == (5, 32) and again.variants == 2

    def two(x, y):
        z = x * y
        return z + 1, z.sum(-1), torch.relu(z)

    before = passlab.trace(two, x, y)
    after = fused(before, [["mul", "add", "sum_1"]])
    assert equivalent(before, after) and launches(after, x, y) == 2
    assert equivalent(before, fused(before, [["mul", "add", "sum_1", "relu"]]))
    # what a group waits for may stand after its first node
    around = passlab.trace(lambda x, y: torch.exp(x) * (y @ y.t() @ x), x, torch.randn(8, 8))
    assert equivalent(around, fused(around, [["exp", "mul"]]))


def test_prim_func_is_what_the_group_says():
    gm = passlab.trace(lambda x, y: torch.relu(x * 2 + y), torch.randn(5, 7), torch.randn(7))
    function = prim_func(gm)
    shapes = [[int(n) for n in parameter.ty.shape] for parameter in function.params]
    assert shapes == [[5, 7], [7], [5, 7]] and function.script().count("T.sblock(") == 2
    x, y = torch.randn(5, 7), torch.randn(7)
    flat = prim_func(gm, strides=[(1, 5), (1,)])
    assert [int(n) for n in flat.params[0].ty.shape] == [35]
    out = torch.empty(7, 5)  # it lies in memory as the input does, which is what torch would do
    tvm.compile(tvm.IRModule({"main": flat}), "llvm")["main"](x.t().contiguous().view(-1), y, out)
    torch.testing.assert_close(out.t(), gm(x, y))


def test_a_kernel_is_pickled_without_what_was_built():
    gm = passlab.trace(lambda x: torch.relu(x * 2), torch.randn(3))
    built = Kernel(subgraph(gm, ["mul", "relu"]))
    x = torch.tensor([-1.0, 0.0, 2.0])
    expected = built(x)
    back = pickle.loads(pickle.dumps(built))
    assert built.variants == 1 and back.variants == 0
    assert torch.equal(back(x), expected) and back.variants == 1


def test_cuda_source_without_a_gpu():
    limits = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"} | limits, host="llvm")

    def source(function, *inputs):
        program = primitives(torch.fx.symbolic_trace(function), inputs)
        function = kernel_schedule.on_cuda(kernel_code.tensor_ir(program, partial=False), target)
        with target:
            built = tvm.tirx.build(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target)
        return built.imports[0].inspect_source()

    x = torch.randn(1000, 512)
    text = source(lambda x, y: torch.relu(x * 2 + y).tanh(), x, torch.randn(512))
    assert text.count("__global__") == 2 and "blockIdx.x" in text and "threadIdx.x" in text and "tanhf(" in text
    assert source(lambda x: x.softmax(-1) * 2, x).count("__global__") == 2  # declared and defined
    assert source(lambda x: (x + 1, x * 2), x).count("__global__") == 2
