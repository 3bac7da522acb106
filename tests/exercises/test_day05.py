"""Day 5, liveness, slots and offsets: sentences for broken answers, and limits that are known to be within reach."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest
from torch.utils._pytree import tree_leaves

from passlab.exercises.day05.offsets import ON_HARD, bound, program, shuffled, zoo
from passlab.exercises.day05.reuse import clashes, drawn, least_slots, memories, row, rule_bytes
from passlab.memory.allocate import ORDERS, first_fit, slots
from passlab.memory.buffers import MINIMALLOC, Buffer, height, instance, lower_bound
from passlab.memory.search import PRIORITIES, lowest_first
from tests.support.judged import lost_with

CHAIN = {"relu": (1, 3, 24), "tanh": (2, 5, 24), "exp": (3, 4, 24), "add": (4, 6, 24)}
VIEWS = {"relu": (1, 10, 36), "exp": (6, 8, 36), "add": (7, 9, 36)}


def changed(**parts):
    return CHAIN | parts


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (None, "valid", "Return a dict from a node's name to (lower, upper, bytes); got None."),
        (changed(conv=(1, 2, 3)), "valid", "The answer holds 'conv', and the graph has no node of that name."),
        (changed(relu=(1, 3)), "valid", "The range of relu must be three ints, (lower, upper, bytes); it is (1, 3)."),
        (changed(relu=(1, True, 24)), "valid", "The range of relu must be three ints"),
        (changed(relu=(1, float("nan"), 24)), "valid", "The range of relu must be three ints"),
        (changed(relu=(3, 3, 24)), "valid", "[3, 3) is not a range of steps for relu: the steps are 0 to 5."),
        (
            changed(relu=(1, 10**9999, 24)),
            "valid",
            "[1, a value of type int that cannot be printed) is not a range of steps for relu",
        ),
        (changed(relu=(1, 3, -1)), "valid", "relu cannot have -1 bytes."),
        ({k: v for k, v in CHAIN.items() if k != "exp"}, "did", "exp makes 24 bytes of its own, and is missing."),
        (changed(relu=(2, 3, 24)), "did", "relu is made in step 1; your range begins at 2."),
        (changed(add=(4, 5, 24)), "did", "add is touched in step 5 by output; your range ends at 5."),
        (changed(relu=(1, 3, 20)), "did", "relu has 24 bytes; you say 20."),
        (changed(x=(0, 6, 24)), "spared", "x is in memory of the caller, x: leave it out."),
        (changed(output=(5, 6, 24)), "spared", "output makes no memory."),
        (changed(relu=(0, 3, 24)), "spared", "relu is made in step 1; your range begins at 0."),
        (
            changed(relu=(1, 4, 24)),
            "spared",
            "relu is touched for the last time in step 2, by tanh; your range ends at 4.",
        ),
        (changed(relu=(1, 3, 48)), "spared", "relu has 24 bytes; you say 48."),
    ],
)
def test_sentences_about_ranges(value, verdict, sentence):
    result = lost_with("day05.liveness", value)
    assert result is not None and result[0] == verdict and result[1].startswith(sentence)


def test_right_ranges_have_no_sentence():
    assert lost_with("day05.liveness", CHAIN) is None


def test_a_view_is_named():
    verdict, message = lost_with("day05.liveness", {"relu": (1, 3, 36)}, "views")
    assert verdict == "did" and "Its memory is also that of view, getitem and t" in message


@pytest.mark.parametrize(
    ("value", "verdict", "sentence"),
    [
        (None, "valid", "Offsets are a dict"),
        ({f"t{i}": 0.5 for i in range(6)}, "valid", "The offset of t0 is '0.5': it must be an int."),
        ({f"t{i}": 2**70 for i in range(6)}, "spared", "Your arena has 1180591620717411303524 bytes. Up to 100 are"),
        ({f"t{i}": 100 * i for i in range(6)}, "spared", "Your arena has 600 bytes. Up to 100 are live at once, and"),
    ],
)
def test_sentences_about_offsets(value, verdict, sentence):
    result = lost_with("day05.offsets", value)
    assert result is not None and result[0] == verdict and result[1].startswith(sentence)


@pytest.mark.parametrize(
    ("name", "made"), [("attention", ("attention", False)), ("training a residual block", ("residual", True))]
)
def test_an_overlap_shows_its_wrong_numbers(name, made):
    buffers = zoo(*made)
    verdict, message = lost_with("day05.offsets", {b.name: 0 for b in buffers}, name)
    assert verdict == "valid" and re.search(r"both live in step \d+ and share \d+ bytes from byte 0 on", message)
    wrong, total = map(
        int, re.search(r"Run in this arena, (\d+) of the (\d+) numbers .* are wrong\.", message).groups()
    )
    gm, inputs = program(*made)
    assert 0 < wrong <= total == sum(value.numel() for value in tree_leaves(gm(*inputs)))


def test_an_overlap_without_wrong_numbers_says_nothing_of_them():
    """In a chain each result is copied over the operand that it was computed from, when that has been read."""
    _, message = lost_with("day05.offsets", {b.name: 0 for b in zoo("convnet")}, "a convolutional net")
    assert message.endswith("from byte 0 on: move one of the two.")


def test_an_overlap_in_an_absurd_arena_is_not_run():
    buffers = zoo("attention")
    offsets = {b.name: 0 for b in buffers} | {buffers[-1].name: 2**60}
    _, message = lost_with("day05.offsets", offsets, "attention")
    assert "are both live" in message and "Run in this arena" not in message


def test_the_limit_is_between_one_order_and_two():
    rng = random.Random(3)
    for letter in MINIMALLOC:
        value = shuffled(instance(letter), rng)
        filled = [height(value, lowest_first(value, PRIORITIES[key])) for key in ("start", "end")]
        assert min(filled) <= 0.985 * ON_HARD * lower_bound(value)
    for letter in "IK":
        value = instance(letter)
        assert all(height(value, first_fit(value, key)) > ON_HARD * lower_bound(value) for key in ORDERS.values())


def test_shuffling_keeps_the_instance():
    rng = random.Random(1)
    buffers = zoo("convnet")
    value = shuffled(buffers, rng)
    assert lower_bound(value) == lower_bound(buffers) and {b.name for b in value}.isdisjoint({b.name for b in buffers})
    assert sorted(b.size for b in value) == sorted(b.size for b in buffers)
    assert bound([Buffer("a", 0, 1, 65)], 64) == 128


TAKEN = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "f": 1}


@pytest.mark.parametrize(
    ("name", "value", "verdict", "sentence"),
    [
        ("a chain", None, "valid", "Return a dict from the name of a value to the number of its slot; got None."),
        ("a chain", {}, "valid", "a has no slot."),
        ("a chain", TAKEN | {"c": True}, "valid", "The slot of c is True, of type bool; it must be an int."),
        ("a chain", TAKEN | {"c": float("nan")}, "valid", "The slot of c is nan, of type float; it must be an int."),
        ("a chain", TAKEN | {"c": -1}, "valid", "The slot of c is negative; slots are numbered from 0."),
        ("a chain", TAKEN | {"x": 4}, "valid", "'x' is an input or a view, and gets no slot."),
        ("a chain", TAKEN | {7: 4}, "valid", "7 is not the name of a value."),
        ("a chain", TAKEN | {"c": 0}, "same", "b and c share a slot, but both are live in step 3."),
        ("a chain", TAKEN | {"f": 10**30}, "did", "You use 3 slots; 2 are enough."),
        (
            "a view",
            {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1},
            "spared",
            "a and b share a slot, but a is still needed in step 2: a view of it is read later.",
        ),
        (
            "a result that is read",
            {"a": 0, "y": 0, "b": 0, "c": 1},
            "spared",
            "y and b share a slot, but b may not be made in place in y: that is returned.",
        ),
        (
            "a result that is read",
            {"a": 0, "y": 0, "b": 1, "c": 0},
            "spared",
            "y and c share a slot, but y is still needed in step 3: it is returned.",
        ),
        (
            "two sizes",
            {"wide": 0, "slim": 1, "short": 0, "long": 1},
            "cost",
            "Your slots have 200 bytes in all; by the",
        ),
    ],
)
def test_sentences_about_slots(name, value, verdict, sentence):
    result = lost_with("day05.reuse", value, name)
    assert result is not None and result[0] == verdict and result[1].startswith(sentence)


def test_right_slots_have_no_sentence():
    assert lost_with("day05.reuse", TAKEN, "a chain") is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (row("a", 0, 3), row("b", 1, 2, 64, "a"), "that is needed later"),
        (row("a", 0, 2), row("b", 1, 2, 32, "a"), "one has 64 bytes of float32, the other 32 of float32"),
        (row("a", 0, 2), row("b", 1, 2, 64, "a", dtype="int32"), "one has 64 bytes of float32, the other 64 of int32"),
    ],
)
def test_why_not_in_place(old, new, why):
    sentence = f"a and b share a slot, but b may not be made in place in a: {why}."
    assert list(clashes(memories([new, old]), {"a": 0, "b": 0})) == [("spared", sentence)]


def test_a_view_of_any_time_forbids_in_place():
    rows = [row("a", 0, 4), row("v", 1, 2, view_of="a"), row("w", 2, 3, view_of="v"), row("b", 3, 4, 64, "a")]
    ((verdict, sentence),) = clashes(memories(rows), {"a": 0, "b": 0})
    assert verdict == "spared" and sentence.endswith("that has a view.")


def test_the_fewest_slots_are_the_fewest():
    rng = random.Random(2)
    differ = 0
    for _ in range(150):
        result = memories(drawn(rng, 9, (8, 16)))
        least = least_slots(result)
        names = list(result)[:7]
        part = {name: result[name] for name in names}
        most = least_slots(part)

        def possible(count, names=names, part=part):
            tried = product(range(count), repeat=len(names))
            return any(not any(clashes(part, dict(zip(names, slot, strict=True)))) for slot in tried)

        assert possible(most) and (most == 0 or not possible(most - 1)) and most <= least
        separate = [Buffer(n, m.row["lower"], int(min(m.upper, 99)), 1) for n, m in part.items()]
        differ += most < max(slots(separate).values(), default=-1) + 1
    assert differ > 10


def test_the_rule_is_that_of_the_library():
    rng = random.Random(6)
    for _ in range(30):
        result = memories(drawn(rng, 25, (64, 64, 64), inplace=False))
        values = slots([Buffer(n, m.row["lower"], int(min(m.upper, 99)), 64) for n, m in result.items()])
        assert rule_bytes(result) == 64 * (max(values.values()) + 1) == 64 * least_slots(result)
