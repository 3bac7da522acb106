"""What holds of every exercise of a day: nonsense gets a sentence, errors are quoted, cases are drawn from the seed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import fx, nn

from autograder.authoring.answers import hidden_cases, unchanged, verdict
from passlab import exercises
from passlab.capstone import Compiled
from passlab.exercises.day03.pipeline import wiring
from passlab.judge import judge, shown
from passlab.memory.plan import Plan
from tests.support.judged import Rude, given

#: Days whose exercises get nonsense on all cases.
EARLY = [exercise.id for day in ("day01", "day02", "day03") for exercise in exercises.of_day(day)]
EVERY = [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]
HUGE = 10**5000  # Python writes no integer of so many digits
NONSENSE = [
    None, True, 7, -1, math.nan, HUGE, "", "text", b"module", (), [], {}, set(), object(), Rude(), torch.zeros(3),
    nn.ReLU(), fx.Graph(), Compiled(None), Compiled("graph"), Plan((), {}, 0), Plan(("x",), {"x": 1}, -1), (None, None),
    [None], [[None], 1], [{}], [[], {0: 1}], ((), (), ()), (True, [3]), [4, 4.0], (math.nan, 0), (1, 2, 3),
    (1, 2, 3, 4), [HUGE, -1], (HUGE, HUGE), [[1, 2, 3]], [(None, None)], ["end"] * 3000, [("x",)], [("cse", {})],
    {1: 2}, {"x": None}, {"x": 3}, {"x": (1, True)}, {"x": (math.nan, 1.0)}, {"conv1": HUGE}, {("a", "b", "c")},
    {"entry": None}, ("ij", {"ij": HUGE, "ji": -1}), [[("A", (HUGE, 0), (0, 0))]], [[("A", [], {})]],
    {"strong": {1: HUGE}}, {"links": 0}, {"cycles": None},
]  # fmt: skip
#: Exercises whose cases take long to build get some of it.
DEAR = ["day08.pipeline"]

#: Exercises that draw hidden cases → a part of the names of those that are looked at. (To read all takes long.)
DRAWN = {f"day02.{name}": "" for name in ("fuse-conv-relu", "fold-batchnorm")}
DATA = [*DRAWN, *(e.id for e in exercises.of_day("day03"))]
DRAWN |= {e.id: "" for e in exercises.of_day("day03") if e.id != "day03.shrinking"}  # its answer is the program
DRAWN |= {f"day04.{name}": "generated" for name in ("chains", "groups", "convex")}
DRAWN |= {e.id: "number" for e in exercises.of_day("day07")[:4]}
DRAWN |= {f"day07.{name}": "" for name in ("instrument", "levels", "cse", "dce", "dense-gelu", "fold-and-time")}
DRAWN |= {f"day10.{name}": "" for name in ("domains", "dependences", "legality", "skew")}


def given_nonsense(exercise_id: str) -> list[tuple[str, float, bool, str]]:
    """For an answer that always returns the same nonsense: this, its points, whether it lost, and the sentence."""
    exercise = exercises.find(exercise_id)
    cases = exercise.cases()[: None if exercise_id in EARLY else 2]
    values = NONSENSE[::12] if exercise_id in DEAR else NONSENSE
    results = [judge(exercise, given(value), cases) for value in values]
    lost = [not (result.verdicts.get("valid", True) and result.verdicts.get("did", True)) for result in results]
    return [(shown(v), r.points, x, r.failure.message) for v, r, x in zip(values, results, lost, strict=True)]


@pytest.mark.parametrize("exercise_id", EVERY)
def test_nonsense_gets_a_sentence_and_no_points(exercise_id, in_own_process):
    for value, points, lost, message in in_own_process(exercise_id, given_nonsense, exercise_id):
        # None is right for a pass that lost nothing.
        assert points == 0 or (exercise_id, value) == ("day02.lost-attribute", "None"), (value, message)
        assert lost and message.endswith((".", "?")) and 10 < len(message) < 400, (value, message)
        assert "could not read" not in message, (value, message)  # an error of the judge itself


def given_an_error(exercise_id: str) -> tuple[float, str]:
    def answer(*arguments, **more):
        raise LookupError("no such thing")

    result = judge(exercises.find(exercise_id), answer)
    return result.points, result.failure.message


@pytest.mark.parametrize("exercise_id", EARLY)
def test_an_answer_that_raises_is_quoted(exercise_id, in_own_process):
    points, message = in_own_process(exercise_id, given_an_error, exercise_id)
    assert points == 0 and "LookupError" in message and "no such thing" in message


#: Exercises that had cases with nothing to do in them → a seed on which an answer that did nothing earned points.
IDLE = {
    "day02.fuse-silu": 0, "day03.cse": 0, "day03.constant-folding": 0, "day03.dce": 1, "day03.simplify": 0,
    "day07.batchnorm": 1, "day07.cse": 2, "day07.relu-to-clip": 0, "day08.port": 1,
    "day09.fusion": 4, "day09.loops": 0, "day10.tvm": 0,
}  # fmt: skip


def points_for_nothing(exercise_id: str, seed: int) -> tuple[float, list[str]]:
    result = verdict(exercise_id, unchanged, seed)
    return result.points, [finding.case for finding in result.findings if finding.verdict == "did" and finding.ok]


@pytest.mark.parametrize("exercise_id", IDLE)
def test_an_answer_that_does_nothing_earns_nothing(exercise_id, in_own_process):
    assert in_own_process(exercise_id, points_for_nothing, exercise_id, IDLE[exercise_id]) == (0, [])


def drawn(exercise_id: str, seed: int) -> list[list[str]]:
    """What can be read of the hidden cases of a seed: their arguments, names and, on day 10, what is expected."""
    cases = [case for case in hidden_cases(exercise_id, seed) if DRAWN[exercise_id] in case.name]
    expected = [str(case.expect) if exercise_id.startswith("day10") else "" for case in cases]
    return [[*map(text, case.build()), case.name, more] for case, more in zip(cases, expected, strict=True)]


def text(part: object) -> str:
    return str(wiring(part)) if isinstance(part, fx.GraphModule) else str(part)


@pytest.mark.parametrize("exercise_id", DRAWN)
def test_hidden_cases_are_drawn_from_the_seed(exercise_id, in_own_process):
    # 3 and 5: the first numbers of Python's generators for 3 and 4 are nearly the same.
    one, again, other = (in_own_process(exercise_id, drawn, exercise_id, seed) for seed in (3, 3, 5))
    looked_at = None if exercise_id.startswith("day10.") else 1  # there the programs may be the same each time
    assert one == again
    assert [row[:looked_at] for row in one] != [row[:looked_at] for row in other]


@pytest.mark.parametrize("exercise_id", DATA)
def test_cases_are_data_and_always_the_same(exercise_id):
    state = torch.get_rng_state()
    one, two = ([*exercises.find(exercise_id).cases(), *hidden_cases(exercise_id, 7)] for _ in range(2))
    assert [case.name for case in one] == [case.name for case in two]
    if exercise_id in DRAWN and exercise_id.startswith("day03."):
        assert len({case.name for case in one}) == len(one)
    for left, right in zip(one, two, strict=True):
        for a, b in zip(left.build(), right.build(), strict=True):
            if isinstance(a, fx.GraphModule):
                assert (wiring(a), str(a.graph)) == (wiring(b), str(b.graph)), left.name
                tensors = ([*gm.state_dict().values(), *gm.meta.get("inputs", ())] for gm in (a, b))
                assert all(x.is_meta or torch.equal(x, y) for x, y in zip(*tensors, strict=True)), left.name
            elif exercise_id.startswith("day03"):
                assert isinstance(a, int | tuple) and a == b, left.name
    assert torch.equal(torch.get_rng_state(), state), "making cases moved the random generator"
