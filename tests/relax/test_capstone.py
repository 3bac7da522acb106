"""A compiler's data: what is refused, what is built from it, what it costs, and the course's own compiler."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from passlab import trace
from passlab.capstone import (
    BASELINES,
    BadCompiled,
    Compiled,
    Entry,
    Missing,
    build,
    counts,
    examined,
    groupable,
    measure,
    why_not_compiled,
)
from passlab.capstone.compiled import with_shapes
from passlab.capstone.families import FAMILIES, drawn, generated, hidden
from passlab.capstone.reference import STAGES, compile
from passlab.capstone.reference import plan as reference_plan
from passlab.capstone.triton import generated as written_kernel
from passlab.equivalence import equivalent
from passlab.kernels import subgraph
from passlab.memory.plan import Plan, planned


def chain(x, y):
    return torch.relu(x * y + x) * 2


X = (torch.randn(8, 12, generator=torch.Generator().manual_seed(0)), torch.ones(8, 12))


def traced():
    return trace(chain, *X)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "returned None"),
        (nn.ReLU(), "which is code"),
        (lambda x: x, "which is code"),
        ([["mul"]], "not a Compiled"),
        (Compiled(None), "Compiled.graph is None"),
        (Compiled(trace(lambda x: x + 1, X[0])), "The inputs changed"),
        (Compiled(traced(), [["mul", 3]], {"mul": {"tile": 5}}), "tile = 5"),
        (Compiled(traced(), [["mul"]], {"mul": {"threads": 5}}), "no knob 'threads'"),
        (Compiled(traced(), [["mul"]], {"mul": {"tile": 10**9}}), "it may be"),
        (Compiled(traced(), [["mul"]], {"mul": {"vector": True}}), "vector = True"),
        (Compiled(traced(), [["mul"]], {"add": {}}), "not the first node of a group"),
        (Compiled(traced(), [["mul"]] * 1_000_000), "names 1,000,000 nodes"),
        (Compiled(traced(), "mul"), "must be a list of lists"),
        (Compiled(traced(), [], {}, {"mul": 0}), "must be a Plan"),
        (Compiled(traced(), [], {}, Plan((), {}, 2**60)), "bytes: it must be"),
    ],
)
def test_what_is_no_compiled_model_has_a_sentence(value, sentence):
    assert sentence in why_not_compiled(traced(), value)


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([["mul", "ad"]], "There is no node 'ad'"),
        ([[["mul"]]], "A group must be a non-empty list of node names"),
        ([["mul"], ["mul", "add"]], "in two groups"),
        ([["mul", "relu"]], "has a cycle"),
        ([["x"]], "an input of the graph"),
        ([[]], "non-empty"),
    ],
)
def test_groups_that_cannot_be_kernels_name_the_node(groups, sentence):
    assert sentence in examined(Compiled(traced(), groups), X)["broken"]
    assert sentence in groupable(traced(), X)(groups)
    with pytest.raises(BadCompiled, match=sentence[:12]):
        build(Compiled(traced(), groups), X)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: Plan(p.order, dict.fromkeys(p.offsets, 0), p.arena), "both live in step"),
        (lambda p: Plan(p.order, dict(list(p.offsets.items())[1:]), p.arena), "no offset"),
        (lambda p: Plan(p.order, dict.fromkeys(p.offsets, -64), p.arena), "-64"),
        (lambda p: Plan(p.order, dict.fromkeys(p.offsets, 2**70), p.arena), "mul"),
        (lambda p: Plan(p.order[::-1], p.offsets, p.arena), "before its operand"),
        (lambda p: Plan(p.order[1:], p.offsets, p.arena), "missing in the order"),
    ],
)
def test_a_plan_that_does_not_hold_names_what_is_wrong(change, sentence):
    gm = traced()
    plan = change(planned(gm, *X))
    result = examined(Compiled(gm, plan=plan), X)["broken"]
    assert "The plan does not hold" in result and sentence in result


def test_a_plan_for_the_graph_without_its_groups_is_told_so():
    gm = traced()
    plan = planned(gm, *X)
    result = examined(Compiled(gm, [["mul", "add"]], plan=plan), X)["broken"]
    assert result.endswith("mul is inside a group: plan for the graph that grouped(graph, groups, inputs) returns.")


def test_another_shape_or_type_is_refused_before_it_is_built():
    wider = trace(lambda x, y: torch.cat([chain(x, y)] * 2), *X)
    half = trace(lambda x, y: chain(x, y).half(), *X)
    assert "is now float32 of shape (16, 12)" in examined(Compiled(wider), X, traced())["broken"]
    assert "is now float16" in examined(Compiled(half), X, traced())["broken"]


def test_a_group_is_one_launch_that_moves_only_what_enters_and_leaves():
    gm = traced()
    alone, together = counts(Compiled(gm), X), counts(Compiled(gm, [["mul", "add", "relu", "mul_1"]]), X)
    assert (alone.launches, together.launches) == (4, 1)
    assert together.bytes == 3 * 8 * 12 * 4
    assert together.peak < alone.peak


def test_counting_and_building_leave_the_model_alone():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm2d(3)

        def forward(self, x):
            return F.dropout(self.bn(x), 0.5, True)

    x = torch.randn(2, 3, 4, 4)
    gm = trace(Net().train(), x)
    before, copy, state = {k: v.clone() for k, v in gm.state_dict().items()}, x.clone(), torch.get_rng_state()
    counts(compile(gm, (x,)), (x,))
    build(compile(gm, (x,)), (x,))
    assert torch.equal(x, copy) and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], now) for name, now in gm.state_dict().items())


@pytest.mark.parametrize("family", ["convnet", "residual", "mlp", "gpt", "unet", "lstm"])
def test_the_reference_computes_the_same_with_fewer_launches_and_bytes(family):
    model = drawn(family, 11)
    gm = model.graph()
    compiled = compile(gm, model.inputs)
    assert equivalent(gm, compiled.graph, model.inputs)
    alone, value = counts(Compiled(gm), model.inputs), counts(compiled, model.inputs)
    assert value.launches < alone.launches and value.bytes < alone.bytes and value.peak <= alone.peak
    program = build(compiled, model.inputs)
    for _ in range(2):  # the arena is used again
        torch.testing.assert_close(program(*model.inputs), gm(*model.inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_reference_compiles_random_graphs(seed):
    model = generated(seed, 20, mutation=seed % 2 == 0)
    gm = model.graph()
    compiled = compile(gm, model.inputs)
    assert why_not_compiled(gm, compiled) == ""
    assert examined(compiled, model.inputs, gm)["broken"] == ""
    result = equivalent(gm, compiled.graph, model.inputs)
    assert result, result.reason


def test_the_reference_orders_a_graph_with_a_call_that_nothing_uses():
    def wide_last(x):
        items = [x.sum(1) + k for k in range(4)]
        items[0] * 3
        return sum(items[1:], items[0]) * torch.cat([x] * 6).max()

    gm = trace(wide_last, X[0])
    result = reference_plan(Compiled(gm), X[:1]).plan
    assert result.arena < planned(gm, X[0]).arena
    assert examined(Compiled(gm, plan=result), X[:1])["broken"] == ""


def test_a_group_with_a_triton_kernel_runs_on_a_cpu_as_without_it():
    gm, group = traced(), ["mul", "add", "relu"]
    kernel = written_kernel(subgraph(with_shapes(gm, X), group))
    program = build(Compiled(gm, [group], kernels={"mul": kernel}), X)
    assert program.kinds["relu"] == "generated kernel"
    torch.testing.assert_close(program(*X), gm(*X))
    by_interpreter = build(Compiled(gm, [group], kernels={"mul": kernel}), X, interpret=True)
    assert by_interpreter.kinds["relu"] == "Triton kernel"
    torch.testing.assert_close(by_interpreter(*X), gm(*X))


def test_a_schedule_is_found_by_the_first_name_of_its_group():
    gm = traced()
    program = build(Compiled(gm, [["relu", "mul", "add"]], {"relu": {"tile": 1024}}), X)
    (step,) = (program.graph.get_submodule(n.target) for n in program.graph.graph.find_nodes(op="call_module"))
    assert step.knobs.tile == 1024


def test_two_results_of_one_program_do_not_share_memory():
    program = build(Compiled(traced(), [["mul", "add", "relu", "mul_1"]]), X)
    first = program(*X)
    copy = first.clone()
    program(*(x + 1 for x in X))
    assert torch.equal(first, copy)


def test_a_program_takes_other_strides_and_refuses_other_shapes():
    program = build(Compiled(traced(), [["mul", "add", "relu", "mul_1"]]), X)
    strided = tuple(x.t().contiguous().t() for x in X)
    torch.testing.assert_close(program(*strided), chain(*X))
    with pytest.raises(ValueError, match="Input 0 must be"):
        program(X[0][:4], X[1][:4])


def test_schedules_change_the_loops_and_not_the_numbers():
    groups = [["mul", "add", "relu", "mul_1"]]
    for knobs in ({"tile": 256, "unroll": 4}, {"parallel": False}, {"vector": 1}):
        program = build(Compiled(traced(), groups, {"mul": knobs}), X)
        torch.testing.assert_close(program(*X), chain(*X))


def test_each_stage_keeps_the_function():
    model = drawn("convnet", 4)
    gm = model.graph()
    launches = []
    for number in range(len(STAGES) + 1):
        compiled = compile(gm, model.inputs, STAGES[:number])
        assert equivalent(gm, compiled.graph, model.inputs)
        launches.append(counts(compiled, model.inputs).launches)
    assert launches == sorted(launches, reverse=True) and launches[-1] < launches[0]


def test_the_gates_of_an_lstm_are_one_kernel():
    """Its model takes a tuple apart at each step: before the gates are joined, each operation is a launch."""
    model = drawn("lstm", 2)
    gm = model.graph()
    chunks = [node for node in gm.graph.nodes if node.target == "chunk"]
    compiled = compile(gm, model.inputs)
    assert len(chunks) > 2 and {len(group) for group in compiled.groups if "chunk" in group[0]} == {14}
    before, after = (counts(one, model.inputs).launches for one in (Compiled(gm), compiled))
    assert before - after == len(chunks) * (1 + 8), "one for each sum of two products, eight for the gates"
    torch.testing.assert_close(build(compiled, model.inputs)(*model.inputs), gm(*model.inputs))
    assert compile(gm, model.inputs, STAGES[:4]).groups == [group for group in compiled.groups if len(group) == 2]


def test_a_seed_draws_the_same_models_and_another_one_others():
    one, same, other = hidden(5, 1), hidden(5, 1), hidden(6, 1)
    assert len(one) == len(FAMILIES) + 1
    assert all(torch.equal(a.inputs[0], b.inputs[0]) for a, b in zip(one, same, strict=True))
    assert any(a.inputs[0].shape != b.inputs[0].shape for a, b in zip(one, other, strict=True))


def test_an_entry_has_a_row_for_each_competitor_and_says_who_is_missing():
    def nothing(gm, inputs):
        raise Missing("it is not here")

    gm = traced()
    baselines = {"eager": BASELINES["eager"], "absent": nothing}
    entry = measure(gm, Compiled(gm, [["mul", "add"]]), X, baselines, "chain", repeats=3)
    assert entry.equivalent and entry["absent"].missing == "it is not here"
    assert entry["mine"].launches == 3 and entry["eager"].launches == 4 and entry["mine"].seconds > 0
    assert Entry.from_json(json.loads(json.dumps(entry.to_json()))) == entry


def test_a_model_that_computes_something_else_has_no_numbers():
    gm, other = traced(), trace(lambda x, y: chain(x, y) + 1, *X)
    entry = measure(gm, Compiled(other), X, {"eager": BASELINES["eager"]}, "chain", repeats=3)
    assert not entry.equivalent and entry.reason
    assert entry["mine"].seconds is None and entry["mine"].launches is None
