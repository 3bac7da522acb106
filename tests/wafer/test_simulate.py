"""The machine: events and words agree, and both with what can be counted by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from passlab.wafer import (
    TREES,
    Deadlock,
    Machine,
    Message,
    all_reduce,
    carried,
    program,
    reduce_messages,
    simulate,
)
from tests.wafer.stepped import stepped


def strayed(rng, machine, source):
    """A route that goes anywhere, and nowhere twice."""
    route = [source]
    while len(route) < 2 or rng.random() < 0.8:
        row, column = route[-1]
        around = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        around = [core for core in around if core in machine and core not in route]
        if not around:
            break
        route.append(rng.choice(around))
    return tuple(route)


def drawn(seed):
    """A small program: messages that wait for, stream and multicast, in any order, some by routes that stray."""
    rng = random.Random(seed)
    rows, columns = rng.randint(1, 4), rng.randint(2, 4)
    machine = Machine(rows, columns, ramp=rng.randint(0, 3))
    messages = []
    for _ in range(rng.randint(1, 9)):
        source = target = (0, 0)
        while source == target:
            source, target = ((rng.randrange(rows), rng.randrange(columns)) for _ in range(2))
            if messages and rng.random() < 0.6:
                source = rng.choice(rng.choice(messages).targets)
        route = machine.route(source, target)
        if rng.random() < 0.3:
            route = machine.route(target, source)[::-1]
        elif rng.random() < 0.4:
            route = strayed(rng, machine, source)
        words, waits, streams = rng.randint(1, 7), [], []
        for number, other in enumerate(messages):
            if source in other.targets and rng.random() < 0.6:
                if rng.random() < 0.5:
                    waits.append(number)
                elif not streams or other.words == words:
                    streams.append(number)
                    words = other.words
        drops = (*(core for core in route[1:-1] if rng.random() < 0.3), route[-1])
        work = rng.choice([0, 0, 5])
        messages.append(Message(route, words, tuple(waits), tuple(streams), drops, work=work))
    order = list(range(len(messages)))
    rng.shuffle(order)
    new = {old: place for place, old in enumerate(order)}
    return program(
        machine,
        [
            replace(m, waits=tuple(new[i] for i in m.waits), streams=tuple(new[i] for i in m.streams))
            for m in (messages[old] for old in order)
        ],
    )  # fmt: skip


def ended(run):
    """What a program's messages do, or None if they never end."""
    try:
        return run()
    except (Deadlock, RuntimeError):
        return None


@pytest.mark.parametrize("block", range(4))
def test_events_and_words_agree(block):
    stuck = 0
    for seed in range(100 * block, 100 * block + 100):
        p = drawn(seed)
        result = ended(lambda p=p: simulate(p).done.tolist())
        stuck += result is None
        assert result == ended(lambda p=p: stepped(p, 400)), seed
    assert 0 < stuck < 20


def ring(machine, cores, words, reach=2):
    """Messages round a ring of cores, each over `reach` links."""
    n = len(cores)
    return [Message(tuple(cores[(i + step) % n] for step in range(reach + 1)), words) for i in range(n)]


@pytest.mark.parametrize("cores", [((0, 0), (0, 1), (1, 1), (1, 0)), ((0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0))])
@pytest.mark.parametrize("words", [1, 2, 5])
def test_rings_agree_on_deadlock(cores, words):
    p = program(Machine(2, 3), ring(Machine(2, 3), cores, words))
    result = ended(lambda: simulate(p).done.tolist())
    assert result == ended(lambda: stepped(p, 300))
    assert (result is None) == (words > 1)  # one word leaves its link at once


def test_a_deadlock_is_told_with_its_cores():
    machine = Machine(2, 2)
    with pytest.raises(Deadlock) as stuck:
        simulate(program(machine, ring(machine, ((0, 0), (0, 1), (1, 1), (1, 0)), 4)))
    message = str(stuck.value)
    assert message.startswith(
        "Deadlock after cycle 4: message 0, (0, 0) to (1, 1), waits for link (0, 1) → (1, 1), which message 1 holds"
    )
    assert all(f"message {i}" in message for i in range(4))


def test_the_same_messages_by_xy_routes_arrive():
    machine = Machine(2, 2)
    ends = [((0, 0), (1, 1)), ((0, 1), (1, 0)), ((1, 1), (0, 0)), ((1, 0), (0, 1))]
    simulate(program(machine, [Message(machine.route(*pair), 4) for pair in ends]))


def test_messages_that_wait_for_each_other_are_told():
    route, back = ((0, 0), (0, 1)), ((0, 1), (0, 0))
    with pytest.raises(Deadlock, match=r"message 0, \(0, 0\) to \(0, 1\), waits for message 1 to arrive at \(0, 0\)"):
        simulate(program(Machine(1, 2), [Message(route, 3, waits=(1,)), Message(back, 3, streams=(0,))]))


@pytest.mark.parametrize("ramp", [0, 2, 5])
@pytest.mark.parametrize(("cores", "words"), [(2, 1), (9, 4), (5, 100)])
def test_one_message_takes_its_words_its_cores_and_two_ramps(cores, words, ramp):
    machine = Machine(1, cores, ramp=ramp)
    route = machine.route((0, cores - 1), (0, 0))
    assert simulate(program(machine, [Message(route, words)])).cycles == words + cores + 2 * ramp
    assert simulate(program(machine, [Message(route, words, drops=route[1:])])).cycles == words + cores + 2 * ramp


def test_work_comes_before_the_message():
    route = ((0, 0), (0, 1))
    idle, busy = (simulate(program(Machine(1, 2), [Message(route, 3, work=work)])).cycles for work in (0, 40))
    assert busy == idle + 40


def test_a_link_carries_each_word_once():
    machine = Machine(3, 5)
    run = simulate(
        program(machine, [Message(machine.route((0, 0), (2, 3)), 7), Message(machine.route((0, 4), (0, 1)), 2)])
    )
    traffic = run.traffic()
    assert traffic[0, 0].tolist() == [0, 7, 0, 0]
    assert traffic[0, 3].tolist() == [0, 0, 7, 2]
    assert traffic.sum() == 5 * 7 + 3 * 2


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("shape", [(1, 8), (4, 1), (3, 4), (2, 2)])
def test_every_core_gets_the_sum(tree, shape):
    machine, own = Machine(*shape), np.arange(3 * shape[0] * shape[1]).reshape(*shape, 3) + 1
    reduce = [TREES[tree](size) for size in (shape[1], shape[0])]
    p = all_reduce(machine, *reduce, 3)
    words, sizes = carried(p, own), np.diff(p.offsets)
    landed = np.flatnonzero(p.drops)
    last = dict(zip(p.cores[landed].tolist(), np.repeat(np.arange(p.count), sizes)[landed].tolist(), strict=True))
    for core in range(1, machine.cores):
        assert words[last[core]].tolist() == own.sum((0, 1)).tolist(), core
    simulate(p)


def test_a_large_machine_does_on_every_row_what_a_line_does():
    line = simulate(program(Machine(1, 60), reduce_messages(TREES["two-phase"](60), 50))).cycles
    from passlab.wafer import reduce_rows

    run = simulate(reduce_rows(Machine(200, 60), TREES["two-phase"](60), 50))
    assert run.cycles == line
    assert set(run.done.reshape(200, 59)[:, -1].tolist()) == {run.done[58]}
