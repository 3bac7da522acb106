"""Storages and plans that run: against eager execution, on random graphs and the zoo."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import fx, nn

from passlab import models, random_graph
from passlab.fx.cases import call, graph, store
from passlab.memory.arena import bit_equal, run
from passlab.memory.buffers import BadPlan, lower_bound, problem
from passlab.memory.liveness import liveness
from passlab.memory.plan import Plan, check_plan, clashes, planned
from passlab.memory.search import search
from passlab.memory.storages import CannotPlan, storages
from passlab.memory.training import forward, joint

SMALL = ("tiny", "mlp", "convnet", "skip", "residual", "attention", "lstm")


def clones(inputs):
    return [value.clone() for value in inputs]


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("mutation", [False, True])
def test_a_plan_runs_bit_by_bit(seed, mutation):
    def build():
        return random_graph(seed, 25, mutation=mutation, random=False)

    gm, inputs = build(), build().meta["inputs"]
    plan = planned(gm, *inputs, allocate=lambda b, alignment: search(b, alignment, tries=5))
    check_plan(gm, plan, *inputs)
    one, other = clones(inputs), clones(inputs)
    assert bit_equal(run(gm, plan, *one), build()(*other))
    assert bit_equal(one, other), "inputs that the graph writes are written here, too"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("how", ["traced", "aten", "joint"])
def test_the_zoo_runs_in_an_arena(name, how):
    model, inputs = models.ZOO[name].build(), models.ZOO[name].inputs()
    trace = {"aten": forward, "joint": joint}.get(how, lambda m, *x: (fx.symbolic_trace(m), x))
    gm, args = trace(model, *inputs)
    plan = planned(gm, *args)
    assert bit_equal(run(gm, plan, *args), gm(*args))
    assert plan.arena >= lower_bound(liveness(gm, *args))
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_gradients_are_those_of_autograd():
    model, inputs = models.ZOO["convnet"].build(), models.ZOO["convnet"].inputs()
    gm, args = joint(model, *inputs)
    loss, *gradients = gm(*args)
    model.requires_grad_(True)
    expected = model(*inputs).square().mean()
    expected.backward()
    assert torch.allclose(loss, expected)
    for gradient, parameter in zip(gradients, model.parameters(), strict=False):
        assert torch.allclose(gradient, parameter.grad, atol=1e-6)


def test_storages_are_those_of_a_real_run():
    class Keep(fx.Interpreter):
        def run_node(self, node):
            value = super().run_node(node)
            if node.op != "output" and isinstance(value, torch.Tensor) and value.untyped_storage().nbytes():
                values.append((node.name, value))
            return value

    for seed in range(20):
        gm = random_graph(seed, 25, mutation=True, random=False)
        values: list = []
        Keep(gm, garbage_collect_values=False).run(*gm.meta["inputs"])
        groups: dict[int, set[str]] = {}
        for name, value in values:
            groups.setdefault(value.untyped_storage().data_ptr(), set()).add(name)
        names = {name for name, _ in values}
        sharing = {frozenset(set(s.values) & names) for s in storages(gm, *gm.meta["inputs"])} - {frozenset()}
        assert sharing == set(map(frozenset, groups.values()))


def body(m, x):
    y = torch.relu(x)
    v = y.view(-1)
    z = torch.exp(x)
    z.add_(1)
    torch.tanh(x)
    return z + v[0], v, x.t()


def test_live_ranges_of_a_small_graph():
    gm = graph(body, (2, 3))()
    steps = {node.name: i for i, node in enumerate(gm.graph.nodes)}
    ranges = {b.name: (b.lower, b.upper) for b in liveness(gm, torch.ones(2, 3))}
    end = len(steps)
    assert ranges["relu"] == (steps["relu"], end), "a view of it is returned"
    assert ranges["exp"] == (steps["exp"], steps["add"] + 1), "add_ returns its operand"
    assert ranges["tanh"] == (steps["tanh"], steps["tanh"] + 1)
    assert ranges["add"][1] == end and set(ranges) == {"relu", "exp", "tanh", "add"}


def test_a_plan_that_overlaps_gives_wrong_numbers():
    gm, x = graph(body, (2, 3))(), torch.randn(2, 3)
    plan = planned(gm, x)
    bad = Plan(plan.order, plan.offsets | {"exp": plan.offsets["relu"]}, plan.arena)
    with pytest.raises(BadPlan, match="relu and exp are both live in step 3 and share 24 bytes"):
        run(gm, bad, x)
    overlap = clashes(gm, bad, x)[0]
    assert {overlap.one, overlap.other} == {"relu", "exp"}
    assert not bit_equal(run(gm, bad, x, checked=False), gm(x))


def small(m, x):
    nothing = x[:, :0] * 2
    return torch.relu(x), nothing


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"offsets": {"relu": 2}}, "The offset of relu is 2, and its numbers have 4 bytes: choose a multiple of 4."),
        ({"offsets": {"relu": 0, "mul": 0}}, "mul has 0 bytes, so it needs no place: leave its offset out."),
        ({"arena": None}, "The arena of the plan is None: it must be an int"),
        ({"arena": 100.5}, "The arena of the plan is 100.5: it must be an int"),
        ({"arena": -1}, "The arena of the plan is -1: it must be an int"),
        ({"arena": 10**16}, "The machine has no memory for an arena of 10,000,000,000,000,000 bytes: make it smaller."),
        ({"arena": 10**30}, "The machine has no memory for an arena of 1,000,000"),
        ({"order": None}, "An order is a list or tuple of the names of all nodes; this is a NoneType."),
        ({"order": "x"}, "An order is a list or tuple of the names of all nodes; this is a str."),
        ({"order": ("x", ["relu"])}, "Entry 1 of the order is ['relu']: it must be the name of a node."),
    ],
)
def test_plans_that_are_none(change, sentence):
    gm, x = graph(small, (2, 3))(), torch.ones(2, 3)
    plan = replace(planned(gm, x), arena=128)
    assert bit_equal(run(gm, plan, x), gm(x))
    with pytest.raises(BadPlan) as error:
        run(gm, replace(plan, **change), x)
    assert str(error.value).startswith(sentence)


def test_a_misaligned_place_names_the_node_unchecked_too():
    gm, x = graph(small, (2, 3))(), torch.ones(2, 3)
    plan = replace(planned(gm, x), offsets={"relu": 2})
    with pytest.raises(BadPlan, match=r"relu, of torch\.float32, cannot start at byte 2 of the arena: align it to 4"):
        run(gm, plan, x, checked=False)


def test_another_order_runs_too():
    def fork(m, x):
        a = torch.relu(x)
        b = torch.exp(x)
        return a.sum() + b.sum()

    gm, x = graph(fork, (4, 4))(), torch.randn(4, 4)
    order = ["x", "exp", "sum_2", "relu", "sum_1", "add", "output"]
    plan = planned(gm, x, order=order)
    assert lower_bound(liveness(gm, x, order=order)) < lower_bound(liveness(gm, x))
    assert bit_equal(run(gm, plan, x), gm(x))


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (["x", "exp", "relu", "add_", "output"], "add is missing in the order."),
        (["x", "relu", "add", "exp", "add_", "output"], "add runs before its operand add_."),
        (["x", "x", "relu", "exp", "add_", "add", "output"], "x is in the order twice."),
        (["x", "relu", "exp", "add_", "add", "tanh", "output"], "The order names 'tanh'"),
        (["x", "add_", "relu", "exp", "add", "output"], "add_ runs before its operand relu."),
        (["x", "relu", "add_", "exp", "add", "output"], "add_ runs before exp, but one writes memory"),
    ],
)
def test_orders_that_break_a_dependence(order, sentence):
    def writing(m, x):
        y = torch.relu(x)
        z = torch.exp(y)
        w = y.add_(1)
        return w + z

    gm, x = graph(writing, (2, 2))(), torch.ones(2, 2)
    with pytest.raises(BadPlan) as error:
        liveness(gm, x, order=order)
    assert str(error.value).startswith(sentence)


def test_sizes_that_nobody_knows():
    def chosen(m, x):
        return call(torch.masked_select, x, x > 0) + 1

    graph_of = fx.GraphModule(nn.Module(), fx.Graph())
    x = graph_of.graph.placeholder("x")
    graph_of.graph.output(graph_of.graph.call_function(torch.nonzero, (x,)))
    graph_of.recompile()
    with pytest.raises(CannotPlan) as error:
        liveness(graph_of, torch.ones(3))
    assert str(error.value) == "The size of nonzero depends on numbers that are known only at run time."
    sparse = graph(lambda m, x: call(torch.Tensor.to_sparse, x), (2, 3))()
    with pytest.raises(CannotPlan, match="to_sparse has the layout sparse_coo: only a dense tensor has one storage"):
        liveness(sparse, torch.ones(2, 3))
    with pytest.raises(CannotPlan, match="The shape of x is not known: give example inputs"):
        liveness(graph_of)
    exported = torch.export.export(
        models.ZOO["tiny"].build(), (torch.randn(4, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    with pytest.raises(CannotPlan, match=r"The size of x is symbolic \(s\d+, 8\): a plan needs numbers"):
        liveness(exported.graph_module)
    with pytest.raises(CannotPlan, match="The graph has 1 input; 2 given"):
        liveness(graph_of, torch.ones(3), torch.ones(3))


@pytest.mark.parametrize("rows", [3, 7])
def test_a_graph_of_any_size_runs_by_a_plan_for_one(rows):
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    dynamic = torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    gm, x = dynamic.run_decompositions().graph_module, torch.randn(rows, 8)
    inputs = (*(value.detach() for value in model.state_dict().values()), x)
    assert bit_equal(run(gm, planned(gm, *inputs), *inputs), gm(*inputs))


def test_an_output_that_is_an_input_and_tensors_without_bytes():
    def same(m, x):
        nothing = x[:, :0] * 2
        store(x, 0, 1.0)
        return x.t(), nothing

    gm, x = graph(same, (2, 3))(), torch.zeros(2, 3)
    assert liveness(gm, x) == []
    plan = planned(gm, x)
    assert plan.arena == 0
    result, nothing = run(gm, plan, x)
    assert result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and nothing.shape == (2, 0)
    assert problem([], {"x": 0}).sentence == "There is no buffer 'x' to give an offset."
