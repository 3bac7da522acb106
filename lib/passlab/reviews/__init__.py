"""Short questions about what the days have taught, drawn anew each time, with answers that are computed.

    question = draw("dead-code", seed=7)
    print(question.text)
    question.right("mul")

A kind of question is a function of a random generator, under `@kind` in the module of its days. What it draws, it
prints: the text says all that an answer needs. `tests/reviews` computes each answer in a second way.

Reading order: questions (what a question is), schedule (when it is asked again), then a module for each area.
"""

from __future__ import annotations

from passlab.reviews.questions import KINDS, Kind, Question, draw, kinds_of
from passlab.reviews.schedule import Card, due

__all__ = ["KINDS", "Card", "Kind", "Question", "draw", "due", "kinds_of"]
