"""Day 17, exercises 4 to 6: sentences for broken answers, what is one fault, and what is a fault of torch."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import fx, nn

from autograder.answers.day17.metamorphic import by_others
from autograder.authoring.answers import hidden_cases, reference
from passlab.exercises.day17.hunt import SMALL
from passlab.exercises.day17.metamorphic import is_exposed
from passlab.exercises.day17.triage import SHORT, Fault, failures_case, is_same
from passlab.hunt import TARGETS
from passlab.hunt.judging import tried
from tests.support.judged import lost

# ---------------------------------------------------------------------------------------------------- metamorphic


def rewritten(change):
    """Return an answer: the program, as a function with another body."""

    def answer(gm):
        graph = fx.Graph()
        inputs = [fx.Proxy(graph.placeholder(n.target)) for n in gm.graph.find_nodes(op="placeholder")]
        graph.output(change(*inputs).node)
        return [fx.GraphModule({}, graph)]

    return answer


def test_each_graph_must_be_the_program():
    assert lost("day17.metamorphic", rewritten(lambda x, y: y + -torch.tanh(-x)), "tanh") is None
    verdict, sentence = lost("day17.metamorphic", rewritten(lambda x, y: y + torch.tanh(-x)), "tanh")
    assert verdict == "same" and sentence.startswith("Graph 0 is another function, so that it raises a false alarm: ")
    verdict, sentence = lost("day17.metamorphic", rewritten(lambda x, y: torch.tanh(x) + y.t()), "tanh")
    assert verdict == "same" and "it cannot run" in sentence
    verdict, sentence = lost("day17.metamorphic", lambda gm: [gm] * 9, "tanh")
    assert (verdict, sentence) == ("valid", "Return 1 to 8 graphs; there are 9.")


def test_what_stays_hidden_is_named():
    assert lost("day17.metamorphic", rewritten(lambda x, y: torch.cos(-(y + x))), "cos of a sum") is None
    verdict, sentence = lost("day17.metamorphic", rewritten(lambda x, y: torch.cos(-(x + y))), "cos of a sum")
    assert verdict == "did" and "add is wrong where the first operand is the larger one" in sentence


def test_a_right_compiler_is_never_exposed():
    for case in hidden_cases("day17.metamorphic", 3):
        (gm,) = case.build()
        assert not is_exposed(gm, by_others(gm), lambda *_: None), case.name


# ---------------------------------------------------------------------------------------------------- triage


def test_what_is_one_fault():
    tanh, add = Fault(("tanh",)), Fault(("add",))
    assert is_same(Fault(("tanh",), wrong=SHORT), Fault(("add",), wrong=SHORT))
    assert is_same(Fault(("tanh",), wrong="form"), Fault(("tanh",), wrong="form", cut=True))
    apart = [tanh, add, Fault(("add",), torch.int64), Fault(("add",), wrong="form"), Fault(("mul", "add"))]
    assert not any(is_same(one, other) for one, other in combinations(apart, 2))


def test_a_failure_has_one_wrong_value_of_its_own():
    """Computed anew from the compiler's values of its operands, one value differs: that of the faulty kernel."""
    faults = [Fault(("tanh",)), Fault(("sub",), torch.int64), Fault(("mul", "add")), Fault(("sin",), wrong="form")]
    for seed in range(5):
        (failures,) = failures_case("one", seed, faults).build()
        assert len({tuple(members) for members in reference("day17.triage")(failures)}) == len(faults)


def test_pairs_are_told_by_their_places():
    verdict, sentence = lost("day17.triage", lambda failures: [[n] for n in range(len(failures))], "two types")
    assert (
        verdict == "did"
        and "show the same fault, a wrong value of the kernel add of float32, and are apart" in sentence
    )
    verdict, sentence = lost("day17.triage", lambda failures: [list(range(len(failures)))], "two types")
    assert verdict == "spared" and "add of int64" in sentence and "are in one class" in sentence
    for value, words in [
        ([[0, 1], [1, 2]], "Failure 1 is in two classes"),
        ([[0, 1]], "Failure 2 is in no class."),
        ([[0, 1, 4]], "the failures are the numbers 0 to 3"),
        ([[True, 0, 2]], "A class holds True"),
    ]:
        verdict, sentence = lost("day17.triage", lambda failures, value=value: value, "two types")
        assert verdict == "valid" and words in sentence


# ---------------------------------------------------------------------------------------------------- hunt


def traced(forward, **parts):
    root = type("Root", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(root, name, part)
    return fx.symbolic_trace(root)


x = torch.linspace(-1, 2, 8).view(2, 4)


def test_the_table_has_targets_that_can_be_hunted():
    assert set(SMALL) <= set(TARGETS)


@pytest.mark.parametrize(
    ("target", "forward", "words"),
    [
        ("cse", lambda m, x: (torch.sin(x), x.add_(1), torch.sin(x)), "does more than compute (writes)"),
        ("cse", lambda m, x: torch.rand_like(x), "does more than compute (draws)"),
        ("cse", lambda m, x: torch.empty_like(x), "makes a tensor without values"),
        ("cse", lambda m, x: (torch.sin(x), torch.sin(x)), "keeps its promise"),
        ("operators", lambda m, x: torch.matmul(x, x), "The graph itself does not run on its inputs"),
        (
            "operators",
            lambda m, x: torch.sub(-x, x, alpha=2),
            "The graph has 2 operations; a fault of operators shows on 1",
        ),
    ],
)
def test_what_is_no_small_fault_is_told(target, forward, words):
    _, sentence = lost("day17.hunt", lambda *_: (traced(forward), [x.clone()]), target)
    assert words in sentence


def test_rounding_is_no_fault():
    """What is left of x after the difference is rounding, and differs in float32 only."""
    parts = {"layer": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4).eval()}
    parts["norm"].running_mean += 0.3
    exact = nn.Parameter(parts["norm"](parts["layer"](x)).detach())
    gm = traced(lambda m, x: (m.norm(m.layer(x)) - m.exact) * 1e8, exact=exact, **parts)
    answer = tried(gm, (x,), "fuse")
    assert answer["own"][0] == "values" and answer["exact"][0] == ""
    verdict, sentence = lost("day17.hunt", lambda *_: (gm, [x]), "fuse")
    assert verdict == "did" and sentence.endswith("This may be rounding.")


def test_a_graph_is_judged_in_evaluation_mode():
    parts = {"layer": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4)}
    parts["norm"].running_mean += 1
    gm = traced(lambda m, x: (m.norm(m.layer(x)), m.layer(x)), **parts)
    assert gm.training and lost("day17.hunt", lambda *_: (gm, [x]), "fuse") is None
    assert gm.training and gm.norm.training


def test_a_graph_is_left_as_it_was():
    gm = traced(lambda m, x: m.layer(x), layer=nn.Linear(4, 4))
    weight = gm.layer.weight
    tried(gm, (x,), "fuse")
    assert gm.layer.weight is weight and weight.dtype == torch.float32 and "inputs" not in gm.meta


def test_a_pass_that_raises_is_a_fault():
    gm = traced(lambda m, x, w: (torch.matmul(x, w), torch.matmul(x[0], w)))
    answer = tried(gm, (x, torch.ones(4, 4)), "merge-matmul")
    assert answer["own"][0] == answer["exact"][0] == "RuntimeError"
