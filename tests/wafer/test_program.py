"""Machines and messages as data: what is right, and what gets a sentence."""

from __future__ import annotations

import pytest

from passlab.wafer import Machine, Message, cost, join, on_lines, program, why_not_a_program
from passlab.wafer.collectives import broadcast_messages, reduce_messages

GRID = Machine(3, 4)
EAST = ((0, 0), (0, 1), (0, 2))


def test_routes_go_along_the_row_first():
    for start in ((r, c) for r in range(3) for c in range(4)):
        for end in ((r, c) for r in range(3) for c in range(4)):
            route = GRID.route(start, end)
            assert route[0] == start and route[-1] == end and len(route) == GRID.distance(start, end) + 1
            assert all(GRID.distance(*hop) == 1 for hop in GRID.hops(start, end))
    assert GRID.route((2, 3), (0, 1)) == ((2, 3), (2, 2), (2, 1), (1, 1), (0, 1))


def test_links_are_counted_both_ways():
    assert GRID.links == len(
        {
            hop
            for r in range(3)
            for c in range(4)
            for e in ((r, c + 1), (r + 1, c))
            if e in GRID
            for hop in (((r, c), e), (e, (r, c)))
        }
    )


@pytest.mark.parametrize(
    ("core", "told"),
    [
        ((3, 0), "Core (3, 0) is off the grid, which has rows 0 … 2 and columns 0 … 3."),
        ((0, -1), "Core (0, -1) is off the grid"),
        ((0, 1.0), "A core is (row, column), two whole numbers; (0, 1.0) is not."),
        ((True, 0), "A core is (row, column), two whole numbers; (True, 0) is not."),
        ("x", "A core is (row, column), two whole numbers; 'x' is not."),
        ((10**5000, 0), "Core a value of type tuple that cannot be printed is off the grid"),
    ],
    ids=["row", "column", "float", "bool", "text", "huge"],
)
def test_what_is_no_core_gets_a_sentence(core, told):
    assert GRID.why_not_a_core(core).startswith(told)
    assert core not in GRID
    with pytest.raises(ValueError):
        GRID.route((0, 0), core)


@pytest.mark.parametrize("change", [{"rows": 0}, {"columns": 2.0}, {"memory": 0}, {"ramp": -1}, {"clock": 0}])
def test_what_is_no_machine_gets_a_sentence(change):
    with pytest.raises(ValueError, match=f"A machine's {next(iter(change))}"):
        Machine(**{"rows": 2, "columns": 2} | change)


BROKEN = {
    "no list": (None, "A program is a list of messages; this is None."),
    "no message": ([3], "Message 0 is 3; it must be a Message."),
    "no route": ([Message((), 1)], "Message 0: its route is (); a route is at least two cores"),
    "off the grid": ([Message(((0, 3), (0, 4)), 1)], "Message 0: Core (0, 4) is off the grid"),
    "a jump": ([Message(((0, 0), (0, 2)), 1)], "Message 0: its route goes from (0, 0) to (0, 2), which are not neighbours."),  # noqa: E501
    "a loop": ([Message((*EAST, (0, 1)), 1)], "Message 0: its route passes core (0, 1) twice."),
    "no words": ([Message(EAST, 0)], "Message 0: it has 0 words; it needs a whole number, at least 1."),
    "half words": ([Message(EAST, 1.5)], "Message 0: it has 1.5 words"),
    "less work": ([Message(EAST, 1, work=-1)], "Message 0: its work is -1"),
    "adds": ([Message(EAST, 1, adds=2)], "Message 0: adds is 2; it must be True or False."),
    "drop elsewhere": ([Message(EAST, 1, drops=((1, 1), (0, 2)))], "Message 0: its drops are ((1, 1), (0, 2)); they must be"),  # noqa: E501
    "goes on": ([Message(EAST, 1, drops=((0, 1),))], "Message 0: its route goes on to (0, 2), which is not one of its drops."),  # noqa: E501
    "no tuple": ([Message(EAST, 1, waits=3)], "Message 0: waits is 3; it must be a tuple of numbers of messages."),
    "no such message": ([Message(EAST, 1, waits=(7,))], "Message 0: it waits for message 7; messages are numbered 0 … 0."),  # noqa: E501
    "itself": ([Message(EAST, 1, waits=(0,))], "Message 0: it waits for message 0, which does not arrive at its source (0, 0)."),  # noqa: E501
    "elsewhere": ([Message(EAST, 1), Message(EAST, 1, streams=(0,))], "Message 1: it waits for message 0, which does not"),  # noqa: E501
    "other words": ([Message(EAST, 2), Message(EAST[::-1], 1, streams=(0,))], "Message 1: it has 1 words and streams message 0, which has 2."),  # noqa: E501
    "twice": ([Message(EAST, 2), Message(EAST[::-1], 2, (0,), (0,))], "Message 1: it waits twice for one message."),
    "nothing to pass on": ([Message(EAST, 2, adds=False)], "Message 0: it passes words on as they are (adds=False), so it waits for"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_program_gets_a_sentence(name):
    messages, message = BROKEN[name]
    assert why_not_a_program(GRID, messages).startswith(message)
    with pytest.raises(ValueError):
        program(GRID, messages)


def test_a_line_on_every_column():
    p = on_lines(GRID, reduce_messages([-1, 0, 1], 5), range(4), 4)
    assert p.count == 8
    assert [p.name(i) for i in (0, 1)] == ["message 0, (2, 0) to (1, 0)", "message 1, (1, 0) to (0, 0)"]
    assert (p.child.tolist(), p.parent.tolist()) == ([1, 3, 5, 7], [0, 2, 4, 6])


def test_joined_programs_wait():
    row = on_lines(GRID, reduce_messages([-1, 0, 1, 2], 5), [0], 1)
    both = join(row, on_lines(GRID, broadcast_messages(4, 5), [0], 1))
    assert both.count == 4 and both.parent[both.child == 3].tolist() == [2]
    assert cost(both).depth == 4 and cost(both).distance == 6


def test_a_circle_has_no_cost():
    route, back = ((0, 0), (0, 1)), ((0, 1), (0, 0))
    with pytest.raises(ValueError, match="waits, in the end, for itself"):
        cost(program(GRID, [Message(route, 3, waits=(1,)), Message(back, 3, waits=(0,))]))
