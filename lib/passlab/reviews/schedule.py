"""When a kind of question is asked again: SM-2.

P. A. Woźniak, "Optimization of repetition spacing in the practice of learning", University of Technology in Poznań,
1990. Grades run from 0 to 5 there; a right answer is a 4 and a wrong one a 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

#: Grades for a right and a wrong answer.
RIGHT, WRONG = 4, 2
#: Seconds in a day.
DAY = 86_400


@dataclass(frozen=True)
class Card:
    """What is known of one skill. streak: right answers in a row. days: until it is asked again. ease: the factor by
    which that grows. due: when it is asked again, in seconds since 1970."""

    streak: int = 0
    days: float = 0
    ease: float = 2.5
    due: float = 0

    def after(self, grade: int, now: float) -> Card:
        """Return the card after an answer with this grade, 0 to 5."""
        ease = max(1.3, self.ease + 0.1 - (5 - grade) * (0.08 + (5 - grade) * 0.02))
        if grade < 3:
            return Card(0, 1, ease, now + DAY)
        days = (1, 6)[self.streak] if self.streak < 2 else self.days * ease
        return replace(self, streak=self.streak + 1, days=days, ease=ease, due=now + days * DAY)


def due(names: Iterable[str], cards: Mapping[str, Card], now: float) -> str | None:
    """Return what to ask next: of what is due, the longest overdue; else what was never asked; None if all can wait."""
    names = list(names)
    waiting = [name for name in names if name in cards and cards[name].due <= now]
    fresh = [name for name in names if name not in cards]
    return min(waiting, key=lambda name: cards[name].due) if waiting else next(iter(fresh), None)
