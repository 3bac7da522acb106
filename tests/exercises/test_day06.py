"""Day 6, exercises 1 to 4: sentences for broken answers, logs that are no logs, cases that hold what they promise."""

from __future__ import annotations

import pytest

from autograder.authoring.answers import hidden_cases
from passlab.dataflow import CONSTANTS, LIVENESS, redundant, run, solve
from passlab.exercises.day06._programs import COUNT, STRAIGHT
from passlab.exercises.day06.constants import OPTIMIST
from passlab.exercises.day06.gvn import COPIES
from passlab.exercises.day06.solver import allowed
from passlab.given.day06._facts import plain
from tests.support.judged import lost_with


def solved(program=STRAIGHT, **changed):
    result = solve(program, LIVENESS)
    parts = {"before": result.before, "after": result.after, "log": [visit.block for visit in result.log]} | changed
    return parts["before"], parts["after"], parts["log"]


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({"before": {}}, "valid", "Block entry has no fact in `before`."),
        ({"before": []}, "valid", "Return `before` as a dict from each block's name to its fact; got []."),
        (
            {"after": {"entry": (), "other": ()}},
            "valid",
            "'other' is not the name of a block of straight.",
        ),
        ({"log": "entry"}, "valid", "Return the visits as a list of names of blocks; got 'entry'."),
        ({"log": ["exit"]}, "valid", "The list of visits holds 'exit', and straight has no block of that name."),
        ({"log": [3]}, "valid", "The list of visits holds 3, of type int; a block is called by its name."),
        ({"log": ["entry"] * 50_001}, "valid", "50001 visits are too many to replay"),
        (
            {"before": {"entry": ()}},
            "did",
            "liveness of straight: at the start of block entry expected {x, y}, got {}.",
        ),
        (
            {"log": []},
            "same",
            "Replayed, your visits lead elsewhere: at the start of block entry expected {}, got {x, y}.",
        ),
        ({"log": ["entry"] * 3}, "cost", "3 visits to 1 block, 1 is enough."),
    ],
)
def test_what_is_told_of_a_solver(changed, verdict, sentence):
    result, message = lost_with("day06.solver", solved(**changed), "straight on")
    assert (result, message[: len(sentence)]) == (verdict, sentence)


def test_a_right_result_is_right_however_it_was_found():
    assert lost_with("day06.solver", solved(), "straight on") is None
    assert lost_with("day06.solver", solved(COUNT), "a loop, backward") is None


def test_a_forged_log_must_lead_to_the_facts():
    before, after, log = solved(COUNT)
    shorter = list(dict.fromkeys(log))
    assert len(shorter) < len(log) <= allowed(COUNT, "liveness")
    assert lost_with("day06.solver", (before, after, shorter), "a loop, backward")[0] == "same"


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ({"entry": ({"x"}, set(), 1)}, "valid", "Block entry needs two sets, (live at its start, live at its end)"),
        ({"entry": ({"z"}, set())}, "valid", "Block entry holds 'z', and straight has no variable of that name."),
        ({"entry": ({1}, set())}, "valid", "Block entry holds 1, of type int; a variable is called by its name."),
        ({"entry": ({"x"}, set())}, "did", "y is live at the start of block entry: its value may still be read."),
        ({"entry": ({"x", "y"}, {"b"})}, "spared", "b is not live at the end of block entry"),
        ({"entry": (("y", "x"), [])}, None, ""),
    ],
)
def test_what_is_told_of_liveness(value, verdict, sentence):
    message = lost_with("day06.liveness", value, "straight on")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def constants_with(**changed):
    return solve(OPTIMIST, CONSTANTS).before | changed


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({"loop": [0]}, "valid", "Block loop needs None or a dict from variables to numbers"),
        ({"loop": {"z": 0}}, "valid", "Block loop: 'z' is not a variable of optimist."),
        (
            {"loop": {"debug": False}},
            "valid",
            "Block loop: the constant debug must be a whole number (an int); it is False.",
        ),
        (
            {"loop": {"debug": float("nan")}},
            "valid",
            "Block loop: the constant debug must be a whole number (an int); it is nan.",
        ),
        ({"loop": {}}, "did", "At the start of block loop, debug is always 0."),
        ({"strange": {}}, "did", "No run gets to block strange"),
        ({"usual": None}, "did", "Block usual can be reached, and at its start debug is always 0."),
        (
            {"done": {"debug": 0, "x": 5}},
            "spared",
            "At the start of block done, you say, x is always 5. With x = 0, n = 0 it is 0 there.",
        ),
        (
            {"loop": {"debug": 1}},
            "spared",
            "At the start of block loop, you say, debug is always 1. With x = 0, n = 0 it",
        ),
    ],
)
def test_what_is_told_of_constants(changed, verdict, sentence):
    result, message = lost_with("day06.constants", constants_with(**changed), "a switch that stays off")
    assert (result, message[: len(sentence)]) == (verdict, sentence)


def redundant_with(*more):
    result = redundant(COPIES)
    return [(block, i, names[0]) for block in result for i, names in result[block].items()] + list(more)


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ({}, "valid", "Return a list of (block, number of the instruction, variable); got {}."),
        (
            [("entry", 2)],
            "valid",
            "The list holds ('entry', 2); each entry is (block, number of the instruction, variable).",
        ),
        ([("exit", 2, "a")], "valid", "The list holds 'exit', and copies has no block of that name."),
        ([("entry", 9, "a")], "valid", "Block entry has no instruction number 9; they count from 0."),
        ([("entry", -1, "a")], "valid", "Block entry has no instruction number -1; they count from 0."),
        ([("entry", True, "a")], "valid", "Block entry has no instruction number True; they count from 0."),
        ([("entry", 2, "z")], "valid", "The list holds 'z', and copies has no variable of that name."),
        ([("entry", 1, "x")], "valid", "`b = copy x` in block entry computes nothing"),
        ([("entry", 2, "a")] * 25, "valid", "The list names `c = add y b` in block entry twice; name each"),
        ([("entry", 2, "a"), ("entry", 2, "b")], "valid", "The list names `c = add y b` in block entry twice"),
        ([("entry", 2, "a")], "did", "`e = add b y` in block entry: a already holds that value."),
        (redundant_with(("entry", 4, "a")), "spared", "With "),
    ],
)
def test_what_is_told_of_equal_values(value, verdict, sentence):
    result, message = lost_with("day06.gvn", value, "copies")
    assert (result, message[: len(sentence)]) == (verdict, sentence)


def test_facts_are_plain_data():
    assert plain({"b": frozenset({"y", "x"}), "a": None}) == {"b": ("x", "y"), "a": None}
    assert plain([object()])[0].startswith("<object object")


@pytest.mark.parametrize("seed", range(5))
def test_hidden_programs_can_be_run(seed):
    for exercise_id in ("day06.constants", "day06.gvn"):
        for case in hidden_cases(exercise_id, seed):
            (program,) = case.build()
            run(program, *range(1, 1 + len(program.parameters)), fuel=50)
