"""Day 11, search: the board on which an answer plays, and how a case is put to it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

from passlab.judge import Case


class Spent(RuntimeError):
    """The budget of evaluations is used up."""


class Board:
    """Tasks on a grid of cores. It tells what an exchange of two cores would change; each answer costs one evaluation.

    `rows`, `columns`: of the grid. `count`: tasks; they lie on cores of their own, the other cores are free. A core
    is a pair (row, column).
    """

    def __init__(
        self,
        words: Sequence[tuple[int, int, float]],
        start: Sequence[tuple[int, int]],
        rows: int,
        columns: int,
        budget: int,
    ):
        self.rows, self.columns, self.count = rows, columns, len(start)
        self._cores = list(itertools.product(range(rows), range(columns)))
        self._number = {core: number for number, core in enumerate(self._cores)}
        self._hops = [[abs(r - x) + abs(c - y) for x, y in self._cores] for r, c in self._cores]
        self._place = [self._number[tuple(core)] for core in start]  # of each task, by number
        self._task = [-1] * len(self._cores)
        for task, place in enumerate(self._place):
            self._task[place] = task
        self._words: list[list[tuple[int, float]]] = [[] for _ in start]
        for a, b, number in words:
            self._words[a].append((b, number))
            self._words[b].append((a, number))
        self._left = budget

    @property
    def left(self) -> int:
        """Return how many evaluations are left."""
        return self._left

    def cores(self) -> list[tuple[int, int]]:
        """Return the core of each task, as they are now."""
        return [self._cores[place] for place in self._place]

    def change(self, a: tuple[int, int], b: tuple[int, int]) -> float:
        """Return by how much words × hops would grow if the tasks on cores a and b changed places. Costs an evaluation.

        Either core may be free. Raises Spent if no evaluation is left, ValueError for a core off the grid.
        """
        p, q = self._of(a), self._of(b)
        if not self._left:
            raise Spent("all evaluations of the budget are used up; look at board.left")
        self._left -= 1
        if p == q:
            return 0
        return self._pull(p, q) + self._pull(q, p)

    def swap(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        """Exchange the tasks on two cores."""
        a, b = self._of(a), self._of(b)
        self._task[a], self._task[b] = self._task[b], self._task[a]
        for place in (a, b):
            if self._task[place] >= 0:
                self._place[self._task[place]] = place

    def _of(self, core: tuple[int, int]) -> int:
        """Return the number of a core."""
        number = self._number.get(core)
        if number is None:
            raise ValueError(f"core {core} is off the grid of {self.rows} rows and {self.columns} columns")
        return number

    def _pull(self, start: int, end: int) -> float:
        """Return the change for the task on `start` if it goes to `end`; words to the task on `end` change nothing."""
        task, other, total = self._task[start], self._task[end], 0
        if task < 0:
            return 0
        hops_a, hops_b, place = self._hops[start], self._hops[end], self._place
        for neighbour, number in self._words[task]:
            if neighbour != other:
                at = place[neighbour]
                total += number * (hops_b[at] - hops_a[at])
        return total


def call(answer: Callable, case: Case) -> list:
    """Give the answer one board after the other, each with random numbers of its own."""
    boards, budget, seed = case.build()
    return [answer(Board(*board, budget), random.Random(seed + k)) for k, board in enumerate(boards)]
