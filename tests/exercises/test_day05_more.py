"""Day 5: coalescing, caches, orders, layouts, rematerialisation: sentences for broken answers, and true optima."""

from __future__ import annotations

import random

import pytest

from autograder.authoring.answers import hidden_cases, reference
from passlab.exercises.day05 import _tasks
from passlab.exercises.day05.cache import true_misses
from passlab.exercises.day05.order import TURNS
from passlab.memory.order import liu, postorder
from passlab.memory.tasks import peak
from tests.support.judged import lost_with

IDS = [f"day05.{name}" for name in ("coalescing", "cache", "order", "layout", "remat")]


@pytest.mark.parametrize(
    ("exercise_id", "value", "verdict", "sentence"),
    [
        ("day05.coalescing", (3, 1), "did", "4 sectors of 32 bytes, the first at byte 0; you count 3."),
        ("day05.coalescing", (4, 2), "spared", "1 line of 128 bytes, the first at byte 0; you count 2."),
        ("day05.coalescing", (4.0, 1), "valid", "Both numbers must be of type int; 4.0 is of type float."),
        ("day05.coalescing", (True, 1), "valid", "True is of type bool."),
        ("day05.cache", ("ij", {"ij": 16}), "valid", "The order 'ji' has no misses."),
        ("day05.cache", ("ik", {}), "valid", "must be one of the orders ij, ji; it is 'ik'."),
        ("day05.cache", ("ij", {"ij": 16, "ji": 128, "k": 1}), "valid", "'k' is not an order of the loops."),
        ("day05.cache", ("ij", {"ij": 16, "ji": True}), "valid", "The misses of ji must be of type int"),
        ("day05.cache", ("ij", {"ij": 15, "ji": 128}), "did", "ij misses 16 times in this cache; you count 15."),
        ("day05.cache", ("ij", {"ij": 16, "ji": 129}), "spared", "ji misses 128 times in this cache; you count 129."),
        ("day05.cache", ("ji", {"ij": 16, "ji": 128}), "cost", "You choose ji, with 128 misses; ij has 16."),
        ("day05.order", ["a"], "valid", "The order leaves out b, c, d, ab, cd and 3 more."),
        ("day05.order", ["ab"], "valid", "ab runs in step 0, before a, whose result it reads."),
        ("day05.order", ["a", "a"], "valid", "The order runs a a second time, in step 1"),
        ("day05.order", ["a", 7], "valid", "The list holds 7, of type int; a task is called by its name."),
        ("day05.order", [*list("abcde"), "ab", "cd", "abcd", "all"], "cost", "The peak of your order is 6 bytes;"),
        ("day05.layout", {"conv1": "NCHW"}, "valid", "relu has no layout."),
        (
            "day05.layout",
            {n: "NHWC" for n in ("conv1", "relu", "conv2", "flatten")},
            "valid",
            "flatten can run in NCHW;",
        ),
        ("day05.layout", {n: "NCHW" for n in ("conv1", "relu", "conv2", "flatten")}, "did", "Your choice takes 86 µs;"),
        ("day05.remat", ["f0", "b3"], "valid", "b3 runs in step 1, before f3, whose result it reads."),
        ("day05.remat", ["f0", "f1", "f2", "f3", "b3", "b2", "b1", "b0"], "did", "In step 4, while b3 runs, 17 bytes"),
    ],
)
def test_a_broken_answer_is_told_what_is_wrong(exercise_id, value, verdict, sentence):
    verdicts, message = lost_with(exercise_id, value)
    assert verdicts == verdict and sentence in message, message


def test_runs_that_the_budget_does_not_need_are_told():
    value = ["f0", "f1", "f2", "f0", "f3", "b3", "b2", "b1", "b0"]
    verdict, message = lost_with("day05.remat", value, "the same chain, with enough memory")
    assert verdict == "spared" and message.startswith("f0 runs again, but the budget of 17 bytes suffices")


def test_subtrees_that_take_turns_need_more_than_a_postorder():
    assert peak(TURNS, liu(TURNS)) < peak(TURNS, postorder(TURNS))


def test_examples_of_the_texts_are_true():
    """What docstrings say about their examples."""
    assert reference("day05.coalescing")([16 + 4 * lane for lane in range(32)], 4) == (5, 2)
    nest = {"i": 8, "j": 16}, [{"start": 0, "steps": {"i": 128, "j": 8}}], {"sets": 2, "ways": 2, "line": 64}
    assert reference("day05.cache")(*nest) == ("ij", {"ij": 16, "ji": 128}) and true_misses(*nest)["ji"] == 128


@pytest.mark.parametrize("exercise_id", IDS)
def test_hidden_cases_are_drawn_anew(exercise_id):
    first, again, other = (
        [str(case.build()) for case in hidden_cases(exercise_id, seed)] for seed in (1, 1, 2**127 + 5)
    )
    assert first == again != other


def test_cases_stay_as_small_as_the_texts_say():
    for seed in range(8):
        for case in hidden_cases("day05.order", seed):
            (tasks,) = case.build()
            assert len(tasks) <= (60 if case.asks("cost") else 12)
        for case in hidden_cases("day05.layout", seed):
            assert len(case.build()[0]) <= (60 if case.asks("did") else 8)
        for case in hidden_cases("day05.remat", seed):
            assert len(case.build()[0]) <= 10


def test_drawn_trees_are_trees_and_graphs_have_one_end():
    rng = random.Random(0)
    for _ in range(20):
        assert liu(_tasks.tree(rng, 30))[-1] == "end"
        tasks = _tasks.drawn(rng, 9)
        read = {name for task in tasks for name in task.reads}
        assert {task.name for task in tasks} - read == {"end"}
