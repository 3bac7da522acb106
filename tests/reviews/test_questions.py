"""Each kind of question: its answer is computed a second time, on many draws; the text says all that is needed."""

from __future__ import annotations

import pytest

from passlab import exercises
from passlab.reviews import KINDS, Question, draw, kinds_of
from tests.reviews.second import SECOND
from tests.support.amounts import FULL

NAMES = [kind.name for kind in kinds_of()]
#: Draws of each kind.
DRAWS = 1000 if FULL else 40


def test_every_day_has_kinds_and_every_kind_a_second_computation():
    assert len(NAMES) >= 40
    assert {kind.day for kind in KINDS.values()} == set(exercises.days())
    assert SECOND.keys() == KINDS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_that_of_a_second_computation(name):
    answers = set()
    for seed in range(DRAWS):
        question = draw(name, seed)
        answers.add(question.told)
        shown = Question(question.text, 0, "", question.choices)
        assert SECOND[name](shown) == question.answer, f"seed {seed}:\n{question.text}"
    assert len(answers) > 1, "every draw has the same answer"
