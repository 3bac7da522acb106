"""Day 11, exercises 2, 3 and 6: sentences for broken answers, the board, cases that hold what they promise."""

from __future__ import annotations

import random

import pytest

from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.exercises.day11._zoo import by_rows, travelled
from passlab.exercises.day11.place import each
from passlab.given.day11.search import Board, Spent
from passlab.judge import judge
from passlab.wafer.pieces import piece_bytes
from passlab.wafer.work import Operation
from tests.support.judged import lost_with

GOOD = {"wide": (0, 0, 1, 2), "tall": (0, 2, 2, 1), "one": (1, 0, 1, 1), "two": (1, 0, 1, 1)}


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({}, None, ""),
        ({"one": [1, 1, 1, 1], "two": [1, 1, 1, 1]}, None, ""),
        ({"two": None}, "valid", "two: a place is (row, column, rows, columns), four whole numbers;"),
        ({"two": (1, 0, 1)}, "valid", "two: a place is (row, column, rows, columns)"),
        ({"two": (1, 0, 1, True)}, "valid", "two: a place is (row, column, rows, columns)"),
        ({"two": (1, 0, 0, 1)}, "valid", "two: no rectangle of 0 × 1 cores lies on this grid."),
        ({"two": (1, 2, 1, 2)}, "valid", "two: Core (1, 3) is off the grid"),
        ({"two": (10**5000, 2, 1, 1)}, "valid", "two: "),
        ({"gelu": (0, 0, 1, 1)}, "valid", "'gelu' is not an operation."),
        ({"wide": (0, 0, 2, 1)}, "cost", "Core (1, 0) would hold 2,150 bytes of wide, one, two; its memory is 1,000."),
        ({"two": (0, 0, 1, 1)}, "cost", "Core (0, 0) would hold 1,200 bytes of wide, two; its memory is 1,000."),
        ({"two": (1, 0, 1, 2)}, "spared", "two is cut into 1 × 2, and fits on one core: 300 of 1,000 bytes."),
    ],
)
def test_what_is_told_of_a_place(changed, verdict, sentence):
    message = lost_with("day11.place", GOOD | changed, "shared cores")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def test_an_operation_without_a_place():
    assert lost_with("day11.place", {}, "shared cores") == ("valid", "wide has no place.")


def test_the_exercise_and_the_library_count_the_same_bytes():
    rng = random.Random(0)
    for _ in range(50):
        sizes = {what: rng.randrange(5000) for what in ("weights", "window", "result")}
        p, q = rng.randint(1, 9), rng.randint(1, 9)
        assert each(sizes, p, q) == piece_bytes(Operation("o", matrix=True, **sizes), p, q)


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ([(0, 0), (0, 1), (1, 1), (1, 0), (0, 2)], None, ""),
        ([[0, 0], [0, 1], [1, 1], [1, 0], [0, 2]], None, ""),
        ([(0, 0)] * 4, "valid", "The list has 4 cores for 5 tasks"),
        ([(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)], "valid", "Tasks 0 and 4 are both on core (0, 0)"),
        ([(0, 0), (0, 1), (1, 1), (1, 0), (2, 0)], "valid", "Task 4: Core (2, 0) is off the grid"),
        ([(0, 0), (0, 1), (1, 1), (1, 0), (0, 10**5000)], "valid", "Task 4: "),
        ([(0, 0), (0, 1), (1, 1), (1, 0), (0, 1.0)], "valid", "Task 4: a core is (row, column), two whole numbers;"),
        (
            [(0, 0), (0, 1), (1, 1), (0, 2), (1, 0)],
            "did",
            "290 words × hops; at most 170 are allowed. The dearest: in two pairs, 100 words from task 0 on",
        ),
    ],
)
def test_what_is_told_of_cores(value, verdict, sentence):
    message = lost_with("day11.near", value, "two pairs")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_never_enough(seed):
    for case in hidden_cases("day11.near", seed):
        (networks,) = case.build()
        for (_, base), (words, count, rows, columns) in zip(case.expect, networks, strict=True):
            assert count <= rows * columns and all(0 <= a < count and 0 <= b < count for a, b, _ in words)
            if case.name == "networks of the zoo":
                assert travelled(words, by_rows(count, columns)) == base


def test_several_networks_are_told_apart():
    exercise = exercises.find("day11.near")
    rows = judge(exercise, lambda words, count, r, c: by_rows(count, c), exercise.cases()[1:2])
    assert "Row by row has 1.00 times your traffic (gpt 1.00, mlp 1.00," in rows.failure.message
    short = judge(exercise, lambda words, count, r, c: by_rows(count, c)[1:], exercise.cases()[1:2])
    assert short.failure.message.startswith("gpt: The list has ")


WORDS = [(0, 1, 10), (1, 2, 20), (2, 0, 5)]


def board(budget=100):
    return Board(WORDS, [(0, 0), (0, 1), (1, 0)], 2, 3, budget)


def test_a_board_tells_what_a_swap_changes():
    rng, seen = random.Random(1), board(1000)
    cores = [(r, c) for r in range(2) for c in range(3)]
    for _ in range(300):
        a, b = rng.choice(cores), rng.choice(cores)
        before = travelled(WORDS, seen.cores())
        change = seen.change(a, b)
        assert travelled(WORDS, seen.cores()) == before, "asking moves nothing"
        seen.swap(a, b)
        assert travelled(WORDS, seen.cores()) == before + change
        assert len(set(seen.cores())) == 3
    assert seen.left == 700


def test_a_board_has_a_budget():
    seen = board(1)
    seen.change((0, 0), (1, 2))
    with pytest.raises(Spent, match=r"board\.left"):
        seen.change((0, 0), (1, 2))
    with pytest.raises(ValueError, match="off the grid"):
        board().swap((0, 0), (2, 0))


def test_a_search_is_told_by_how_much():
    exercise = exercises.find("day11.search")
    judgement = judge(exercise, lambda board, rng: board.cores(), exercise.cases())
    assert judgement.verdicts == {"valid": True, "did": False, "cost": False}
    assert (
        "The greedy placement has 1.00 times your traffic (gpt 1.00, mlp 1.00, residual 1.00)"
        in judgement.failure.message
    )


def test_a_search_off_the_board_is_told_which():
    exercise = exercises.find("day11.search")
    judgement = judge(exercise, lambda board, rng: board.cores()[:-1], exercise.cases())
    assert judgement.failure.message.startswith("On the board of gpt: The list has ")
