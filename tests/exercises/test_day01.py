"""Day 1: what the proof of the checks does not cover. Its judges meet nonsense, counts known from papers, and bombs."""

from __future__ import annotations

import ast
import itertools
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import fx, nn

from autograder.authoring import source
from autograder.authoring.answers import hidden_cases
from passlab import exercises, models, trace
from passlab.exercises.day01 import _shared as common
from passlab.exercises.day01 import levels as levels_graphs
from passlab.exercises.day01 import match_onnx as exporting
from passlab.exercises.day01 import propagate as shapes
from passlab.exercises.day01 import residual_edges as graphs
from passlab.exercises.day01 import swap_relu as swapping
from passlab.exercises.day01 import to_ssa as ssa
from passlab.fx.cases import seeded
from passlab.given.day01 import _shared as given
from passlab.given.day01 import propagate as watching
from passlab.judge import Case, judge, run

DAY = exercises.of_day("day01")


@pytest.mark.parametrize("exercise", DAY, ids=lambda e: e.id)
def test_each_exercise_has_hints_from_vague_to_close(exercise):
    assert len(exercise.hints) == 3
    assert len(exercise.hints[0]) < len(exercise.hints[2])


# ------------------------------------------------------------------------------------------- what is known already


@pytest.mark.parametrize(
    ("name", "edges"),
    [
        # ResNet-18 has 8 blocks, three of them with a convolution on the shortcut; ResNet-50 has 16, four of them.
        ("resnet18", 5),
        ("resnet50", 12),
        ("mobilenetv2", 10),  # blocks of stride 1 that keep their channels: 1 + 2 + 3 + 2 + 2
        ("gpt", 3),  # two additions to the stream, and x + 0.044715 x³ in the GELU
        ("unet", 0),
        ("lstm", 0),
    ],
)
def test_residual_edges_of_known_architectures(name, edges):
    model = models.ZOO[name]
    assert len(graphs.find_residual(trace(model.build(), *model.inputs()))) == edges


def test_levels_of_a_diamond_with_a_tail():
    gm = common.from_edges([[], [0], [1], [1], [2, 3], [4]], lambda n: torch.relu if n == 1 else torch.add)
    names = [node.name for node in gm.graph.nodes]
    level, pairs = levels_graphs.find_levels(gm)
    assert [level[name] for name in names[1:-1]] == [0, 1, 1, 2, 3]
    assert pairs == {frozenset(names[2:4])}


@pytest.mark.parametrize(
    ("make", "shape"),
    [(exporting.conv_block, (1, 2, 4, 4)), (exporting.mlp_block, (1, 2, 4)), (exporting.gate_block, (1, 3, 4, 4))],
)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_small_exporter_does_what_torch_does(make, shape):
    (gm,) = common.traced(make, shape)()
    ours, _ = exporting.export(gm)
    theirs = torch.onnx.export(seeded(make)(), gm.meta["inputs"], dynamo=True, verbose=False).model_proto
    assert Counter(n.op_type for n in ours.graph.node) == Counter(n.op_type for n in theirs.graph.node)


@pytest.mark.parametrize("case", exporting.cases(), ids=lambda case: case.name)
def test_exported_cases_compute_the_same(case):
    gm, model = case.build()
    onnx.checker.check_model(model, full_check=True)
    (x,) = gm.meta["inputs"]
    (actual,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(actual, gm(x).detach().numpy(), atol=1e-5)


def test_the_stated_operations_are_those_the_notebook_shows():
    text = source.find("day01.propagate").path.read_text()
    shown = {}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]).isupper():
            shown[ast.unparse(statement.targets[0])] = ast.unparse(statement.value)
    known = dict(operator=__import__("operator"), torch=torch, F=torch.nn.functional, nn=nn)
    assert {name: eval(value, known) for name, value in shown.items()} == {
        "FUNCTIONS": shapes.FUNCTIONS,
        "METHODS": shapes.METHODS,
        "MODULES": shapes.MODULES,
    }


# ----------------------------------------------------------------------------------------------------- limits


def test_work_is_limited_only_where_cost_is_judged():
    def walk(gm):
        def paths(node):
            return sum(map(paths, node.all_input_nodes)) or 1

        return paths(next(iter(reversed(gm.graph.nodes))))

    before = sys.getrecursionlimit()
    assert isinstance(given.frugally(walk, Case("ladder", common.ladder, ("cost",))), given.TooMuch)
    assert isinstance(given.frugally(walk, Case("chain", common.chain, ("cost",))), given.TooMuch)
    assert given.frugally(len, Case("a list", lambda: ([1, 2],), ("did",))) == 2
    assert sys.getprofile() is None
    assert sys.getrecursionlimit() == before


def test_an_answer_that_stops_the_counting_is_out_of_time_all_the_same():
    def walk(gm):
        sys.setprofile(None)

        def paths(node):
            return sum(map(paths, node.all_input_nodes)) or 1

        return paths(next(iter(reversed(gm.graph.nodes))))

    exercise = replace(exercises.find("day01.levels"), seconds=0.5)
    assert run(exercise, walk, Case("ladder", common.ladder, ("cost",))).status == "timeout"


def test_an_error_that_names_every_node_names_none():
    exercise = exercises.find("day01.propagate")

    def all_of_them(gm, *inputs):
        raise ValueError(" ".join(node.name for node in gm.graph.nodes))

    cases = [case for case in hidden_cases(exercise.id, 0) if case.expect]
    failed = [f.message for f in judge(exercise, all_of_them, cases).findings if not f.ok]
    assert any("names other nodes as well" in message for message in failed)


def test_work_that_grows_with_the_square_of_the_nodes_is_within_the_limit():
    def all_pairs(gm):
        return sum(len(a.name) < len(b.name) for a in gm.graph.nodes for b in list(gm.graph.nodes)[:200])

    assert isinstance(given.frugally(all_pairs, Case("chain", common.chain, ("cost",))), int)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.zeros(2, 3),
        lambda: torch.ones_like(torch.empty(5, device="meta"), device="cpu"),
        lambda: torch.nn.Parameter(torch.empty(3)) * 2,
        lambda: torch.arange(10.0).sum(),
    ],
)
def test_the_watch_stops_data(compute):
    with pytest.raises(watching._DataRun), watching.Watch():
        compute()


@pytest.mark.parametrize(
    "compute",
    [
        lambda: nn.Linear(3, 4, device="meta")(torch.empty(2, 3, device="meta")),
        lambda: nn.Parameter(torch.empty(3)).to("meta") * 2,
        lambda: torch.zeros(2, 3, device="meta") + 1,
        lambda: torch.tensor(2.0) * 3,
    ],
)
def test_the_watch_lets_meta_tensors_and_scalars_through(compute):
    with watching.Watch():
        compute()


BOMBS = [
    "__import__('os').system('touch /tmp/never')\n",
    "y = __import__('os')\n",
    "y = 9 ** 9 ** 9 ** 9\n",
    "y = 'a' * 10 ** 12\n",
    "y = [x for x in range(10 ** 12)]\n",
    "y = (lambda: 1)()\n",
    "y = box.__class__.__mro__\n",
    "y = f.__globals__\n",
    "y = x\n" * 200_000,
    "y = " + "-" * 50_000 + "x\n",
    "y = " + "(" * 5_000 + "x" + ")" * 5_000 + "\n",
    "while True: pass\n",
    "\0",
]


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: repr(text)[:30])
def test_returned_programs_are_never_executed(text):
    case = ssa.case("one line", "y = x + 1\n")
    findings = list(ssa.judge(case, (text, {"y": "y"})))
    assert not all(f.ok for f in findings)


def test_numbers_stay_small_in_both_programs():
    doubling = "x = x * x\n" * 300
    names = ["x", *(f"x_{i}" for i in range(1, 301))]
    renamed = "".join(f"{new} = {old} * {old}\n" for old, new in itertools.pairwise(names))
    findings = list(ssa.judge(ssa.case("squares", doubling), (renamed, {"x": "x_300"})))
    assert all(f.ok for f in findings)


def test_a_swap_may_return_modules_that_are_none():
    """A call_module node whose target is a parameter is no module; that is said, not raised."""
    case = swapping.cases()[0]
    gm, _ = case.build()
    gm.register_parameter("odd", nn.Parameter(torch.ones(1)))
    node = next(node for node in gm.graph.nodes if node.op == "call_module")
    node.target = "odd"
    assert not all(f.ok for f in swapping.judge(case, gm))


def test_cases_are_the_same_at_every_build():
    for exercise in (exercise for exercise in DAY if exercise.flavour == "torch"):
        for case in exercise.cases():
            first, second = case.build()[0], case.build()[0]
            if isinstance(first, fx.GraphModule):
                assert str(first.graph) == str(second.graph)
                assert all(
                    torch.equal(a, b)
                    for a, b in zip(first.parameters(), second.parameters(), strict=True)
                    if not a.is_meta
                )


# ---------------------------------------------------------------------------------------------------- Relay


def relay_says(change: str) -> tuple[list[str], str]:
    """Verdicts lost by the right answer with one thing changed, on the case of shared values, and the sentence."""
    from autograder.authoring import answers

    right = answers.reference("day01.read-relay")
    changes = {
        "nothing": {},
        "an operator less": {"operators": {"tanh": 1}},
        "an operator that is not there": {"operators": {"nn.relu": 1}},
        "text for a number": {"constants": "12"},
        "True for a number": {"readers": {"x": True, "y": 1, "idle": 0}},
        "a parameter of nobody": {"parameters": {"x": 24, "y": 24, "idle": 5, "z": 1}},
        "no such entry": {"readers": None},
    }

    def answer(module):
        results = right(module)
        for entry, value in changes[change].items():
            if isinstance(value, dict) and entry == "operators":
                value = {**results[entry], **value} if "nn.relu" in value else value
            results[entry] = value
        return results

    exercise = exercises.find("day01.read-relay")
    result = judge(exercise, answer, [exercise.cases()[2]])
    return [v for v, ok in result.verdicts.items() if not ok], result.failure.message if result.failure else ""


@pytest.mark.parametrize(
    ("change", "lost", "said"),
    [
        ("nothing", [], ""),
        ("an operator less", ["did"], "add is called once; your count is 0."),
        ("an operator that is not there", ["spared"], "nn.relu is called 0 times; your count is 1."),
        ("text for a number", ["valid", "did", "spared"], "The bytes of constants must be an int; it is '12'."),
        ("True for a number", ["valid", "did", "spared"], "A count in 'readers' must be an int; that of 'x' is True."),
        ("a parameter of nobody", ["valid", "did", "spared"], "'z' is not a parameter of main."),
        (
            "no such entry",
            ["valid", "did", "spared"],
            "Return the entry 'readers' as a dict from names to ints; got None.",
        ),
    ],
)
def test_what_a_reading_of_relay_lacks_is_named(change, lost, said, in_own_process):
    result, sentence = in_own_process("day01.read-relay", relay_says, change)
    assert result == lost and said in sentence
