"""The four verbs of an exercise notebook: `check`, `hint`, `solution`, `progress`."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable
from typing import Any

from passlab import exercises
from passlab.judge import MEANING, Exercise, Judgement, judge
from passlab.notebook.cells import questions, unmarked
from passlab.notebook.project import load_progress, remember, root

_INK, _GOOD, _BAD, _REST = "#1b1f24", "#00684a", "#b3420d", "#6a737d"
_CARD = (
    f"font-family:system-ui,sans-serif;color:{_INK};background:#fff;border:1px solid #d0d7de;border-radius:8px;"
    "padding:10px 14px;max-width:56em;overflow-x:auto"
)


class Card:
    """Something a notebook shows as HTML and a terminal as text."""

    def __init__(self, text: str, body: str):
        self.text, self.html = text, f'<div style="{_CARD}">{body}</div>'

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def in_notebook() -> bool:
    """Does this code run in an IPython shell? (Where it does, IPython is loaded; elsewhere it stays unloaded.)"""
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def show(card: Any) -> None:
    """Display in a notebook; print elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(card)
    else:
        print(card)


def say(sentence: str) -> Card:
    """One sentence as a card."""
    return Card(sentence, html.escape(sentence))


def _grey(text: str) -> str:
    return f'<span style="color:{_REST}">{html.escape(text)}</span>'


def _number(value: float) -> str:
    return f"{value:g}"


def _find(name: str) -> Exercise | None:
    try:
        return exercises.find(name)
    except KeyError as error:
        show(say(error.args[0]))
        return None


def picture(result: Judgement):
    """The failed finding's graphs, drawn: their difference if there are two. None if they are too big to help."""
    from passlab.drawing import diff, draw
    from passlab.graph import Graph, view

    finding = result.failure
    graphs = [g if isinstance(g, Graph) else view(g) for g in (finding.before, finding.after) if g is not None]
    if not graphs or max(len(g.nodes) for g in graphs) > 40:
        return None
    return diff(*graphs) if len(graphs) == 2 else draw(graphs[0], mark=finding.mark)


def _chip(verdict: str, held: bool, points: float) -> str:
    sign, colour, word = ("✓", _GOOD, "held") if held else ("✗", _BAD, "not held")
    style = "display:inline-block;margin:2px 6px 2px 0;padding:1px 9px;border-radius:11px;white-space:nowrap;"
    style += f"color:{colour};border:1.5px solid {colour}"
    title = f"{MEANING[verdict]}: {word}"
    return f'<span title="{title}" style="{style}">{sign} {verdict} <small>{_number(points)}</small></span>'


def report(result: Judgement, *, draw: Callable[[Judgement], Any] = picture) -> Card:
    """A judgement as a card: points, the verdicts, one sentence, and the small graph that shows it.

    `draw` gives the picture of what failed (anything with `text` and `svg`), or None.
    """
    exercise, finding = result.exercise, result.failure
    if not result.attempted:
        return say(f"{exercise.title}: not written yet. hint({exercise.id!r}) opens the first hint.")
    points = f"{_number(result.points)} of {_number(result.total)} points"
    lines = [f"{exercise.title}: {points}"]
    for verdict, held in result.verdicts.items():
        lines.append(f"  {'✓' if held else '✗'} {verdict:<7}{MEANING[verdict]} ({_number(exercise.points[verdict])})")
    chips = "".join(_chip(verdict, held, exercise.points[verdict]) for verdict, held in result.verdicts.items())
    colour = _GOOD if result.ok else _BAD
    body = f'<b>{html.escape(exercise.title)}</b><b style="float:right;color:{colour}">{points}</b>'
    body += f'<div style="margin:6px 0">{chips}</div>'
    if finding is not None and finding.message:
        where = f" On the case “{finding.case}”." if finding.case else ""
        lines.append(f"{finding.message}{where}")
        body += f"<div>{html.escape(finding.message)}{_grey(where)}</div>"
        try:
            drawn = draw(result)
        except Exception as error:  # a picture must never cost the verdict
            drawn = None
            result.notes.append(f"The graph could not be drawn: {type(error).__name__}: {str(error)[:120]}")
        if drawn is not None:
            lines.append(drawn.text)
            shown = drawn.svg or f"<pre>{html.escape(drawn.text)}</pre>"
            body += f'<div style="overflow-x:auto;margin-top:6px">{shown}</div>'
    for note in result.notes:
        lines.append(note)
        body += f"<div>{_grey(note)}</div>"
    return Card("\n".join(lines), body)


def check(name: str, answer: Callable) -> None:
    """Judge your answer on the visible cases, show the verdicts, and remember the points.

    >>> check("day03.cse", cse)
    """
    exercise = _find(name)
    if exercise is None:
        return
    result = judge(exercise, answer)
    if result.attempted:
        attempts = load_progress().get(exercise.id, {}).get("attempts", 0) + 1
        remember(exercise.id, points=result.points, total=result.total, attempts=attempts)
    show(report(result))
    if os.environ.get("NBGRADER_VALIDATING") and not result.ok:  # nbgrader validate asks by way of errors
        raise AssertionError(f"{exercise.id}: {_number(result.points)} of {_number(result.total)} points")


def hint(name: str) -> None:
    """Open the next hint of an exercise; the ones already open are shown with it."""
    exercise = _find(name)
    if exercise is None:
        return
    opened = min(load_progress().get(exercise.id, {}).get("hints", 0) + 1, len(exercise.hints))
    remember(exercise.id, hints=opened, total=exercise.total)
    shown = exercise.hints[:opened]
    if left := len(exercise.hints) - opened:
        tail = f"{left} more: call hint({exercise.id!r}) again."
    else:
        tail = f"That was the last one; solution({exercise.id!r}) shows an answer."
    listed = "".join(f"<li>{html.escape(text)}</li>" for text in shown)
    body = f'<b>{html.escape(exercise.title)}</b><ol style="margin:4px 0">{listed}</ol>{_grey(tail)}'
    show(Card("\n".join([*(f"{n}. {text}" for n, text in enumerate(shown, 1)), tail]), body))


def solution(name: str) -> None:
    """Show one right answer, where this copy of the course holds the solutions."""
    exercise = _find(name)
    if exercise is None:
        return
    home = root()
    path = home / "solutions" / exercise.day / f"{exercise.notebook}.py" if home else None
    question = questions(path.read_text(encoding="utf-8")).get(exercise.id) if path and path.is_file() else None
    if question:
        code, where = unmarked(question.answer.text).strip(), f"From {path.relative_to(home)}"
        return show(Card(f"{code}\n\n# {where}", f"<pre>{html.escape(code)}</pre>{_grey(where)}"))
    show(say(f"This copy of the course holds no solution of {exercise.id}."))


def _status(entry: dict | None, total: float) -> tuple[str, str, str]:
    """(sign, word, colour): not attempted, wrong so far, partly right, done."""
    if not entry or not entry.get("attempts"):
        return "·", "not attempted", _REST
    if entry["points"] >= total:
        return "✓", "done", _GOOD
    return ("◐", "partly right", _INK) if entry["points"] else ("✗", "not right yet", _BAD)


def progress(day: str | None = None) -> None:
    """Show days × exercises with the points reached so far; with a day ("day03"), its exercises with their details."""
    if day is not None and day not in exercises.days():
        return show(say(f"There is no {day!r}. The days are {', '.join(exercises.days())}."))
    record = load_progress()
    lines, rows, got, of = [], [], 0.0, 0.0
    for each in [day] if day else exercises.days():
        for exercise in exercises.of_day(each):
            entry = record.get(exercise.id)
            sign, word, colour = _status(entry, exercise.total)
            points = float(entry["points"]) if entry else 0.0
            got, of = got + points, of + exercise.total
            level = "●" * exercise.difficulty + "○" * (5 - exercise.difficulty)
            score = f"{_number(points)} / {_number(exercise.total)}"
            lines.append(
                f"{sign} {exercise.id:<24}{exercise.title:<44}{level}  {exercise.minutes:>3} min  {score:>8}  {word}"
            )
            cells = [html.escape(c) for c in (exercise.id, exercise.title, level, f"{exercise.minutes} min", score)]
            cells.append(f'<span style="color:{colour}">{sign} {word}</span>')
            rows.append(
                "".join(
                    f'<td style="text-align:left;white-space:nowrap;padding:2px 12px 2px 0">{cell}</td>'
                    for cell in cells
                )
            )
    tail = f"{_number(got)} of {_number(of)} points"
    lines.append(tail)
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    show(Card("\n".join(lines), f'<table style="border-collapse:collapse">{table}</table><b>{tail}</b>'))
