"""Day 2: what its laws and messages promise beyond what the proof of all exercises (`passlab prove`) shows."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.answers.day02._shared import program_of
from autograder.answers.day02.fold_batchnorm import conv_bn_pairs
from autograder.answers.day02.fuse_conv_relu import conv_relu_pairs
from autograder.authoring import answers
from autograder.authoring.source import answer_of
from autograder.engine import wire
from passlab import exercises
from passlab.exercises.day02._shared import program
from passlab.exercises.day02.fold_batchnorm import _changed, batch_norm
from passlab.fx.cases import seeded
from passlab.fx.judge import rebuild
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.fx.suspects import SUSPECTS
from passlab.given.day02.fold_batchnorm import call as call_fold
from passlab.given.day02.pass_manager import call as call_manager
from passlab.given.day02.visitor import call as call_visitor
from passlab.judge import Case, judge

ALL = [e.id for e in exercises.of_day("day02")]


FORGETFUL = ("loses_stride", "fresh_weights")


def says(exercise_id: str, answer, case: int = 0) -> str:
    """The sentence shown for an answer on one visible case."""
    exercise = exercises.find(exercise_id)
    return judge(exercise, answer, [exercise.cases()[case]]).failure.message


# ---------------------------------------------------------------------------------------------------- fused ops


def test_the_fused_ops_are_relu_of_conv2d():
    torch.manual_seed(0)
    x, conv = torch.randn(2, 4, 9, 9), nn.Conv2d(4, 6, 3, 2, 1, 1, groups=2, padding_mode="reflect")
    fused = ConvReLU2d(4, 6, 3, 2, 1, 1, groups=2, padding_mode="reflect")
    fused.load_state_dict(conv.state_dict())
    assert torch.equal(fused(x), torch.relu(conv(x)))
    assert torch.equal(conv2d_relu(x, conv.weight, None, 2, 1, 1, 2), F.conv2d(x, conv.weight, None, 2, 1, 1, 2).relu())


# ---------------------------------------------------------------------------------------------------- bad answers


def test_messages_name_the_node_and_what_to_do():
    assert "return gm" in says("day02.fuse-conv-relu", lambda gm: None)
    assert "Return a GraphModule" in says("day02.fuse-conv-relu", lambda gm: gm.graph)
    stride, weights = (next(a for a in answers.load("day02.fuse-conv-relu") if a.__name__ == n) for n in FORGETFUL)
    assert "stride is (2, 1) in conv, and (1, 1) in fused_conv" in says("day02.fuse-conv-relu", stride)
    assert "conv_relu has weights that match no convolution" in says("day02.fuse-conv-relu", weights)
    assert "conv0 → bn1" in says("day02.fold-batchnorm", lambda gm: gm)
    assert "a bool and two numbers" in says("day02.equivalent", lambda *a: True)
    assert "NaN" in says("day02.equivalent", lambda *a: (False, float("nan"), 0.0))
    assert "one of stride" in says("day02.lost-attribute", lambda *a: "kernel_size")
    assert "(x,)" in says("day02.counterexample", lambda name: (fx.symbolic_trace(nn.ReLU()), torch.ones(1)))


def test_the_sources_of_a_fused_node_are_in_the_order_of_the_graph():
    swapped = answer_of("day02.fuse-conv-relu", changes=[("[conv.name, relu.name]", "[relu.name, conv.name]")])
    assert "stands for conv and relu" in says("day02.fuse-conv-relu", swapped)


# ---------------------------------------------------------------------------------------------------- the seam


def test_a_callback_result_that_is_no_number_is_written_down_as_text():
    result = call_visitor(lambda root, callbacks: {"root": torch.zeros(2)}, exercises.find("day02.visitor").cases()[0])
    assert result["result"] == {"root": "tensor([0., 0.])"}


# ---------------------------------------------------------------------------------------------------- visitor


def test_a_raised_recursion_limit_is_put_back():
    limit = sys.getrecursionlimit()

    def answer(root, callbacks):
        sys.setrecursionlimit(limit + 777)

    result = call_visitor(answer, exercises.find("day02.visitor").cases()[0])
    assert result["raised_limit"] and sys.getrecursionlimit() == limit


def test_an_exponential_walk_is_stopped_at_the_first_second_visit():
    def tree(root, callbacks):
        for operand in root.all_input_nodes:
            tree(operand, callbacks)
        key = root.op if root.op in callbacks else None
        return callbacks[key](root) if key else None

    ladder = exercises.find("day02.visitor").cases()[3]
    result = call_visitor(tree, ladder)
    assert [name for name, *_ in result["log"]] == ["x", "sin", "x"]  # cos asks for x again, and that ends it
    (finding,) = exercises.find("day02.visitor").judge(ladder, result)
    assert "x was visited twice, because it is used by sin, cos" in finding.message


def test_a_limit_raised_during_the_walk_alone_is_seen():
    reference = answers.reference("day02.visitor")

    def answer(root, callbacks):
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 777)
        try:
            return reference(root, callbacks)
        finally:
            sys.setrecursionlimit(limit)

    assert call_visitor(answer, exercises.find("day02.visitor").cases()[0])["raised_limit"]


# ---------------------------------------------------------------------------------------------------- folding


def test_a_weight_changed_in_place_is_seen_and_one_in_a_copy_is_not():
    def build():
        conv, other, norm = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), batch_norm(4)
        other.weight = conv.weight
        body = lambda m, x: m.bn(m.other(m.conv(x)))  # noqa: E731
        return (program(body, torch.ones(1, 4, 2, 2), conv=conv, other=other, bn=norm),)

    def in_place(gm):
        gm.conv.weight.data.mul_(2)

    def bias_removed(gm):
        gm.conv.bias = None

    def shared_no_more(gm):
        gm.other.weight = nn.Parameter(gm.conv.weight.detach().clone())

    def other_stride(gm):
        gm.other.stride = (2, 2)

    def new_module(gm):
        gm.conv = nn.Conv2d(4, 4, 1)

    case, changed = Case("one", seeded(build)), {}
    for answer in (in_place, bias_removed, shared_no_more, other_stride, new_module):
        result = wire.decode(wire.encode(call_fold(answer, case)))
        changed[answer.__name__] = _changed(rebuild(case.build()[0]), result["model"])
    assert changed == {
        "in_place": "conv.weight",
        "bias_removed": "conv",
        "shared_no_more": "other.weight",
        "other_stride": "other",
        "new_module": None,
    }


# ---------------------------------------------------------------------------------------------------- pass manager


def test_a_manager_that_never_calls_verify_is_seen_on_right_passes_too():
    class Blind:
        def __init__(self, passes, analyses, verify):
            self.passes, self.history = passes, []

        def run(self, gm):
            for p in self.passes:
                before = len(gm.graph.nodes)
                gm = p.run(gm, {})
                self.history.append((p.name, before, len(gm.graph.nodes)))
            return gm

    exercise = exercises.find("day02.pass-manager")
    first = exercise.cases()[0]
    results = {f.verdict: f for f in exercise.judge(first, call_manager(Blind, first))}
    assert results["did"].ok and not results["valid"].ok
    assert "not verified between the start and grow" in results["valid"].message


FORGERIES = {
    "no analysis was needed": (lambda log: [e for e in log if e[0] != "analysis"], "spared"),
    "other facts were true": (lambda log: [(*e[:3], dict.fromkeys(e[3], 9)) for e in log], "spared"),
    "graphs had other sizes": (lambda log: [(*e[:2], 5, e[3]) for e in log], "did"),
    "all was verified": (lambda log: [e for e in log if e[0] != "verify"], "valid"),
    "an analysis of something else": (
        lambda log: [(*e[:2], 1, e[3]) if e[0] == "analysis" else e for e in log],
        "spared",
    ),
}


@pytest.mark.parametrize("forged", FORGERIES)
def test_a_log_that_no_manager_can_have_earned_is_found_out(forged):
    """The learner's process writes the log: what it says of graphs and facts is replayed, not believed."""
    exercise, (forge, verdicts) = exercises.find("day02.pass-manager"), FORGERIES[forged]
    case = next(case for case in exercise.cases() if "cost" in case.about)
    value = call_manager(answers.reference(exercise.id), case)
    assert all(f.ok for f in exercise.judge(case, value))
    for one in value["runs"]:
        one["log"] = forge(one["log"])
    assert verdicts in {f.verdict for f in exercise.judge(case, value) if not f.ok}


# ---------------------------------------------------------------------------------------------------- hidden cases


def test_matches_in_known_models():
    """skip has two convolutions with a ReLU behind; convnet two with a batch norm between, which folding removes."""
    assert conv_relu_pairs(program_of("skip")) == ("down → relu", "deep → relu_1")
    assert conv_bn_pairs(program_of("convnet")) == ("conv1 → bn1", "conv2 → bn2")
    assert conv_relu_pairs(program_of("convnet")) == ()
    assert conv_bn_pairs(program_of("convnet").train()) == ()


# ---------------------------------------------------------------------------------------------------- suspects

#: For each suspect a program on which its rewrite fires and its law holds: none is wrong everywhere.
HARMLESS = {
    "fuse_add_relu": (lambda x: torch.relu(x + 1), 1),
    "cancel_transposes": (lambda x: x.transpose(0, 1).transpose(1, 0) * 2, 1),
    "drop_round_trips": (lambda x: x.double().float() * 2, 1),
    "relu_in_place": (lambda x: torch.relu(x * 2), 0),
    "relu_before_pool": (lambda x: torch.relu(F.max_pool2d(x, 2)), 0),
    "merge_relus": (lambda x: torch.relu(torch.relu(x)), 1),
}


@pytest.mark.parametrize("name", SUSPECTS)
def test_a_suspect_is_right_where_its_precondition_holds(name):
    body, shorter = HARMLESS[name]
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    before, after = fx.symbolic_trace(body), SUSPECTS[name](fx.symbolic_trace(body))
    assert str(after.graph) != str(before.graph)
    assert len(before.graph.nodes) - len(after.graph.nodes) >= shorter
    arguments = x.clone()
    assert torch.equal(after(arguments), body(x)) and torch.equal(arguments, x)


# ---------------------------------------------------------------------------------------------------- Relax


def silu_of(change: str) -> tuple[list[str], str]:
    """Verdicts lost by the right answer with one thing done to its module, on a visible case, and the sentence."""
    from autograder.authoring import answers
    from passlab.relax import relax, tvm

    def answer(module):
        main = module["main"]
        if change == "unchanged":
            return module
        if change == "the pass itself":
            return relax.transform.DeadCodeElimination()
        if change == "a function":
            return main
        if change == "without the helper":
            return tvm.IRModule({"main": main})
        return answers.reference("day02.fuse-silu")(module)

    exercise = exercises.find("day02.fuse-silu")
    result = judge(exercise, answer, [exercise.cases()[2]])
    return [v for v, ok in result.verdicts.items() if not ok], result.failure.message if result.failure else ""


@pytest.mark.parametrize(
    ("change", "first", "said"),
    [
        ("nothing", [], ""),
        ("unchanged", ["did"], "multiplies a value by its own sigmoid"),
        ("the pass itself", ["valid"], "returned another pass"),
        ("a function", ["valid"], "returned a Function"),
        ("without the helper", ["valid"], "calls helper, and the module has no function of that name"),
    ],
)
def test_what_a_pass_over_relax_returns_is_judged(change, first, said, in_own_process):
    verdicts, sentence = in_own_process("day02.fuse-silu", silu_of, change)
    assert [v for v in verdicts if v != "same"][:1] == first and said in sentence
