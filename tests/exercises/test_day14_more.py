"""Day 14, exercises 3 to 5: cuts against all cuts and torch's own, and sentences for broken answers."""

from __future__ import annotations

import itertools
import operator
import random
import re

import pytest
import torch
from torch import fx

from autograder.answers.day14.recompute import _again, _choices
from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises
from passlab.autodiff import work_of
from passlab.exercises.day14 import optimizer
from passlab.exercises.day14._joint import DEAR, Joint, drawn, is_write, repeatable
from passlab.exercises.day14.recompute import least_work, merged
from passlab.given.day14.partition import memory, part
from tests.support.judged import lost

# ---------------------------------------------------------------------------------------------------- partition


def _least(joint, once):
    """Return the fewest bytes that can be saved, by trying all sets of memories."""
    sizes, best = _choices(joint), None
    values = {memory(node.args[0])[0] for node in joint.writes}
    free = {name: size for name, size in sizes.items() if name not in values}
    for keep in itertools.product([False, True], repeat=len(free)):
        items = set(itertools.compress(free, keep))
        again = _again(joint, items)
        if again is not None and all(repeatable(node, once) for node in again):
            size = sum(free[name] for name in items)
            best = size if best is None else min(best, size)
    return best


def test_the_least_cut_is_the_least_of_all():
    tried = 0
    for seed in range(40):
        gm = drawn(random.Random(seed), 5, state=seed % 3 == 0, noise=seed % 3 == 1)()
        joint = Joint.of(gm, 2)
        if len(_choices(joint)) <= 11:
            for once in (DEAR, ()):
                assert joint.least(once) == _least(joint, once), seed
            tried += 1
    assert tried >= 8


def test_no_more_is_saved_than_by_torchs_cut():
    from functorch.compile import min_cut_rematerialization_partition

    partition = reference("day14.partition")
    for seed in range(12):
        gm = drawn(random.Random(seed), 7)()
        own = partition(gm, 2, {torch.ops.aten.mm.default, torch.ops.aten.addmm.default})
        primals = [node for node in gm.graph.find_nodes(op="placeholder") if not node.name.startswith("tangent")]
        for node in gm.graph.find_nodes(op="placeholder"):
            node.target = node.name = node.name.replace("tangent_", "tangents_")
        for i, node in enumerate(primals):
            node.target = node.name = f"primals_{i}"
        by_name = {node.name: node for node in gm.graph.nodes}
        forward, _ = min_cut_rematerialization_partition(gm, None, num_fwd_outputs=2)
        results = forward.graph.find_nodes(op="output")[0].args[0][2:]
        torchs = dict(memory(by_name[node.name]) for node in results)
        saved = [memory(node)[1] for node in own[0].graph.find_nodes(op="output")[0].args[0][2:]]
        assert sum(saved) <= sum(torchs.values()), seed


def cut(change):
    """Return the reference with its two graphs changed."""

    def answer(joint, outputs, once):
        return change(*reference("day14.partition")(joint, outputs, once), joint, outputs)

    return answer


def with_results(gm, results):
    """Return a graph with other results, by name."""
    nodes = {node.name: node for node in gm.graph.nodes}
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    writes = [node for node in gm.graph.nodes if is_write(node)]
    return part(gm, inputs, [nodes[name] for name in results], writes)


def names(gm):
    return [node.name for node in gm.graph.find_nodes(op="output")[0].args[0]]


@pytest.mark.parametrize(
    ("change", "case", "verdict", "sentence"),
    [
        (lambda f, b, *_: (f, b), "two layers", None, ""),
        (lambda f, b, *_: [b, f], "two layers", "valid", "The forward graph takes ("),
        (lambda f, b, *_: (f,), "two layers", "valid", "Return a pair, the forward and the backward graph"),
        (lambda f, b, *_: (f.graph, b), "two layers", "valid", "The forward graph is a Graph; it must be"),
        (lambda f, b, *_: (with_results(f, names(f)[1:]), b), "two layers", "valid", "The backward graph takes ("),
        (lambda f, b, *_: (with_results(f, []), b), "two layers", "valid", "the joint graph has 1 outputs"),
        (lambda f, b, *_: (f, with_results(b, names(b)[:2])), "two layers", "valid", "there are 3 gradients"),
        (lambda f, b, *_: (f, with_results(b, names(b)[::-1])), "two layers", "same", "output 1 is"),
    ],
)  # fmt: skip
def test_sentences_of_partition(change, case, verdict, sentence):
    result = lost("day14.partition", cut(change), case)
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


def test_what_is_overwritten_is_named():
    def stale(joint, outputs, once):
        it = Joint.of(joint, outputs)
        items = [node for node in it.inputs if node.name != "unused"]
        return part(joint, it.inputs, [*it.results[:outputs], *items], it.writes), part(
            joint, [*items, *it.tangents], it.results[outputs:]
        )

    verdict, message = lost("day14.partition", stale, "an input is overwritten")
    assert verdict == "same" and "saves scale and writes into its memory (copy__default)" in message


def test_views_are_of_the_memory_that_they_look_into():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(4, 6)
    view = graph.call_function(torch.ops.aten.t.default, (x,))
    parts = graph.call_function(torch.ops.aten.split.Tensor, (view, 2))
    one = graph.call_function(torch.ops.aten.exp.default, (x,))
    both = graph.call_function(torch.ops.aten.var_mean.correction, (x,))
    for node, value in ((view, x.meta["val"].t()), (parts, x.meta["val"].t().split(2)), (one, x.meta["val"].exp())):
        node.meta["val"] = value
    both.meta["val"] = torch.var_mean(x.meta["val"])
    first, mean = (graph.call_function(operator.getitem, (n, 0)) for n in (parts, both))
    first.meta["val"], mean.meta["val"] = parts.meta["val"][0], both.meta["val"][0]
    assert [memory(node) for node in (x, view, first)] == [("x", 96)] * 3
    assert memory(one) == (one.name, 96) and memory(both) is None and memory(mean) == (mean.name, 4)


# ---------------------------------------------------------------------------------------------------- recompute


def test_the_least_work_is_the_least_of_all():
    tried = 0
    for seed in range(30):
        gm = merged(drawn(random.Random(seed), 5, noise=seed % 2 == 1)())
        joint = Joint.of(gm, 2)
        sizes = _choices(joint)
        if not 2 <= len(sizes) <= 11:
            continue
        low, high = joint.least(()), joint.simple()
        for budget in {low, (low + high) // 2, high}:
            works = []
            for keep in itertools.product([False, True], repeat=len(sizes)):
                items = set(itertools.compress(sizes, keep))
                again = _again(joint, items)
                if again is not None and sum(sizes[name] for name in items) <= budget:
                    works.append(sum(map(work_of, again)))
            assert least_work(gm, 2, budget) == min(works), (seed, budget)
        assert least_work(gm, 2, low - 1) is None
        tried += 1
    assert tried >= 6


def test_graphs_are_small_enough_to_try_all_sets():
    for case in [*exercises.find("day14.recompute").cases(), *hidden_cases("day14.recompute", 4)]:
        gm, outputs, _ = case.build()
        assert len(_choices(Joint.of(merged(gm), outputs))) <= 16, case.name


def renamed(change):
    """Return the reference of recompute with the names of its nodes changed."""

    def answer(joint, outputs, budget):
        gm = reference("day14.recompute")(joint, outputs, budget)
        for node in gm.graph.nodes:
            node.name = change(node)
        return gm

    return answer


def test_a_tag_is_asked_for():
    plain = renamed(lambda node: node.name.replace("again_", "second_"))
    assert lost("day14.recompute", plain, "two layers, little memory")[0] == "spared"


def test_a_tag_that_does_not_belong():
    every = renamed(lambda node: f"again_{node.name}" if node.op == "call_function" else node.name)
    verdict, message = lost("day14.recompute", every, "two layers, enough memory")
    assert verdict == "spared" and ("depends on a tangent" in message or "computed after the forward graph" in message)


# ---------------------------------------------------------------------------------------------------- optimizer


def groups(change):
    """Return the reference with its groups changed."""
    return lambda method, params: change(reference("day14.optimizer")(method, params))


def stepped(body):
    return lambda groups: [group | {"graph": fx.symbolic_trace(body)} for group in groups]


@pytest.mark.parametrize(
    ("change", "verdict", "sentence"),
    [
        (lambda groups: groups, None, ""),
        (lambda groups: groups[:-1], "spared", "double has gradients, and is in no group."),
        (lambda groups: [*groups, groups[0]], "valid", "w is in two groups, or twice in one."),
        (lambda groups: [g | {"params": ["x"]} for g in groups], "valid", "'x' is not the name of a parameter."),
        (lambda groups: [g | {"lr": 1} for g in groups], "valid", "A group is a dict with params and graph"),
        (stepped(lambda p, g, t: [p, g]), "valid", "takes 3 values; it must take p, g, 1 tensor of state, and t."),
        (stepped(lambda p, g, s, t: p), "valid", "returns one value by itself; it must return a list"),
        (stepped(lambda p, g, s, t: [p - g.sum(), s]), "valid", "calls aten.sum.default, which is not element-wise"),
        (stepped(lambda p, g, s, t: [p[:1], s]), "valid", "calls aten.slice.Tensor, which is not element-wise"),
        (stepped(lambda p, g, s, t: [p.double(), s]), "valid", "returns torch.float64"),
        (stepped(lambda p, g, s, t: [p - 0.1 * g, s]), "same", "torch.optim has"),
        (lambda groups: [g | {"params": []} for g in groups], "valid", "a list of one name or more; here they are []."),
    ],
)
def test_sentences_of_optimizer(change, verdict, sentence):
    result = lost("day14.optimizer", groups(change), "sgd")
    assert result is None if verdict is None else result[0] == verdict and sentence in result[1], result


def test_optimizer_tells_numbers_of_float64_apart():
    """Values that differ by no more than float32 rounds print as two numbers."""
    row = {
        "name": "w",
        "shape": (2,),
        "dtype": "float64",
        "memory": "w",
        "gradients": (True,) * optimizer.STEPS,
        "options": {},
    }
    group = {"params": ["w"], "graph": fx.symbolic_trace(lambda p, g, s, t: [p - 1.0001e-3 * g, s])}
    value, expected = re.findall(r"-?\d+\.\d+", optimizer.difference("sgd", group, {"w": row}))
    assert value != expected
