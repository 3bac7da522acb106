"""Hidden cases and answers of day11.search."""

from __future__ import annotations

import math
import random
import statistics

from autograder.authoring.answers import SEED_BITS, right, wrong
from passlab.exercises.day11.search import search_case, travelled
from passlab.given.day11.search import Board
from passlab.judge import Case

#: What a quarter of the budget has to gain on a case: more than the bar, which is 1.27. Where it gains less, the bar
#: may be near the best that there is, and luck decides: at 1.24, a plain annealing over the whole grid got 1.26.
SHORT, ROOM = 25_000, 1.29


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    while _gained(number := rng.getrandbits(SEED_BITS)) < ROOM:
        pass
    return [search_case("three boards, drawn", number)]


def _gained(number: int) -> float:
    """Return by how much a short search beats the greedy placement on the boards of a case."""
    boards, *_ = search_case("", number).build()
    ratios = []
    for words, start, rows, columns in boards:
        cores = annealing(Board(words, start, rows, columns, SHORT), random.Random(0))
        ratios.append(travelled(words, start) / travelled(words, cores))
    return statistics.geometric_mean(ratios)


EQUIVALENT = {
    (
        "r + rng.randint(-reach, reach), 0",
        "r + rng.randint(-reach, reach), 1",
    ): "cores at the edge still come first in a pair",
    ("board.rows - 1", "board.rows - 2"): "cores at the edge still come first in a pair",
    (
        "c + rng.randint(-reach, reach), 0",
        "c + rng.randint(-reach, reach), 1",
    ): "cores at the edge still come first in a pair",
    ("board.columns - 1", "board.columns - 2"): "cores at the edge still come first in a pair",
    ("abs(...(*...))", "...(*...)"): "about as hot: the bar decides",
    ("sum(... for _ in range(100)) / 100", "sum(... for _ in range(100)) / 101"): "about as hot: the bar decides",
    ("max(board.rows, ...)", "min(board.rows, ...)"): "about as far: the bar decides",
    ("1, round(...)", "2, round(...)"): "about as far: the bar decides",
    ("max(1, ...)", "min(1, ...)"): "about as far: the bar decides",
    ("c + rng.randint(-reach, reach)", "c - rng.randint(-reach, reach)"): "a drawn step and its opposite are as likely",
    ("r + rng.randint(-reach, reach)", "r - rng.randint(-reach, reach)"): "a drawn step and its opposite are as likely",
    ("0, -change / heat", "1, -change / heat"): "what is certain is certain anyway",
    ("rng.random() < ...", "rng.random() <= ..."): "a drawn number is never exactly that one",
    ("now = lowest = 0", "now = lowest = 1"): "the first placement is left at once",
    ("best = board.cores()", "pass"): "the search finds a better one",
    ("now < lowest", "True"): "the last placement is nearly the best, for the heat falls",
    ("now < lowest", "now <= lowest"): "of two placements with the same traffic either will do",
}


# ---------------------------------------------------------------------------------------------------- answers


def _cores(board):
    return [(r, c) for r in range(board.rows) for c in range(board.columns)]


def _annealed(board, rng, first=1.0, last=0.003, evaluations=None, keep_best=True):
    """Annealing over the whole grid."""
    cores, end = _cores(board), board.left - (evaluations or board.left)
    usual = sum(abs(board.change(*rng.sample(cores, 2))) for _ in range(100)) / 100
    total, current, low, best = board.left - end, 0, 0, board.cores()
    while board.left > end:
        heat = first * usual * last ** (1 - (board.left - end) / total)
        a, b = rng.sample(cores, 2)
        change = board.change(a, b)
        if change < 0 or rng.random() < math.exp(-change / heat):
            board.swap(a, b)
            current += change
            if current < low:
                low, best = current, board.cores()
    return best if keep_best else board.cores()


@right("annealing over the whole grid, with a straight end")
def annealing(board, rng):
    return _annealed(board, rng)


@right("threshold accepting: whatever is not much worse is taken, with no random choice")
def threshold(board, rng):
    cores = _cores(board)
    usual = sum(abs(board.change(*rng.sample(cores, 2))) for _ in range(100)) / 100
    total, current, low, best = board.left, 0, 0, board.cores()
    while board.left:
        limit = 0.7 * usual * (0.004 ** (1 - board.left / total))
        a, b = rng.sample(cores, 2)
        change = board.change(a, b)
        if change < limit:
            board.swap(a, b)
            current += change
            if current < low:
                low, best = current, board.cores()
    return tuple(best)


@wrong("did", "returns the start")
def as_it_was(board, rng):
    return board.cores()


@wrong("cost", "only exchanges that help: stuck in the first valley")
def descent(board, rng):
    cores = _cores(board)
    while board.left:
        a, b = rng.sample(cores, 2)
        if board.change(a, b) < 0:
            board.swap(a, b)
    return board.cores()


@wrong("cost", "only exchanges of neighbours, and only those that help")
def neighbours(board, rng):
    while board.left:
        r, c = rng.randrange(board.rows), rng.randrange(board.columns)
        x, y = rng.choice([(r + 1, c), (r, c + 1)])
        if x < board.rows and y < board.columns and board.change((r, c), (x, y)) < 0:
            board.swap((r, c), (x, y))
    return board.cores()


@wrong("did", "never cools, or stops after two thousand evaluations: a random walk")
def never_cools(board, rng):
    return _annealed(board, rng, last=1.0, keep_best=False)


@wrong("did", "takes changes for the worse for gains, or with the wrong sign in the exponent")
def uphill(board, rng):
    cores = _cores(board)
    while board.left:
        a, b = rng.sample(cores, 2)
        if board.change(a, b) > 0:
            board.swap(a, b)
    return board.cores()


@wrong("valid", "does not look at what is left, and asks once too often")
def over_budget(board, rng):
    cores = _cores(board)
    for _ in range(board.left + 1):
        a, b = rng.sample(cores, 2)
        if board.change(a, b) < 0:
            board.swap(a, b)
    return board.cores()


@wrong("valid", "draws cores off the grid")
def off_the_grid(board, rng):
    r, c = rng.randrange(board.rows), rng.randrange(board.columns)
    board.change((r, c), (r + board.rows, c))
    return board.cores()
