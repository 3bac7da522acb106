"""Hidden cases and answers of day11.matmul."""

from __future__ import annotations

import random

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day11.matmul import mesh
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    without = [2, 3, rng.choice([5, 6]), rng.choice([8, 10]), rng.choice([9, 11]), 12]
    return [*map(mesh, without), *(mesh(n, room=True) for n in (2, rng.choice([3, 4]), rng.choice([6, 7, 8, 9])))]


def broadcast(n, sides=2):
    """Steps in which the blocks of a column and of a row go to all others, or only to those on one side."""
    steps = []
    for k in range(n):
        step = []
        for side in (range(k - 1, -1, -1), range(k + 1, n))[:sides]:
            for i in range(n) if side else ():
                step.append(("A", (i, k), [(i, j) for j in side]))
                step.append(("B", (k, i), [(j, i) for j in side]))
        steps.append(step)
    return steps


def with_room(answer):
    """The answer without room, and broadcasts with it."""

    def both(n, room):
        return broadcast(n) if room else answer(n)

    both.__name__, both.__module__ = answer.__name__, answer.__module__
    return both


def _ring(order, back=-1, by=1):
    """Steps on a ring of cores: everything begins at the sum of its places and goes on by one place a step."""
    n = len(order)
    place = {core: p for p, core in enumerate(order)}
    cores = [(i, j) for i in range(n) for j in range(n)]
    first = []
    for i, j in cores:
        left, up = order[(place[j] - place[i]) % n], order[(place[i] - place[j]) % n]
        first += [("A", (i, j), (i, left))] * (left != j) + [("B", (i, j), (up, j))] * (up != i)
    turn = [("A", (i, j), (i, order[(place[j] + back * by) % n])) for i, j in cores]
    turn += [("B", (i, j), (order[(place[i] + back * by) % n], j)) for i, j in cores]
    return [first, *[turn] * (n - 1)]


# ---------------------------------------------------------------------------------------------------- answers


@right("the ring folded at the other end, and turned the other way round")
@with_room
def other_fold(n):
    order = [core for core in range(n) if core % 2][::1] + [core for core in range(n) if core % 2 == 0][::-1]
    return tuple(map(tuple, _ring(order, back=1)))


@right("follows every block by its k instead of its place")
@with_room
def followed(n):
    order = [*range(0, n, 2), *reversed(range(1, n, 2))]
    place = {core: p for p, core in enumerate(order)}
    where = {("A", i, k): (i, k) for i in range(n) for k in range(n)} | {
        ("B", k, j): (k, j) for k in range(n) for j in range(n)
    }
    steps = []
    for step in range(n):
        moves = []
        for (matrix, row, column), at in list(where.items()):
            if matrix == "A":
                goal = (row, order[(place[column] - place[row] - step) % n])
            else:
                goal = (order[(place[row] - place[column] - step) % n], column)
            if goal != at:
                moves.append((matrix, at, goal))
                where[matrix, row, column] = goal
        steps.append(moves)
    return steps


@wrong("cost", "Cannon's algorithm on a line: the last block of a row goes all the way back, or two cores a step")
@with_room
def cannon(n):
    return _ring(list(range(n)))


@wrong("did", "forgets to bring the blocks of A or B together in the first step, or takes a step too few or too many")
@with_room
def not_skewed(n):
    return [[], *_ring([*range(0, n, 2), *reversed(range(1, n, 2))])[1:]]


@wrong("valid", "a row of cores that goes round: off the grid at its end; or sends blocks that stay to their own core")
@with_room
def off_the_grid(n):
    return [[], *[[("A", (i, j), (i, j - 1)) for i in range(n) for j in range(n)]] * (n - 1)]


@wrong("valid", "broadcasts: a block goes to all cores of its row")
@with_room
def summa(n):
    return [
        [("A", (i, k), (i, j)) for i in range(n) for j in range(n) if j != k]
        + [("B", (k, j), (i, j)) for i in range(n) for j in range(n) if i != k]
        for k in range(n)
    ]


@wrong("cost", "with room, sends a block to each core in a message of its own: it crosses the first links again")
def one_by_one(n, room):
    if not room:
        return followed(n, room)
    return [
        [("A", (i, k), [(i, j)]) for i in range(n) for j in range(n) if j != k]
        + [("B", (k, j), [(i, j)]) for i in range(n) for j in range(n) if i != k]
        for k in range(n)
    ]


@wrong("did", "broadcasts to one side only")
def one_side(n, room):
    return broadcast(n, sides=1) if room else followed(n, room)


@wrong("valid", "with room, sends to the furthest core first")
def furthest_first(n, room):
    steps = broadcast(n) if room else followed(n, room)
    return [[(m, source, to[::-1]) for m, source, to in step] for step in steps] if room else steps


@wrong("valid", "hands blocks over where a broadcast is possible")
def never_room(n, room):
    return followed(n, False)


wrong_row = edited("did", "skews B by its row, as A")(
    ("ring[(place[i] - place[j]) % n]", "ring[(place[j] - place[i]) % n]")
)
