"""Random graphs hold what they promise; shrinking ends at the smallest graph that fails."""

from __future__ import annotations

import copy
import hashlib
import operator
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils import _pytree as pytree

from passlab.equivalence import equivalent
from passlab.fx.generate import FEATURES, random_graph
from passlab.fx.shrink import shrink

RANDOM = {F.dropout, torch.rand_like, torch.randn_like, torch.bernoulli}


@cache
def sample() -> list[fx.GraphModule]:
    return [random_graph(seed, 30, mutation=seed % 3 == 0) for seed in range(240)]


def fingerprint(gm: fx.GraphModule) -> str:
    tensors = [*gm.meta["inputs"], *gm.state_dict().values()]
    text = gm.code + "".join(f"{t.dtype}{t.tolist()}" for t in tensors)
    return hashlib.sha256(text.encode()).hexdigest()


def some_fingerprints() -> list[str]:
    return [fingerprint(random_graph(s, 40, mutation=True, training=True)) for s in (1, 2)]


def modules(gm: fx.GraphModule) -> list[nn.Module]:
    return [gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"]


def test_a_seed_is_a_graph_in_every_process():
    code = "from tests.fx.test_generate import *\nprint(*some_fingerprints())"
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(Path(__file__).parents[2])}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    torch.manual_seed(5)  # the global generator plays no part
    state = torch.get_rng_state()
    assert other.split() == some_fingerprints()
    assert torch.equal(state, torch.get_rng_state())
    assert len({fingerprint(gm) for gm in sample()}) == len(sample())


def test_graphs_run_with_the_shapes_noted_on_their_nodes():
    for gm in sample():
        gm.graph.lint()
        noted = {n.name: n.meta.get("tensor_meta") for n in gm.graph.nodes}
        inputs = [t.clone() for t in gm.meta["inputs"]]
        ShapeProp(gm).propagate(*inputs)
        for node in gm.graph.nodes:
            if node.op.startswith("call_") and isinstance(node.meta.get("tensor_meta"), tuple):
                result, message = node.meta["tensor_meta"], noted[node.name]
                if hasattr(result, "dtype"):
                    assert (result.shape, result.dtype) == (message.shape, message.dtype), (gm.code, node)
            node.meta["tensor_meta"] = noted[node.name]


def test_values_are_finite_and_small():
    for gm in sample():
        for t in pytree.tree_leaves(gm(*[t.clone() for t in gm.meta["inputs"]])):
            assert isinstance(t, Tensor) and torch.isfinite(t).all() and t.double().abs().max() < 1e3, gm.code


def test_values_stay_small_at_depth():
    gm = random_graph(11, 3000)
    for t in pytree.tree_leaves(gm(*gm.meta["inputs"])):
        assert torch.isfinite(t).all()


def test_size_is_about_what_was_asked_for():
    for size in (1, 10, 100, 5_000):
        gm = random_graph(3, size, only=("pointwise", "identity", "repeat", "dead"))
        assert size <= len(gm.graph.nodes) - 1 <= size + 20


def share(holds) -> float:
    return sum(bool(holds(gm)) for gm in sample()) / len(sample())


def _twin_calls(gm):
    """Two calls that differ in keywords only."""
    kwargs = {}
    for n in gm.graph.nodes:
        if n.op == "call_function" and not any(isinstance(a, (list, slice)) for a in n.args):
            kwargs.setdefault((n.target, str(n.args)), set()).add(str(dict(n.kwargs)))
    return any(len(v) > 1 for v in kwargs.values())


def _repeats(gm):
    calls = Counter(
        (n.op, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes if n.op.startswith("call_")
    )
    return max(calls.values()) > 1


def _swapped(gm):
    pairs = {(str(n.target), tuple(map(str, n.args))) for n in gm.graph.nodes if len(n.args) == 2 and not n.kwargs}
    return any((t, a[::-1]) in pairs and a[0] != a[1] for t, a in pairs)


def _odd_conv(gm):
    return any(
        isinstance(m, nn.Conv2d)
        and (m.groups > 1 or m.dilation != (1, 1) or m.stride != (1, 1) or m.padding_mode != "zeros")
        for m in modules(gm)
    )


#: what a sample of graphs holds, and in at least which share of them
HOLDS = {
    "fan-out": (0.8, lambda gm: any(len(n.users) > 2 for n in gm.graph.nodes)),
    "a module called twice": (0.1, lambda gm: max(Counter(map(id, modules(gm))).values(), default=0) > 1),
    "dead ends": (0.6, lambda gm: any(n.op.startswith("call_") and not n.users for n in gm.graph.nodes)),
    "draws": (0.3, lambda gm: any(n.target in RANDOM for n in gm.graph.nodes)),
    "dead draws": (0.1, lambda gm: any(n.target in RANDOM and not n.users for n in gm.graph.nodes)),
    "writes in place": (
        0.1,
        lambda gm: any(str(n.target).endswith("_") or n.target is operator.setitem for n in gm.graph.nodes),
    ),
    "the same call twice": (0.6, _repeats),
    "operands swapped": (0.05, _swapped),
    "calls that differ in a keyword": (0.2, _twin_calls),
    "arguments by name": (0.05, lambda gm: any({"input", "other"} & set(n.kwargs) for n in gm.graph.nodes)),
    "integers": (
        0.4,
        lambda gm: any(getattr(n.meta.get("tensor_meta"), "dtype", 0) == torch.int64 for n in gm.graph.nodes),
    ),
    "batch norm": (0.1, lambda gm: any(isinstance(m, nn.BatchNorm2d) for m in modules(gm))),
    "transposed convolution": (0.01, lambda gm: any(isinstance(m, nn.ConvTranspose2d) for m in modules(gm))),
    "odd convolutions": (0.15, _odd_conv),
    "expressions over constants": (
        0.3,
        lambda gm: any(
            n.op.startswith("call_") and n.all_input_nodes and all(i.op == "get_attr" for i in n.all_input_nodes)
            for n in gm.graph.nodes
        ),
    ),
    "erf or tanh GELU": (
        0.1,
        lambda gm: "* 0.7071067811865" in gm.code or "0.044715" in gm.code or "1.41421" in gm.code,
    ),
    "several outputs": (0.4, lambda gm: len(gm.graph.output_node().all_input_nodes) > 1),
    "a dict of outputs": (0.1, lambda gm: isinstance(gm.graph.output_node().args[0], dict)),
    "names of builtins": (0.3, lambda gm: any(n.target in ("len", "input", "id") for n in gm.graph.nodes)),
    "tuples inside": (0.1, lambda gm: any(n.target is operator.getitem for n in gm.graph.nodes)),
    "sizes read": (0.1, lambda gm: any(n.target == "size" for n in gm.graph.nodes)),
    "x / x": (0.01, lambda gm: any(n.target is operator.truediv and n.args[0] is n.args[1] for n in gm.graph.nodes)),
    "int + 0.0": (
        0.01,
        lambda gm: any(
            n.target is operator.add and n.args[1] == 0.0 and type(n.args[1]) is float and "remainder" in str(n.args[0])
            for n in gm.graph.nodes
        ),
    ),
}


@pytest.mark.parametrize("what", HOLDS)
def test_graphs_hold_what_breaks_passes(what):
    least, holds = HOLDS[what]
    assert share(holds) >= least


def test_most_of_a_graph_matters():
    live = total = 0
    for gm in sample():
        gm = copy.deepcopy(gm)
        total += len(gm.graph.nodes)
        gm.graph.eliminate_dead_code()
        live += len(gm.graph.nodes)
    assert 0.7 < live / total < 0.98


@pytest.mark.parametrize("feature", [f for f in FEATURES if f not in ("pointwise", "outputs", "names", "dead")])
def test_features_can_be_switched_off_and_on(feature):
    everything = dict.fromkeys(FEATURES, True)
    for seed in range(6):
        alone = random_graph(seed, 25, only=("pointwise", feature))
        without = random_graph(seed, 25, **{**everything, feature: False})
        assert equivalent(alone, alone, trials=("given",)) and equivalent(without, without, trials=("given",))
        if feature == "random":
            assert not any(n.target in RANDOM and n.args[2:] != (False,) for n in without.graph.nodes)
        if feature == "mutation":
            before = [t.clone() for t in without.meta["inputs"]]
            without(*without.meta["inputs"])
            assert all(map(torch.equal, before, without.meta["inputs"]))
        if feature in ("conv", "modules"):
            assert not [m for m in modules(random_graph(seed, 25, conv=False, modules=False, integers=False))]


def test_without_dead_every_operation_reaches_an_output():
    for seed in range(20):
        gm = random_graph(seed, 30, dead=False, random=False, integers=False, identity=False)
        unused = [n for n in gm.graph.nodes if n.op.startswith("call_") and not n.users]
        assert all(n.meta["tensor_meta"].shape.numel() > 400 or n.target in (torch.chunk, "split") for n in unused), (
            gm.code
        )


def test_unknown_features_are_named():
    with pytest.raises(TypeError, match="no feature 'mutations'"):
        random_graph(0, mutations=True)
    with pytest.raises(ValueError, match="pointwise"):
        random_graph(0, only=("dead",))


def test_training():
    assert not random_graph(1).training and random_graph(1, training=True).training


# ---------------------------------------------------------------------------------------------------- shrinking


def rewritten(edit):
    """A pass that works on a copy."""

    def run(gm: fx.GraphModule) -> fx.GraphModule:
        gm = copy.deepcopy(gm)
        edit(gm)
        gm.recompile()
        return gm

    return run


def cse(key):
    """A pass that merges calls with the same key."""

    @rewritten
    def merged(gm):
        seen = {}
        for n in list(gm.graph.nodes):
            if n.op == "call_function" and (text := key(n)):
                if text in seen:
                    n.replace_all_uses_with(seen[text])
                    gm.graph.erase_node(n)
                else:
                    seen[text] = n

    return merged


cse_without_kwargs = cse(lambda n: n.target not in RANDOM and (n.target, str(n.args)))
cse_of_draws = cse(lambda n: (n.target, str(n.args), str(n.kwargs)))


@rewritten
def dce_of_effects(gm):
    for n in reversed(list(gm.graph.nodes)):
        if n.op.startswith("call_") and not n.users:
            gm.graph.erase_node(n)


@rewritten
def mul_by_zero(gm):
    for n in list(gm.graph.nodes):
        if n.target is operator.mul and 0 in [a for a in n.args if isinstance(a, (int, float))]:
            n.target, n.args = torch.zeros_like, (n.all_input_nodes[0],)


@rewritten
def fold_of_any_norm(gm):
    for n in gm.graph.nodes:
        if n.op == "call_module" and isinstance(gm.get_submodule(n.target), nn.BatchNorm2d):
            n.replace_all_uses_with(n.args[0])


#: a wrong pass, features of the graphs it is let loose on, and the operations of the smallest graph that shows it
KNOWN = [
    (cse_without_kwargs, {"random": False}, 2),
    (cse_of_draws, {"repeat": False}, 2),
    (dce_of_effects, {"random": True}, 1),
    (dce_of_effects, {"random": False, "mutation": True}, 1),
    (mul_by_zero, {"only": ("pointwise", "identity")}, 1),
    (fold_of_any_norm, {"random": False}, 1),
]


@pytest.mark.parametrize(("wrong", "features", "smallest"), KNOWN)
def test_shrink_reaches_the_known_minimum(wrong, features, smallest):
    features = {"size": 40, **features}
    calls = []

    def fails(gm):
        calls.append(gm)
        gm.graph.lint()
        assert all("tensor_meta" in n.meta for n in gm.graph.find_nodes(op="placeholder"))
        assert len(gm.meta["inputs"]) == len(gm.graph.find_nodes(op="placeholder"))
        return not equivalent(gm, wrong(gm))

    result = 0
    for seed in range(400):
        gm = random_graph(seed, **features)
        if equivalent(gm, wrong(gm)):
            continue
        code = gm.code
        calls.clear()
        small = shrink(gm, fails)
        assert gm.code == code
        assert 0 < len(calls) <= 500
        assert not equivalent(small, wrong(small))
        assert sum(n.op.startswith("call_") for n in small.graph.nodes) == smallest, small.code
        assert len(small.graph.find_nodes(op="placeholder")) <= 2
        result += 1
        if result == 3:
            return
    raise AssertionError("no graph of 400 shows the defect")


def chain(length: int) -> fx.GraphModule:
    def run(x, y):
        for _ in range(length):
            x = torch.tanh(x) + 1
        return torch.relu(x * y).sum(), x

    gm = fx.symbolic_trace(run)
    gm.meta["inputs"] = (torch.ones(2), torch.ones(2))
    return gm


def test_shrink_on_a_structural_property():
    small = shrink(chain(50), lambda gm: any(n.target is torch.relu for n in gm.graph.nodes))
    assert [n.op for n in small.graph.nodes] == ["placeholder", "call_function", "output"]
    assert torch.equal(small(*small.meta["inputs"]), torch.relu(small.meta["inputs"][0]))


def test_shrink_keeps_the_budget():
    calls = []
    shrink(chain(200), lambda gm: calls.append(0) or True, budget=7)
    assert len(calls) <= 7


def test_shrink_wants_a_failing_graph_with_inputs():
    with pytest.raises(ValueError, match="for this one it is false"):
        shrink(chain(2), lambda gm: False)
    gm = chain(2)
    del gm.meta["inputs"]
    with pytest.raises(ValueError, match=r"passlab\.trace"):
        shrink(gm, lambda gm: True)


def test_where_the_predicate_raises_the_graph_does_not_fail():
    def fails(gm):
        if len(gm.graph.nodes) < 8:
            raise RuntimeError
        return True

    assert len(shrink(chain(20), fails).graph.nodes) >= 8


def test_values_of_new_inputs_are_those_of_the_nodes_they_replace():
    gm = fx.symbolic_trace(lambda x: torch.relu(x.sum(0)))
    gm.meta["inputs"] = (torch.arange(6.0).reshape(2, 3),)
    small = shrink(gm, lambda g: any(n.target is torch.relu for n in g.graph.nodes))
    assert small.meta["inputs"][0].tolist() == [3, 5, 7]


def test_operations_are_bypassed_where_no_input_will_do():
    """A chain whose one input must stay: its links can only be left out."""
    small = shrink(chain(6), lambda g: reaches(g, torch.relu, "x"))
    assert [n.name for n in small.graph.nodes if n.op == "placeholder"] == ["x"]
    assert [n.target for n in small.graph.nodes if n.op == "call_function"] == [torch.relu]


def reaches(gm: fx.GraphModule, target, name: str) -> bool:
    """Return whether a call of `target` depends on the input of that name, and on no input that is new."""
    for n in gm.graph.nodes:
        if n.target is target:
            seen, todo = set(), [n]
            while todo:
                at = todo.pop()
                seen.add(at)
                todo += at.all_input_nodes
            inputs = {i.target for i in seen if i.op == "placeholder"}
            return name in inputs and inputs <= {"x", "y"}
    return False


def test_copies_of_a_value_become_one():
    """Two draws look alike to the wrong pass only when their operands do, and here these are two nodes."""
    gm = fx.symbolic_trace(lambda x: F.dropout(torch.sigmoid(x)) + F.dropout(torch.sigmoid(x)))
    gm.meta["inputs"] = (torch.randn(2, 3),)
    small = shrink(gm, lambda g: not equivalent(g, cse_of_draws(g)))
    assert [n.target for n in small.graph.nodes if n.op == "call_function"] == [F.dropout, F.dropout]
