"""The verbs of an exercise notebook: `check`, `hint`, `smaller`, `solution`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from passlab import exercises
from passlab.judge import MEANING, WORDS, Exercise, Judgement, judge
from passlab.notebook.cells import questions, unmarked
from passlab.notebook.others import others
from passlab.notebook.project import count_check, load_progress, remember, root

#: A learner whose check failed this often is offered a smaller version of the question.
STUCK = 3
#: A failure with more nodes than this is drawn in groups, and with more than that, not at all.
_READABLE, _DRAWN = 40, 1000


@cache
def templates() -> Any:
    """Load `templates/cards.html`: its macros make the HTML of the cards, and escape every text put into them."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    return environment.get_template("cards.html").module


class Card:
    """Something shown as HTML in a notebook and as text in a terminal. `macro`: of `templates()`, makes the HTML."""

    def __init__(self, text: str, macro: str, /, **facts: Any):
        self.text, self._macro, self._facts = text, macro, facts

    @cached_property
    def html(self) -> str:
        return str(getattr(templates(), self._macro)(**self._facts))

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def in_notebook() -> bool:
    """Return whether this code runs in an IPython shell, without importing IPython."""
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
    """Return one sentence as a card."""
    return Card(sentence, "sentence", text=sentence)


def _number(value: float) -> str:
    return f"{value:g}"


def _find(name: str) -> Exercise | None:
    try:
        return exercises.find(name)
    except KeyError as error:
        show(say(error.args[0]))
        return None


def picture(result: Judgement):
    """Return the failed finding's graphs, drawn: the difference if there are two. None if too big to help.

    More nodes than a reader takes in are drawn in groups, those that changed or are marked by themselves.
    """
    from passlab.drawing import diff, draw
    from passlab.drawing.boxes import LIMIT
    from passlab.graph import view
    from passlab.graph.registry import part

    finding = result.failure
    if finding is None:
        return None
    graphs = [  # an IR with pictures of its own draws itself, unless nodes are marked
        g if part(g, "picture") and not finding.mark else view(g)
        for g in (finding.before, finding.after)
        if g is not None
    ]
    nodes = max((len(view(g).nodes) for g in graphs), default=0)
    if not 0 < nodes <= _DRAWN:
        return None
    if nodes > _READABLE:
        graphs = [view(g) for g in graphs]
    limit = _READABLE if nodes > _READABLE else LIMIT
    return diff(*graphs, limit=limit) if len(graphs) == 2 else draw(graphs[0], mark=finding.mark, limit=limit)


def report(result: Judgement, *, draw: Callable[[Judgement], Any] = picture) -> Card:
    """Return a judgement as a card: points, the verdicts, one message, and the small graph that shows it.

    `draw` returns the picture of the failure (anything with `text` and `svg`), or None.
    """
    exercise, finding = result.exercise, result.failure
    if not result.attempted:
        return say(f"{exercise.title}: not written yet. hint({exercise.id!r}) opens the first hint.")
    points = f"{_number(result.points)} of {_number(result.total)} points"
    meanings = {**MEANING, **exercise.meaning}
    verdicts = [(WORDS[v], ok, meanings[v], _number(exercise.points[v])) for v, ok in result.verdicts.items()]
    lines = [f"{exercise.title}: {points}"]
    for word, ok, meaning, worth in verdicts:
        lines.append(f"  {'✓' if ok else '✗'} {word:<11}{meaning} ({worth})")
    where, drawn = "", None
    if finding is not None and finding.message:
        where = f" On the case “{finding.case}”." if finding.case else ""
        lines.append(f"{finding.message}{where}")
        try:
            drawn = draw(result)
        except Exception as error:  # a picture must never cost the verdict
            result.notes.append(f"The graph could not be drawn: {type(error).__name__}: {str(error)[:120]}")
        if drawn is not None:
            lines.append(drawn.text)
    lines += result.notes
    facts = {"result": result, "points": points, "verdicts": verdicts, "where": where, "drawn": drawn}
    return Card("\n".join(lines), "judgement", **facts)


def check(name: str, answer: Callable) -> None:
    """Judge your answer on the visible cases, show the verdicts, and remember the points.

    >>> check("day03.cse", cse)

    Raises AssertionError for missing points under `nbgrader validate`, which goes by exceptions.
    """
    exercise = _find(name)
    if exercise is None:
        return
    try:
        result = judge(exercise, answer)
    except exercises.Withheld as withheld:
        return show(say(str(withheld)))
    if result.attempted:
        attempts = count_check(exercise.id, result.points, result.total)
        result.notes += _advice(result, attempts)
    show(report(result))
    if os.environ.get("NBGRADER_VALIDATING") and not result.ok:  # nbgrader validate goes by exceptions
        raise AssertionError(f"{exercise.id}: {_number(result.points)} of {_number(result.total)} points")


def _advice(result: Judgement, attempts: int) -> Iterator[str]:
    """Yield what to do next after a failed check: the hint that helps and, after `STUCK` checks, less to do."""
    exercise = result.exercise
    verdict = result.failure.verdict if result.failure else ""
    if number := exercise.helps.get(verdict):
        yield f"Hint {number} is about this: hint({exercise.id!r}, {number})."
    if exercise.smaller and attempts >= STUCK and not result.ok:
        yield f"Stuck? smaller({exercise.id!r}) shows a smaller version of this question."
    if result.ok and not exercises.is_core(exercise.id):  # whose other answers are those of the whole question
        for other in others(exercise.id)[:1]:
            yield f"Another right answer: solution({exercise.id!r}, other=1). What differs: {other.note}."


def smaller(name: str, answer: Callable | None = None) -> None:
    """Show the smaller version of an exercise or, with an answer, judge it on that version's cases. It gives no points.

    >>> smaller("day04.linear-act", fuse_linear_act)
    """
    exercise = _find(name)
    if exercise is None:
        return
    call = f"smaller({exercise.id!r}, …)"
    if not exercise.smaller:
        show(say(f"{exercise.id} has no smaller version. hint({exercise.id!r}) opens the next hint."))
    elif answer is None:
        show(say(f"{exercise.smaller} Check it with {call}; what you have then is a start for the whole question."))
    else:
        titled = replace(exercise, title=f"{exercise.title}, the smaller version")
        try:
            result = judge(titled, answer, exercise.smaller_cases())
        except exercises.Withheld as withheld:
            return show(say(str(withheld)))
        result.notes.append(f"These points do not count. The whole question: check({exercise.id!r}, …).")
        show(report(result))


def hint(name: str, number: int | None = None) -> None:
    """Open the next hint of an exercise, or all up to `number`, and show it below those already open."""
    exercise = _find(name)
    if exercise is None:
        return
    count = load_progress().get(exercise.id, {}).get("hints", 0)
    opened = min(max(count, number or count + 1), len(exercise.hints))
    remember(exercise.id, hints=opened, total=exercise.total)
    shown = exercise.hints[:opened]
    if left := len(exercise.hints) - opened:
        tail = f"{left} more: call hint({exercise.id!r}) again."
    else:
        tail = f"That was the last one; solution({exercise.id!r}) shows an answer."
    text = "\n".join([*(f"{n}. {text}" for n, text in enumerate(shown, 1)), tail])
    show(Card(text, "hints", title=exercise.title, shown=shown, tail=tail))


def solution(name: str, *, other: int = 0, anyway: bool = False) -> None:
    """Show one right answer, if this copy of the course has the solutions; with `other`, one unlike it (from 1 on).

    Asks for one attempt before, a call of `check`, unless it is to be shown `anyway`.
    """
    exercise = _find(name)
    if exercise is None:
        return
    card = _other(exercise.id, other) if other else _solution(exercise)
    tried = load_progress().get(exercise.id, {}).get("attempts")
    if card and not (tried or anyway):
        call = f"solution({exercise.id!r}, {f'other={other}, ' if other else ''}anyway=True)"
        card = say(f"Try it once before: check({exercise.id!r}, …) judges your answer. To read one now: {call}.")
    show(card or say(f"This copy of the course has no {'such ' if other else ''}solution for {exercise.id}."))


def _solution(exercise: Exercise) -> Card | None:
    home = root()
    path = home / "solutions" / exercise.day / f"{exercise.notebook}.py" if home else None
    question = questions(path.read_text(encoding="utf-8")).get(exercise.id) if path and path.is_file() else None
    if not (home and path and question):
        return None
    code, where = unmarked(question.answer.text).strip(), f"From {path.relative_to(home)}"
    return Card(f"{code}\n\n# {where}", "solution", code=code, where=where)


def _other(exercise_id: str, number: int) -> Card | None:
    """Return another right answer as a card; None where there is none of this number, counted from 1."""
    answers = others(exercise_id)
    if not 1 <= number <= len(answers):
        return None
    note, code = answers[number - 1]
    where = f"{number} of {len(answers)} other right answers. What differs: {note}."
    if number < len(answers):
        where += f" The next: solution({exercise_id!r}, other={number + 1})."
    return Card(f"{code}\n\n# {where}", "solution", code=code, where=where)
