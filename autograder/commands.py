"""What the instructor's half adds to the `passlab` command: release, grade, prove."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from autograder import source
from autograder.grading import run_seed
from autograder.intake import Class, Damaged, Submission, collect, read, repair
from passlab.judge import VERDICTS

RUN = "autograder/run"
SAMPLES_RUN = f"{RUN}/samples"
COLUMNS = ("learner", "assignment", "question", "points", "max_points", "seed", "lost", "message")


def _fail(sentence: str) -> None:
    Console(stderr=True).print(sentence, soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1)


def _known() -> dict[str, set[str]]:
    from autograder.notebooks import assignments

    known = assignments()
    if not known:
        _fail("There is nothing to release: solutions/ holds no day with a notebook.")
    return known


def release() -> None:
    """Rebuild the notebooks and the learners' exercises from what is authored."""
    from autograder import notebooks

    _known()
    changed = notebooks.build()
    console = Console()
    for name in changed:
        console.print(f"wrote {name}", markup=False, highlight=False)
    console.print("exercises/ is up to date.")


def grade(
    submissions: Annotated[
        Path | None,
        typer.Argument(help="A folder laid out as learner/assignment/notebook.ipynb; else the sample class."),
    ] = None,
    assignment: Annotated[list[str] | None, typer.Option(help="Only this assignment (may be repeated).")] = None,
    jobs: Annotated[int, typer.Option(help="Notebooks graded at the same time; 0: one per core.")] = 0,
    roster: Annotated[
        Path | None, typer.Option(help="A file with one learner per line: others are not graded.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the hidden cases; else a new one.")] = None,
) -> None:
    """Grade a class: run every notebook, judge it, write feedback and grades.csv, and show who got what."""
    start = time.perf_counter()
    folder, run = _place(submissions)
    os.environ["PASSLAB_RUN"] = run
    os.environ["PASSLAB_SEED"] = str(run_seed() if seed is None else seed)
    known = _known()
    chosen = assignment or sorted(known)
    if unknown := [name for name in chosen if name not in known]:
        _fail(f"There is no assignment {', '.join(unknown)}. There are: {', '.join(sorted(known))}.")

    found = collect(folder, known)
    _against_roster(found, roster or folder / "roster.csv", must_exist=roster is not None)
    tasks = {key: s for key, s in found.submissions.items() if key[1] in chosen}
    if not tasks and not found.notes:
        _fail(
            f"{folder} holds no submission. Expected: learner/assignment/notebook.ipynb, "
            "for example ada/day01/graphs.ipynb."
        )

    from passlab.workspace import writable_home

    writable_home()
    results = _run(tasks, chosen, jobs)
    _write_csv(source.ROOT / run / "grades.csv", results)
    _show(found, tasks, results, chosen, known)
    _tail(run, len(tasks), results, time.perf_counter() - start)
    if not results or any(graded.failure for graded in results.values()):
        raise typer.Exit(1)


def _place(submissions: Path | None) -> tuple[Path, str]:
    """The folder to grade, and the folder, relative to the project, for all that comes of it."""
    if submissions is None:
        if "PASSLAB_RUN" not in os.environ:  # a gradebook of its own, and always a fresh one
            shutil.rmtree(source.ROOT / SAMPLES_RUN, ignore_errors=True)
        return source.ROOT / "autograder/samples", os.environ.get("PASSLAB_RUN", SAMPLES_RUN)
    if not submissions.is_dir():
        hint = " Unpack it first." if submissions.suffix in (".zip", ".gz", ".tar") else ""
        _fail(f"{submissions} is not a folder.{hint} Expected: a folder laid out as learner/assignment/notebook.ipynb.")
    return submissions.resolve(), os.environ.get("PASSLAB_RUN", RUN)


def _against_roster(found: Class, roster: Path, must_exist: bool) -> None:
    """Set aside the submissions of learners who are not on the roster, and name them."""
    if not roster.is_file():
        if must_exist:
            _fail(f"There is no roster {roster}.")
        return
    with roster.open(newline="", encoding="utf-8-sig") as lines:
        listed = {row[0].strip() for row in csv.reader(lines) if row and row[0].strip()}
    for key in [key for key in found.submissions if key[0] not in listed]:
        found.submissions.pop(key)
        found.note(key[0], f"{key[1]}: unknown learner, not in {roster.name}; not graded.")


def _hand_over(submission: Submission, submitted: Path) -> bool:
    """Write what is to be graded, repaired, where nbgrader looks for it. Is there anything?"""
    from nbformat import write

    from autograder.notebooks import source_notebook

    target = submitted / submission.learner / submission.assignment
    shutil.rmtree(target, ignore_errors=True)
    for name, path in submission.notebooks.items():
        try:
            nb = read(path)
        except Damaged as error:
            submission.notes.append(str(error))
            continue
        submission.notes += repair(nb, source_notebook(submission.assignment, name))
        target.mkdir(parents=True, exist_ok=True)
        write(nb, target / f"{name}.ipynb")
        stamp = path.with_name("timestamp.txt")
        if stamp.is_file() and not stamp.is_symlink():
            shutil.copy(stamp, target / "timestamp.txt")
    return target.exists()


def _run(tasks: dict[tuple[str, str], Submission], chosen: list[str], jobs: int) -> dict:
    """Grade the submissions, several at a time. (learner, assignment) → Graded, for those that could be read."""
    from autograder import notebooks
    from autograder.gradebook import Failed, enter_learners, enter_release, place, settings
    from autograder.runner import Graded

    if stale := notebooks.stale_solutions():
        _fail(f"{', '.join(stale)}: not what the .py beside it gives. Run `passlab release` first.")
    config = settings()
    try:
        enter_release(config, chosen)
    except Failed as error:
        _fail(
            f"The questions cannot be entered into the gradebook: {error}. If the notebooks changed "
            f"since the class was last graded, move {place(config)} aside and grade again."
        )
    submitted = source.ROOT / config.CourseDirectory.submitted_directory
    ready = [key for key, submission in tasks.items() if _hand_over(submission, submitted)]
    enter_learners(config, (learner for learner, _ in ready))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = max(1, min(jobs or cores, len(ready)))
    # Each notebook has its share of the cores; more threads than cores make everyone slower.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // jobs)))
    terminal = Console(stderr=True)
    columns = (TextColumn("Grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("", total=len(ready))
        results = _in_processes(ready, jobs, lambda: bar.advance(task))
        # Where a grading process was killed, the others of its pool went with it, and a gradebook on a slow disk may
        # have been busy for too long: each of these again, on its own.
        for key in [key for key in ready if key not in results or results[key].failure]:
            results |= _in_processes([key], 1, lambda: None)
            why = "the grading process was killed (out of memory?)"
            results.setdefault(key, Graded(*key, failure=why))
    return results


def _in_processes(keys: list[tuple[str, str]], jobs: int, done: Callable[[], None]) -> dict:
    """Grade submissions in `jobs` processes; those whose process was killed are not in the answer."""
    from autograder.runner import grade_quietly

    results = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(grade_quietly, key): key for key in keys}
        for future in as_completed(futures):
            with contextlib.suppress(BrokenProcessPool):
                results[futures[future]] = future.result()
                done()
    return results


def _write_csv(path: Path, results: dict) -> None:
    """One row for each learner × question, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    with fresh.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(COLUMNS)
        for (learner, assignment), graded in sorted(results.items()):
            for score in graded.scores:
                said = score.verdict
                lost = " ".join(v for v in VERDICTS if not said.get("verdicts", {}).get(v, True))
                points = "" if score.points is None else f"{score.points:g}"
                message = said.get("message", "") or score.error
                row = (
                    learner,
                    assignment,
                    score.question,
                    points,
                    f"{score.total:g}",
                    said.get("seed", ""),
                    lost,
                    message,
                )
                writer.writerow(row)
    fresh.replace(path)


def _questions(assignment: str, known: dict[str, set[str]]) -> dict[str, float]:
    """Question → points, in the order of the notebooks."""
    from autograder.notebooks import source_notebook

    metas = (
        c.metadata.get("nbgrader", {}) for n in sorted(known[assignment]) for c in source_notebook(assignment, n).cells
    )
    return {m["grade_id"].removesuffix("-check"): float(m["points"]) for m in metas if m.get("grade")}


def _show(found: Class, tasks: dict, results: dict, chosen: list[str], known: dict[str, set[str]]) -> None:
    """One table per assignment, learner × question; whatever has to be said about a learner stands in its row."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    learners_with_rows = set()
    for assignment in chosen:
        questions = _questions(assignment, known)
        rows = {learner: s for (learner, a), s in tasks.items() if a == assignment}
        if not rows:
            continue
        table = Table(title=assignment, title_justify="left", caption_justify="left")
        table.caption = "  ".join(f"{n} {name}" for n, name in enumerate(questions, 1))
        table.add_column("learner", overflow="fold")
        for number, points in enumerate(questions.values(), 1):
            table.add_column(f"{number}\n/{points:g}", justify="right")
        table.add_column(f"total\n/{sum(questions.values()):g}", justify="right", style="bold")
        table.add_column("note", overflow="fold")
        for learner, submission in sorted(rows.items()):
            learners_with_rows.add(learner)
            graded = results.get((learner, assignment))
            notes = [*found.notes.get(learner, ()), *submission.notes]
            if graded is None or graded.failure:
                notes += [f"Not graded: {graded.failure}"] if graded else []
                cells = ["–"] * (len(questions) + 1)
            else:
                scores = {score.question: score for score in graded.scores}
                notes += _died(graded.scores)
                points = [scores[q].points if q in scores else None for q in questions]
                cells = ["?" if p is None else f"{p:g}" for p in points] + [f"{sum(p or 0 for p in points):g}"]
            table.add_row(_safe(learner), *cells, _safe(" ".join(notes)))
        console.print(table)
    for learner, notes in sorted(found.notes.items()):
        if learner not in learners_with_rows:
            name = f"{_safe(learner)}: " if learner else ""
            console.print(f"{name}{_safe(' '.join(notes))}", highlight=False)


def _safe(text: str) -> str:
    """A learner's text in a table: no markup, no control characters."""
    from rich.markup import escape

    return escape("".join(ch if ch.isprintable() else "?" for ch in text))


def _died(scores: list) -> list[str]:
    """What a whole question was lost to, besides a wrong answer."""
    notes = []
    for score in scores:
        if score.error.startswith("KernelDied"):
            notes.append(f"{score.question}: {score.error.removeprefix('KernelDied: ')}")
        elif score.error and not score.verdict:
            notes.append(f"{score.question}: {score.error[:120]}")
    return notes


def _tail(run: str, handed_in: int, results: dict, seconds: float) -> None:
    console = Console(soft_wrap=True, highlight=False)
    graded = sum(not g.failure for g in results.values())
    unread = f" ({handed_in - len(results)} could not be read)" if handed_in > len(results) else ""
    console.print(f"Graded {graded} of {handed_in} submissions{unread} in {seconds:.0f} s.", markup=False)
    console.print(f"Grades:   {run}/grades.csv", markup=False)
    console.print(f"Feedback: {run}/feedback/<learner>/<assignment>/<notebook>.html", markup=False)
    if run != RUN:
        console.print(f"In formgrader: PASSLAB_RUN={run} make lab", markup=False)


def prove(
    exercise: Annotated[list[str] | None, typer.Option(help="Only this exercise (may be repeated).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    jobs: Annotated[int, typer.Option(help="Exercises proved at the same time; 0: one per core.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of the hidden cases.")] = 0,
) -> None:
    """Prove the checks: reference, stub, wrong and alternative answers must each get what they deserve."""
    from autograder import prove as proving

    raise typer.Exit(proving.main(exercise or [], json, jobs, seed))
