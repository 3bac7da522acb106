"""`equivalent` finds what is wrong, accepts what is right, and changes nothing while it looks."""

from __future__ import annotations

import copy
import math
import operator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torch.fx._lazy_graph_module import _LazyGraphModule

from passlab.equivalence import Equivalence, equivalent
from passlab.equivalence.comparison import unlocated
from passlab.equivalence.trials import DEFAULT, TRIALS, spread
from passlab.equivalence.values import EXACT, Tolerance, compare, rms, ulps
from passlab.fx.generate import random_graph
from passlab.fx.programs import Program, copy_inputs


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y = numbers(3, 4), numbers(3, 4, seed=1)
IMAGE = numbers(2, 3, 7, 6)
INTS = torch.arange(6).reshape(2, 3)


def traced(fn) -> fx.GraphModule:
    return fx.symbolic_trace(fn)


def conv_bn(eps: float = 1e-5, **conv) -> nn.Sequential:
    """Convolution and batch norm with statistics away from 0 and 1, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(3, 4, 3, **conv), nn.BatchNorm2d(4, eps=eps), nn.ReLU())
        bn = model[1]
        for t in (bn.weight.data, bn.running_var):
            t.uniform_(0.5, 1.5)
        for t in (bn.bias.data, bn.running_mean):
            t.normal_()
    return model.requires_grad_(False).eval()


def fold(model: nn.Sequential, eps: float | None = None) -> nn.Sequential:
    """The batch norm of `conv_bn` folded into its convolution, by the textbook formula."""
    conv, bn, relu = copy.deepcopy(model)
    scale = bn.weight / torch.sqrt(bn.running_var + (bn.eps if eps is None else eps))
    bias = conv.bias if conv.bias is not None else torch.zeros(4)
    conv.bias = nn.Parameter((bias - bn.running_mean) * scale + bn.bias, requires_grad=False)
    conv.weight.data *= scale.reshape(-1, 1, 1, 1)
    return nn.Sequential(conv, relu).eval()


def softplus(threshold: float) -> nn.Sequential:
    return nn.Sequential(conv_bn()[0], nn.Softplus(threshold=threshold))


class Writes(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self, step: float = 1.0):
        super().__init__()
        self.step = step
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(self.step)
        return x + self.calls


class Reassigns(Writes):
    """Puts a new tensor in the place of its buffer."""

    def forward(self, x):
        self.calls = self.calls + self.step
        return x + self.calls


class ChannelsLast(nn.Module):
    def forward(self, x):
        return x.to(memory_format=torch.channels_last)


def in_place(x, y):
    x.add_(1)
    return x * y


def late_in_place(x, y):
    z = x * y
    x.add_(1)
    return z + y


def stepwise(x, y):
    x.mul_(2)
    return x + y


def bare_softmax(x):
    e = torch.exp(x)
    return e / e.sum(-1, keepdim=True)


def merged_dropout(x):
    d = F.dropout(x, 0.5, True)
    return d + d


# name, before, after, inputs, the trial that finds it, what the reason says
PLANTED = [
    ("x*0 -> 0", lambda x: x * 0, torch.zeros_like, (X,), "nonfinite", "nan before and 0 after"),
    ("x/x -> 1", lambda x: x / x, torch.ones_like, (X,), "extreme", "nan before and 1 after"),
    ("x-x -> 0", lambda x: x - x, torch.zeros_like, (X,), "nonfinite", "nan before and 0 after"),
    ("exp(log(x)) -> x", lambda x: x.log().exp(), lambda x: x + 0, (X.abs(),), "double", "nan before"),
    ("log(exp(x)) -> x", lambda x: x.exp().log(), lambda x: x + 0, (X,), "extreme", "inf before"),
    ("sqrt(x*x) -> x", lambda x: (x * x).sqrt(), lambda x: x + 0, (X.abs(),), "double", "before"),
    ("relu by comparison", torch.relu, lambda x: torch.where(x > 0, x, 0.0), (X,), "nonfinite", "nan before and 0"),
    ("softmax, not stable", lambda x: x.softmax(-1), bare_softmax, (X,), "extreme", "nan after"),
    ("sign of zero shown", lambda x: 1 / (x + 0.0), lambda x: 1 / x, (X,), "extreme", "inf before and -inf after"),
    ("int + 0.0 -> int", lambda x: x + 0.0, lambda x: x.clone(), (INTS,), "given", "dtype of output is float32 before"),
    ("x + zeros(2,1,4) -> x", lambda x: x + torch.zeros(2, 1, 4), lambda x: x + 0, (X,), "given", "shape of output"),
    ("float64 cut to float32", lambda x: x * 2, lambda x: (x * 2).float(), (X,), "double", "dtype of output"),
    ("view, another size", lambda x: x.view(x.size(0), 2, 2), lambda x: x.view(3, 2, 2), (X,), "sizes", "fails"),
    ("fixed batch size", lambda x: x / x.size(0), lambda x: x / 3, (X,), "sizes", "before and"),
    ("reshape -> view", lambda x: x.reshape(-1) * 1, lambda x: x.view(-1) * 1, (X,), "structured", "after fails"),
    ("tuple -> list", lambda x: (x, x * 2), lambda x: [x, x * 2], (X,), "given", "a tuple of 2 before and a list of 2"),
    ("an output lost", lambda x: (x, x * 2), lambda x: (x,), (X,), "given", "tuple of 1 after"),
    ("outputs swapped", lambda x: (x + 1, x * 2), lambda x: (x * 2, x + 1), (X,), "given", "output 0 at"),
    ("GELU, wrong form", F.gelu, lambda x: F.gelu(x, approximate="tanh"), (X,), "given", "before and"),
    ("keyword lost", lambda x, y: torch.add(x, y, alpha=2), torch.add, (X, Y), "given", "before and"),
    ("operands swapped", torch.sub, lambda x, y: y - x, (X, Y), "given", "before and"),
    ("it raises", lambda x: x + 1, lambda x: x @ x, (X,), "given", "after fails, which before does not: RuntimeError"),
    ("dropouts merged", lambda x: F.dropout(x) + F.dropout(x), merged_dropout, (X,), "given", "before and"),
    ("dead draw removed", lambda x: (torch.rand_like(x), x + 1)[1], lambda x: x + 1, (X,), "given", "after draws none"),
    ("draw added", lambda x: x + 1, lambda x: (torch.rand_like(x), x + 1)[1], (X,), "given", "before draws none"),
    ("fewer draws", lambda x: (torch.rand(9), x * 1)[1], lambda x: (torch.rand(4), x * 1)[1], (X,), "given", "differ"),
    ("in-place write lost", in_place, lambda x, y: (x + 1) * y, (X, Y), "given", "before writes into its input x"),
    ("in-place write added", lambda x: x.tanh(), lambda x: x.tanh_(), (X,), "given", "after writes into its input x"),
    ("other value written", lambda x: x.add_(1), lambda x: x.add_(2), (X,), "given", "before and"),
    ("read moved over a write", stepwise, lambda x, y: y + x.mul_(2).sub(0), (X, Y), None, ""),
    ("write through an alias", late_in_place, lambda x, y: (y, x * y, x.add_(1))[1] + y, (X, Y), None, ""),
    ("alias of y kept", stepwise, lambda x, y: (y.clone(), x.mul_(2))[1] + y, (X, Y), None, ""),
    ("y read before the write", stepwise, lambda x, y: y.clone() + x.mul_(2), (X, Y), "same tensor", "before and"),
    ("buffer update lost", Writes(), lambda x: x + 1, (X,), "given", "before writes into calls"),
    ("buffer set anew, lost", Reassigns(), lambda x: x + 1, (X,), "given", "before writes into calls"),
    ("another update", Writes(), Writes(2.0), (X,), "given", "before and"),
    ("fold without eps", conv_bn(1e-2), fold(conv_bn(1e-2), eps=0.0), (IMAGE,), "given", "before and"),
    ("fold, eps of another layer", conv_bn(1e-5), fold(conv_bn(1e-5), eps=1e-3), (IMAGE,), "given", "before and"),
    ("a threshold", softplus(20.0), softplus(5.0), (IMAGE,), "large", "before and"),
    ("padding lost", conv_bn(padding=1)[0], nn.Conv2d(3, 4, 3), (IMAGE,), "given", "shape of output"),
    ("float16 overflow", lambda x: x * 1e-3, lambda x: (x * 1e-5) * 1e2, (X.half(),), None, ""),
]


@pytest.mark.parametrize("row", [r for r in PLANTED if r[4]], ids=lambda r: r[0])
def test_planted_defects_are_found_by_the_trial_meant_for_them(row):
    _, before, after, inputs, trial, words = row
    result = equivalent(before, after, inputs)
    assert not result
    assert result.reason.startswith(TRIALS[trial]) and words in result.reason, result.reason
    assert result.counterexample and result.trials[-1].startswith(trial)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)), -1) @ v


A, B = numbers(4, 5, seed=5), numbers(5, 6, seed=6)
QKV = tuple(numbers(2, 3, 5, 4, seed=s) for s in range(3))
DOUBLE_CONV = conv_bn(padding=1, padding_mode="reflect")

RIGHT = [
    ("x*2 -> x+x", lambda x: x * 2, lambda x: x + x, (X,)),
    ("x/2 -> x*0.5", lambda x: x / 2, lambda x: x * 0.5, (X,)),
    ("x/3 -> x*(1/3)", lambda x: x / 3, lambda x: x * (1 / 3), (X,)),
    ("x**2 -> x*x", lambda x: x**2, lambda x: x * x, (X,)),
    ("(x*2)*3 -> x*6", lambda x: (x * 2.0) * 3.0, lambda x: x * 6.0, (X,)),
    ("x + 0.0 -> x", lambda x: x + 0.0, lambda x: x, (X,)),
    ("x * 1.0 -> x", lambda x: x * 1.0, lambda x: x, (X,)),
    ("int x * 0 -> 0", lambda x: x * 0, torch.zeros_like, (INTS,)),
    ("relu(relu(x)) -> relu(x)", lambda x: torch.relu(torch.relu(x)), torch.relu, (X,)),
    ("relu -> clamp", torch.relu, lambda x: x.clamp(min=0), (X,)),
    ("a+b -> b+a", torch.add, lambda x, y: y + x, (X, Y)),
    ("(a+b)+a -> a+(b+a)", lambda x, y: (x + y) + x, lambda x, y: x + (y + x), (X, Y)),
    ("GELU written out", lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))), F.gelu, (X,)),
    ("softmax, stable", lambda x: x.softmax(-1), lambda x: bare_softmax(x - x.amax(-1, keepdim=True)), (X,)),
    ("fold", conv_bn(), fold(conv_bn()), (IMAGE,)),
    ("fold, as graphs", traced(conv_bn()), traced(fold(conv_bn())), (IMAGE,)),
    ("fold, no bias, stride", conv_bn(bias=False, stride=2), fold(conv_bn(bias=False, stride=2)), (IMAGE,)),
    ("fold, reflecting padding", DOUBLE_CONV, fold(DOUBLE_CONV), (IMAGE,)),
    ("(xA)B -> x(AB)", lambda x: x @ A @ B, lambda x: x @ (A @ B), (X,)),
    ("attention, fused", attention, F.scaled_dot_product_attention, QKV),
    ("einsum -> matmul", lambda x, y: torch.einsum("ij,kj->ik", x, y), lambda x, y: x @ y.t(), (X, Y)),
    ("mean -> sum/n", lambda x: x.mean(-1), lambda x: x.sum(-1) / x.size(-1), (X,)),
    ("sum reordered", lambda x: x.sum(), lambda x: x.flip(0).sum(0).sum(), (numbers(300, 7),)),
    ("channels last", conv_bn(), nn.Sequential(ChannelsLast(), *conv_bn()), (IMAGE,)),
    ("layer norm written out", lambda x: F.layer_norm(x, (4,)), None, (X,)),
    ("draws kept in order", lambda x: F.dropout(x) * 2, lambda x: 2 * F.dropout(x), (X,)),
    ("draws behind another layout", lambda x: F.dropout(-Y + x), lambda x: F.dropout(x - Y), (X,)),
    ("in place on a copy", lambda x: x.clone().add_(1), lambda x: x + 1, (X,)),
    ("same write", lambda x, y: x.mul_(2) + y, lambda x, y: x.add_(x) + y, (X, Y)),
]


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


@pytest.mark.parametrize("row", RIGHT, ids=lambda r: r[0])
def test_right_rewrites_are_accepted(row):
    _, before, after, inputs = row
    result = equivalent(before, after or layer_norm, inputs)
    assert result, result.reason


@pytest.mark.parametrize("row", [r for r in PLANTED if r[4] is None], ids=lambda r: r[0])
def test_what_looks_like_a_defect_and_is_none(row):
    """Traps for the judge itself: the two programs do compute the same."""
    assert equivalent(*row[1:4])


# ---------------------------------------------------------------------------------------------------- random graphs


@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), size=st.integers(1, 40), mutation=st.booleans(), training=st.booleans())
def test_a_graph_equals_its_copy(seed, size, mutation, training):
    gm = random_graph(seed, size, mutation=mutation, training=training)
    result = equivalent(gm, copy.deepcopy(gm))
    assert result, result.reason
    assert result.max_abs == 0


def _scale(gm, node):
    with gm.graph.inserting_after(node):
        value = gm.graph.call_function(operator.mul, (node, 1.001))
    node.replace_all_uses_with(value, delete_user_cb=lambda u: u is not value)


def _drop_dead_draws(gm, node):
    gm.graph.erase_node(node)


@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_changed_output_is_found_and_placed(seed):
    gm = random_graph(seed, 15, random=False, integers=False)
    before = copy.deepcopy(gm)
    node = next(n for n in gm.graph.output_node().all_input_nodes)
    if node.op == "placeholder" or not torch.count_nonzero(dict(_values(gm))[node.name]):
        return
    _scale(gm, node)
    result = equivalent(before, gm)
    assert not result
    assert result.first_diverging == node.next.name
    assert len(result.graph.graph.nodes) <= 3
    assert not equivalent(result.graph, result.graph_after)


def _values(gm):
    return Program(gm).run(gm.meta["inputs"], traced=True).trace.values.items()


# ---------------------------------------------------------------------------------------------------- where they part


def test_first_diverging_node_and_smallest_pair():
    class Model(nn.Module):
        def __init__(self, approximate):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.approximate = approximate

        def forward(self, x):
            h = torch.tanh(self.first(x))
            h = F.gelu(h, approximate=self.approximate)
            return torch.relu(self.second(h)), h + 1

    before, after = traced(Model("none")), traced(Model("tanh"))
    after.load_state_dict(before.state_dict())
    result = equivalent(before, after, (X,))
    assert result.first_diverging == "gelu"
    assert [n.name for n in result.graph.graph.nodes] == ["tanh", "gelu", "output"]
    assert [n.op for n in result.graph.graph.nodes] == ["placeholder", "call_function", "output"]
    assert not equivalent(result.graph, result.graph_after)
    assert "Look at node gelu." in result.reason


def test_a_merged_draw_is_placed_at_its_consumer():
    before = traced(lambda x: F.dropout(x.tanh()) + F.dropout(x.tanh()))
    after = copy.deepcopy(before)
    first, second = (n for n in after.graph.nodes if n.target is F.dropout)
    second.replace_all_uses_with(first)
    after.graph.erase_node(second)
    result = equivalent(before, after, (X,))
    assert result.first_diverging == "add"
    assert [n.name for n in result.graph.graph.nodes] == ["dropout", "tanh_1", "dropout_1", "add", "output"]
    assert [n.name for n in result.graph_after.graph.nodes] == ["dropout", "tanh_1", "add", "output"]


def test_a_lost_draw_is_named_though_it_is_in_before_only():
    before = traced(lambda x: (x.tanh(), torch.rand_like(x), x + 1)[0])
    after = copy.deepcopy(before)
    after.graph.erase_node(next(n for n in after.graph.nodes if n.name == "rand_like"))
    result = equivalent(before, after, (X,))
    assert result.first_diverging == "rand_like"
    assert [n.op for n in result.graph.graph.nodes] == ["placeholder", "call_function", "output"]
    assert [n.op for n in result.graph_after.graph.nodes] == ["placeholder", "output"]


def test_a_lost_write_is_named():
    gm = traced(lambda x: (x[0].zero_(), x + 1)[1])
    after = copy.deepcopy(gm)
    after.graph.erase_node(next(n for n in after.graph.nodes if n.name == "zero_"))
    result = equivalent(gm, after, (X,))
    assert not result and result.first_diverging == "zero_"


def test_an_error_is_placed_at_the_node_that_raised():
    before = traced(lambda x: torch.relu(x.t() @ x))
    after = traced(lambda x: torch.relu(x @ x))
    result = equivalent(before, after, (X,))
    assert result.first_diverging == "matmul" and "RuntimeError" in result.reason


def test_the_pair_runs_on_its_own_inputs():
    """Found in float64, yet the inputs of the pair have the dtype of its parameters."""
    model = conv_bn()
    last = nn.Conv2d(4, 2, 1)
    last.weight.data.abs_()  # of one sign, so that what is infinite stays infinite, and does not become NaN
    before = traced(nn.Sequential(*model, last))
    after = copy.deepcopy(before)
    relu = next(n for n in after.graph.nodes if n.name == "_2")
    with after.graph.inserting_before(relu.next):
        zero = after.graph.call_function(operator.mul, (relu, 0))
        value = after.graph.call_function(operator.add, (relu, zero))
    relu.replace_all_uses_with(value, delete_user_cb=lambda user: user not in (zero, value))
    result = equivalent(before, after, (IMAGE,))
    assert not result and "float64" in result.reason
    for gm in (result.graph, result.graph_after):
        assert {t.dtype for t in gm.meta["inputs"]} == {torch.float32}
        gm(*gm.meta["inputs"])


def test_a_value_given_too_early_does_not_agree():
    """x + 0 has the value of x: that makes neither it nor what follows from it right."""
    before, after = traced(lambda x: (x + x * 0).mean()), traced(lambda x: (x + torch.zeros_like(x)).mean())
    assert equivalent(before, after, (X,)).first_diverging == "zeros_like"


def test_nodes_that_moved_to_another_name_agree():
    """A fold leaves the batch norm's values under the convolution's name: not there, but after it, is the error."""
    before = traced(conv_bn())
    model = fold(conv_bn())
    model[1] = nn.LeakyReLU()
    after = traced(nn.Sequential(model[0], nn.Identity(), model[1]))
    assert equivalent(before, after, (IMAGE,)).first_diverging == "_2"


# ---------------------------------------------------------------------------------------------------- nothing changes


def test_programs_inputs_and_generators_are_left_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), Writes(), Reassigns(), nn.LSTM(5, 3))
    model[1].eval()
    model.register_buffer("spare", torch.zeros(2))
    model.plain = torch.ones(2)
    tensors = dict(model.state_dict(keep_vars=True))
    values = {k: v.detach().clone() for k, v in tensors.items()}
    weights = list(model[5]._flat_weights)
    flags = [m.training for m in model.modules()]
    x, generator = IMAGE.clone(), torch.get_rng_state()
    program = nn.Sequential(nn.ReLU(inplace=True), *model[:5])
    assert equivalent(program, copy.deepcopy(program), (x,), modes=("train", "eval"))
    assert equivalent(model[5], copy.deepcopy(model[5]), (numbers(2, 3, 5),))
    assert not equivalent(program, nn.Identity(), (x,))
    assert torch.equal(x, IMAGE) and torch.equal(generator, torch.get_rng_state())
    assert [m.training for m in model.modules()] == flags
    for name, t in model.state_dict(keep_vars=True).items():
        assert t is tensors[name] and torch.equal(t, values[name]), name
    assert all(a is b for a, b in zip(model[5]._flat_weights, weights, strict=True))


def test_a_failing_program_is_left_alone_too():
    class Fails(Writes):
        def forward(self, x):
            super().forward(x)
            raise RuntimeError("at the end")

    after = Fails()
    result = equivalent(lambda x: x + 1, after, (X,))
    assert "at the end" in result.reason and float(after.calls) == 0


def test_what_data_writes_reaches_copies_only():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x):
            self.w.data.mul_(2)
            return x + 1

    hidden = Hidden()
    equivalent(hidden, hidden, (X,))
    assert torch.equal(hidden.w.data, torch.ones(4))


def test_recurrent_weights_are_exchanged_with_their_second_list():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lstm = nn.LSTM(4, 3)
    other = copy.deepcopy(lstm)
    assert equivalent(lstm, other, (numbers(5, 2, 4),))
    other.weight_hh_l0.data[0, 0] += 1e-2
    assert not equivalent(lstm, other, (numbers(5, 2, 4),))


def test_each_trial_runs_each_program_once():
    calls = []

    def program(x):
        calls.append(0)
        return x.reshape(12) * 2  # turns other sizes down

    result = equivalent(program, lambda x: x.reshape(12) * 2, (X,))
    assert len(calls) == len(result.trials) + len(result.notes)
    assert any("sizes" in note for note in result.notes)


# ---------------------------------------------------------------------------------------------------- modes and state


def test_modes():
    bn = nn.BatchNorm2d(3)
    eval_only = traced(nn.Sequential(bn)).eval()
    identity = lambda x: (x - bn.running_mean[:, None, None]) / torch.sqrt(bn.running_var[:, None, None] + bn.eps)  # noqa: E731
    assert equivalent(eval_only, identity, (IMAGE,), trials=("given",))
    assert not equivalent(eval_only, identity, (IMAGE,), modes=("eval", "train"), trials=("given",))
    assert not equivalent(eval_only.train(), identity, (IMAGE,), trials=("given",))


def test_after_runs_in_the_mode_of_before():
    before = traced(nn.Sequential(nn.Dropout(0.5), nn.ReLU())).eval()
    after = copy.deepcopy(before).train()
    assert equivalent(before, after, (X,))
    assert after.training and after.get_submodule("0").training


def test_running_statistics_are_compared():
    before = nn.Sequential(nn.BatchNorm2d(3, momentum=0.1)).train()
    after = nn.Sequential(nn.BatchNorm2d(3, momentum=0.2)).train()
    result = equivalent(before, after, (IMAGE,))
    assert "written into 0.running_mean" in result.reason


def test_aliasing_counts_where_something_is_written_or_when_asked_for():
    same = equivalent(lambda x: x.clone(), lambda x: x, (X,))
    assert same and same.notes == ("output shares its memory with its input x only after",)
    assert "shares its memory" in equivalent(lambda x: x.clone(), lambda x: x, (X,), aliasing=True).reason
    assert "shares its memory" in equivalent(lambda x: x.add_(1).clone(), lambda x: x.add_(1), (X,)).reason
    assert equivalent(lambda x: x.add_(1).clone(), lambda x: x.add_(1), (X,), aliasing=False)
    view = equivalent(lambda x: x.t(), lambda x: x.t().clone(), (X,), aliasing=True)
    assert "only before" in view.reason


# ---------------------------------------------------------------------------------------------------- numbers


def test_tolerance_follows_dtype_and_depth():
    eps = 2.0**-23
    assert Tolerance.of(torch.float32, 4).rtol == 16 * eps * 2
    ones = torch.ones(8, dtype=torch.float64)
    tolerance = Tolerance.of(torch.float32, 1)  # at |b| = rms = 1 the bound is 2·rtol
    assert not tolerance.mismatches(ones, ones + 31 * eps).any()
    assert tolerance.mismatches(ones, ones + 33 * eps).all()
    # In sums a small element is measured against its neighbours, elsewhere against itself (and 1).
    b = torch.tensor([1e6, 1e-3], dtype=torch.float64)
    a = b + torch.tensor([0.0, 1e-3], dtype=torch.float64)
    assert not Tolerance.of(torch.float32, 1).mismatches(b, a).any()
    assert Tolerance.of(torch.float32, 1, sums=False).mismatches(b, a).tolist() == [False, True]


def test_nonfinite_values_and_zeros():
    inf, nan = math.inf, math.nan
    b = torch.tensor([nan, inf, -inf, nan, inf, 1.0, inf, 0.0], dtype=torch.float64)
    a = torch.tensor([nan, inf, -inf, 1.0, -inf, nan, nan, -0.0], dtype=torch.float64)
    assert Tolerance.of(torch.float64, 1).mismatches(b, a).tolist() == [
        False,
        False,
        False,
        True,
        True,
        True,
        True,
        False,
    ]


def test_rms_neither_overflows_nor_counts_nonfinite_values():
    values = torch.tensor([3e200, 4e200, math.inf, math.nan], dtype=torch.float64)
    assert rms(values) == pytest.approx(12.5**0.5 * 1e200)
    assert rms(torch.zeros(3)) == 0 and rms(torch.tensor([math.nan])) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("thorough", [False, True])
def test_a_folded_weight_is_compared_no_more_finely_than_it_can_be_stored(dtype, thorough):
    model = conv_bn().to(dtype)
    folded = fold(model).to(dtype)
    before, inputs = traced(model), (IMAGE.to(dtype),)
    assert (same := equivalent(before, traced(folded), inputs, thorough=thorough)), same.reason
    for name, part in folded[0].named_parameters():
        wrong = copy.deepcopy(folded)
        wrong[0].get_parameter(name).data = part.data * (1.5 if dtype == torch.bfloat16 else 1.05)
        assert not equivalent(before, traced(wrong), inputs, thorough=thorough), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_ulps(dtype):
    one, zero = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    next_one = one + torch.finfo(dtype).eps
    tiny = torch.tensor(torch.finfo(dtype).smallest_normal, dtype=dtype)
    assert ulps(one, next_one) == 1 and ulps(next_one, one) == 1
    assert ulps(zero, -zero) == 0 and ulps(-tiny, tiny) == 2 * ulps(zero, tiny)
    assert ulps(one, 2 * one) == 1 / torch.finfo(dtype).eps


def test_reported_errors():
    result = equivalent(lambda x: x, lambda x: x + torch.tensor([0.0, 0.0, 0.0, 0.5]), (torch.ones(2, 4),))
    assert result.max_abs == 0.5 and result.mse == 0.0625 and result.max_ulp == 2**22
    assert "2 of 8 elements" in result.reason


def test_given_tolerances_replace_the_derived_ones():
    gelu = (F.gelu, lambda x: F.gelu(x, approximate="tanh"), (X,))
    assert not equivalent(*gelu)
    assert equivalent(*gelu, atol=1e-3, rtol=1e-3)
    assert not equivalent(lambda x: x / 3, lambda x: x * (1 / 3), (X,), atol=0.0, rtol=0.0)


def test_a_forgotten_eps_is_seen_in_float64():
    """Both relative errors are below the tolerance of float32 at this depth; only float64 can tell them apart."""

    def deep(eps):
        def program(x):
            for _ in range(40):
                x = x * torch.rsqrt(x * x + eps)
            return x

        return traced(program)

    result = equivalent(deep(1e-6), deep(1.01e-6), (X,))
    assert not result and "float64" in result.reason


def test_elements_that_rounding_alone_moves_decide_nothing():
    """round() of a folded product: a tie that the fold breaks the other way."""

    class Scaled(nn.Module):
        def __init__(self, folded):
            super().__init__()
            self.a = nn.Parameter(torch.tensor(0.1))
            self.b = nn.Parameter(torch.tensor(5.0))
            self.c = nn.Parameter(torch.tensor(0.1) * torch.tensor(5.0))
            self.folded = folded

        def forward(self, x):
            return torch.round(x * self.c if self.folded else x * self.a * self.b)

    ties = torch.arange(1.0, 40.0)
    before, after = Scaled(False), Scaled(True)
    assert not torch.equal(before(ties), after(ties))
    assert equivalent(before, after, (ties,), trials=("given",))


def test_ties_that_a_nudge_keeps_by_chance_decide_nothing():
    before, after = traced(lambda x: torch.round(x * 0.3 * 5.0)), traced(lambda x: torch.round(x * (0.3 * 5.0)))
    ties = torch.arange(1.0, 1000.0)
    assert int((before(ties) != after(ties)).sum()) > 50
    assert equivalent(before, after, (ties,), trials=("given",))


@pytest.mark.parametrize(
    "after",
    [
        lambda x: torch.where(x > 50, x * 1.5 - 1, x * 1.5),
        lambda x: torch.where((x < 0) & (x > -1e-6), 1.0, x * 1.5),
        lambda x: torch.where(x == 0, 1000.0, x * 1.5),
    ],
    ids=["at 100", "at -1e-8", "at 0"],
)
@pytest.mark.parametrize("shape", [(4, 5), (100, 100)])
def test_without_sums_no_element_is_excused_by_a_huge_one(after, shape):
    verdict = equivalent(traced(lambda x: x * 1.5), traced(after), (numbers(*shape),), trials=["given", "extreme"])
    assert not verdict, "1e30 moves by 1e14 in float64"


def test_signs_that_a_nudge_may_keep_decide_nothing():
    """sin() of 1e30 has any sign after a nudge, and each of these outputs one of its own."""

    def signs(x):
        return x.sin().sign().unbind()

    x = torch.arange(1.0, 65.0)
    assert equivalent(signs, lambda x: signs(x / 49 * 49), (x,))
    assert not equivalent(signs, lambda x: signs(x.where(x.abs() > 1e-9, 1)), (x,))  # wrong for 0 and 1e-40


def test_integers_are_exact():
    assert not equivalent(lambda x: x * 3, lambda x: x * 3 + (x == 5), (INTS,))
    assert equivalent(lambda x: x // 2, lambda x: x >> 1, (INTS,))


RARE = {
    **{str(dtype): lambda x, dtype=dtype: x.to(dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)},
    "complex32": lambda x: x.to(torch.complex32),
    "float4": lambda x: x.view(torch.float4_e2m1fn_x2),
    "qint8": lambda x: torch.quantize_per_tensor(x.float(), 0.5, 0, torch.qint8),
    "nested": lambda x: torch.nested.nested_tensor([x[:4].float(), x[4:].float()]),
    "jagged": lambda x: torch.nested.nested_tensor([x[:4].float(), x[4:].float()], layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", RARE.values(), ids=RARE)
def test_tensors_for_which_torch_has_hardly_any_operation(make):
    numbers = torch.arange(12, dtype=torch.uint8)
    x, other = make(numbers), make(numbers.flip(0))
    for prepare in (lambda fn: fn, traced):
        same, different = (prepare(fn) for fn in (lambda x: (x, 1), lambda x: (other, 1)))
        assert equivalent(same, same, (x,))
        assert "output 0" in equivalent(same, different, (x,)).reason


def test_without_values_only_shapes_and_dtypes_are_compared():
    result = equivalent(torch.relu, torch.tanh, (X.to("meta"),))
    assert result and result.trials == ("given (float32, meta)",) and "have no values" in result.notes[0]
    assert not equivalent(torch.relu, torch.Tensor.double, (X.to("meta"),))


def test_other_values_than_tensors():
    assert equivalent(lambda x: {"n": x.size(0), "x": x}, lambda x: {"n": len(x), "x": x * 1}, (X,))
    assert not equivalent(lambda x: x.size(0), lambda x: float(x.size(0)), (X,))
    assert equivalent(lambda x: float(x.mean()), lambda x: float(x.sum() / x.numel()), (X,))
    assert not equivalent(lambda x: None, lambda x: x, (X,))


def test_structures():
    assert compare([1, (2, 3)], [1, (2, 3)], EXACT) == []
    (difference,) = compare({"a": 1}, {"b": 1}, EXACT)
    assert difference.sentence == "output is a dict with 'a' before and a dict with 'b' after"
    assert compare(fx.immutable_collections.immutable_list([1]), [1], EXACT) == []
    assert compare(torch.max(X, 0), tuple(torch.max(X, 0)), EXACT) == []


# ---------------------------------------------------------------------------------------------------- inputs


def test_inputs_in_all_their_forms():
    gm = traced(lambda x: x * 2)
    with pytest.raises(ValueError, match=r"passlab\.trace"):
        equivalent(gm, gm)
    gm.meta["inputs"] = (X,)
    assert equivalent(gm, gm) and equivalent(gm, gm, X) and equivalent(gm, gm, [X])
    assert len([t for t in equivalent(gm, gm, [(X,), (Y,)]).trials if t.startswith("given")]) == 2
    wrong_on_second = equivalent(gm, lambda x: x * (3 if x.size(0) == 5 else 2), [(X,), (numbers(5, 4),)])
    assert not wrong_on_second and wrong_on_second.counterexample["x"].shape == (5, 4)


def test_shapes_on_placeholders_do_for_inputs():
    from torch.fx.passes.shape_prop import ShapeProp

    gm = traced(lambda x: x * 2)
    ShapeProp(gm).propagate(X)
    result = equivalent(gm, traced(lambda x: x * 3))
    assert not result and result.counterexample["x"].shape == X.shape


def test_integer_inputs_stay_in_range():
    table = nn.Embedding(6, 4)
    assert equivalent(table, copy.deepcopy(table), (INTS,)).notes == ()


def test_copies_keep_strides_and_shared_memory():
    base = torch.arange(12.0).reshape(3, 4)
    view, other = copy_inputs((base[:, ::2], base.t()))
    assert view.stride() == (4, 2) and other.stride() == (1, 4)
    view[0, 0] = 100
    assert other[0, 0] == 100 and base[0, 0] == 0
    assert not spread(X).is_contiguous() and torch.equal(spread(X), X)


def test_low_precision_is_left_out_of_large_graphs_and_said_so():
    large = random_graph(1, 600, only=("pointwise",))
    result = equivalent(large, large)
    assert not any(t.startswith("half") for t in result.trials) and any("half" in note for note in result.notes)
    assert any(t.startswith("half") for t in equivalent(large, large, thorough=True).trials)


def test_thorough_and_chosen_trials():
    result = equivalent(torch.relu, torch.relu, (X,), thorough=True)
    assert {t.split(" (")[0] for t in result.trials} == set(TRIALS) - {"same tensor"}
    assert [t.split(" (")[0] for t in equivalent(torch.relu, torch.relu, (X,), trials=("half",)).trials] == ["half"]
    with pytest.raises(ValueError, match="does not know 'edge'"):
        equivalent(torch.relu, torch.relu, (X,), trials=("edge",))
    assert set(DEFAULT) <= set(TRIALS)


# ---------------------------------------------------------------------------------------------------- odd programs


@pytest.mark.parametrize(
    ("after", "words"),
    [(None, "None: does the pass end with a return?"), (3, "a int, not a program"), (fx.Graph(), "not a program")],
)
def test_no_program_is_an_answer(after, words):
    result = equivalent(lambda x: x, after, (X,))
    assert not result and words in result.reason


def test_another_format_is_refused_with_what_imports_it():
    with pytest.raises(ValueError, match=r"`before` is a str. .* text by passlab\.mlir\.parse"):
        equivalent("a string", "a string")


def test_another_number_of_inputs():
    result = equivalent(traced(lambda x: x), traced(lambda x, y: x), (X,))
    assert "before takes 1 input and after takes 2" in result.reason


def test_before_failing_is_the_callers_error():
    with pytest.raises(ValueError, match="`before` itself fails on its example inputs: RuntimeError"):
        equivalent(lambda x: x @ x, lambda x: x, (X,))


def test_an_edited_graph_counts_without_recompile():
    gm = traced(lambda x: torch.relu(x) + 1)
    gm.meta["inputs"] = (X,)
    after = copy.deepcopy(gm)
    next(n for n in after.graph.nodes if n.name == "relu").target = torch.tanh
    assert torch.equal(gm(X), after(X))  # the compiled code is the old one
    assert not equivalent(gm, after)


def test_a_graph_that_is_compiled_when_it_is_first_run_counts_as_it_is_then():
    """Such are the graphs that come out of `autograder.engine.wire`."""
    late = _LazyGraphModule(nn.Module(), traced(lambda x: torch.relu(x) + 1).graph)
    assert not hasattr(late, "_code")
    next(n for n in late.graph.nodes if n.name == "relu").target = torch.tanh
    assert equivalent(late, traced(lambda x: torch.tanh(x) + 1), (X,))


def test_a_broken_graph_is_an_answer():
    gm = traced(lambda x: torch.relu(x) + 1)
    after = copy.deepcopy(gm)
    next(n for n in after.graph.nodes if n.name == "relu").target = "not a function"
    result = equivalent(gm, after, (X,))
    assert not result and "after" in result.reason


def test_an_erased_operand_is_an_answer():
    """A rewrite that puts another node in the place of one which a list still holds leaves such a graph."""
    before = traced(lambda x: torch.cat([torch.relu(x) + 1, x]))
    after = copy.deepcopy(before)
    add = next(n for n in after.graph.nodes if n.name == "add")
    add.users.clear()
    after.graph.erase_node(add)
    words = "Node cat still uses add, which is no longer in the graph"
    assert words in equivalent(before, after, (X,)).reason
    with pytest.raises(ValueError, match=f"cannot run `before`. {words}"):
        equivalent(after, before, (X,))


def test_exit_is_an_answer():
    def leaves(x):
        raise SystemExit(3)

    assert "SystemExit: 3" in equivalent(torch.relu, leaves, (X,)).reason


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_and_exported_programs():
    model = conv_bn()
    scripted = torch.jit.trace(model, IMAGE)
    assert equivalent(model, scripted, (IMAGE,))
    exported = torch.export.export(model, (IMAGE,))
    assert equivalent(exported, model, (IMAGE,))
    assert not equivalent(exported, fold(model, eps=0.1), (IMAGE,))


def test_the_answer_reads_well():
    good, bad = equivalent(torch.relu, torch.relu, (X,)), equivalent(torch.relu, torch.tanh, (X,))
    assert repr(good).startswith("the same function in 9 trials on cpu") and good._repr_html_().startswith("<p>")
    assert repr(bad).startswith("not the same function. On the example inputs, output at")
    assert isinstance(bad, Equivalence) and bad.graph is not None and "&" not in bad.reason


def test_the_place_of_a_difference_is_searched_for_unless_its_caller_shows_none():
    before, after = traced(lambda x: torch.relu(x) + 1), traced(lambda x: torch.tanh(x) + 1)
    result = equivalent(before, after, (X,))
    with unlocated():
        alone = equivalent(before, after, (X,))
    assert not result and result.first_diverging and result.graph is not None
    assert not alone and alone.first_diverging is None and alone.graph is None
    assert result.reason.startswith(alone.reason) and result.reason != alone.reason
    assert equivalent(before, after, (X,)).first_diverging == result.first_diverging
