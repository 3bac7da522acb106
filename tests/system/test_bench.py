"""The arithmetic and the honesty of `make bench`; its figures themselves depend on the machine."""

from __future__ import annotations

import importlib
import json
import operator
import sys
import types

import pytest
import torch

from autograder.authoring import answers
from autograder.bench import __main__ as bench
from autograder.bench import backend, course, figures, house, misconceptions, walks
from autograder.bench.figures import Figure
from autograder.engine.verifier.misconceptions import Behaviour
from passlab import exercises
from passlab.capture import lower


def test_exponent_of_known_growth():
    assert figures.exponent({10: 5.0, 100: 50.0, 1000: 500.0}) == pytest.approx(1.0)
    assert figures.exponent({10: 3.0, 100: 300.0, 1000: 30_000.0}) == pytest.approx(2.0)


def test_a_target_is_held_or_missed():
    assert figures.at_most("w", 1.0, 1.0, "x").held is True
    missed = figures.at_most("w", 1.5, 1.0, "x")
    assert missed.held is False and missed.seen == "1.5x" and missed.target == "≤ 1x"


def test_a_part_that_breaks_or_is_empty_says_so(monkeypatch):
    def breaks(largest):
        yield Figure("first", "1")
        raise KeyError("gone")

    monkeypatch.setattr(bench, "PARTS", {"a": breaks, "b": lambda largest: iter(())})
    measured = list(bench.measure(["a", "b"], 10))
    message = ["1", "not measured: KeyError: 'gone'", "not measured: there is nothing to measure"]
    assert [f.seen for f in measured] == message


def line_graph(n):
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(n):
        node = graph.call_function(operator.neg, (node,))
    graph.output(node)
    return torch.fx.GraphModule({}, graph)


def test_a_pass_is_timed_on_copies_and_beside_torch():
    graphs, seen = {10: line_graph(10), 20: line_graph(20)}, []

    def mine(gm):
        seen.append(len(gm.graph.nodes))
        gm.graph.call_function(operator.neg)
        return gm

    measured = [f for f in course._one_pass("day03.x", mine, "theirs", lambda gm: gm, graphs) if isinstance(f, Figure)]
    assert [f.what for f in measured] == [
        "day03.x: growth, exponent of n",
        "day03.x: time at 10 nodes / torch's theirs",
        "day03.x: time at 20 nodes / torch's theirs",
    ]
    assert set(seen) == {12, 22}, "a copy was used twice, or the original was changed"


def test_torch_failing_is_no_reason_to_stop_and_ours_is():
    def breaks(gm):
        raise ValueError("not today")

    graphs = {10: line_graph(10), 20: line_graph(20)}
    measured = [f for f in course._one_pass("x", lambda gm: gm, "t", breaks, graphs) if isinstance(f, Figure)]
    assert measured[0].value is not None
    assert measured[1].seen == measured[2].seen == "not measured: torch's raised ValueError: not today"
    with pytest.raises(ValueError, match="not today"):
        list(course._one_pass("x", breaks, "t", lambda gm: gm, graphs))


def test_what_torch_is_too_slow_for_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(course, "LONGEST", 0.0)
    graphs = {10: line_graph(10), 20: line_graph(20)}
    measured = [f for f in course._one_pass("x", lambda gm: gm, "t", lambda gm: gm, graphs) if isinstance(f, Figure)]
    assert measured[1].value is not None and "torch's would take longer" in measured[2].seen


def test_json_and_exit(monkeypatch, capsys):
    monkeypatch.setattr(bench, "PARTS", {"a": lambda largest: iter([figures.at_most("w", 2.0, 1.0, "x")])})
    assert bench.main(["--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["figures"][0]["held"] is False and result["machine"]["torch"] == torch.__version__
    with pytest.raises(SystemExit):
        bench.main(["nonsense"])
    assert "there is no part nonsense" in capsys.readouterr().err


def test_each_flavour_of_the_exercises_has_a_limit_for_its_checks():
    flavours = {exercise.flavour for day in exercises.days() for exercise in exercises.of_day(day)}
    assert flavours <= set(course.CHECK_SECONDS)


def test_each_figure_of_the_house_has_its_earlier_value(monkeypatch):
    for measured, value in (("checked", ["a"]), ("graded", ["a", "b", "a"]), ("type_errors", 3)):
        monkeypatch.setattr(house, measured, lambda value=value: value)
    monkeypatch.setattr(house.importlib.util, "find_spec", lambda name: name)
    results = {f.what: f for f in house.house(0) if isinstance(f, Figure)}
    assert results.keys() == house.BEFORE.keys() and house.GOALS.keys() < results.keys()
    assert results["files that a submission enters again"].seen == "1"
    parts = sum(f.value for name, f in results.items() if name.startswith("lines of ") and "function" not in name)
    assert results["lines in all"].value == parts - results["lines of an average exercise"].value


def test_a_walk_notes_a_file_for_each_function_that_is_called_from_another(tmp_path, monkeypatch):
    files = {
        "__init__": "",
        "first": """
from walked import second
def go():
    second.a(), second.a(), second.b()
    here()
    second.b()
def here(): return 0
""",
        "second": """
from walked import third
def a(): third.z()
def b(): return 0
""",
        "third": "def z(): return 0",
    }
    (tmp_path / "walked").mkdir()
    for name, text in files.items():
        (tmp_path / "walked" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    package, first = importlib.import_module("walked"), importlib.import_module("walked.first")
    whole, inner = walks.Walk(package), walks.Walk(package, inside="second.py")
    outer = sys.getprofile()
    walks.follow(whole, first.go)
    walks.follow(inner, first.go)
    sys.setprofile(outer)
    assert whole.stays == ["first.py", "second.py", "third.py", "second.py"]
    assert inner.stays == ["third.py"]


def behaviours(*verdicts: str) -> list[Behaviour]:
    return [
        Behaviour(f"case {n}", "ok", [law] if law else [], f"{n}{law}" if law else f"{n}")
        for n, law in enumerate(verdicts)
    ]


def test_a_note_on_a_mutant_is_right_if_it_fits_new_cases_and_wrong_if_not():
    seen = behaviours("did", "", "did")
    known = misconceptions.Known("merges all", "did", seen, behaviours("did", "", "did", "did"))
    for new, word in ((known.new, "right"), (behaviours("", "", "spared", "did"), "wrong")):
        mutant = misconceptions.Known("", "", seen, new)
        counted = misconceptions._counted("mutants", mutant, [known], misconceptions._still_alike)
        assert counted == {("mutants", "tried"): 1, ("mutants", word): 1}
    other = misconceptions.Known("", "", behaviours("did", "", ""), known.new)
    assert misconceptions._counted("mutants", other, [known], misconceptions._still_alike) == {("mutants", "tried"): 1}
    right = misconceptions.Known("", "", behaviours("", "", ""), known.new)
    assert misconceptions._counted("mutants", right, [known], misconceptions._still_alike) == {}


def test_an_answer_of_the_bank_is_looked_for_among_the_others():
    counts = misconceptions.measure("day01.count-kinds", 2)
    wrong = [answer for answer in answers.load("day01.count-kinds") if answer.mark.kind == "wrong"]
    assert not any(kind == "failed" for kind, _ in counts) and counts["bank", "tried"] == len(wrong)
    assert counts["mutants", "tried"] <= 2


def twice(x, w, b):
    y = x @ w
    return y.relu() * b, y.sin()


def transposed(x, w, b):
    return (x + 1) @ w.t().t()


def returned(x, w, b):
    return x @ w, b.view(-1)


#: Bytes by hand, for x of 8 x 4, w of 4 x 2 and b of 8 x 2 in float32: 128, 32 and 64; the product has 64.
FEWEST = [
    (twice, (128 + 32 + 64) + (64 + 64) + (64 + 64)),  # the product; it and b are read, two results are written
    (transposed, (128 + 32 + 64) + 128 + 128),  # the product; x is read, the sum is written: nothing for the views
    (returned, 128 + 32 + 64),  # the product alone: what the caller has already is not written
    (lambda x, w, b: x.exp().sin() + x, 128 + 128),  # no product: x is read once
]


@pytest.mark.parametrize(("function", "expected"), FEWEST)
def test_the_bytes_that_no_kernels_avoid(function, expected):
    inputs = torch.ones(8, 4), torch.ones(4, 2), torch.ones(8, 2)
    graph = lower(function, *inputs).forward
    assert backend.fewest_bytes([types.SimpleNamespace(after=graph)]) == expected
