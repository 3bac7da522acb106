"""The cut of a joint graph: what it saves, and that the two parts compute what the whole does."""

import random

import pytest
import torch
from torch import nn

from autograder.bench.training import least_bytes, least_work, values
from passlab import equivalent, models, random_graph
from passlab.autodiff import (
    EXPENSIVE,
    RECOMPUTED,
    bytes_of,
    joint,
    partition,
    rejoin,
    saved_under_budget,
    saved_values,
    work_of,
)
from passlab.autodiff.joint import ends_of
from passlab.capture import backend, lower, save_all
from passlab.memory.tasks import peak, tasks_of


def _drawn(seed, size=10):
    """Return a joint graph of a random graph, and the number of its forward outputs."""
    gm = random_graph(seed, size, mutation=False, random=False)
    low = lower(gm, *gm.meta["inputs"]).forward
    wrt = None if ends_of(low) else ()  # integers have no gradient
    return joint(low, wrt), len(low.graph.find_nodes(op="output")[0].args[0])


def test_the_cut_is_the_optimum_on_small_graphs():
    tried = 0
    for seed in range(30):
        whole, outputs = _drawn(seed, 6)
        if len(values(whole, outputs)[1]) > 12:
            continue
        assert sum(map(bytes_of, saved_values(whole, outputs))) == least_bytes(whole, outputs), seed
        tried += 1
    assert tried >= 8


@pytest.mark.parametrize("name", ["mlp", "skip", "attention", "gpt", "lstm", "unet"])
def test_no_more_is_saved_than_by_torchs_cut(name):
    it = models.ZOO[name]
    low = lower(it.build(), *it.inputs(), gradients=True)
    assert sum(map(bytes_of, saved_values(low.joint, low.outputs))) <= low.saved_bytes


@pytest.mark.parametrize("seed", range(6))
def test_both_parts_compute_what_the_whole_does(seed):
    whole, outputs = _drawn(seed, 14)
    forward, backward = partition(whole, num_fwd_outputs=outputs)
    gen = torch.Generator().manual_seed(seed)
    placeholders = whole.graph.find_nodes(op="placeholder")
    values = {
        node.name: torch.rand(val.shape, generator=gen, dtype=val.dtype) + 0.1
        if (val := node.meta["val"]).is_floating_point()
        else torch.zeros(val.shape, dtype=val.dtype)
        for node in placeholders
    }
    expected = whole(*values.values())
    result = forward(*(value for name, value in values.items() if not name.startswith("tangent")))
    results, saved = result[:outputs], result[outputs:]
    results += backward(*saved, *(value for name, value in values.items() if name.startswith("tangent")))
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_what_is_expensive_is_never_computed_twice_and_the_rest_is_marked():
    low = lower(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Sigmoid()), torch.randn(3, 4), gradients=True)
    forward, backward = partition(low.joint, num_fwd_outputs=low.outputs)
    again = [node for node in backward.graph.nodes if node.meta.get(RECOMPUTED)]
    assert again and not {node.target for node in again} & EXPENSIVE
    everything, _ = partition(
        low.joint, num_fwd_outputs=low.outputs, expensive={n.target for n in low.joint.graph.nodes}
    )
    assert len(everything.graph.find_nodes(op="output")[0].args[0]) >= len(
        forward.graph.find_nodes(op="output")[0].args[0]
    )


def test_random_numbers_are_drawn_once():
    low = lower(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)), torch.randn(3, 4), gradients=True)
    _, backward = partition(low.joint, num_fwd_outputs=low.outputs)
    draws = [
        node for node in backward.graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    ]
    assert not draws


def test_it_stands_behind_torch_compile():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2), nn.Softmax(-1)), torch.randn(3, 4)
    model(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.compiler.reset()
    torch.compile(model, backend=backend(partition=partition))(x).square().sum().backward()
    for parameter, right in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, right)


def test_an_input_that_is_overwritten_is_not_saved():
    def scaled(x, scale):
        y = (x * scale.expand(8, 3).sin()).sum()
        scale.mul_(3)
        return y

    gradients = []
    for run in (scaled, torch.compile(scaled, backend=backend(partition=partition))):
        torch.compiler.reset()
        x, scale = torch.ones(8, 3, requires_grad=True), torch.full((3,), 2.0)
        run(x, scale).backward()
        assert torch.equal(scale, torch.full((3,), 6.0))
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_symbols_are_saved_as_numbers():
    def f(x):
        return (x * x.shape[0]).sin().sum()

    torch.compiler.reset()
    compiled = torch.compile(f, backend=backend(partition=partition), dynamic=True)
    for size in (3, 5):
        x, y = torch.ones(size, 4, requires_grad=True), torch.ones(size, 4, requires_grad=True)
        compiled(x).backward()
        f(y).backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_a_number_of_outputs_that_is_not_there():
    whole, _ = _drawn(0)
    with pytest.raises(ValueError, match="num_fwd_outputs is 99; the joint graph has"):
        partition(whole, num_fwd_outputs=99)


def test_a_graph_that_writes_is_refused():
    whole, outputs = _drawn(0)
    x = next(node for node in _placeholders(whole) if not node.name.startswith("tangent"))
    with whole.graph.inserting_before(whole.graph.find_nodes(op="output")[0]):
        whole.graph.call_function(torch.ops.aten.copy_.default, (x, x))
    with pytest.raises(
        ValueError, match=f"copy_.* writes into {x.name}, which may be saved .* make the graph functional"
    ):
        partition(whole, num_fwd_outputs=outputs)


def test_a_graph_whose_gradients_need_nothing():
    low = lower(lambda x: x + 1, torch.randn(3)).forward
    assert saved_values(joint(low), 1) == []


def test_wide_random_chains_agree_with_brute_force_on_costs():
    """Small values between large ones: the cut moves to the narrow place."""
    rng = random.Random(0)
    for _ in range(5):
        wide, narrow = rng.randint(20, 40), rng.randint(1, 3)

        def f(x, narrow=narrow):
            return x.sin()[:, :narrow].exp().cos().sum()

        whole = joint(lower(f, torch.randn(4, wide)).forward)
        saved = saved_values(whole, 1)
        assert sum(map(bytes_of, saved)) == 4 * wide * 4  # x itself, for cos x; all else follows from it


def test_under_a_budget_the_work_is_least():
    tried = 0
    for seed in range(24):
        whole, outputs = _drawn(seed, 6)
        if not 2 <= len(values(whole, outputs)[1]) <= 11:
            continue
        least = sum(map(bytes_of, saved_values(whole, outputs, ())))
        most = sum(map(bytes_of, saved_values(whole, outputs)))
        for budget in {least, (least + most) // 2, most}:
            _, backward = partition(whole, num_fwd_outputs=outputs, budget=budget)
            work = sum(work_of(node) for node in backward.graph.nodes if node.meta.get(RECOMPUTED))
            assert work == least_work(whole, outputs, budget), (seed, budget)
            tried += 1
    assert tried >= 8


def test_a_budget_is_kept_or_refused():
    it = models.ZOO["attention"]
    low = lower(it.build(), *it.inputs(), gradients=True)
    least = sum(map(bytes_of, saved_values(low.joint, low.outputs, ())))
    free = sum(map(bytes_of, saved_values(low.joint, low.outputs)))
    for budget in (least, (least + free) // 2, free, 10 * free):
        assert sum(map(bytes_of, saved_under_budget(low.joint, low.outputs, budget))) <= budget
    assert least < free
    with pytest.raises(ValueError, match=f"cannot do with {least - 1:,} saved bytes.* it saves {least:,}"):
        partition(low.joint, num_fwd_outputs=low.outputs, budget=least - 1)


def test_work_counts_products_by_their_depth():
    graph = lower(lambda x, y: (x @ y).relu().t(), torch.randn(3, 4), torch.randn(4, 5)).forward.graph
    work = {node.target: work_of(node) for node in graph.nodes if node.op == "call_function"}
    assert [work[op] for op in (torch.ops.aten.mm.default, torch.ops.aten.relu.default, torch.ops.aten.t.default)] == [
        2 * 3 * 4 * 5, 15, 0,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_two_graphs_are_the_joint_graph_again(seed):
    whole, outputs = _drawn(seed)
    forward, backward = partition(whole, num_fwd_outputs=outputs)
    again = rejoin(forward, backward, outputs)
    example = tuple(torch.randn(n.meta["val"].shape).to(n.meta["val"].dtype) for n in _placeholders(whole))
    assert [n.name for n in _placeholders(again)] == [n.name for n in _placeholders(whole)]
    assert equivalent(whole, again, example, trials=("given", "double", "extreme"))
    names = [node.name for node in backward.graph.find_nodes(op="output")[0].all_input_nodes]
    name = next(node for node in reversed(backward.graph.nodes) if node.name in names and node.op == "call_function")
    name.replace_all_uses_with(backward.graph.find_nodes(op="placeholder")[0])
    assert not equivalent(whole, rejoin(forward, backward, outputs), example, trials=("given", "double"))


def _placeholders(gm):
    return gm.graph.find_nodes(op="placeholder")


def _peak(forward, backward, outputs):
    both = rejoin(forward, backward, outputs)
    tasks = tasks_of(both, *(torch.zeros(node.meta["val"].shape) for node in _placeholders(both)))
    return peak(tasks, [task.name for task in tasks])


def test_what_is_computed_again_is_computed_late():
    """A deep chain: with everything computed again at once, the peak would be that of saving everything."""

    def deep(x):
        for _ in range(8):
            x = (x.tanh() * 2).exp().sin().cumsum(0)
        return x.sum()

    low = lower(deep, torch.randn(32, 32, requires_grad=True), partition=save_all)
    forward, backward = partition(low.joint, num_fwd_outputs=1)
    assert any(node.meta.get(RECOMPUTED) for node in backward.graph.nodes)
    assert _peak(forward, backward, 1) < 0.7 * _peak(low.forward, low.backward, 1)
    order = {node: i for i, node in enumerate(backward.graph.nodes)}
    assert all(order[node] > order[operand] for node in order for operand in node.all_input_nodes)
