"""Day 11, exercises 1, 4, 5 and 7: sentences for broken answers, and demands that are known to be within reach."""

from __future__ import annotations

import itertools

import pytest

from autograder.authoring.answers import reference
from passlab import exercises
from passlab.exercises.day11.cost import numbers
from passlab.exercises.day11.reduce import ALLOWED, bound
from passlab.exercises.day11.scaling import expected
from passlab.judge import judge
from passlab.wafer import Machine, program, reduce_messages, simulate
from passlab.wafer.matmul import shift, summa
from tests.support.judged import lost_with


def right_numbers(**changed):
    case = exercises.find("day11.cost").cases()[0]
    return numbers(*case.build()) | changed


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({"links": None}, "valid", "links must be a number that is not negative; it is None."),
        ({"depth": True}, "valid", "depth must be a number that is not negative; it is True."),
        ({"contention": 11}, "did", "Contention is 10; got 11. Core (0, 0) sends that many words."),
        ({"energy": 10}, "did", "Energy is 50; got 10. It is words times links"),
        ({"links": 6}, "did", "Links is 5; got 6. Each link counts once"),
        ({"distance": 6}, "same", "Distance is 5; got 6."),
        ({"cycles": 21}, "cost", "Your five numbers and T_R = 2 give 20 cycles by the law; got 21."),
    ],
)
def test_what_is_told_of_five_numbers(changed, verdict, sentence):
    result, message = lost_with("day11.cost", right_numbers(**changed), "one message")
    assert (result, message[: len(sentence)]) == (verdict, sentence)


def test_cycles_follow_from_the_answers_own_numbers():
    """Who has a wrong depth, and the right law, keeps the points for the law."""
    exercise = exercises.find("day11.cost")
    wrong = right_numbers(depth=2, cycles=25)
    judgement = judge(exercise, lambda *_: wrong, exercise.cases()[:1])
    assert (judgement.verdicts["same"], judgement.verdicts["cost"]) == (False, True)


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        ([-1, 0, 1], "valid", "Return a list with one entry for each of the 4 cores; got [-1, 0, 1], with 3 entries."),
        ([-1, 0, 1, "2"], "valid", "The entry of core 3 is '2'; it must be the number of a core."),
        ([0, 0, 1, 2], "valid", "Core 0 has the sum in the end and sends to no core: its entry is -1, not 0."),
        ([-1, 0, 2, 1], "valid", "Core 2 sends to 2; it must send to a core between it and core 0."),
        ([-1, 0, -1, 1], "valid", "Core 2 sends to -1; it must"),
        ([-1, 0, 1, 2], "did", "4 cores, 1 word each: your tree takes 19 cycles, the bound is"),
    ],
)
def test_what_is_told_of_a_tree(value, verdict, sentence):
    result, message = lost_with("day11.reduce", value, "4 cores, 1 word each")
    assert (result, message[: len(sentence)]) == (verdict, sentence)


def test_every_tree_of_a_short_line_arrives():
    """On a line, messages of a tree cannot block each other for ever, crossed or not."""
    for parents in itertools.product(*(range(core) for core in range(1, 7))):
        simulate(program(Machine(1, 7), reduce_messages([-1, *parents], 3)))


@pytest.mark.parametrize("cores", [2, 3, 5, 13, 17, 26, 33, 64])
def test_there_is_a_tree_within_a_tenth_of_the_bound_except_for_three_cores(cores):
    model_answer = reference("day11.reduce")
    far = []
    for words in (*range(1, 20), 32, 48, 100, 4096):
        run = simulate(program(Machine(1, cores), reduce_messages(model_answer(cores, words), words)))
        if run.cycles > ALLOWED * bound(cores, words):
            far.append(words)
    assert far == ([5, 6] if cores == 3 else [])


def moves(n=3):
    return [[(move.matrix, move.source, move.targets[0]) for move in step] for step in shift(n)]


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (moves(), None, ""),
        ([5], "valid", "Step 0 is 5; it must be a list of (matrix, source, target)."),
        ([[("C", (0, 0), (0, 1))]], "valid", "Step 0: ('C', (0, 0), (0, 1)) must be (matrix, source, target), with"),
        ([[("A", (0, 0), (0, 3))]], "valid", "Step 0: ('A', (0, 0), (0, 3)): Core (0, 3) is off the grid"),
        ([[("A", (0, 0), (0, 0))]], "valid", "Step 0: ('A', (0, 0), (0, 0)) goes from a core to itself"),
        (
            [[("A", (0, 0), (0, 1)), ("A", (0, 2), (0, 1))]],
            "valid",
            "Step 0: ('A', (0, 2), (0, 1)): a second block of A goes to core (0, 1) in this step.",
        ),
        (moves()[:2], "did", "Core (0, 0) never multiplies A[0, 1] and B[1, 0]."),
        ([[]] * 40, "valid", "There are 40 steps; 3 products for each core take 3."),
    ],
    ids=["right", "no step", "matrix", "grid", "itself", "two blocks", "too few", "too many"],
)
def test_what_is_told_of_moves(value, verdict, sentence):
    result = lost_with("day11.matmul", value, "3 × 3 cores")
    if verdict is None:
        assert result is None
    else:
        assert (result[0], result[1][: len(sentence)]) == (verdict, sentence)


def broadcasts(n=5):
    """SUMMA with room: the moves of a product by broadcasts."""
    return [[(move.matrix, move.source, list(move.targets)) for move in step] for step in summa(n)]


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (broadcasts(), None, ""),
        (moves(5), "valid", "Step 0: ('B', (0, 1), (2, 1)): A core is (row, column), two whole numbers; 2 is not."),
        (
            [[("A", (0, 0), [])]],
            "valid",
            "Step 0: ('A', (0, 0), []): with room, it goes to a list of cores, the nearest",
        ),
        (
            [[("A", (0, 0), [(0, 2), (0, 1)])]],
            "valid",
            "Step 0: ('A', (0, 0), [(0, 2), (0, 1)]): its cores must lie one",
        ),
        (
            [[("A", (0, 0), [(1, 1)])]],
            "valid",
            "Step 0: ('A', (0, 0), [(1, 1)]): core (1, 1) is neither in the row nor",
        ),
        (broadcasts()[:4], "did", "Core (0, 0) never multiplies A[0, 4] and B[4, 0]."),
        (
            [[(m, s, [to]) for m, s, targets in step for to in targets] for step in broadcasts()],
            "cost",
            "In all steps together, A[0, 0] goes over 10 links; 4 reach all its cores.",
        ),
    ],
    ids=["right", "shifts", "no core", "backwards", "across", "too few", "one by one"],
)
def test_what_is_told_of_broadcasts(value, verdict, sentence):
    result = lost_with("day11.matmul", value, "5 × 5 cores, with room")
    assert result is None if verdict is None else (result[0], result[1][: len(sentence)]) == (verdict, sentence)


def right_scaling(**changed):
    case = exercises.find("day11.scaling").cases()[1]
    return expected(*case.build()) | changed


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({}, None, ""),
        ({"strong": {}}, "valid", "'strong' must have the cycles for the sides [1, 2, 4"),
        ({"fastest": 3}, "valid", "'fastest' must be one of the sides; it is 3."),
        ({"fastest": []}, "valid", "'fastest' must be one of the sides; it is []."),
        ({"weak bend": (4, "work")}, "valid", '\'weak bend\' must be None or (side, "halo" or "sums")'),
        ({"weak bend": 4}, "valid", "'weak bend' must be None or"),
        ({"fastest": 256}, "did", "The same points take the fewest cycles on 128 × 128 cores; you say 256."),
        (
            {"strong bend": None},
            "did",
            "Strong bend: the efficiency first falls below one half at side 128; you say None.",
        ),
        ({"strong bend": (128, "halo")}, "cost", "At side 128, the sums take more cycles than the halo (strong bend)."),
    ],
)
def test_what_is_told_of_scaling(changed, verdict, sentence):
    result = lost_with("day11.scaling", right_scaling(**changed), "little work, many sums")
    if verdict is None:
        assert result is None
    else:
        assert (result[0], result[1][: len(sentence)]) == (verdict, sentence)
