"""Day 15, the core: its judges against the library, and sentences for broken answers."""

from __future__ import annotations

import re

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises, quantization
from passlab.exercises.day15.fold import layer_before
from passlab.fx.nodes import attribute
from passlab.judge import judge
from passlab.quantization import dequantize, fold, integer_linear, quantize, stated, weight_scales
from tests.support.judged import lost


def cases(exercise_id, seed):
    return [*exercises.find(exercise_id).cases(), *hidden_cases(exercise_id, seed)]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_librarys_grid_is_right(seed):
    def library(low, high, bits, symmetric):
        try:
            return tuple(quantization.grid(low, high, bits, symmetric))[:2]
        except quantization.QuantizationError:
            return None

    every = cases("day15.grid", seed)
    exercise = exercises.find("day15.grid")
    open_to_all = type(exercise)(**{**exercise.__dict__, "closed": ()})
    assert judge(open_to_all, library, every).ok


@pytest.mark.parametrize("seed", [1, 2])
def test_the_librarys_integers_are_those_that_the_judge_states(seed):
    checked = 0
    for case in cases("day15.fold", seed):
        (gm,) = case.build()
        layers = [node for node in gm.graph.nodes if layer_before(gm, node) is not None]
        pairs = [node for node in gm.graph.nodes if quantization.match(node) is not None]
        if layers and layers == pairs:
            (case_graph,) = case.build()
            inputs = gm.meta["inputs"]
            for results in (fold(case_graph)(*inputs), stated(gm, *inputs)):
                right = reference("day15.fold")(case.build()[0])(*inputs)
                results, right = (x if isinstance(x, tuple) else (x,) for x in (results, right))
                assert all(map(torch.equal, results, right)), case.name
            checked += 1
    assert checked >= 8


def test_the_references_work_together():
    """Pairs on grids of the first answer, put in by the second, become integers by the third, which err little."""
    w, v = torch.randn(5, 3), torch.randn(2, 5)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.v = torch.nn.Parameter(w), torch.nn.Parameter(v)

        def forward(self, x):
            return F.linear(torch.relu(F.linear(x, self.w)), self.v)

    x = torch.randn(64, 3)
    gm = fx.symbolic_trace(Net())
    grid = reference("day15.grid")
    with torch.no_grad():
        grids = {name: grid(*ends, 8, False) for name, ends in quantization.observe(gm, [(x,)]).items()}
        right = gm(x)
        integers = reference("day15.fold")(reference("day15.insert")(gm, grids))
        assert [node.target for node in integers.graph.nodes].count(integer_linear) == 2
        assert (integers(x) - right).norm() / right.norm() < 0.03


def double_pair(gm, grids):
    """Put a pair behind each value, in a row with the right one."""
    gm = reference("day15.insert")(gm, grids)
    for dq in list(gm.graph.find_nodes(op="call_function", target=dequantize)):
        if not dq.kwargs:
            with gm.graph.inserting_after(dq):
                q = gm.graph.call_function(quantize, (dq, *dq.args[1:]))
            with gm.graph.inserting_after(q):
                again = gm.graph.call_function(dequantize, (q, *dq.args[1:]))
            dq.replace_all_uses_with(again, lambda user, q=q: user is not q)
    gm.recompile()
    return gm


def rounded_weights(gm, grids):
    """Round the numbers of weights in place of inserting pairs."""
    for node in gm.graph.find_nodes(op="call_function", target=F.linear):
        value = attribute(gm, node.args[1].target)
        on = weight_scales(value), 0, 8, 0
        value.data = dequantize(quantize(value, *on), *on)
    return gm


def no_dequantize(gm, grids):
    gm = reference("day15.insert")(gm, grids)
    for dq in gm.graph.find_nodes(op="call_function", target=dequantize):
        dq.replace_all_uses_with(dq.args[0])
    gm.recompile()
    return gm


def swapped(gm, grids):
    return reference("day15.insert")(gm, {name: (scale, -zero_point) for name, (scale, zero_point) in grids.items()})


INSERTED = {
    "two in a row": (double_pair, "tanh has 2 quantize nodes; one is enough"),
    "weights of rounded numbers": (rounded_weights, "is there 0 times; it was 1"),
    "quantized, and never dequantized": (
        no_dequantize,
        "linear should read the pair of tanh, not tanh itself: the layer linear reads it",
    ),
    "other zero points": (swapped, "quantize of tanh has the zero_point 27; tanh has -27"),
}


@pytest.mark.parametrize("name", INSERTED)
def test_wrong_pairs_get_a_sentence(name):
    answer, sentence = INSERTED[name]
    _, message = lost("day15.insert", answer, "one layer")
    assert re.search(sentence, message)


def float_weight(gm):
    """Leave the quantize of the weight in the graph."""
    for q in gm.graph.find_nodes(op="call_function", target=quantize):
        layer = q.args[0]
        if layer.target is F.linear:
            x, weight = layer.args[:2]
            with gm.graph.inserting_before(q):
                new = gm.graph.call_function(integer_linear, (x.args[0], weight.args[0], None, 0, 1, 1, 0))
            q.replace_all_uses_with(new)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def by_keyword(gm):
    gm = reference("day15.fold")(gm)
    names = ("x", "weight", "bias", "x_zero", "multiplier", "shift", "zero_point", "low", "high")
    for node in gm.graph.find_nodes(op="call_function", target=integer_linear):
        node.args, node.kwargs = (node.args[0],), dict(zip(names[1:], node.args[1:], strict=True))
    gm.recompile()
    return gm


def test_operands_by_keyword_are_right():
    (case,) = [case for case in exercises.find("day15.fold").cases() if case.name == "a shared weight"]
    assert judge(exercises.find("day15.fold"), by_keyword, [case]).ok


FOLDED = {
    "a weight that is not constant": (float_weight, "its second operand, is not a get_attr of int8"),
    "the graph as it was": (
        lambda gm: gm,
        "differs from the stated integers|There are 0 integer layers; 1 is possible",
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_wrong_integers_get_a_sentence(name):
    answer, sentence = FOLDED[name]
    _, message = lost("day15.fold", answer, "one layer")
    assert re.search(sentence, message)
