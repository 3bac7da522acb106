"""Day 3, and the reference passes of days 2 and 3: what they promise beyond what the proof of all exercises shows."""

from __future__ import annotations

import contextlib
import itertools
import operator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

from autograder.answers.day03.channels_last import images
from autograder.answers.day03.pipeline import best_of
from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from passlab import equivalent, exercises, random_graph, trace
from passlab.exercises.day03.pipeline import wiring
from passlab.exercises.day03.shrinking import budget
from passlab.fx.cases import graph, live
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.layout import ANY, NHWC, clashes, converts, is_image, wants
from passlab.fx.nodes import op_name
from passlab.fx.stages import STAGES
from passlab.given.day03.constant_folding import _Memory
from passlab.judge import Outcome, judge, judge_outcome

ALL = [e.id for e in exercises.of_day("day03")]
PASSES = {
    "day02.fuse-conv-relu": {},
    "day02.fold-batchnorm": {},
    "day03.constant-folding": {"mutation"},
    "day03.dce": {"mutation"},
    "day03.cse": {"mutation"},
    "day03.simplify": {"mutation"},
    "day03.gelu": {"mutation"},
    "day03.channels-last": {},
}

#: What is asked of two passes that differ in rounding, or in how a result lies in memory, by design.
EQUIVALENCE = {
    # A dropout draws in the order of memory, and -y + x lies in memory as y does, x - y as x does: only operands with
    # unlike strides show it. x * 1 = x makes an output of the program an input.
    "day03.simplify": {"trials": ("given", "double", "extreme", "nonfinite", "sizes"), "aliasing": False},
    # F.gelu in float32 rounds once where the formula rounds eight times.
    "day03.gelu": {"trials": ("given", "double", "nonfinite", "sizes"), "rtol": 1e-5, "atol": 1e-5},
}


def answer(exercise_id: str):
    return answers.reference(exercise_id)


def says(exercise_id: str, learner, name: str) -> str:
    """The sentence shown for an answer on the visible case of that name."""
    exercise = exercises.find(exercise_id)
    return judge(exercise, learner, [case for case in exercise.cases() if case.name == name]).failure.message


# ---------------------------------------------------------------------------------------------------- meaning


@pytest.mark.parametrize("exercise_id", PASSES)
def test_reference_pass_keeps_meaning_on_random_graphs(exercise_id):
    run = answer(exercise_id)

    @given(seed=st.integers(0, 10**6), size=st.integers(5, 14), mutation=st.booleans(), training=st.booleans())
    def keeps(seed, size, mutation, training):
        features = {"mutation": mutation and "mutation" in PASSES[exercise_id], "training": training}
        before, after = (random_graph(seed, size, **features) for _ in range(2))
        after = run(after)
        assert not why_not_valid(before, after)
        result = equivalent(before, after, **EQUIVALENCE.get(exercise_id, {}))
        assert result, result.reason

    keeps()


@pytest.mark.parametrize("seed", range(20))
def test_the_four_classics_in_a_row_keep_meaning_and_reach_a_fixpoint(seed):
    passes = [answer(f"day03.{name}") for name in ("constant-folding", "simplify", "cse", "dce")]
    before = random_graph(seed, 40)
    after = random_graph(seed, 40)
    for _ in range(6):
        last = wiring(after)
        for run in passes:
            after = run(after)
        if wiring(after) == last:
            break
    assert wiring(after) == last, "still changing after six sweeps"
    assert len(after.graph.nodes) <= len(before.graph.nodes)
    assert equivalent(before, after, trials=("given", "double", "extreme", "nonfinite"))


@pytest.mark.parametrize("exercise_id", PASSES)
def test_passes_finish_on_deep_graphs(exercise_id):
    def deep(m, x):
        for _ in range(3000):
            x = torch.relu(x + 0)
        return x

    gm = graph(deep, (2, 3))()
    assert not why_not_valid(graph(deep, (2, 3))(), answer(exercise_id)(gm))


# ---------------------------------------------------------------------------------------------------- cases


def test_messages_are_in_the_words_of_the_lesson():
    def merges_all(gm):
        first = {}
        for node in list(gm.graph.nodes):
            key = (node.target, str(node.args), str(node.kwargs))
            if node.op == "call_function" and first.setdefault(key, node) is not node:
                node.replace_all_uses_with(first[key])
                gm.graph.erase_node(node)
        return gm

    message = says("day03.cse", merges_all, "two dropouts")
    assert message.startswith("Your CSE merged two random draws, but each call draws new numbers.")
    assert "dropout and dropout_1 should have stayed; 1 did" in message

    def unread(gm):
        gm.graph.eliminate_dead_code()
        return gm

    message = says("day03.dce", unread, "four ways to write")
    assert "writes into memory that is read later" in message

    def plain(gm):
        for node in list(gm.graph.nodes):
            if node.target is torch.tanh:
                top = next(iter(next(iter(next(iter(node.users)).users)).users))
                with gm.graph.inserting_before(top):
                    gelu = gm.graph.call_function(F.gelu, (next(n for n in gm.graph.nodes),))
                top.replace_all_uses_with(gelu)
        return gm

    exercise = exercises.find("day03.gelu")
    result = judge(exercise, plain, [case for case in exercise.cases() if case.name == "the tanh form, twice"])
    assert any("Pass approximate='tanh'" in f.message for f in result.findings if f.verdict == "did")


def test_a_pass_that_does_nothing_earns_nothing_where_there_is_something_to_do():
    for exercise_id in PASSES:
        if exercise_id.startswith("day03"):
            assert judge(exercises.find(exercise_id), lambda gm, *rest: gm).points == 0


def test_the_smaller_dce_needs_no_effects():
    def pure(gm):
        for node in reversed(gm.graph.nodes):
            if not node.users and node.op not in ("placeholder", "output"):
                gm.graph.erase_node(node)
        return gm

    dce = exercises.find("day03.dce")
    assert judge(dce, pure, dce.smaller_cases()).ok and judge(dce, answer(dce.id), dce.smaller_cases()).ok
    assert not judge(dce, pure).ok


# ---------------------------------------------------------------------------------------------------- single laws


def ops(gm: fx.GraphModule) -> list[str]:
    return [op_name(node, gm) for node in live(gm) if node.op.startswith("call")]


def test_folding_is_exact_and_leaves_the_weight_alone():
    build = graph(lambda m, x: x @ m.w.t(), (2, 3), w=(4, 3))
    before, after = build(), answer("day03.constant-folding")(build())
    (constant,) = [node for node in after.graph.nodes if node.op == "get_attr"]
    folded = getattr(after, constant.target)
    assert torch.equal(folded, before.w.t()) and folded.data_ptr() != after.w.data_ptr()
    assert ops(after) == ["matmul"]


def test_a_value_that_fits_into_no_memory_is_there_to_be_left_alone():
    """An answer that switches the limit of memory off has to make a value of 14 GB."""
    (case,) = (case for case in hidden_cases("day03.constant-folding", 0) if case.name == "larger than memory")
    gm, _ = case.build()
    shapes = [n.meta["tensor_meta"].shape.numel() for n in gm.graph.nodes if n.op.startswith("call")]
    assert max(shapes) * 4 > 10 * 2**30
    exercise, folded = exercises.find("day03.constant-folding"), fx.symbolic_trace(lambda x: x * 2)
    assert all(f.ok for f in judge_outcome(exercise, case, Outcome("ok", gm)))
    assert {f.verdict for f in judge_outcome(exercise, case, Outcome("ok", folded)) if not f.ok} == {"spared"}


@pytest.mark.parametrize(
    ("compute", "allowed"),
    [
        (lambda u: u.reshape(-1, 1) * u, False),
        (lambda u: torch.zeros(60_000, 60_000), False),
        (lambda u: u.expand(60_000, 60_000).select(0, 7) + 1, True),  # a view takes no memory, however large it looks
        (lambda u: u.reshape(-1, 1).sum().item() * torch.nonzero(u), True),
    ],
)
def test_memory_ends_before_it_is_taken(compute, allowed):
    ended = contextlib.nullcontext() if allowed else pytest.raises(MemoryError, match="14,400,000,000 bytes")
    with ended, _Memory(1 << 20):
        compute(torch.ones(60_000))


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (lambda m, x: x + 0.0, ["add"]),
        (lambda m, x: x - 0.0, []),
        (lambda m, x: x - m.minus_zeros, ["sub"]),  # x - (-0) is x + 0, and -0 + 0 is +0
        (lambda m, x: x - m.zeros, []),
        (lambda m, x: x * 1 * 1.0, []),
        (lambda m, x: torch.neg(torch.neg(torch.neg(x))), ["neg"]),
        (lambda m, x: -x + x, ["sub"]),  # x - x, of floats: NaN for inf
        (lambda m, x: (x - (-x)) ** 2, ["neg", "sub", "mul"]),  # no law for x - (-y) in the table
        (lambda m, x: x.reshape(-1).reshape(3, 2).transpose(0, 1).transpose(-1, -2), ["reshape"]),
    ],
)
def test_simplify_one_law_at_a_time(body, left):
    build = graph(body, (2, 3), zeros=torch.zeros(2, 3), minus_zeros=-torch.zeros(2, 3))
    assert ops(answer("day03.simplify")(build())) == left


def test_cse_keys_tell_types_and_signs_apart():
    def body(m, n):
        return n + 1, n + 1.0, n + True, n * 0.0, n * -0.0, n + 1

    assert len(ops(answer("day03.cse")(graph(body, torch.arange(3))()))) == 5


# ---------------------------------------------------------------------------------------------------- optima


def fewest_conversions(gm: fx.GraphModule) -> int:
    """By trying every side for every node with a choice."""
    nodes = list(gm.graph.nodes)
    reads = {node: [n for n in node.all_input_nodes if is_image(n)] for node in nodes}
    free = [node for node in nodes if wants(node) == ANY and reads[node]]
    fixed = {node: wants(node) == NHWC for node in nodes}
    fewest = len(nodes)
    for sides in itertools.product((False, True), repeat=len(free)):
        side = fixed | dict(zip(free, sides, strict=True))
        fewest = min(fewest, len({n for node in nodes for n in reads[node] if side[n] != side[node]}))
    return fewest


@pytest.mark.parametrize("seed", range(25))
def test_the_minimum_cut_is_the_minimum(seed):
    build = images(seed, 8)
    after = answer("day03.channels-last")(build())
    assert sum(converts(node) is not None for node in after.graph.nodes) == fewest_conversions(build())
    assert clashes(rebuild(after), *after.meta["inputs"]) == []


def test_the_conversions_promised_in_visible_cases_are_the_fewest():
    for case in exercises.find("day03.channels-last").cases():
        assert case.expect == fewest_conversions(case.build()[0]), case.name


def test_layouts_of_the_reference_are_the_layouts_of_torch():
    """What `layout` says by rule, torch does: a convolution gets channels_last strides."""
    case = next(
        case
        for case in exercises.find("day03.channels-last").cases()
        if case.name == "a residual block and a classifier"
    )
    gm = rebuild(answer("day03.channels-last")(case.build()[0]))
    seen = {}

    class Strides(fx.Interpreter):
        def run_node(self, node):
            seen[node] = super().run_node(node)
            return seen[node]

    Strides(gm).run(*gm.meta["inputs"])
    convolutions = [node for node in gm.graph.nodes if wants(node) == NHWC]
    assert len(convolutions) == 3
    for node in convolutions:
        assert seen[node.args[0]].is_contiguous(memory_format=torch.channels_last), node.name


def test_the_best_orders_promised_in_visible_cases_are_the_best():
    for case in exercises.find("day03.pipeline").cases():
        _, stages = case.build()
        assert case.expect == best_of(lambda case=case: case.build()[0], stages), case.name
        seen = []
        for order in itertools.permutations(stages):
            gm, runs, last = case.build()[0], 0, None
            while last != (last := wiring(gm)):
                for name in order:
                    gm, runs = STAGES[name](gm), runs + 1
            seen.append((len(gm.graph.nodes), runs))
        assert (case.expect.nodes, case.expect.runs) == min(seen), case.name
        assert len(set(seen)) > 1 or case.name == "no node less", f"{case.name}: every order is the best"


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_inverse_is_within_its_budget_with_room_to_spare(rounds):
    assert len(answer("day03.shrinking")(rounds).graph.nodes) <= budget(rounds) - 4


# ---------------------------------------------------------------------------------------------------- real models


@pytest.mark.parametrize("name", ["gpt", "residual", "lstm", "vit"])
def test_the_classics_on_the_zoo(name):
    from passlab import models

    model = models.ZOO[name]
    before = trace(model.build(), *model.inputs())
    after = trace(model.build(), *model.inputs())
    for each in ("constant-folding", "simplify", "cse", "dce"):
        after = answer(f"day03.{each}")(after)
    assert equivalent(before, after)
    assert len(after.graph.nodes) <= len(before.graph.nodes)


def test_an_attention_score_loses_what_never_changes():
    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.key = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return x @ self.key.t() * self.key.size(-1) ** -0.5

    after = answer("day03.constant-folding")(trace(Scores(), torch.randn(4, 8)))
    assert ops(after) == ["matmul", "mul"]
    assert 8**-0.5 in [arg for node in after.graph.nodes for arg in node.args]


def test_draws_of_a_seed_are_spread():
    """The drawn images of different seeds are wired differently: one lucky graph would prove little."""
    assert len({str(wiring(images(seed, 8)())) for seed in range(10)}) == 10


def test_setitem_is_kept_in_every_place():
    """A graph as no tracer makes it: the written value is returned, the write itself is not read."""
    g = fx.Graph()
    x = g.placeholder("x")
    y = g.call_function(torch.relu, (x,))
    g.call_function(operator.setitem, (y, 0, 5.0))
    g.output(y)
    gm = fx.GraphModule(nn.Module(), g)
    for exercise_id in ("day03.dce", "day03.cse", "day03.simplify", "day03.constant-folding"):
        gm = answer(exercise_id)(gm)
    assert rebuild(gm)(torch.zeros(2, 2))[0].tolist() == [5.0, 5.0]
