"""The course's passes behind torch.compile: the same results and gradients in fewer launches."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.bench import backend as bench
from autograder.bench.figures import Figure
from passlab import backend, models
from passlab.autodiff import RECOMPUTED
from passlab.capstone import training
from passlab.capstone.reference import cse
from passlab.capture import lower, save_all
from passlab.kernels import Kernel
from passlab.measure import cost

aten = torch.ops.aten


def gradients(f, parameters, *inputs):
    """Return results, gradients and the inputs after a call."""
    inputs = [x.clone().requires_grad_(x.requires_grad) for x in inputs]
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(0)
    y = f(*inputs)
    loss = sum((one * torch.linspace(0.5, 1.5, one.numel()).view(one.shape)).sum() for one in outputs(y))
    loss.backward()
    return [*outputs(y), *(p.grad for p in parameters), *(x.grad for x in inputs), *inputs]


def outputs(y):
    return y if isinstance(y, tuple) else (y,)


def agree(f, *inputs, parameters=(), tolerance=1e-5, **options):
    """Assert that a function behind the reference gives what it gives without, and return the backend."""
    torch.compiler.reset()
    mine = training.reference(check=True, **options)
    found = gradients(torch.compile(f, backend=mine), parameters, *inputs)
    for a, b in zip(found, gradients(f, parameters, *inputs), strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    return mine


def kernels(mine):
    return [sum(isinstance(part, Kernel) for part in stage.after.children()) for stage in mine.stages]


@pytest.mark.parametrize("name", ["mlp", "convnet", "residual", "attention", "gpt"])
def test_networks_train_as_before_with_fewer_launches_and_bytes(name):
    row = models.ZOO[name]
    model = row.build().requires_grad_(True)
    mine = agree(model, *row.inputs(), parameters=list(model.parameters()))
    plain = backend(partition=save_all)
    torch.compiler.reset()
    gradients(torch.compile(model, backend=plain), [], *row.inputs())
    before, after = [cost(stage.before) for stage in plain.stages], [cost(stage.after) for stage in mine.stages]
    assert [stage.kind for stage in mine.stages] == ["forward", "backward"]
    assert sum(one.launches for one in after) < 0.85 * sum(one.launches for one in before)
    assert sum(one.bytes for one in after) < sum(one.bytes for one in before)


def test_a_chain_is_one_kernel_in_each_graph():
    def chain(x, y):
        return (x * y.sigmoid() + 1).tanh() * 0.5

    mine = agree(chain, torch.randn(8, 64, requires_grad=True), torch.randn(64, requires_grad=True))
    assert kernels(mine) == [1, 1]
    assert [cost(stage.after).launches for stage in mine.stages] == [1, 1]


def test_batch_norm_that_trains_writes_its_statistics():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    torch.compiler.reset()
    found = gradients(torch.compile(model, backend=training.reference(check=True)), list(model.parameters()), x)
    for a, b in zip(found, gradients(other, list(other.parameters()), x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    assert model[1].num_batches_tracked == 1


FUNCTIONS = {
    "softmax": lambda x: F.log_softmax(x * 2, -1) + F.softmax(x, 0),
    "layer norm": lambda x: F.layer_norm(F.gelu(x), (16,)) * x,
    "split": lambda x: x.split([4, 12], 1)[0].exp() * x.chunk(4, 1)[1].sin(),
    "views": lambda x: (x.t() + 1).reshape(4, -1).relu().transpose(0, 1)[1:].cos(),
    "one reader twice": lambda x: (x.t() * x.t() + x.t().mean(0)).sin(),
    "two results": lambda x: ((x + 1).relu(), (x + 1).relu().t() @ x),
    "an integer": lambda x: torch.where(x > 0, x, x.floor()) * torch.arange(16),
    "an index": lambda x: x[torch.tensor([0, 2, 2])].exp() + 1,
    "a norm": lambda x: (x / (x * x).sum(1, keepdim=True).sqrt().clamp(min=1e-3)).abs(),
    "ties": lambda x: (x.round().amax(1) + x.relu().amax(0).sum()).exp2(),
    "nothing to fuse": lambda x: x @ x.t(),
    "an input": lambda x: (x, x.detach() * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_and_their_gradients(name, dtype):
    x = torch.randn(8, 16, dtype=dtype, generator=torch.Generator().manual_seed(3)).requires_grad_()
    agree(FUNCTIONS[name], x)


def test_not_contiguous_inputs_and_edges():
    x = torch.tensor([[0.0, -0.0, 1.0, float("inf")], [-1.0, 2.0, 2.0, -3.0]]).t().requires_grad_()
    agree(lambda x: torch.relu(x) * 2 + x.sigmoid(), x)
    agree(lambda x: x.clamp(-1, 1).abs() * torch.exp(-x.abs()), x)


def test_what_moves_few_bytes_goes_with_a_larger_group_of_its_level():
    def unrelated(small, *large):
        return [(x * 2 + 1).relu() for x in (small, *large)]

    two = [torch.randn(training.SMALL // 4) for _ in range(2)]  # each is read and written: more bytes than that
    low = lower(unrelated, torch.randn(8), *two).forward
    _, groups = training.grouped(low)
    assert sorted(map(len, groups)) == [3, 6]


def test_the_intermediate_values_of_a_group_do_not_make_it_large():
    def unrelated(x, y):
        for _ in range(20):
            x, y = (x * 2).sigmoid(), (y + 1).tanh()
        return x, y

    few = training.SMALL // 4 // 4  # floats; read and written: half of the bytes
    _, groups = training.grouped(lower(unrelated, torch.randn(few), torch.randn(few)).forward)
    assert len(groups) == 1


def test_what_is_written_into_the_caller_stays_written():
    def write(x, y):
        y.mul_(2).add_(1)
        return x * y + y.sum()

    agree(write, torch.randn(4, requires_grad=True), torch.ones(4))


def test_symbols_and_random_numbers_are_left_as_they_are():
    torch.compiler.reset()
    mine = training.reference()
    f = torch.compile(lambda x: (x * 2 + 1).relu(), backend=mine, dynamic=True)
    for size in (3, 5):
        x = torch.randn(size, 4)
        torch.testing.assert_close(f(x), (x * 2 + 1).relu())
    assert kernels(mine) == [0]
    x = torch.ones(1000, requires_grad=True)
    torch.compiler.reset()
    y = torch.compile(lambda x: F.dropout(x * 2, 0.5) + 1, backend=training.reference(check=True))(x)
    y.sum().backward()
    assert set(y.tolist()) == {1.0, 5.0} and torch.equal(x.grad, y.detach() - 1)


@pytest.mark.parametrize("backend_of", [training.reference, training.built])
def test_a_group_that_is_too_much_for_a_kernel_is_left_to_torch(backend_of, monkeypatch):
    monkeypatch.setattr("passlab.kernels.code.WRITTEN_OUT", 6)

    def two(x):
        y = x.sigmoid() + 1
        z = (y * y + y).exp()
        return (z * z + z) @ x, (x * 2).relu()

    x = torch.rand(3, 3)
    torch.compiler.reset()
    for a, b in zip(torch.compile(two, backend=backend_of(check=True))(x), two(x), strict=True):
        torch.testing.assert_close(a, b)


def test_without_gradients():
    row = models.ZOO["residual"]
    model = row.build()
    torch.compiler.reset()
    mine = training.reference(check=True)
    (x,) = row.inputs()
    torch.testing.assert_close(torch.compile(model, backend=mine)(x), model(x), rtol=1e-4, atol=1e-5)
    assert [stage.kind for stage in mine.stages] == ["inference"] and kernels(mine) == [1]


@pytest.mark.parametrize("name", ["mlp", "residual", "gpt"])
def test_the_compiler_of_day_12_runs_behind_torch_compile(name):
    row = models.ZOO[name]
    model = row.build().requires_grad_(True)
    torch.compiler.reset()
    mine = training.built(check=True)
    f, parameters = torch.compile(model, backend=mine), list(model.parameters())
    for seed in (1, 2):  # the second call runs what the first one built
        inputs = row.inputs(seed=seed)
        for a, b in zip(gradients(f, parameters, *inputs), gradients(model, parameters, *inputs), strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_cse_keeps_what_is_computed_once_more():
    graph = fx.Graph()
    x = graph.placeholder("x")
    sines = [graph.call_function(aten.sin.default, (x,)) for _ in range(3)]
    graph.output(tuple(sines))
    sines[2].meta[RECOMPUTED] = True
    gm = cse(fx.GraphModule({}, graph))
    assert gm.graph.find_nodes(op="output")[0].args[0] == (sines[0], sines[0], sines[2])


def test_the_bench_tells_what_it_measured_and_what_not(monkeypatch):
    monkeypatch.setattr(bench.shutil, "which", lambda name: None)
    found = {figure.what: figure for figure in bench.behind(0, ["tiny"]) if isinstance(figure, Figure)}
    launches = found["tiny: launches over eager's"]
    assert (launches.value, launches.held) == (0.4, True)
    assert launches.baseline == (
        "2 of 5; 0.00 in matrix products and convolutions; 2 kernels that reduce; "
        "with these products and convolutions as calls no kernels are fewer than 2"
    )
    assert found["tiny: kernels, error"].held
    assert found["tiny: time of Inductor"].seen == "not measured: Inductor needs a C++ compiler"
    assert found["networks with launches over eager's at most 0.5"].seen == "1 of 1"


def test_the_bench_counts_what_no_kernel_and_no_cut_avoids():
    mine = backend(partition=save_all)
    torch.compiler.reset()
    torch.compile(lambda x: x.exp().sum(), backend=mine)(torch.ones(8, requires_grad=True)).backward()
    x, total, exponential = 32, 4, 32  # bytes; the gradients of the first two have as many
    assert bench.least(mine.stages) == (x + total + exponential) + (exponential + total + x)
    assert bench.least(mine.stages, saved=False) == (x + total) + (total + x)


def test_the_bench_counts_the_launches_that_no_kernel_avoids():
    def f(x, w):
        a = torch.sin(x) @ w  # sin, product
        b = torch.cos(torch.exp(a.t())) @ w  # a kernel of both, product
        return b.t() @ a + x, torch.tanh(x)  # a view alone is none; product, sum; beside the first kernel

    stages = stages_of(f, torch.randn(8, 8), torch.randn(8, 8))
    assert bench.fewest(stages) == 3 + 3
    inside = [SimpleNamespace(before=stage.before, after=fx.GraphModule({}, fx.Graph())) for stage in stages]
    assert bench.fewest(inside) == 1  # with the products computed in kernels


def stages_of(f, *inputs):
    """Return the graph of a function, before and after no pass."""
    plain = backend()
    torch.compiler.reset()
    torch.compile(f, backend=plain)(*inputs)
    return plain.stages


def test_what_a_graph_only_hands_over_is_not_moved():
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(2, 8, requires_grad=True)
    low = lower(lambda x, w: torch.sin(x @ w.t()), x, w, partition=save_all)
    stages = [
        SimpleNamespace(kind=kind, before=gm, after=gm)
        for kind, gm in (("forward", low.forward), ("backward", low.backward))
    ]
    x_bytes, w_bytes, y_bytes = 4 * 4 * 8, 4 * 2 * 8, 4 * 4 * 2
    # The backward graph gets x, a view of w, the product and the tangent; the view and x are only handed over.
    ahead, behind = x_bytes + w_bytes + 2 * y_bytes, 2 * (x_bytes + w_bytes) + 2 * y_bytes
    assert bench.least(stages) == ahead + behind
    assert bench.least(stages, saved=False) == ahead + behind - 2 * y_bytes - w_bytes
