"""Item analysis: how well each question tells who knows the subject from who does not.

Points are counted as shares of a question's maximum. Learners without a grade for a question do not count there.
Sources: Lord and Novick, Statistical Theories of Mental Test Scores (1968), for the corrected item-total correlation;
Cronbach, Coefficient alpha and the internal structure of tests, Psychometrika 16 (1951).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import StatisticsError, correlation, fmean, pvariance
from typing import NamedTuple

from autograder.reports.exports import Row

#: Figures of fewer learners would be noise.
LEAST = 5


class Item(NamedTuple):
    """Figures of a question; None where too few learners have a grade, or all have the same.

    `discrimination`: the correlation of its points with those of the assignment's other core questions, −1 to 1; near 0
    or below, the question does not measure what the others do. `fifths`: the mean share of its points that learners
    have, from the fifth with the fewest points in the others to that with the most.
    """

    discrimination: float | None
    fifths: tuple[float, ...] | None


def analyse(rows: Iterable[Row]) -> dict[tuple[str, str], Item]:
    """Return (assignment, question) → its figures."""
    items = {}
    for assignment, table in _tables(rows).items():
        core = {question for question, row in table.items() if not row.stretch}
        for question in table:
            others = [name for name in core if name != question]
            items[assignment, question] = _item(table[question].shares, [table[name] for name in others])
    return items


def alpha(rows: Iterable[Row]) -> dict[str, float | None]:
    """Return assignment → Cronbach's alpha of its core questions, at most 1; None for fewer than two questions."""
    figures = {}
    for assignment, table in _tables(rows).items():
        core = [column for column in table.values() if not column.stretch]
        whole = (
            [learner for learner in core[0].shares if all(learner in column.shares for column in core)] if core else []
        )
        figures[assignment] = _alpha([[column.points(learner) for learner in whole] for column in core])
    return figures


class _Column(NamedTuple):
    """A question: the share of its maximum that each learner has."""

    stretch: bool
    most: float
    shares: dict[str, float]

    def points(self, learner: str) -> float:
        return self.most * self.shares[learner]


def _tables(rows: Iterable[Row]) -> dict[str, dict[str, _Column]]:
    tables: dict[str, dict[str, _Column]] = defaultdict(dict)
    for row in rows:
        if row.points is not None and row.max_points > 0:
            column = tables[row.assignment].setdefault(row.question, _Column(row.stretch, row.max_points, {}))
            column.shares[row.learner] = row.points / row.max_points
    return tables


def _item(shares: Mapping[str, float], others: Sequence[_Column]) -> Item:
    rest = {learner: sum(column.points(learner) for column in others if learner in column.shares) for learner in shares}
    if len(shares) < LEAST or not others:
        return Item(None, None)
    learners = sorted(shares, key=lambda learner: (rest[learner], learner))
    bounds = [round(len(learners) * fifth / 5) for fifth in range(6)]
    fifths = tuple(fmean(shares[learner] for learner in learners[low:high]) for low, high in itertools.pairwise(bounds))
    try:
        return Item(
            correlation([shares[learner] for learner in learners], [rest[learner] for learner in learners]), fifths
        )
    except StatisticsError:  # all have the same
        return Item(None, fifths)


def _alpha(columns: Sequence[Sequence[float]]) -> float | None:
    if len(columns) < 2 or len(columns[0]) < LEAST:
        return None
    total = pvariance([sum(points) for points in zip(*columns, strict=True)])
    if not total:
        return None
    return len(columns) / (len(columns) - 1) * (1 - sum(map(pvariance, columns)) / total)
