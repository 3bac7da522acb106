"""`review`, `answer` and `fast_track`: short questions about past days, and the test before a day."""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from passlab import exercises
from passlab import reviews as questions
from passlab.judge.words import plural
from passlab.notebook import ui
from passlab.notebook.project import load, load_progress, review_file, save, skipped_days
from passlab.reviews.schedule import DAY, RIGHT, WRONG, Card

#: Questions of a fast track, and how many of them have to be right.
LENGTH, ENOUGH = 5, 4


@dataclass
class _Session:
    """The questions that are still to be answered, the first of them shown. track: the day of a fast track, or ""."""

    track: str = ""
    queue: list[tuple[questions.Kind, questions.Question]] = field(default_factory=list)
    right: int = 0


_session = _Session()


def review(*days: str) -> None:
    """Ask a question of these days ("day03"), or of those that are begun; `answer` answers it.

    Kinds of question that were answered wrongly come back on the next day, others after longer and longer times (SM-2).
    """
    global _session
    chosen = list(days) or _begun()
    if unknown := [day for day in chosen if not questions.kinds_of(day)]:
        return ui.show(ui.say(f"No questions for {unknown[0]!r}.{_written(unknown[0])}"))
    cards = {name: Card(**entry["card"]) for name, entry in load(review_file()).items() if "card" in entry}
    name = questions.due([each.name for each in questions.kinds_of(*chosen)], cards, time.time())
    if name is None:
        soonest = min(cards[each.name].due for each in questions.kinds_of(*chosen))
        wait = max(1, round((soonest - time.time()) / DAY))
        return ui.show(ui.say(f"Nothing to review: the next question is due in {plural(wait, 'day')}."))
    _left()
    _session = _Session("", [_drawn(questions.KINDS[name])])
    _show()


def fast_track(day: str) -> None:
    """Begin the test before a day, "day03": five questions, about ten minutes. Four right answers, and you may go on
    with the next day; `progress()` shows it."""
    global _session
    kinds = questions.kinds_of(day)
    if not kinds:
        return ui.show(ui.say(f"No fast track for {day!r}.{_written(day)}"))
    order = random.sample(kinds, len(kinds))
    _left()
    _session = _Session(day, [_drawn(order[i % len(order)]) for i in range(LENGTH)])
    _show()


def answer(value: Any) -> None:
    """Answer the question that is shown: a number, the number of a choice, or names ("add mul")."""
    if not _session.queue:
        return ui.show(ui.say("No question is open. review() asks one."))
    kind, question = _session.queue[0]
    try:
        right = question.right(value)
    except ValueError as error:
        return ui.show(ui.say(str(error)))
    _session.queue.pop(0)
    _session.right += right
    _remember(kind, right)
    lead = "Right." if right else f"No: {question.told}."
    tail = "" if _session.track else "review() asks the next question."
    ui.show(ui.Card(f"{lead} {question.why} {tail}".strip(), "guessed", lead=lead, text=question.why, tail=tail))
    if _session.queue:
        _show()
    elif _session.track:
        _finish(_session.track, _session.right)


def _written(day: Any) -> str:
    """Return how days are written, unless this is one."""
    return "" if day in exercises.days() else " Days are written 'day03'."


def _left() -> None:
    """Say that a fast track in the middle is left for what is asked now."""
    if _session.track and _session.queue:
        ui.show(ui.say(f"You leave the fast track of {_session.track}. fast_track({_session.track!r}) begins it anew."))


def _begun() -> list[str]:
    """Return the days of which an exercise was checked or the fast track passed; without any, the first day."""
    checked = {name.partition(".")[0] for name, entry in load_progress().items() if entry.get("attempts")}
    days = checked | set(skipped_days())
    return [day for day in exercises.days() if day in days and questions.kinds_of(day)] or ["day01"]


def _drawn(kind: questions.Kind) -> tuple[questions.Kind, questions.Question]:
    return kind, questions.draw(kind.name, random.SystemRandom().randrange(2**32))


def _show() -> None:
    """Show the first question that is open."""
    kind, question = _session.queue[0]
    title = f"{kind.title} · {kind.day}"
    if _session.track:
        title = f"{LENGTH - len(_session.queue) + 1} of {LENGTH}: {title}"
    lines = [title, question.text, *(f"  {i}. {choice}" for i, choice in enumerate(question.choices, 1)), question.form]
    drawn = None
    if question.picture is not None:
        from passlab.drawing import draw

        drawn = draw(question.picture)
    facts = {"title": title, "text": question.text, "choices": question.choices, "tail": question.form, "drawn": drawn}
    ui.show(ui.Card("\n".join(lines), "question", **facts))


def _remember(kind: questions.Kind, right: bool) -> None:
    """Move the card of a kind of question."""
    record = load(review_file())
    card = Card(**record.get(kind.name, {}).get("card", {})).after(RIGHT if right else WRONG, time.time())
    record[kind.name] = {"card": asdict(card)}
    save(review_file(), record)


def _finish(day: str, right: int) -> None:
    """Show and remember how a fast track ended. One that was passed stays passed."""
    record = load(review_file())
    passed = right >= ENOUGH
    record[day] = {"right": right, "passed": passed or record.get(day, {}).get("passed", False)}
    save(review_file(), record)
    advice = "You may go on with the next day." if passed else f"Take {day} first; its lesson explains these questions."
    ui.show(ui.say(f"{right} of {LENGTH} right. {advice}"))
