"""The tables that grading prints: scores, and changes of scores."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from autograder.authoring import source
from autograder.authoring.samples import reference_text
from autograder.grading.intake import ClassWork, Submission
from autograder.grading.paper import marks, question, total
from autograder.grading.scores import Difference, Key, Score
from passlab import exercises

if TYPE_CHECKING:
    from autograder.grading.paper import GradedSubmission

#: The most submissions a table shows: longer ones are hard to read in a terminal, and the report has all.
MOST_ROWS = 200
#: The most characters of a note in a table.
SHORT_NOTE = 160


def safe(text: str) -> str:
    """Return a learner's text for a table: no markup, no control characters."""
    return escape("".join(ch if ch.isprintable() else "?" for ch in text))


def brief(notes: Sequence[str]) -> str:
    """Return the first of the notes on a learner, cut, and how many more there are: the report has them in full."""
    if not notes:
        return ""
    first = notes[0] if len(notes[0]) <= SHORT_NOTE else f"{notes[0][:SHORT_NOTE]}…"
    return f"{first} (and {len(notes) - 1} more in the report)" if len(notes) > 1 else first


def _questions(assignment: str, known: dict[str, set[str]]) -> dict[str, float]:
    """Return question → maximum points, in the order of the notebooks; 0 where all points are extra credit."""
    from autograder.authoring.notebooks import source_notebook

    metas = (
        c.metadata.get("nbgrader", {}) for n in sorted(known[assignment]) for c in source_notebook(assignment, n).cells
    )
    return {question(m["grade_id"]): float(m["points"]) for m in metas if m.get("grade")}


def no_evidence(assignments: Iterable[str]) -> dict[str, list[str]]:
    """Return exercise → answers that are not evidence of copying: the stub and the reference."""
    texts: dict[str, list[str]] = {}
    for assignment in assignments:
        for exercise, place in source.places(assignment).items():
            name = exercises.whole(exercise)
            texts[name] = [source.blank(place.answer.text), reference_text(place)]
    return texts


def line(paper: GradedSubmission) -> str:
    """Return one line about a submission that has been graded: learner, assignment, points, seconds."""
    owner = ", ".join("".join(ch if ch.isprintable() else "?" for ch in part) for part in paper.key)
    if paper.failure or not paper.results:
        return f"{owner}: not graded"
    all_marks = [marks(nb, paper.results[name]) for name, nb in paper.notebooks.items()]
    sums = (sum(getattr(each, part) for each in all_marks) for part in ("core", "most", "extra", "most_extra"))
    waiting = sum(mark.most for each in all_marks for mark in each.points.values() if mark.points is None)
    by_hand = f", {waiting:g} to be graded by hand" if waiting else ""
    return f"{owner}: {total(*sums)}{by_hand}, {sum(r.seconds for r in paper.results.values()):.1f} s"


def show(
    classwork: ClassWork,
    tasks: Mapping[Key, Submission],
    scores: Mapping[Key, list[Score]],
    failures: Mapping[Key, str],
    chosen: list[str],
    known: dict[str, set[str]],
) -> None:
    """Print one table per assignment, learner × question, with the notes on each learner in the last column."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    with_rows = set()
    for assignment in chosen:
        rows = {learner: s for (learner, a), s in sorted(tasks.items()) if a == assignment}
        if not rows:
            continue
        questions = _questions(assignment, known)
        table = Table(title=assignment, title_justify="left", caption_justify="left")
        table.caption = "  ".join(f"{n} {name}" for n, name in enumerate(questions, 1))
        table.add_column("learner", overflow="fold")
        for number, points in enumerate(questions.values(), 1):
            table.add_column(f"{number}\n/{points:g}" if points else f"{number}\nextra", justify="right")
        table.add_column(f"core\n/{sum(questions.values()):g}", justify="right", style="bold")
        most_extra = sum(exercises.extra_credit(f"{assignment}.{name}") for name in questions)
        if most_extra:
            table.add_column(f"extra\n/{most_extra:g}", justify="right", style="bold")
        table.add_column("note", overflow="fold")
        for learner, submission in list(rows.items())[:MOST_ROWS]:
            with_rows.add(learner)
            notes = [*classwork.notes.get(learner, ()), *submission.notes]
            score_of = {score.question: score for score in scores.get((learner, assignment), ())}
            if (learner, assignment) in failures or not score_of:
                reason = failures.get((learner, assignment), "nothing was recorded")
                if reason not in (" ".join(submission.notes), *submission.notes):
                    notes.append(f"Not graded: {reason}")
                cells = ["–"] * (len(questions) + 1 + bool(most_extra))
            else:
                notes += [f"{score.question}: {score.error}" for score in score_of.values() if score.error]
                earned = [score_of[q].points if q in score_of else None for q in questions]
                core, extra = (
                    sum(s.points or 0 for s in score_of.values() if s.stretch is part) for part in (False, True)
                )
                cells = ["?" if p is None else f"{p:g}" for p in earned] + [f"{core:g}"]
                cells += [f"{extra:g}"] if most_extra else []
            table.add_row(safe(learner), *cells, safe(brief(notes)))
        console.print(table)
        if len(rows) > MOST_ROWS:
            console.print(f"… and {len(rows) - MOST_ROWS} more in the report.")
    for learner, notes in sorted(classwork.notes.items()):
        if learner not in with_rows:
            name = f"{safe(learner)}: " if learner else ""
            console.print(f"{name}{safe(brief(notes))}", highlight=False)


def changes(differences: list[Difference]) -> Table:
    """Return a table with the old and new points of each question that changes."""
    table = Table(title="What changes", title_justify="left")
    for column in ("learner", "assignment", "question"):
        table.add_column(column, justify="left", overflow="fold")
    for column in ("old", "new", "of"):
        table.add_column(column, justify="right")
    table.add_column("why", overflow="fold")
    for change in differences:
        verdict = change.new and change.new.verdict
        reason = (verdict.crash or verdict.message) if verdict else (change.new.error if change.new else "")
        old, new = (_points(score) for score in (change.old, change.new))
        score = change.new or change.old
        assert score, "a difference has a score on one side"
        total = score.total
        table.add_row(*map(safe, (change.learner, change.assignment, change.question, old, new, f"{total:g}", reason)))
    return table


def _points(score: Score | None) -> str:
    if score is None:
        return "–"
    return "?" if score.points is None else f"{score.points:g}"
