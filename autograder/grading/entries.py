"""The entries of a leaderboard: what learners' compilers return, measured against each other.

Everybody may see a board. Why an entry has no rank is told in these words only: an error's text is its learner's, who
could say anything there, of others too.

    board = collect(submissions, engine, "day12.compiler", seeds)
    race(board, ModelTimer())

Each compiler runs in the sandbox, on the same models for all, as in grading. The verifier says which of its results are
equivalent; only these are built and timed, all in turns.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from autograder.authoring import source
from autograder.authoring.notebooks import source_notebook
from autograder.engine.data import NotebookResult, Verdict
from autograder.engine.engine import AnswerRun, Engine
from autograder.grading import intake
from autograder.grading.intake import Submission
from autograder.grading.paper import read
from autograder.grading.recorder import digest

#: What an entry needs on every hidden case before it may race, and the verdict that tells a model from a trap.
_FIRST, _SAVES = {"valid", "same"}, "did"


ENDED = "Its compiler, or a cell above it, ended with an error: see its feedback."
NOT_READ = "It could not be read, or has no notebook of this exercise."
NOT_MEASURED = "Its program could not be built or run here, or gave other numbers than eager."


@dataclass
class Entry:
    """A learner's entry. `digest`: of the submission; `failure`: why there is nothing to measure, or "".

    `rows`: model → its row (see `timing.ModelTimer.run`), with the reason in `missing` where there are no figures.
    """

    learner: str
    digest: str = ""
    failure: str = ""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    arguments: dict[str, bytes] = field(default_factory=dict, repr=False)
    compiled: dict[str, bytes] = field(default_factory=dict, repr=False)


@dataclass
class Board:
    """All entries, and model → baseline → its row."""

    entries: list[Entry]
    baselines: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)


class Timer(Protocol):
    """The interface of `engine.timing.ModelTimer`."""

    def run(self, arguments: bytes, compiled: dict[str, bytes]) -> dict[str, dict[str, Any]]: ...


def collect(
    submissions: Iterable[Submission],
    engine: Engine,
    exercise: str,
    seeds: Iterable[int],
) -> Board:
    """Run every learner's compiler on the hidden models of some seeds. Whatever goes wrong with one is its failure."""
    entries = []
    for submission in submissions:
        entry = Entry(submission.learner, digest(submission))
        try:
            _collect(entry, submission, engine, exercise, seeds)
        except Exception as error:  # one submission must not cost the others their board
            entry.failure = f"It could not be run ({type(error).__name__})."
        entries.append(entry)
    return Board(entries)


def _collect(entry: Entry, submission: Submission, engine: Engine, exercise: str, seeds: Iterable[int]) -> None:
    place = source.find(exercise)
    paper = read(submission)
    if place.notebook not in paper.notebooks:
        entry.failure = NOT_READ
        return
    nb = paper.notebooks[place.notebook]
    authored = source_notebook(submission.assignment, place.notebook)
    for seed in seeds:
        job = intake.job(nb, authored, submission.learner, submission.assignment, place.notebook, seed)
        cells = tuple(cell for cell in job.cells if cell.exercise in ("", exercise))
        answers: dict[str, AnswerRun] = {}
        result = engine.grade(replace(job, cells=cells), answers)
        verdict = next((v for v in result.verdicts.values() if v.exercise == exercise), None)
        entry.failure = why_not_raced(result, verdict)
        if entry.failure or verdict is None:
            return
        sort_out(entry, verdict, answers[exercise])


def why_not_raced(result: NotebookResult, verdict: Verdict | None) -> str:
    """Return why a notebook has nothing to measure, or ""."""
    if verdict is None:
        return result.failure or "The notebook was not graded."
    if verdict.crash or not verdict.attempted:
        return ENDED if verdict.crash else "No compiler was written."
    hidden = [case for case in verdict.cases if case.hidden]
    wrong = sum(case.status != "ok" or bool(_FIRST & set(case.lost)) for case in hidden)
    return f"Not equivalent, or no result, on {wrong} of {len(hidden)} hidden graphs: speed does not count." * bool(
        wrong
    )


def sort_out(entry: Entry, verdict: Verdict, answered: AnswerRun) -> None:
    """Give an entry what its compiler returned for each hidden model, in addition to those it has.

    A family of the zoo is called by its name; other names would tell hidden cases.
    """
    for at, (case, about) in enumerate(zip(verdict.cases, answered.about, strict=False)):
        if case.hidden and (not about or _SAVES in about):
            family = case.name if case.name.isidentifier() else "graph"
            model = f"{family} {1 + sum(name.startswith(f'{family} ') for name in entry.arguments)}"
            entry.arguments[model], entry.compiled[model] = answered.arguments[at], answered.values[at]


def race(board: Board, timer: Timer, advance: Callable[[str], None] = lambda model: None) -> None:
    """Measure all equivalent results, model by model, and fill the rows of the board. Raises timing.TimingError."""
    racing = [entry for entry in board.entries if not entry.failure]
    for model, arguments in {name: data for entry in racing for name, data in entry.arguments.items()}.items():
        taking_part = [entry for entry in racing if model in entry.compiled]
        # By number: the process that measures learns no names.
        rows = timer.run(arguments, {str(at): entry.compiled[model] for at, entry in enumerate(taking_part)})
        for at, entry in enumerate(taking_part):
            row = rows.pop(str(at))
            measured = not row["missing"] and row["seconds"] and row["ratio"] and row["spread"] is not None
            entry.rows[model] = row if measured else dict.fromkeys(row) | {"missing": NOT_MEASURED}
        board.baselines[model] = rows
        advance(model)


# What is kept between two boards


@dataclass
class Records:
    """What the leaderboards of a class remember. It says who is who, so only the instructor may read it.

    `salt`: of the pseudonyms; `names`: learner → pseudonym; `withdrawn`: learners who do not want to take part;
    `races`: of each board, learner → what stood there.
    """

    salt: str = ""
    names: dict[str, str] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)
    races: list[dict[str, Any]] = field(default_factory=list)


def load(path: Path) -> Records:
    """Read what is kept, or begin anew with a fresh salt. Raises ValueError for a file that is something else."""
    if not path.exists():
        return Records(secrets.token_hex(32))
    try:
        return msgspec.json.decode(path.read_bytes(), type=Records)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} cannot be read ({error}). Move it away: pseudonyms will then change.") from None


def save(path: Path, records: Records) -> None:
    """Write what is kept, for the owner's eyes only; at any moment the file is the complete old or new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.touch(0o600)
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(asdict(records))))
    fresh.replace(path)
