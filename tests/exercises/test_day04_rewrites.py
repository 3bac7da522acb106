"""Day 4, linear + bias + activation and attention: what they promise beyond what the proof of all exercises shows.

The notebook of the answers holds Relax: what is below `# There` runs in a process that does (see `in_own_process`).
"""

from __future__ import annotations

import math
import operator

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from autograder.engine.wire import decode, encode, targets
from passlab import equivalent, exercises, random_graph
from passlab.exercises.day03.pipeline import wiring
from passlab.exercises.day04.attention import attentions, causal
from passlab.exercises.day04.linear_act import layers
from passlab.fx.cases import graph
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import op_name
from passlab.fx.ops import ACTIVATIONS, add_layer_norm, linear_act
from passlab.fx.patterns import pattern
from passlab.judge import judge

IDS = ("day04.linear-act", "day04.attention")
INF = math.inf


# ---------------------------------------------------------------------------------------------------- the fused ops


@pytest.mark.parametrize(("name", "activation"), ACTIVATIONS.items())
def test_linear_act_is_the_three_ops(name, activation):
    x, w, b = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    assert torch.equal(linear_act(x, w, b, name), activation(F.linear(x, w, b)))
    assert torch.equal(linear_act(x, w, activation=name), activation(F.linear(x, w)))


def test_the_two_forms_of_gelu_are_two():
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    assert not torch.equal(linear_act(x, torch.eye(4), None, "gelu"), linear_act(x, torch.eye(4), None, "gelu_tanh"))


def test_an_unknown_activation_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="no activation 'relu6'; it has relu, gelu, gelu_tanh, silu"):
        linear_act(torch.ones(2, 2), torch.ones(2, 2), None, "relu6")


def test_linear_act_has_the_pattern_of_its_product():
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert pattern(graph.call_function(linear_act, (x, x))) == pattern(graph.call_function(F.linear, (x, x)))


@pytest.mark.parametrize(("op", "rest"), [(linear_act, (None, "silu")), (add_layer_norm, ((4, 4),))])
def test_fused_ops_travel(op, rest):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(op, (x, y, *rest)))
    gm = fx.GraphModule(nn.Module(), graph)
    back = decode(encode(gm))
    assert [n.target for n in back.graph.nodes if n.op == "call_function"] == [op]
    assert targets.name_of(op) == f"passlab.fx.ops.{op.__name__}"
    assert equivalent(gm, rebuild(back), (torch.randn(4, 4), torch.randn(4, 4)))


# ---------------------------------------------------------------------------------------------------- the answers

LINEAR = {
    "relu_ writes into the product": (lambda m, x: F.relu(F.linear(x, m.w), inplace=True), {"relu": 1}),
    "three dimensions": (lambda m, x: torch.relu(x.reshape(2, 2, 4) @ m.w.t() + m.b), {"relu": 1}),
    "a vector": (lambda m, x: torch.relu(x[0] @ m.w.t() + m.b), {"relu": 1}),
    "a computed weight and bias": (lambda m, x: F.silu(F.linear(x, torch.tanh(m.w), m.b * 2)), {"silu": 1}),
    "a bias that comes late": (lambda m, x: (lambda y: F.gelu(y + torch.exp(m.b)))(x @ m.w.t()), {"gelu": 1}),
    "two of one weight": (lambda m, x: torch.relu(x @ m.w.t()) + F.silu(F.linear(x, m.w)), {"relu": 1, "silu": 1}),
    "written before": (lambda m, x: (lambda y: torch.relu(F.linear(y, m.w)))(torch.tanh(x).add_(1)), {}),
    "a negative dimension": (lambda m, x: torch.relu(x @ m.w.transpose(-2, -1)), {"relu": 1}),
    "in place, read": (lambda m, x: F.silu(F.linear(F.relu(F.linear(x, m.w), True), m.w)), {"relu": 1, "silu": 1}),
    "no transposition": (lambda m, x: torch.relu(x @ m.w.transpose(1, 1)), {}),
    "a sum of two products": (lambda m, x: torch.relu(x @ m.w.t() + F.linear(x, m.w)), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_a_layer_in_one_spelling(name, in_own_process):
    assert in_own_process(IDS[0], after_linear, name) == LINEAR[name][1]


def softmax(x, dim=-1):
    return torch.softmax(x, dim)


ATTENTION = {
    "negative scale": (lambda m, q: softmax(q @ q.mT * -0.5) @ q, 1),
    "two scales": (lambda m, q: softmax((q * 2) @ q.mT / 3) @ q, 1),
    "a scaled query that others read": (lambda m, q: (lambda s: softmax(s @ q.mT) @ q + s)(q * 2), 1),
    "a boolean mask added": (lambda m, q: softmax(q @ q.mT + m.hidden) @ q, 0),
    "an integer": (lambda m, q: softmax(2 * (q @ q.mT)) @ q, 1),
    "a mask of a row": (lambda m, q: softmax(q @ q.mT + m.row) @ q, 1),
    "a causal mask": (lambda m, q: softmax(q @ q.mT + m.causal) @ q, 1),
    "a mask from the program": (lambda m, q: softmax((q @ q.mT).masked_fill(q[..., :1] > 1, -INF)) @ q, 1),
    "divided by zero": (lambda m, q: softmax(q @ q.mT / 0) @ q, 0),
    "masked with inf": (lambda m, q: softmax((q @ q.mT).masked_fill(m.hidden, INF)) @ q, 0),
    "a number added": (lambda m, q: softmax(q @ q.mT + 1) @ q, 0),
    "a difference": (lambda m, q: softmax(q @ q.mT - m.causal) @ q, 0),
    "two masks": (lambda m, q: softmax(q @ q.mT + m.causal + m.causal) @ q, 0),
    "softmax in double": (lambda m, q: torch.softmax(q @ q.mT, -1, dtype=torch.float64).float() @ q, 0),
    "keys of keys": (lambda m, q: softmax(q @ q.mT.mT.mT) @ q, 1),
    "the query is its own scale": (lambda m, q: softmax((q * q) @ q.mT) @ q, 1),
    "half a formula": (lambda m, q: softmax(q @ q.mT), 0),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_in_one_spelling(name, in_own_process):
    assert in_own_process(IDS[1], after_attention, name) == ATTENTION[name][1]


@pytest.mark.parametrize("exercise_id", IDS)
def test_reference_keeps_the_meaning_of_random_graphs(exercise_id, in_own_process):
    assert in_own_process(exercise_id, broken_graphs, exercise_id) == []


@pytest.mark.parametrize("exercise_id", IDS)
def test_cases_are_the_same_every_time_and_others_for_another_seed(exercise_id, in_own_process):
    assert in_own_process(exercise_id, case_wirings, exercise_id) == (True, True)


@pytest.mark.parametrize("exercise_id", IDS)
def test_an_answer_that_does_nothing_earns_nothing(exercise_id):
    assert judge(exercises.find(exercise_id), lambda gm: gm).points == 0


@pytest.mark.parametrize(
    ("exercise_id", "answer", "sentence"),
    [
        (IDS[0], "one_gelu", "1 linear layer ends in gelu_tanh here; the result has 0 linear_act nodes"),
        (IDS[0], "any_readers", "The intermediate value has another consumer"),
        (IDS[0], "leaves_dead_nodes", ", now unused."),
        (IDS[1], "any_transposition", "None of these is attention: look at every dimension, order, number and dtype."),
        (IDS[1], "one_side", "4 attentions can be fused here; 3 became one op."),
        (IDS[1], "drops_dropout", "In training this dropout draws"),
        (IDS[0], "modules_by_name", "with 'relu' came in for relu6_1; expected none."),
        (IDS[1], "adds_booleans", "scaled_dot_product_attention came in for matmul_16; expected none."),
        (IDS[1], "query_stays_scaled", "4 are enough. It still calls mul and mul_1."),
    ],
)
def test_messages_say_what_to_look_at(exercise_id, answer, sentence, in_own_process):
    text = in_own_process(exercise_id, said_of, exercise_id, answer)
    assert any(sentence in message for message in text), text


# ---------------------------------------------------------------------------------------------------- smaller versions


def one_linear_act(gm):
    """Answer the smaller version of linear-act: F.relu(F.linear(x, w, b)) only."""
    for node in list(gm.graph.nodes):
        layer = node.args[0] if node.target is F.relu else None
        if layer is not None and layer.target is F.linear and len(layer.users) == 1:
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(gm.graph.call_function(linear_act, (*layer.args, "relu")))
            gm.graph.erase_node(node)
            gm.graph.erase_node(layer)
    return gm


def one_attention(gm):
    """Answer the smaller version of attention: softmax(q @ k.transpose(-2, -1) * c, -1) @ v only."""

    def operands(node, target, *last):
        result = isinstance(node, fx.Node) and node.target == target and node.args[len(node.args) - len(last) :] == last
        return node.args if result else (None, None)

    for node in list(gm.graph.nodes):
        weights, v = operands(node, operator.matmul)
        scaled, _ = operands(weights, torch.softmax, -1)
        scores, c = operands(scaled, operator.mul)
        q, turned = operands(scores, operator.matmul)
        k, *_ = operands(turned, "transpose", -2, -1)
        if k is None or any(len(n.users) > 1 for n in (weights, scaled, scores)):
            continue
        with gm.graph.inserting_before(node):
            whole = gm.graph.call_function(F.scaled_dot_product_attention, (q, k, v), {"scale": c})
        node.replace_all_uses_with(whole)
        for dead in (node, weights, scaled, scores, turned):
            gm.graph.erase_node(dead)
    return gm


@pytest.mark.parametrize(("exercise_id", "small"), [(IDS[0], one_linear_act), (IDS[1], one_attention)])
def test_the_smaller_version_asks_for_one_spelling(exercise_id, small, in_own_process):
    exercise = exercises.find(exercise_id)
    assert judge(exercise, small, exercise.smaller_cases()).ok
    assert not judge(exercise, small).ok
    assert judge(exercise, lambda gm: gm, exercise.smaller_cases()).points == 0
    assert in_own_process(exercise_id, points_of_the_reference_on_the_smaller, exercise_id) == exercise.total


# There


def rewritten(exercise_id, body, *shapes, **parts):
    before, after = graph(body, *shapes, **parts)(), answers.reference(exercise_id)(graph(body, *shapes, **parts)())
    assert not why_not_valid(before, after)
    result = equivalent(before, rebuild(after), trials=("given", "double", "structured"))
    assert result, result.reason
    return after


def after_linear(name):
    after = rewritten(IDS[0], LINEAR[name][0], (4, 4), w=(4, 4), b=(4,))
    return {activation: len(item) for activation, item in layers(after).items()}


def after_attention(name):
    parts = {"row": (1, 4), "causal": causal(4), "hidden": causal(4).isinf()}
    after = rewritten(IDS[1], ATTENTION[name][0], (2, 4, 4), **parts) if "zero" not in name else None
    if after is None:  # nothing but NaN
        after = answers.reference(IDS[1])(graph(ATTENTION[name][0], (2, 4, 4), **parts)())
    assert len(attentions(after)) + sum(op_name(n, after) == "softmax" for n in after.graph.nodes) == 1
    return len(attentions(after))


def broken_graphs(exercise_id):
    """Seeds of random graphs that the reference answer changes the meaning of."""
    answer, broken = answers.reference(exercise_id), []
    for seed in range(40):
        before, after = (random_graph(seed, 30, mutation=seed % 2 == 0) for _ in range(2))
        after = answer(after)
        same = not why_not_valid(before, after) and equivalent(before, after, trials=("given", "double"))
        broken += [] if same else [seed]
    return broken


def case_wirings(exercise_id):
    def drawn(seed):
        cases = [*exercises.find(exercise_id).cases(), *hidden_cases(exercise_id, seed)]
        assert len({case.name for case in cases}) == len(cases)
        return [str(wiring(case.build()[0])) for case in cases]

    return drawn(3) == drawn(3), drawn(3) != drawn(4)


def said_of(exercise_id, name):
    """The sentences that a known wrong answer gets on the visible cases."""
    answer = next(a for a in answers.load(exercise_id) if a.__name__ == name)
    return [finding.message for finding in judge(exercises.find(exercise_id), answer).findings if not finding.ok]


def points_of_the_reference_on_the_smaller(exercise_id):
    exercise = exercises.find(exercise_id)
    return judge(exercise, answers.reference(exercise_id), exercise.smaller_cases()).points
