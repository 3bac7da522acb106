"""Item analysis, compared with figures that were worked out by other formulas or by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from autograder.reports.exports import Row
from autograder.reports.items import LEAST, alpha, analyse
from autograder.reports.report import Facts, report


def rows(table: dict[str, list[float | None]], most: float = 4, stretch: tuple[str, ...] = ()) -> list[Row]:
    """The rows of a class: question → the points of each learner."""
    return [
        Row(f"l{n:02}", "day01", question, points, most, stretch=question in stretch)
        for question, column in table.items()
        for n, points in enumerate(column)
    ]


def test_discrimination_is_the_correlation_with_the_rest():
    rng = random.Random(3)
    table = {name: [float(rng.randrange(5)) for _ in range(30)] for name in "abc"}
    items = analyse(rows(table))
    for name in "abc":
        others = np.sum([table[other] for other in "abc" if other != name], axis=0)
        assert items["day01", name].discrimination == pytest.approx(np.corrcoef(table[name], others)[0, 1])


def test_a_question_that_only_the_best_miss_has_a_negative_discrimination():
    good = [4.0, 4, 3, 2, 1, 0, 0]
    items = analyse(rows({"a": good, "b": good, "odd": good[::-1]}))
    assert items["day01", "a"].discrimination is None, "the others sum up to the same for all"
    assert items["day01", "odd"].discrimination == pytest.approx(np.corrcoef(good, good[::-1])[0, 1])


def test_fifths_go_from_the_weakest_to_the_strongest():
    level = [float(n // 2) for n in range(10)]
    items = analyse(rows({"a": level, "b": level}))
    assert items["day01", "a"].fifths == (0, 0.25, 0.5, 0.75, 1)


def test_extra_credit_is_compared_with_the_core_and_the_core_not_with_it():
    level = [0.0, 1, 2, 3, 4]
    items = analyse(rows({"a": level, "b": level[::-1], "more": level}, stretch=("more",)))
    assert items["day01", "a"].discrimination == pytest.approx(-1)
    assert items["day01", "more"].discrimination is None, "a and b add up to the same for all"


def test_alpha_of_a_published_example():
    # Two parallel halves: alpha is the Spearman-Brown formula, 2 r / (1 + r), if their variances are equal.
    first, second = [1.0, 2, 3, 4, 5], [2.0, 1, 4, 3, 5]
    r = np.corrcoef(first, second)[0, 1]
    assert alpha(rows({"a": first, "b": second}, most=5))["day01"] == pytest.approx(2 * r / (1 + r))
    assert alpha(rows({"a": first, "b": first}, most=5))["day01"] == pytest.approx(1)


def test_too_few_learners_or_questions_and_missing_grades_have_no_figure():
    few = [float(n) for n in range(LEAST - 1)]
    assert analyse(rows({"a": few, "b": few}))["day01", "a"] == (None, None)
    assert alpha(rows({"a": few, "b": few})) == {"day01": None} == alpha(rows({"a": [1.0, 2, 3, 4, 0]}))
    assert alpha(rows({"a": [2.0] * 6, "b": [1.0] * 6})) == {"day01": None}
    assert alpha([]) == analyse([]) == {}
    waiting = rows({"a": [0.0, 1, 2, 3, 4, None], "b": [0.0, 1, 2, 3, 4, 4]})
    assert math.isclose(analyse(waiting)["day01", "a"].discrimination, 1)
    assert math.isclose(alpha(waiting)["day01"], 1)


def test_the_report_has_the_figures():
    level = [0.0, 1, 2, 3, 4]
    page = report(rows({"a": level, "b": level}), [], Facts())
    assert ">1.00<" in page and "reliability 1.00" in page and "0, 25, 50, 75 and 100 %" in page
