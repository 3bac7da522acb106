"""Day 11, search: the board on which an answer plays, and how a case is put to it."""

from __future__ import annotations

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
        self._place = [tuple(core) for core in start]
        self._task = {core: task for task, core in enumerate(self._place)}
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
        """Return the core of each task, as they lie now."""
        return list(self._place)

    def change(self, a: tuple[int, int], b: tuple[int, int]) -> float:
        """Return by how much words × hops would grow if the tasks on cores a and b changed places. Costs an evaluation.

        Either core may be free. Raises Spent if no evaluation is left, ValueError for a core off the grid.
        """
        for core in (a, b):
            self._check(core)
        if not self._left:
            raise Spent("all evaluations of the budget are used up; look at board.left")
        self._left -= 1
        return self._pull(a, b) + self._pull(b, a)

    def swap(self, a: tuple[int, int], b: tuple[int, int]) -> None:
        """Exchange the tasks on two cores."""
        for core in (a, b):
            self._check(core)
        here, there = self._task.pop(a, None), self._task.pop(b, None)
        for task, core in ((here, b), (there, a)):
            if task is not None:
                self._task[core], self._place[task] = task, core

    def _check(self, core: tuple[int, int]) -> None:
        row, column = core
        if not (0 <= row < self.rows and 0 <= column < self.columns):
            raise ValueError(f"core {core} is off the grid of {self.rows} rows and {self.columns} columns")

    def _pull(self, start: tuple[int, int], end: tuple[int, int]) -> float:
        """Return the change for the task on `start` if it goes to `end`; words to the task on `end` change nothing."""
        task, other = self._task.get(start), self._task.get(end)
        if task is None or start == end:
            return 0
        (r, c), (u, v), total = start, end, 0
        for neighbour, number in self._words[task]:
            if neighbour != other:
                x, y = self._place[neighbour]
                total += number * (abs(u - x) + abs(v - y) - abs(r - x) - abs(c - y))
        return total


def call(answer: Callable, case: Case) -> list:
    """Give the answer one board after the other, each with random numbers of its own."""
    boards, budget, seed = case.build()
    return [answer(Board(*board, budget), random.Random(seed + k)) for k, board in enumerate(boards)]
